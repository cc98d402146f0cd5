"""AlterPartitionReassignments (key 45), v0-1: move replicas to other brokers, or cancel such a move (KIP-455).

v1 lets the client forbid a change of the replication factor (KIP-860). Each partition is processed separately: an error
for one does not affect the others. Requires ALTER on the cluster.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from raylog.controller import reassignments
from raylog.core.errors import ErrorCode, KafkaError
from raylog.core.ids import TopicPartition
from raylog.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)
from raylog.security.acl import CLUSTER, Operation

if TYPE_CHECKING:
    from raylog.controller.services import ControllerServices
    from raylog.transport.exchange import Exchange


def handle(
    controller: ControllerServices, exchange: Exchange, request: AlterPartitionReassignmentsRequest
) -> AlterPartitionReassignmentsResponse:
    try:
        controller.authorization.check(exchange, Operation.ALTER, CLUSTER)
    except KafkaError as error:
        return refused(request, error)
    return AlterPartitionReassignmentsResponse(
        allow_replication_factor_change=request.allow_replication_factor_change,
        responses=tuple(
            ReassignableTopicResponse(
                name=topic.name,
                partitions=tuple(_alter(controller, exchange, request, topic.name, each) for each in topic.partitions),
            )
            for topic in request.topics
        ),
    )


def refused(request: AlterPartitionReassignmentsRequest, error: KafkaError) -> AlterPartitionReassignmentsResponse:
    """The response that rejects the whole request, with the error for each partition in it."""
    return AlterPartitionReassignmentsResponse(
        allow_replication_factor_change=request.allow_replication_factor_change,
        error_code=error.code,
        error_message=error.message,
        responses=tuple(
            ReassignableTopicResponse(
                name=topic.name, partitions=tuple(_answer(each, error) for each in topic.partitions)
            )
            for topic in request.topics
        ),
    )


def _alter(
    controller: ControllerServices,
    exchange: Exchange,
    request: AlterPartitionReassignmentsRequest,
    topic: str,
    wanted: ReassignablePartition,
) -> ReassignablePartitionResponse:
    image = controller.image
    tp = TopicPartition(topic, wanted.partition_index)
    try:
        if wanted.replicas is None:
            outcome = reassignments.cancel(image, tp, controller.allows_unclean)
        else:
            may_change = request.allow_replication_factor_change
            outcome = reassignments.reassign(image, tp, wanted.replicas, may_change_replication_factor=may_change)
        controller.decide(outcome, exchange.now)
    except KafkaError as error:
        return _answer(wanted, error)
    return ReassignablePartitionResponse(partition_index=wanted.partition_index, error_code=ErrorCode.NONE)


def _answer(wanted: ReassignablePartition, error: KafkaError) -> ReassignablePartitionResponse:
    return ReassignablePartitionResponse(
        partition_index=wanted.partition_index, error_code=error.code, error_message=error.message
    )
