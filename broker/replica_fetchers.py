"""Replicates the partitions that this broker follows: long polls to their leaders, whose records go into the logs.

Each leader has two lanes, each a link with a fetch session (KIP-227), and a partition is on one of them. The quiet
lane has most partitions, sends no unchanged one twice, and waits. A partition with new records moves to the busy lane
as soon as that is free, so neither side iterates over all the others for each batch. The first free lane takes the
partitions that are on none, so a partition with a new leader need not wait for the long poll of the others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Final, NamedTuple

from raylog.config.replication import FetchLimits
from raylog.core.clock import Now
from raylog.core.errors import ErrorCode, KafkaError
from raylog.core.ids import NO_BROKER_ID, NO_LEADER_EPOCH, BrokerId, LeaderEpoch, Offset, TopicPartition
from raylog.protocol.fetch import (
    UNKNOWN_HIGH_WATERMARK,
    FetchPartition,
    FetchPartitionResponse,
    FetchRequest,
    FetchResponse,
    ReplicaState,
)
from raylog.protocol.fetch_session import SESSION_ERRORS, FetchSession, PartitionKey
from raylog.replication.partition import Partition
from raylog.transport.peer_link import PeerLink

ANSWER_MS_MAX: Final = 5000
"""Time limit for a fetch, in addition to its max wait; the link is then closed."""
BACKOFF_MS: Final = 50
"""Delay before a refused partition is retried: a new leader may learn of its role after its followers."""
QUIET_MS: Final = 1000
"""A partition without new records for this long is quiet."""


class CopyHooks(NamedTuple):
    """Callbacks to the owner of the replicas."""

    truncate: Callable[[TopicPartition, Offset], None]
    restart: Callable[[TopicPartition, Offset], None]
    """Called for a log that must be emptied and begin at this offset."""
    is_in_sync: Callable[[Partition], bool]
    """Whether this broker is in the ISR by its metadata image."""
    free_ms: Callable[[Partition, Now], int]
    """The time from which a partition may be replicated, if it is throttled."""
    on_copied: Callable[[Partition, int, Now], None]
    """Called with the number of bytes replicated."""
    on_committed: Callable[[TopicPartition], None]
    """Called for partitions whose high watermark has moved."""


class ReplicaFetchers:
    """All fetchers of one broker. `partitions` are the open replicas."""

    def __init__(
        self,
        broker_id: BrokerId,
        partitions: Mapping[TopicPartition, Partition],
        *,
        new_link: Callable[[BrokerId, Callable[[Now], None]], PeerLink],
        broker_epoch: Callable[[], int],
        limits: Callable[[], FetchLimits],
        hooks: CopyHooks,
    ) -> None:
        """`new_link` creates one to a broker, and takes a function to be called whenever it is ready."""
        self._broker_id = broker_id
        self._partitions = partitions
        self._new_link = new_link
        self._new_request = _Requests(broker_id, broker_epoch, limits)
        self._hooks = hooks
        self._fetchers: dict[BrokerId, _LeaderFetcher] = {}
        self._followed: dict[TopicPartition, _LeaderFetcher] = {}

    def next_deadline_ms(self) -> int | None:
        """The earliest time at which `tick` has work to do."""
        due_ms = None
        for fetcher in self._fetchers.values():
            if fetcher.retry_ms is not None and (due_ms is None or fetcher.retry_ms < due_ms):
                due_ms = fetcher.retry_ms
        return due_ms

    def leaders_changed(self, changed: Iterable[TopicPartition], now: Now) -> None:
        """To be called for partitions that are opened, closed, or have a new leader or leader epoch.

        All of them at once: the first request to a new leader then fetches all that it leads now.
        """
        gaining: dict[_LeaderFetcher, None] = {}
        for tp in changed:
            followed = self._followed.pop(tp, None)
            if followed is not None:
                followed.forget(tp)
            partition = self._partitions.get(tp)
            if partition is None:
                continue
            for replica in partition.assigned:  # connect to brokers that may lead later
                if replica != self._broker_id and replica not in self._fetchers:
                    self._fetchers[replica] = _LeaderFetcher(partial(self._new_link, replica), self._new_request)
            if not partition.is_leader and partition.leader != NO_BROKER_ID:
                fetcher = self._followed[tp] = self._fetchers[partition.leader]
                fetcher.follow(_Copy(partition, self._hooks, now))
                gaining[fetcher] = None
        for fetcher in gaining:
            fetcher.send_requests(now)

    def tick(self, now: Now) -> None:
        """Retry partitions that were refused."""
        for fetcher in self._fetchers.values():
            if fetcher.retry_ms is not None and now.monotonic_ms >= fetcher.retry_ms:
                fetcher.send_requests(now)


class _Requests:
    """Properties shared by all requests of this broker."""

    def __init__(self, broker_id: BrokerId, broker_epoch: Callable[[], int], limits: Callable[[], FetchLimits]) -> None:
        self._broker_id = broker_id
        self._broker_epoch = broker_epoch
        self.limits = limits

    def next(self, session: FetchSession) -> FetchRequest:
        limits = self.limits()
        session_request = session.request()
        return FetchRequest(
            max_wait_ms=limits.wait_ms_max,
            min_bytes=1,
            max_bytes=limits.response_bytes_max,
            session_id=session_request.session_id,
            session_epoch=session_request.session_epoch,
            topics=session_request.topics(),
            forgotten_topics=session_request.forgotten_topics(),
            replica_state=ReplicaState(replica_id=self._broker_id, replica_epoch=self._broker_epoch()),
        )


class _Copy:
    """A partition that is replicated under one leader epoch."""

    def __init__(
        self,
        partition: Partition,
        hooks: CopyHooks,
        now: Now,
    ) -> None:
        self.tp = partition.topic_partition
        self.key = PartitionKey("", partition.topic_id, self.tp.partition)
        self.due_ms = now.monotonic_ms
        """When it may be fetched, while it is on no lane."""
        self.records_ms = now.monotonic_ms
        """When records last arrived; initially, when this broker began to follow it."""
        self._partition = partition
        self._hooks = hooks

    def is_held_back(self, now: Now) -> bool:
        """Whether the throttle holds it back; `due_ms` is then the time at which it may continue."""
        free_ms = self._hooks.free_ms(self._partition, now)
        if free_ms <= now.monotonic_ms:
            return False
        self.due_ms = free_ms
        return True

    @property
    def possible(self) -> bool:
        return self._partition.log.offline_reason is None

    def wanted(self, limits: FetchLimits) -> FetchPartition:
        log = self._partition.log
        return FetchPartition(
            partition=self.tp.partition,
            current_leader_epoch=self._partition.leader_epoch,
            fetch_offset=log.log_end_offset,
            last_fetched_epoch=log.leader_epochs.epoch_at(log.log_end_offset - 1),
            log_start_offset=log.log_start_offset,
            partition_max_bytes=limits.partition_bytes_max,
            high_watermark=self._partition.high_watermark if limits.send_high_watermark else UNKNOWN_HIGH_WATERMARK,
        )

    def apply(self, result: FetchPartitionResponse, now: Now) -> bool:
        """Apply the leader's response; returns whether the partition may be fetched again at once."""
        partition = self._partition
        try:
            if result.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
                return self._restart_log(Offset(result.log_start_offset))
            if result.error_code != ErrorCode.NONE:
                return False
            if result.diverging_epoch.epoch != NO_LEADER_EPOCH:
                self._hooks.truncate(self.tp, _common_end(partition, result))
                return True
            pieces = result.records or ()
            records = memoryview(pieces[0] if len(pieces) == 1 else b"".join(pieces))
            self._hooks.on_copied(partition, len(records), now)
            committed = partition.append_as_follower(
                records,
                high_watermark=result.high_watermark,
                log_start_offset=result.log_start_offset,
                now_ms=now.wall_ms,
            )
        except KafkaError:  # bytes corrupted in transit, or a disk failure: the log reports it
            return False
        if records:
            self.records_ms = now.monotonic_ms
        if committed:
            self._hooks.on_committed(self.tp)
        return True

    def _restart_log(self, leader_start: Offset) -> bool:
        """The leader cannot continue at this log's end: begin where its log does, if no record is lost by that.

        Its log starts beyond this one's end, or this log is empty and starts after records of the leader. In the second
        case the log end offset decreases, so a replica in the ISR waits until the leader has removed it.
        """
        log = self._partition.log
        is_empty = log.log_start_offset == log.log_end_offset
        must_go_back = is_empty and 0 <= leader_start < log.log_start_offset
        if leader_start <= log.log_end_offset and (not must_go_back or self._hooks.is_in_sync(self._partition)):
            return False
        self._hooks.restart(self.tp, leader_start)
        return True


