"""What the controller decides, and any broker may be asked for.

CreateTopics (19), DeleteTopics (20), CreateAcls (30), DeleteAcls (31), AlterConfigs (33), CreatePartitions (37),
ElectLeaders (43), IncrementalAlterConfigs (44), AlterPartitionReassignments (45), ListPartitionReassignments (46),
DescribeQuorum (55), UnregisterBroker (64).

The request is handed on as it came (KIP-590), and once more where its answer was lost with the connection, as in
Kafka: a client may be told that a topic exists which it has itself just created. Principal and host of the client go
with it, and the controller looks whether it has the right. The answer goes to the client once this broker's own image
holds what has been decided. The versions are those of `raylog.controller.handlers`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from raylog.controller.handlers import (
    alter_configs,
    alter_partition_reassignments,
    create_acls,
    create_partitions,
    create_topics,
    delete_acls,
    delete_topics,
    describe_quorum,
    elect_leaders,
    incremental_alter_configs,
    list_partition_reassignments,
    unregister_broker,
)
from raylog.core.errors import ErrorCode, KafkaError
from raylog.protocol.messages.alter_configs import AlterConfigsRequest, AlterConfigsResponse
from raylog.protocol.messages.alter_partition_reassignments import AlterPartitionReassignmentsRequest
from raylog.protocol.messages.create_acls import CreateAclsRequest
from raylog.protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
)
from raylog.protocol.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse
from raylog.protocol.messages.delete_acls import DeleteAclsRequest
from raylog.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from raylog.protocol.messages.describe_quorum import DescribeQuorumRequest
from raylog.protocol.messages.elect_leaders import ElectLeadersRequest
from raylog.protocol.messages.envelope import EnvelopeRequest, EnvelopeResponse
from raylog.protocol.messages.incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from raylog.protocol.messages.list_partition_reassignments import ListPartitionReassignmentsRequest
from raylog.protocol.messages.unregister_broker import UnregisterBrokerRequest
from raylog.security.principal import encode_host, encode_principal
from raylog.transport.request import ANSWERED_LATER, AnsweredLater

if TYPE_CHECKING:
    from raylog.broker.broker import Broker
    from raylog.core.clock import Now
    from raylog.transport.request import RequestContext

FORWARD_MS_MAX = 20_000
"""Shorter than the 30 s that clients wait for an answer."""


def handle(broker: Broker, context: RequestContext, request: Any) -> AnsweredLater:
    envelope = EnvelopeRequest(
        request_data=bytes(context.frame),
        request_principal=encode_principal(context.client.principal),
        client_host_address=encode_host(context.client.host),
    )
    deadline_ms = context.now.monotonic_ms + FORWARD_MS_MAX
    link = broker.lifecycle.link

    def ask(now: Now) -> None:
        link.request(envelope, answered, failed, now=now, timeout_ms=deadline_ms - now.monotonic_ms)

    def answered(response: EnvelopeResponse, now: Now) -> None:
        if response.error_code == ErrorCode.NOT_CONTROLLER:  # nothing was done; who is active is being found out
            link.break_off()
            ask(now)
        elif response.error_code != ErrorCode.NONE or response.response_data is None:
            failed(KafkaError(response.error_code), now)
        else:
            answer = bytes(response.response_data)
            broker.follower.catch_up(link, lambda _: context.reply_encoded(answer), now)

    def failed(error: KafkaError, now: Now) -> None:
        if error.code == ErrorCode.NETWORK_EXCEPTION and now.monotonic_ms < deadline_ms:
            ask(now)
            return
        code = ErrorCode.REQUEST_TIMED_OUT if error.code == ErrorCode.NETWORK_EXCEPTION else error.code
        context.reply(_refuse(request, KafkaError(code, f"The controller gives no answer: {error.message}")))

    ask(context.now)
    return ANSWERED_LATER


def _refuse(request: Any, error: KafkaError) -> Any:
    match request:
        case CreateTopicsRequest():
            return CreateTopicsResponse(topics=tuple(create_topics.refused(topic, error) for topic in request.topics))
        case DeleteTopicsRequest():
            refused = (delete_topics.refused(name, topic_id, error) for name, topic_id in delete_topics.wanted(request))
            return DeleteTopicsResponse(responses=tuple(refused))
        case CreatePartitionsRequest():
            results = (create_partitions.refused(topic, error) for topic in request.topics)
            return CreatePartitionsResponse(results=tuple(results))
        case CreateAclsRequest():
            return create_acls.refused(request, error)
        case DeleteAclsRequest():
            return delete_acls.refused(request, error)
        case AlterConfigsRequest():
            return AlterConfigsResponse(
                responses=tuple(
                    alter_configs.refused(each.resource_type, each.resource_name, error) for each in request.resources
                )
            )
        case IncrementalAlterConfigsRequest():
            return IncrementalAlterConfigsResponse(
                responses=tuple(
                    incremental_alter_configs.refused(each.resource_type, each.resource_name, error)
                    for each in request.resources
                )
            )
        case DescribeQuorumRequest():
            return describe_quorum.refused(error)
        case ElectLeadersRequest():
            return elect_leaders.refused(request, error)
        case AlterPartitionReassignmentsRequest():
            return alter_partition_reassignments.refused(request, error)
        case ListPartitionReassignmentsRequest():
            return list_partition_reassignments.refused(error)
        case UnregisterBrokerRequest():
            return unregister_broker.refused(error)
    raise TypeError(f"{type(request).__name__} is not forwarded")
