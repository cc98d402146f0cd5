"""The shards of a coordinator: one per partition of its internal topic that this node leads.

A shard is loaded from its log when this node becomes the partition's leader, in bounded steps between requests, and
dropped when the leadership moves. While it loads, clients get COORDINATOR_LOAD_IN_PROGRESS.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from typing import Generic, Protocol, TypeVar

from raylog.coordination.event_log import EventLog
from raylog.core.clock import Now
from raylog.core.coordinator_partition import coordinator_partition
from raylog.core.errors import ErrorCode, KafkaError
from raylog.core.ids import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, LeaderEpoch, TopicPartition
from raylog.core.outcome import Outcome
from raylog.protocol.records.batch import BatchHeader
from raylog.protocol.records.reader import Record
from raylog.replication.partition import Partition
from raylog.transport.commits import CommitPoint, CommitSource

log = logging.getLogger("raylog.coordination")
Event = TypeVar("Event")

_CLIENT_CODES = {
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.RECORD_LIST_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
}
"""Maps an error of the log to the error sent to the coordinator's clients, as in Kafka."""


class ShardLog(Generic[Event]):
    """The log of one shard under one leader epoch. It raises the errors that clients get."""

    def __init__(
        self,
        partition: Partition,
        *,
        encode: Callable[[Event], tuple[bytes, bytes | None]],
        decode: Callable[[BatchHeader, Record], Event | None],
        replay: Callable[[Event], None],
        on_append: Callable[[TopicPartition, int], None],
    ) -> None:
        self._partition = partition
        self._on_append = on_append
        self._log: EventLog[Event] = EventLog(
            partition.log, partition.leader_epoch, encode=encode, decode=decode, replay=replay
        )

    def load_some(self) -> bool:
        """Replay the next part of the log and return whether more remains. Raises KafkaError."""
        self._log.log = self._partition.log  # it may have been moved to another log directory
        try:
            return self._log.load_some()
        except KafkaError as error:
            raise _client_error(error) from error

    def append(
        self,
        events: Sequence[Event],
        now: Now,
        *,
        producer_id: int = NO_PRODUCER_ID,
        producer_epoch: int = NO_PRODUCER_EPOCH,
    ) -> None:
        """Append and replay, within a producer's transaction if one is given.

        Raises KafkaError with the error for the client; the state is then unchanged.
        """
        if not events:
            return
        self._log.log = self._partition.log
        if self._partition.leader_epoch != self._log.leader_epoch:  # a later shard has taken over
            raise KafkaError(ErrorCode.NOT_COORDINATOR)
        try:
            self._partition.check_insync_replicas()
            self._log.commit(
                Outcome(None, events), now_ms=now.wall_ms, producer_id=producer_id, producer_epoch=producer_epoch
            )
        except KafkaError as error:
            raise _client_error(error) from error
        self._on_append(self._log.log.topic_partition, 0)

    def commit_point(self) -> CommitPoint | None:
        """The end of the log, for responses that may reveal it; None if all of it is committed."""
        return self._partition.commit_point()


class Shard(Protocol):
    """The state of one partition under one leader epoch."""

    leader_epoch: LeaderEpoch

    def load_some(self) -> bool:
        """Replay the next part of the log and return whether more remains. Raises KafkaError."""

    def loaded(self, now: Now) -> None:
        """The log is fully replayed; commands may follow."""


AnyShard = TypeVar("AnyShard", bound=Shard)


class Coordinated(Protocol):
    """The partitions of an internal topic, as seen by the node that coordinates them."""

    def led(self, tp: TopicPartition) -> Partition | None:
        """The partition, if this node leads it; else None."""

    def partition_count(self, topic: str) -> int:
        """The number of partitions of a topic; 0 before it is created."""

    def add_steps(self, step: Callable[[Now], bool]) -> None:
        """Call `step` between requests as long as it returns True."""

    def partition_appended(self, tp: TopicPartition, grown_bytes: int) -> None:
        """Records were appended to the partition; 0 bytes means that the size is unknown."""


class Coordinates(Protocol):
    """A request that the coordinator serves."""

    now: Now

    def depends_on(self, source: CommitSource) -> None:
        """The response may reveal records of `source` that are not committed yet."""


class CoordinatorShards(Generic[AnyShard]):
    """The shards of the partitions of `topic` that this node leads. `make` creates an empty shard over its log."""

    def __init__(self, topic: str, node: Coordinated, make: Callable[[Partition], AnyShard]) -> None:
        self.loaded: dict[int, AnyShard] = {}
        self._loading: dict[int, AnyShard] = {}
        self._failed: dict[int, KafkaError] = {}
        """Partitions whose log could not be read, with the error for clients. The next request retries the load."""
        self._topic = topic
        self._node = node
        self._make = make

    def of(self, key: str, now: Now) -> AnyShard:
        """The shard that owns `key`.

        Raises KafkaError: NOT_COORDINATOR, COORDINATOR_NOT_AVAILABLE, COORDINATOR_LOAD_IN_PROGRESS, or the error of a
        log that cannot be read.
        """
        count = self._node.partition_count(self._topic)
        if not count:
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        return self._at(coordinator_partition(key, count), now)

    def all(self) -> Iterator[AnyShard]:
        """All loaded shards."""
        for number, shard in list(self.loaded.items()):
            if self._node.led(TopicPartition(self._topic, number)) is not None:
                yield shard

    @property
    def loading(self) -> bool:
        """Whether any shard of this node is still loading."""
        return bool(self._loading)

    def leadership_changed(self, tp: TopicPartition, now: Now) -> AnyShard | None:
        """Load or drop the shard of a partition whose leader or leader epoch changed, or that was deleted.

        Returns the loaded shard that was dropped, if there was one.
        """
        if tp.topic != self._topic:
            return None
        partition = self._node.led(tp)
        self._failed.pop(tp.partition, None)
        known = self.loaded.get(tp.partition) or self._loading.get(tp.partition)
        if partition is not None and known is not None and known.leader_epoch == partition.leader_epoch:
            return None
        self._loading.pop(tp.partition, None)
        dropped = self.loaded.pop(tp.partition, None)
        if partition is not None:
            self._load(tp.partition, partition, now)
        return dropped

    def _at(self, number: int, now: Now) -> AnyShard:
        shard = self.loaded.get(number)
        partition = self._node.led(TopicPartition(self._topic, number))
        if partition is None:
            raise KafkaError(ErrorCode.NOT_COORDINATOR)
        if shard is not None:
            return shard
        failed = self._failed.pop(number, None)
        if number not in self._loading:
            self._load(number, partition, now)
            shard = self.loaded.get(number)
            if shard is not None:
                return shard
            failed = self._failed.pop(number, None) or failed
        raise failed or KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)

    def _load(self, number: int, partition: Partition, now: Now) -> None:
        """Start loading; an empty or short log is loaded at once."""
        shard = self._loading[number] = self._make(partition)

        def step(now: Now) -> bool:
            if self._loading.get(number) is not shard:
                return False
            try:
                if shard.load_some():
                    return True
            except KafkaError as error:
                log.warning("coordinator load failed", extra={"topic": self._topic, "partition": number, "why": error})
                del self._loading[number]
                self._failed[number] = error
                return False
            del self._loading[number]
            self.loaded[number] = shard
            shard.loaded(now)
            return False

        if step(now):
            self._node.add_steps(step)


def _client_error(error: KafkaError) -> KafkaError:
    return KafkaError(_CLIENT_CODES.get(error.code, error.code), error.message)
