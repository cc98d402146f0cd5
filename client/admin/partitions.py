"""Partitions: their offsets, producers and leaders, deletion of records, and reassignments. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import IntEnum
from typing import Any, NamedTuple, TypeVar

from raylog.client.admin.calls import CONTROLLER, Answer, Call, Leader, Steps, ask, joined, partitions_in
from raylog.client.consumer.offset_lookup import OffsetAndTimestamp
from raylog.client.consumer.positions import list_offsets as offsets_request
from raylog.core.errors import ErrorCode, KafkaError
from raylog.core.ids import TopicPartition, by_topic
from raylog.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from raylog.protocol.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from raylog.protocol.messages.describe_producers import DescribeProducersRequest, TopicRequest
from raylog.protocol.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from raylog.protocol.messages.list_offsets import ListOffsetsRequest
from raylog.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsTopics,
)

Partition = TypeVar("Partition", bound=tuple[str, int])
"""A TopicPartition, or a tuple like it."""


class OffsetSpec(IntEnum):
    """Timestamps that stand for an offset; others are milliseconds, and mean the first record at or after them."""

    LATEST = -1
    EARLIEST = -2
    MAX_TIMESTAMP = -3


class ElectionType(IntEnum):
    """An unclean election may choose a replica that lacks committed records."""

    PREFERRED = 0
    UNCLEAN = 1


class ProducerState(NamedTuple):
    """A producer that has written to a partition. None: no transaction, or not known."""

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_timestamp_ms: int
    coordinator_epoch: int | None
    current_txn_start_offset: int | None


class PartitionReassignment(NamedTuple):
    """A reassignment in progress: all replicas, and those that come and go."""

    replicas: tuple[int, ...]
    adding_replicas: tuple[int, ...]
    removing_replicas: tuple[int, ...]


def list_offsets(
    timestamps: Mapping[Partition, OffsetSpec | int], *, read_committed: bool = False, timeout: float | None = None
) -> Steps[dict[TopicPartition, OffsetAndTimestamp]]:
    """The offset at each timestamp; -1 if there is none. With `read_committed`, of those below the last stable one."""
    partitions_in(timestamps)
    wanted = {TopicPartition(*each): int(timestamp) for each, timestamp in timestamps.items()}
    for tp, timestamp in wanted.items():
        if timestamp < OffsetSpec.MAX_TIMESTAMP:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"{tp}: {timestamp} is not a timestamp")

    def request(items: Sequence[TopicPartition], _: int) -> ListOffsetsRequest:
        return offsets_request({tp: wanted[tp] for tp in items}, committed=read_committed)

    def read(response: Any, _: Sequence[TopicPartition]) -> Iterator[Answer]:
        for topic in response.topics:
            for each in topic.partitions:
                found = OffsetAndTimestamp(each.offset, each.timestamp, each.leader_epoch)
                yield Answer(TopicPartition(topic.name, each.partition_index), found, each.error_code)

    found = yield Call(_by_leader(wanted), str, request, read)
    return found.checked()


def delete_records(
    offsets: Mapping[Partition, int], *, timeout: float | None = None
) -> Steps[dict[TopicPartition, int]]:
    """Delete the records before these offsets, or before the high watermark (-1). Returns the new first offsets."""
    partitions_in(offsets)
    wanted = {TopicPartition(*each): offset for each, offset in offsets.items()}

    def request(items: Sequence[TopicPartition], left_ms: int) -> DeleteRecordsRequest:
        topics = []
        for topic, numbers in by_topic(items):
            partitions = tuple(
                DeleteRecordsPartition(partition_index=number, offset=wanted[TopicPartition(topic, number)])
                for number in numbers
            )
            topics.append(DeleteRecordsTopic(name=topic, partitions=partitions))
        return DeleteRecordsRequest(topics=tuple(topics), timeout_ms=left_ms)

    def read(response: Any, _: Sequence[TopicPartition]) -> Iterator[Answer]:
        for topic in response.topics:
            for each in topic.partitions:
                yield Answer(TopicPartition(topic.name, each.partition_index), each.low_watermark, each.error_code)

    found = yield Call(_by_leader(wanted), str, request, read)
    return found.checked()


def describe_producers(
    partitions: Iterable[tuple[str, int]], *, timeout: float | None = None
) -> Steps[dict[TopicPartition, list[ProducerState]]]:
    """The producers that the leaders of these partitions know."""
    wanted = partitions_in(partitions)

    def request(items: Sequence[TopicPartition], _: int) -> DescribeProducersRequest:
        topics = tuple(TopicRequest(name=topic, partition_indexes=numbers) for topic, numbers in by_topic(items))
        return DescribeProducersRequest(topics=topics)

    def read(response: Any, _: Sequence[TopicPartition]) -> Iterator[Answer]:
        for topic in response.topics:
            for each in topic.partitions:
                states = [_producer(state) for state in each.active_producers]
                yield Answer(
                    TopicPartition(topic.name, each.partition_index), states, each.error_code, each.error_message
                )

    found = yield Call(_by_leader(wanted), str, request, read)
    return found.checked()


def elect_leaders(
    election_type: ElectionType, partitions: Iterable[tuple[str, int]] | None = None, *, timeout: float | None = None
) -> Steps[dict[TopicPartition, KafkaError | None]]:
    """Elect leaders of these partitions, or of all that need it. What became of each, such as ELECTION_NOT_NEEDED."""
    topics = None
    if partitions is not None:
        wanted = by_topic(partitions_in(partitions))
        topics = tuple(TopicPartitions(topic=topic, partitions=numbers) for topic, numbers in wanted)

    def request(left_ms: int) -> ElectLeadersRequest:
        return ElectLeadersRequest(election_type=election_type, topic_partitions=topics, timeout_ms=left_ms)

    response = yield from ask(CONTROLLER, "the election", request, lambda response: response)
    results: dict[TopicPartition, KafkaError | None] = {}
    for topic in response.replica_election_results:
        for each in topic.partition_result:
            tp = TopicPartition(topic.topic, each.partition_id)
            text = f"{tp}: {each.error_message or each.error_code.sentence}"
            results[tp] = KafkaError(each.error_code, text) if each.error_code else None
    return results


def alter_partition_reassignments(
    reassignments: Mapping[Partition, Sequence[int] | None], *, timeout: float | None = None
) -> Steps[dict[TopicPartition, None]]:
    """Move partitions to these brokers, the preferred leader first, or cancel their reassignments (None)."""
    partitions_in(reassignments)
    wanted = {TopicPartition(*each): replicas for each, replicas in reassignments.items()}
    topics = []
    for topic, numbers in by_topic(wanted):
        partitions = []
        for number in numbers:
            replicas = wanted[TopicPartition(topic, number)]
            chosen = None if replicas is None else tuple(replicas)
            partitions.append(ReassignablePartition(partition_index=number, replicas=chosen))
        topics.append(ReassignableTopic(name=topic, partitions=tuple(partitions)))

    def request(left_ms: int) -> AlterPartitionReassignmentsRequest:
        return AlterPartitionReassignmentsRequest(topics=tuple(topics), timeout_ms=left_ms)

    response = yield from ask(CONTROLLER, "reassignments", request, lambda response: response)
    answers = [
        Answer(TopicPartition(topic.name, each.partition_index), None, each.error_code, each.error_message)
        for topic in response.responses
        for each in topic.partitions
    ]
    return joined(answers, wanted, str)


def list_partition_reassignments(
    partitions: Iterable[tuple[str, int]] | None = None, *, timeout: float | None = None
) -> Steps[dict[TopicPartition, PartitionReassignment]]:
    """The reassignments in progress, of these partitions or of all."""
    topics = None
    if partitions is not None:
        wanted = by_topic(partitions_in(partitions))
        topics = tuple(ListPartitionReassignmentsTopics(name=topic, partition_indexes=each) for topic, each in wanted)

    def request(left_ms: int) -> ListPartitionReassignmentsRequest:
        return ListPartitionReassignmentsRequest(topics=topics, timeout_ms=left_ms)

    response = yield from ask(CONTROLLER, "reassignments", request, lambda response: response)
    return {
        TopicPartition(topic.name, each.partition_index): PartitionReassignment(
            each.replicas, each.adding_replicas, each.removing_replicas
        )
        for topic in response.topics
        for each in topic.partitions
    }


def _by_leader(partitions: Iterable[TopicPartition]) -> dict[TopicPartition, Leader]:
    return {tp: Leader(tp) for tp in partitions}


def _producer(state: Any) -> ProducerState:
    return ProducerState(
        state.producer_id,
        state.producer_epoch,
        state.last_sequence,
        state.last_timestamp,
        None if state.coordinator_epoch < 0 else state.coordinator_epoch,
        None if state.current_txn_start_offset < 0 else state.current_txn_start_offset,
    )
