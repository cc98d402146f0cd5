"""What the coordinators of groups and of transactions have in common: a shard for each partition of their topic.

A shard is loaded when it is first asked for, and again under each new leader epoch: what it held in memory then went
with the leadership.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Generic, Protocol, TypeVar

from raylog.core.clock import Now
from raylog.core.coordinator_partition import coordinator_partition
from raylog.core.errors import ErrorCode, KafkaError
from raylog.core.ids import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, LeaderEpoch, TopicPartition
from raylog.core.outcome import Outcome
from raylog.logstore.event_log import EventLog
from raylog.protocol.records.batch import BatchHeader
from raylog.protocol.records.reader import Record
from raylog.replication.partition import Partition, Uncommitted

Event = TypeVar("Event")

_SEEN_BY_CLIENTS = {
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.RECORD_LIST_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
}
"""What a client of the coordinator is told of what the log says, as in Kafka."""


class ShardLog(Generic[Event]):
    """The log of one shard, for one leader epoch. Errors are those that a client is told."""

    def __init__(
        self,
        partition: Partition,
        *,
        encode: Callable[[Event], tuple[bytes, bytes | None]],
        decode: Callable[[BatchHeader, Record], Event | None],
        replay: Callable[[Event], None],
        on_append: Callable[[TopicPartition], None],
    ) -> None:
        self._partition = partition
        self._on_append = on_append
        self._log: EventLog[Event] = EventLog(
            partition.log, partition.leader_epoch, encode=encode, decode=decode, replay=replay
        )

    def load(self) -> None:
        """Raises KafkaError."""
        try:
            self._log.load()
        except KafkaError as error:
            raise _seen_by_clients(error) from error

    def append(
        self,
        events: Sequence[Event],
        now: Now,
        *,
        producer_id: int = NO_PRODUCER_ID,
        producer_epoch: int = NO_PRODUCER_EPOCH,
    ) -> None:
        """Make them true, within the transaction of a producer where one is named.

        Raises KafkaError with what a client is told, and has changed nothing then.
        """
        if not events:
            return
        try:
            self._partition.check_insync_replicas()
            self._log.commit(
                Outcome(None, events), now_ms=now.wall_ms, producer_id=producer_id, producer_epoch=producer_epoch
            )
        except KafkaError as error:
            raise _seen_by_clients(error) from error
        self._on_append(self._log.log.topic_partition)


class Shard(Protocol):
    """What a coordinator keeps of one partition, under one leader epoch."""

    leader_epoch: LeaderEpoch


AnyShard = TypeVar("AnyShard", bound=Shard)


class CoordinatorShards(Generic[AnyShard]):
    """Those of the partitions of `topic` that this broker leads.

    `led` gives the partition if this broker leads it; `count` how many a topic has, 0 before it is made. `load` makes
    the shard of a partition, from its log, and may raise KafkaError.
    """

    def __init__(
        self,
        topic: str,
        led: Callable[[TopicPartition], Partition | None],
        count: Callable[[str], int],
        load: Callable[[Partition, Now], AnyShard],
    ) -> None:
        self.loaded: dict[int, AnyShard] = {}
        self._topic = topic
        self._led = led
        self._count = count
        self._load = load

    def of(self, key: str, now: Now) -> AnyShard:
        """The one that keeps `key`. Raises KafkaError: NOT_COORDINATOR, COORDINATOR_NOT_AVAILABLE, or that the log
        cannot be read."""
        count = self._count(self._topic)
        if not count:
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        return self._at(coordinator_partition(key, count), now)

    def all(self, now: Now) -> Iterator[AnyShard]:
        """Every shard of this broker whose log can be read."""
        for number in range(self._count(self._topic)):
            if self._led(TopicPartition(self._topic, number)) is not None:
                try:
                    yield self._at(number, now)
                except KafkaError:
                    continue

    def uncommitted(self) -> list[Uncommitted]:
        """The ends of those logs of which not everything is committed yet: any answer may tell of it."""
        if not self.loaded:
            return []
        partitions = (self._led(TopicPartition(self._topic, number)) for number in self.loaded)
        ends = (partition.uncommitted() for partition in partitions if partition is not None)
        return [end for end in ends if end is not None]

    def leadership_changed(self, tp: TopicPartition) -> AnyShard | None:
        """To be told of each partition that has another leader, or another leader epoch, or is gone.

        The shard that is no more, where there was one.
        """
        if tp.topic != self._topic:
            return None
        partition, shard = self._led(tp), self.loaded.get(tp.partition)
        if shard is None or (partition is not None and partition.leader_epoch == shard.leader_epoch):
            return None
        return self.loaded.pop(tp.partition)

    def _at(self, number: int, now: Now) -> AnyShard:
        partition = self._led(TopicPartition(self._topic, number))
        if partition is None:
            raise KafkaError(ErrorCode.NOT_COORDINATOR)
        shard = self.loaded.get(number)
        if shard is None:
            shard = self.loaded[number] = self._load(partition, now)
        return shard


def _seen_by_clients(error: KafkaError) -> KafkaError:
    return KafkaError(_SEEN_BY_CLIENTS.get(error.code, error.code), error.message)
