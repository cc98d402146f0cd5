"""ElectLeaders (key 43), v0-2: elect the preferred replicas, or any live replica, as leaders (KIP-183, KIP-460).

v1 the type of the election, and an error for the whole request; v2 flexible. Without a list of partitions the election
is held for all, and the response leaves out those that do not need one. Requires ALTER on the cluster.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from raylog.controller.elections import ElectionType, elect_leaders
from raylog.core.errors import ErrorCode, KafkaError
from raylog.core.ids import TopicPartition
from raylog.protocol.messages.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
    TopicPartitions,
)
from raylog.security.acl import CLUSTER, Operation

if TYPE_CHECKING:
    from raylog.controller.services import ControllerServices
    from raylog.transport.exchange import Exchange


def handle(controller: ControllerServices, exchange: Exchange, request: ElectLeadersRequest) -> ElectLeadersResponse:
    image = controller.image
    topics = request.topic_partitions
    if topics is None:
        topics = tuple(
            TopicPartitions(topic=topic.name, partitions=tuple(range(len(topic.partitions))))
            for topic in image.topics.values()
        )
    wanted = [TopicPartition(topic.topic, number) for topic in topics for number in topic.partitions]
    try:
        controller.authorization.check(exchange, Operation.ALTER, CLUSTER)
        outcome = elect_leaders(image, wanted, _election_type(request))
        results = controller.decide(outcome, exchange.now)
    except KafkaError as error:
        return refused(request, error)
    if request.topic_partitions is None:
        results = {tp: code for tp, code in results.items() if code != ErrorCode.ELECTION_NOT_NEEDED}
    return ElectLeadersResponse(replica_election_results=tuple(_results_of(topic, results) for topic in topics))


def refused(request: ElectLeadersRequest, error: KafkaError) -> ElectLeadersResponse:
    """The response that rejects the whole request, with the error for each partition in it."""
    return ElectLeadersResponse(
        error_code=error.code,
        replica_election_results=tuple(
            ReplicaElectionResult(
                topic=topic.topic,
                partition_result=tuple(
                    PartitionResult(partition_id=number, error_code=error.code, error_message=error.message)
                    for number in topic.partitions
                ),
            )
            for topic in request.topic_partitions or ()
        ),
    )


def _election_type(request: ElectLeadersRequest) -> ElectionType:
    try:
        return ElectionType(request.election_type)
    except ValueError:
        message = f"Election type {request.election_type} is unknown."
        raise KafkaError(ErrorCode.INVALID_REQUEST, message) from None


def _results_of(topic: TopicPartitions, results: Mapping[TopicPartition, ErrorCode]) -> ReplicaElectionResult:
    codes = ((number, results.get(TopicPartition(topic.topic, number))) for number in topic.partitions)
    return ReplicaElectionResult(
        topic=topic.topic,
        partition_result=tuple(
            PartitionResult(
                partition_id=number, error_code=code, error_message=None if code == ErrorCode.NONE else code.sentence
            )
            for number, code in codes
            if code is not None
        ),
    )