class _Lane:
    """One link to a leader, its fetch session, and the partitions in that session."""

    def __init__(self, new_link: Callable[[Callable[[Now], None]], PeerLink], on_ready: Callable[[Now], None]) -> None:
        self.copies: dict[PartitionKey, _Copy] = {}
        self.session = FetchSession()
        self.asked = False
        """Whether a request is in flight. Its results for partitions that have left the lane are ignored."""
        self.link = new_link(on_ready)

    @property
    def free(self) -> bool:
        return self.link.ready and not self.asked

    def join(self, copy: _Copy, limits: FetchLimits) -> None:
        self.copies[copy.key] = copy
        self.session.want(copy.key, copy.wanted(limits))

    def leave(self, key: PartitionKey) -> None:
        if self.copies.pop(key, None) is not None:
            self.session.forget(key)


class _LeaderFetcher:
    """The partitions that one broker leads: each waits, or is on one of two lanes."""

    def __init__(self, new_link: Callable[[Callable[[Now], None]], PeerLink], requests: _Requests) -> None:
        self.retry_ms: int | None = None
        """When a refused partition may be fetched again."""
        self._requests = requests
        self._copies: dict[TopicPartition, _Copy] = {}
        self._waiting: dict[PartitionKey, _Copy] = {}
        self._busy = _Lane(new_link, self.send_requests)
        self._quiet = _Lane(new_link, self.send_requests)

    def follow(self, copy: _Copy) -> None:
        """Fetch it with the next call of `send_requests`."""
        self._copies[copy.tp] = self._waiting[copy.key] = copy

    def forget(self, tp: TopicPartition) -> None:
        key = self._copies.pop(tp).key
        self._waiting.pop(key, None)
        self._busy.leave(key)
        self._quiet.leave(key)

    def send_requests(self, now: Now) -> None:
        busy, quiet = self._busy, self._quiet
        if not busy.free and not quiet.free:
            self.retry_ms = None  # a lane that becomes free calls this again
            return
        if busy.free and quiet.free:
            active = [*self._due(now), *quiet.copies.values()]
            self._ask(busy, [copy for copy in active if not _is_quiet(copy, now)], now)
        elif busy.free:
            self._ask(busy, self._due(now), now)
        if quiet.free:
            now_quiet = [copy for copy in busy.copies.values() if _is_quiet(copy, now)]
            self._ask(quiet, [*self._due(now), *now_quiet], now)
        later = [copy.due_ms for copy in self._waiting.values() if copy.due_ms > now.monotonic_ms]
        self.retry_ms = min(later, default=None)

    def _due(self, now: Now) -> list[_Copy]:
        due = [copy for copy in self._waiting.values() if copy.due_ms <= now.monotonic_ms and copy.possible]
        return [copy for copy in due if not copy.is_held_back(now)]

    def _ask(self, lane: _Lane, joining: Iterable[_Copy], now: Now) -> None:
        limits = self._requests.limits()
        for copy in joining:
            self._waiting.pop(copy.key, None)
            (self._quiet if lane is self._busy else self._busy).leave(copy.key)
            lane.join(copy, limits)
        if not lane.copies:
            return
        lane.asked = True
        request = self._requests.next(lane.session)
        lane.link.request(
            request,
            lambda response, now: self._fetched(lane, response, now),
            lambda _, now: self._failed(lane),
            now=now,
            timeout_ms=request.max_wait_ms + ANSWER_MS_MAX,
        )

    def _fetched(self, lane: _Lane, response: FetchResponse, now: Now) -> None:
        lane.asked = False
        if lane.session.answered(response):
            limits = self._requests.limits()
            for topic in response.responses:
                for result in topic.partitions:
                    copy = lane.copies.get(PartitionKey("", topic.topic_id, result.partition_index))
                    if copy is None:
                        continue
                    if not copy.apply(result, now):
                        self._defer(lane, copy, now)
                    elif copy.is_held_back(now):
                        self._leave(lane, copy)
                    else:
                        lane.session.want(copy.key, copy.wanted(limits))
        elif response.error_code not in SESSION_ERRORS:
            for copy in list(lane.copies.values()):
                self._defer(lane, copy, now)
        self.send_requests(now)

    def _failed(self, lane: _Lane) -> None:
        """The link reconnects, and fetches when it is ready."""
        lane.asked = False
        lane.session.reset()

    def _defer(self, lane: _Lane, copy: _Copy, now: Now) -> None:
        copy.due_ms = now.monotonic_ms + BACKOFF_MS
        self._leave(lane, copy)

    def _leave(self, lane: _Lane, copy: _Copy) -> None:
        """Take it off the lane until it is due."""
        lane.leave(copy.key)
        self._waiting[copy.key] = copy


def _is_quiet(copy: _Copy, now: Now) -> bool:
    return now.monotonic_ms - copy.records_ms >= QUIET_MS


def _common_end(partition: Partition, result: FetchPartitionResponse) -> Offset:
    """The offset up to which this log and the leader's agree (KIP-101, KIP-595), by the epochs of both."""
    log = partition.log
    _, own_end = log.end_offset_for_epoch(LeaderEpoch(result.diverging_epoch.epoch))
    ends = [result.diverging_epoch.end_offset, log.log_end_offset, *([own_end] if own_end >= 0 else [])]
    return Offset(min(ends))
