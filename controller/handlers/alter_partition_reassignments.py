"""AlterPartitionReassignments (key 45), v0-1: move replicas to other brokers, or cancel such a move (KIP-455).

v1 lets the client forbid a change of the replication factor (KIP-860). Each partition is processed separately: an error
for one does not affect the others. Requires ALTER on the cluster.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from raylog.controller import reassignments
from raylog.controller.elections import TopicRule
from raylog.core.errors import ErrorCode, KafkaError
from raylog.core.ids import TopicPartition
from raylog.core.outcome import Outcome
from raylog.metadata.records import MetadataRecord
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

DECIDED_TOGETHER_MAX: Final = 500
"""Partitions whose changes are written at once: to write them one by one takes most of the time of a large request."""


def handle(
    controller: ControllerServices, exchange: Exchange, request: AlterPartitionReassignmentsRequest
) -> AlterPartitionReassignmentsResponse:
    try:
        controller.authorization.check(exchange, Operation.ALTER, CLUSTER)
    except KafkaError as error:
        return refused(request, error)
    answers = iter(_alter(controller, exchange, request))
    return AlterPartitionReassignmentsResponse(
        allow_replication_factor_change=request.allow_replication_factor_change,
        responses=tuple(
            ReassignableTopicResponse(
                name=topic.name,
                partitions=tuple(_answer(each, next(answers)) for each in topic.partitions),
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
    controller: ControllerServices, exchange: Exchange, request: AlterPartitionReassignmentsRequest
) -> list[KafkaError | None]:
    """An error or None for each partition, in the order of the request.

    Several partitions are decided together. One that is named again is decided on the result of the first.
    """
    results: dict[int, KafkaError | None] = {}
    records: list[MetadataRecord] = []
    together: dict[TopicPartition, int] = {}
    allows_unclean = controller.allows_unclean

    def decide() -> None:
        error = None
        try:
            controller.decide(Outcome(None, tuple(records)), exchange.now)
        except KafkaError as failed:
            error = failed
        results.update(dict.fromkeys(together.values(), error))
        records.clear()
        together.clear()

    wanted = [
        (TopicPartition(topic.name, each.partition_index), each)
        for topic in request.topics
        for each in topic.partitions
    ]
    for number, (tp, partition) in enumerate(wanted):
        if tp in together or len(together) == DECIDED_TOGETHER_MAX:
            decide()
        try:
            records += _decided(controller, request, tp, partition, allows_unclean).records
        except KafkaError as error:
            results[number] = error
        else:
            together[tp] = number
    decide()
    return [results[number] for number in range(len(wanted))]


def _decided(
    controller: ControllerServices,
    request: AlterPartitionReassignmentsRequest,
    tp: TopicPartition,
    wanted: ReassignablePartition,
    allows_unclean: TopicRule,
) -> Outcome[None, MetadataRecord]:
    if wanted.replicas is None:
        return reassignments.cancel(controller.image, tp, allows_unclean)
    may_change = request.allow_replication_factor_change
    return reassignments.reassign(controller.image, tp, wanted.replicas, may_change_replication_factor=may_change)


def _answer(wanted: ReassignablePartition, error: KafkaError | None) -> ReassignablePartitionResponse:
    if error is None:
        return ReassignablePartitionResponse(partition_index=wanted.partition_index, error_code=ErrorCode.NONE)
    return ReassignablePartitionResponse(
        partition_index=wanted.partition_index, error_code=error.code, error_message=error.message
    )
