"""Copies the partitions that this broker follows: long polls to their leaders, what comes goes into the logs.

Each leader has two links. A partition is in one request at a time, and whichever link is free asks for all that are in
none: so a partition that has just changed its leader need not wait until a long poll for the others is over.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Final, NamedTuple
from uuid import UUID

from raylog.core.clock import Now
from raylog.core.errors import ErrorCode, KafkaError
from raylog.core.ids import NO_BROKER_ID, NO_LEADER_EPOCH, BrokerId, LeaderEpoch, Offset, TopicPartition
from raylog.protocol.fetch import (
    FetchPartition,
    FetchPartitionResponse,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ReplicaState,
)
from raylog.replication.partition import Partition
from raylog.transport.peer_link import PeerLink

LINKS_PER_LEADER: Final = 2
ANSWER_MS_MAX: Final = 5000
"""A leader that takes longer, on top of what it was asked to wait, is hung up on."""
BACKOFF_MS: Final = 50
"""How long a partition that was refused is left alone. A new leader may hear of its leadership later than its
followers do."""


class FetchLimits(NamedTuple):
    """replica.fetch.wait.max.ms, replica.fetch.max.bytes, replica.fetch.response.max.bytes."""

    wait_ms_max: int
    partition_bytes_max: int
    response_bytes_max: int


class ReplicaFetchers:
    """All of one broker's. `partitions` are the replicas that are open here."""

    def __init__(
        self,
        broker_id: BrokerId,
        partitions: Mapping[TopicPartition, Partition],
        *,
        new_link: Callable[[BrokerId, Callable[[Now], None]], PeerLink],
        broker_epoch: Callable[[], int],
        limits: Callable[[], FetchLimits],
        truncate: Callable[[TopicPartition, Offset], None],
        free_ms: Callable[[Partition, Now], int],
        on_copied: Callable[[Partition, int, Now], None],
    ) -> None:
        """`new_link` gives one to a broker, and a function to be called whenever it is ready. `free_ms` says from when
        on a partition may be copied, where a rate holds it back; `on_copied` is told of the bytes that were."""
        self._broker_id = broker_id
        self._partitions = partitions
        self._new_link = new_link
        self._broker_epoch = broker_epoch
        self._limits = limits
        self._truncate = truncate
        self._free_ms = free_ms
        self._on_copied = on_copied
        self._fetchers: dict[BrokerId, _LeaderFetcher] = {}
        self._followed: dict[TopicPartition, _LeaderFetcher] = {}
        self.retry_ms: int | None = None
        """When `tick` has something to do, at the earliest."""

    def leader_changed(self, tp: TopicPartition, now: Now) -> None:
        """To be told of each partition that is opened, closed, or has another leader or leader epoch."""
        followed = self._followed.pop(tp, None)
        if followed is not None:
            followed.forget(tp)
        partition = self._partitions.get(tp)
        if partition is None:
            return
        for replica in partition.assigned:  # whoever may lead later is connected by then
            if replica != self._broker_id and replica not in self._fetchers:
                self._fetchers[replica] = _LeaderFetcher(self, partial(self._new_link, replica))
        if not partition.is_leader and partition.leader != NO_BROKER_ID:
            fetcher = self._followed[tp] = self._fetchers[partition.leader]
            fetcher.follow(tp, now)

    def tick(self, now: Now) -> None:
        """Partitions that were refused are asked for again."""
        if self.retry_ms is not None and now.monotonic_ms >= self.retry_ms:
            self.retry_ms = None
            for fetcher in self._fetchers.values():
                fetcher.go_on(now)

    # --- for the fetchers

    def wake_at(self, ms: int | None) -> None:
        if ms is not None and (self.retry_ms is None or ms < self.retry_ms):
            self.retry_ms = ms

    def request(self, tps: Iterable[TopicPartition]) -> FetchRequest:
        limits = self._limits()
        topics: dict[UUID, list[FetchPartition]] = {}
        for tp in tps:
            partition = self._partitions[tp]
            log = partition.log
            wanted = FetchPartition(
                partition=tp.partition,
                current_leader_epoch=partition.leader_epoch,
                fetch_offset=log.log_end_offset,
                last_fetched_epoch=log.leader_epochs.epoch_at(log.log_end_offset - 1),
                log_start_offset=log.log_start_offset,
                partition_max_bytes=limits.partition_bytes_max,
            )
            topics.setdefault(partition.topic_id, []).append(wanted)
        return FetchRequest(
            max_wait_ms=limits.wait_ms_max,
            min_bytes=1,
            max_bytes=limits.response_bytes_max,
            topics=[FetchTopic(topic_id=topic_id, partitions=wanted) for topic_id, wanted in topics.items()],
            replica_state=ReplicaState(replica_id=self._broker_id, replica_epoch=self._broker_epoch()),
        )

    def leader_epoch(self, tp: TopicPartition) -> LeaderEpoch:
        partition = self._partitions.get(tp)
        return LeaderEpoch(NO_LEADER_EPOCH) if partition is None else partition.leader_epoch

    def topic_id(self, tp: TopicPartition) -> UUID:
        return self._partitions[tp].topic_id

    def can_copy(self, tp: TopicPartition, now: Now) -> bool:
        partition = self._partitions.get(tp)
        if partition is None or partition.log.offline_reason is not None:
            return False
        free_ms = self._free_ms(partition, now)
        if free_ms > now.monotonic_ms:
            self.wake_at(free_ms)
        return free_ms <= now.monotonic_ms

    def take_over(self, tp: TopicPartition, result: FetchPartitionResponse, now: Now) -> bool:
        """Carry out what the leader has answered; whether it may be asked again at once."""
        partition = self._partitions[tp]
        try:
            if result.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
                return _begin_anew(partition, Offset(result.log_start_offset))
            if result.error_code != ErrorCode.NONE:
                return False
            if result.diverging_epoch.epoch != NO_LEADER_EPOCH:
                self._truncate(tp, _agreed_upto(partition, result))
                return True
            pieces = result.records or ()
            records = memoryview(pieces[0] if len(pieces) == 1 else b"".join(pieces))
            self._on_copied(partition, len(records), now)
            partition.append_as_follower(
                records,
                high_watermark=result.high_watermark,
                log_start_offset=result.log_start_offset,
                now_ms=now.wall_ms,
            )
        except KafkaError:  # bytes broken on their way, or a disk that fails: its log says so
            return False
        return True


