"""Acknowledgements in ShareFetch and ShareAcknowledge: which ones are valid, and when all of them are stored."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from raylog.broker.share.share_partition import Acknowledgement
from raylog.core.errors import ErrorCode, KafkaError
from raylog.core.ids import TopicPartition
from raylog.protocol.share import AcknowledgeType
from raylog.security.acl import Operation, Resource
from raylog.sharecoord.records import SharePartitionKey

if TYPE_CHECKING:
    from raylog.broker.services import BrokerServices
    from raylog.transport.exchange import Exchange

RANGE_MAX: Final = 1 << 20
"""The largest number of offsets in the batches of one partition: a member never has more."""

_FENCED: Final = (ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.FENCED_STATE_EPOCH)
"""What the share coordinator tells a leader whose state is not the newest; members know no such codes."""

TopicIdPartition = tuple[UUID, int]
Results = Mapping[TopicIdPartition, KafkaError | None]


def acknowledge(
    broker: BrokerServices,
    exchange: Exchange,
    request: Any,
    wanted: Sequence[tuple[TopicIdPartition, Sequence[Any]]],
    on_results: Callable[[Results], None],
) -> None:
    """Acknowledge the batches of each partition; `on_results` is called once, when all decisions are stored.

    The result of a partition is None, or the error for it.
    """
    results: dict[TopicIdPartition, KafkaError | None] = {}
    waiting = {partition for partition, _ in wanted}

    def done(partition: TopicIdPartition, error: KafkaError | None) -> None:
        results[partition] = error
        waiting.discard(partition)
        if not waiting:
            on_results(results)

    if not wanted:
        on_results(results)
    for partition, batches in wanted:
        try:
            _acknowledge(broker, exchange, request, partition, batches, done)
        except KafkaError as error:
            done(partition, error)


def _acknowledge(
    broker: BrokerServices,
    exchange: Exchange,
    request: Any,
    partition: TopicIdPartition,
    batches: Sequence[Any],
    done: Callable[[TopicIdPartition, KafkaError | None], None],
) -> None:
    topic_id, number = partition
    topic = broker.image.topics_by_id.get(topic_id)
    if topic is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID)
    broker.authorization.check(exchange, Operation.READ, Resource.topic(topic.name))
    acknowledgements = parsed(batches, may_renew=request.is_renew_ack)
    broker.partition(TopicPartition(topic.name, number))  # it must be led here
    key = SharePartitionKey(request.group_id, topic_id, number)
    machine = broker.share_partitions.loaded(key)
    if machine is None:
        raise KafkaError(ErrorCode.INVALID_RECORD_STATE, "The member has acquired no records of the partition.")
    decided = machine.acknowledge(request.member_id, acknowledgements, exchange.now.monotonic_ms)
    broker.share_partitions.store(key, decided, lambda error: done(partition, error), exchange.now)


def parsed(batches: Iterable[Any], *, may_renew: bool) -> list[Acknowledgement]:
    """The acknowledgements of one partition, in order. Raises KafkaError(INVALID_REQUEST)."""
    found: list[Acknowledgement] = []
    previous_last = -1
    total = 0
    for batch in batches:
        first, last, types = batch.first_offset, batch.last_offset, batch.acknowledge_types
        if not previous_last < first <= last:
            raise _invalid(f"The batch of offsets {first} to {last} overlaps another or is not in order.")
        previous_last = last
        count = last - first + 1
        total += count
        if total > RANGE_MAX:
            raise _invalid(f"More than {RANGE_MAX} offsets are acknowledged.")
        if len(types) not in (1, count):
            raise _invalid(f"{len(types)} types cannot be those of offsets {first} to {last}.")
        highest = AcknowledgeType.RENEW if may_renew else AcknowledgeType.REJECT
        if not all(AcknowledgeType.GAP <= each <= highest for each in types):
            raise _invalid(f"The batch of offsets {first} to {last} has an acknowledge type that is not valid.")
        if len(types) == 1:
            found.append(Acknowledgement(first, last, AcknowledgeType(types[0])))
            continue
        at = first
        for kind, same in groupby(types):
            length = len(list(same))
            found.append(Acknowledgement(at, at + length - 1, AcknowledgeType(kind)))
            at += length
    return found


def client_code(error: KafkaError | None) -> tuple[ErrorCode, str | None]:
    """Code and message of a partition for the member."""
    if error is None:
        return ErrorCode.NONE, None
    return ErrorCode.NOT_LEADER_OR_FOLLOWER if error.code in _FENCED else error.code, error.message


def _invalid(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, message)