class _LeaderFetcher:
    """Of the partitions that one broker leads."""

    def __init__(self, owner: ReplicaFetchers, new_link: Callable[[Callable[[Now], None]], PeerLink]) -> None:
        self._owner = owner
        self._waiting: dict[TopicPartition, int] = {}
        """Partitions that are in no request, and when they may be asked for."""
        self._asked: dict[TopicPartition, int] = {}
        """Those that are in one: number of its link."""
        self._busy: set[int] = set()
        self._links = [new_link(self.go_on) for _ in range(LINKS_PER_LEADER)]

    def follow(self, tp: TopicPartition, now: Now) -> None:
        self._waiting[tp] = now.monotonic_ms
        self.go_on(now)

    def forget(self, tp: TopicPartition) -> None:
        """What a request under way brings for it counts for nothing."""
        self._waiting.pop(tp, None)
        self._asked.pop(tp, None)

    def go_on(self, now: Now) -> None:
        for number, link in enumerate(self._links):
            if number in self._busy or not link.ready:
                continue
            due = [tp for tp, ms in self._waiting.items() if ms <= now.monotonic_ms and self._owner.can_copy(tp, now)]
            if due:
                self._fetch(number, link, due, now)
        later = [ms for ms in self._waiting.values() if ms > now.monotonic_ms]
        self._owner.wake_at(min(later, default=None))

    def _fetch(self, number: int, link: PeerLink, tps: list[TopicPartition], now: Now) -> None:
        for tp in tps:
            del self._waiting[tp]
            self._asked[tp] = number
        epochs = {tp: self._owner.leader_epoch(tp) for tp in tps}
        self._busy.add(number)
        request = self._owner.request(tps)
        link.request(
            request,
            lambda response, now: self._fetched(number, epochs, response, now),
            lambda _, now: self._failed(number, epochs, now),
            now=now,
            timeout_ms=request.max_wait_ms + ANSWER_MS_MAX,
        )

    def _fetched(
        self, number: int, epochs: Mapping[TopicPartition, LeaderEpoch], response: FetchResponse, now: Now
    ) -> None:
        self._busy.discard(number)
        results = {
            (topic.topic_id, result.partition_index): result
            for topic in response.responses
            for result in topic.partitions
        }
        served: list[TopicPartition] = []
        for tp, leader_epoch in epochs.items():
            if self._asked.get(tp) != number or self._owner.leader_epoch(tp) != leader_epoch:
                continue
            del self._asked[tp]
            found = results.get((self._owner.topic_id(tp), tp.partition))
            again = found is not None and self._owner.take_over(tp, found, now)
            if found is not None and found.records:
                served.append(tp)
            else:
                self._waiting[tp] = now.monotonic_ms + (0 if again else BACKOFF_MS)
        for tp in served:  # the others first: a response has a largest size
            self._waiting[tp] = now.monotonic_ms
        self.go_on(now)

    def _failed(self, number: int, epochs: Mapping[TopicPartition, LeaderEpoch], now: Now) -> None:
        """The link is made anew, and goes on when it is ready."""
        self._busy.discard(number)
        for tp in epochs:
            if self._asked.get(tp) == number:
                del self._asked[tp]
                self._waiting[tp] = now.monotonic_ms


def _agreed_upto(partition: Partition, result: FetchPartitionResponse) -> Offset:
    """Up to where this log and the leader's are the same (KIP-101, KIP-595), by the epochs of both."""
    log = partition.log
    _, own_end = log.end_offset_for_epoch(LeaderEpoch(result.diverging_epoch.epoch))
    ends = [result.diverging_epoch.end_offset, log.log_end_offset, *([own_end] if own_end >= 0 else [])]
    return Offset(min(ends))


def _begin_anew(partition: Partition, leader_start: Offset) -> bool:
    """The leader does not have what should follow here: where its log begins further on, this one begins there."""
    if leader_start <= partition.log.log_end_offset:
        return False
    partition.log.truncate_fully_and_start_at(leader_start)
    partition.truncated()
    return True
