"""What the blocking and the asyncio consumer have in common. Sans-IO, for one caller at a time."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final
from uuid import UUID

from raylog.client.chunks.dereferencing import lead_back
from raylog.client.chunks.pool import ReassemblyPool
from raylog.client.cluster_view import Node, parse_servers
from raylog.client.consumer.assignors import Assignor
from raylog.client.consumer.consumer_group_member import ConsumerGroupMember
from raylog.client.consumer.coordinator_requests import CoordinatorRequest, CoordinatorRequests
from raylog.client.consumer.fetched import ConsumerRecord, FetchedBatches
from raylog.client.consumer.fetcher import Fetcher
from raylog.client.consumer.group_member import GroupMember
from raylog.client.consumer.offset_lookup import OffsetLookup
from raylog.client.consumer.offset_requests import OffsetCommit, OffsetFetch
from raylog.client.consumer.positions import Positions
from raylog.client.consumer.rebalance_callbacks import CallbackKind, RebalanceCallback
from raylog.client.consumer.subscription import PartitionState, Subscription
from raylog.client.coordinators import Coordinators
from raylog.client.errors import LargeMessageDroppedError
from raylog.client.given_values import check_topic_names
from raylog.client.group_offsets import GroupMetadata, OffsetAndMetadata
from raylog.client.network_client import NetworkClient, Random
from raylog.client.unknown_topics import UnknownTopics
from raylog.config.consumer import ConsumerSettings
from raylog.core.clock import Now
from raylog.core.errors import ErrorCode, KafkaError
from raylog.core.ids import TopicPartition
from raylog.logstore.shared_page import PageSnapshot
from raylog.protocol.records.batch import MalformedBatch

log = logging.getLogger("raylog.client")
FILES_RETRY_MS: Final = 1_000
"""A partition whose files cannot be read is fetched for this long."""


class ConsumerCore:
    """The consumer without sockets, threads and clock.

    Not thread-safe. A service of its network, which runs the others in their order.
    """

    def __init__(
        self, servers: str, settings: ConsumerSettings, random: Random, *, assignors: Sequence[Assignor]
    ) -> None:
        """Raises ConfigError."""
        self.settings = settings
        self.network = NetworkClient(
            parse_servers(servers), settings.network, random, create_topics=settings.create_topics
        )
        self.subscription = Subscription()
        self.error: KafkaError | None = None
        """What the next poll() raises."""
        self.closed = False
        self.on_committed: Callable[[Mapping[TopicPartition, OffsetAndMetadata]], None] = lambda _: None
        """Called with offsets that were committed."""
        self._coordinators = Coordinators(self.network)
        self._requests = CoordinatorRequests(self.network, self._coordinators, settings.group_id)
        self._positions = Positions(
            self.network,
            self.subscription,
            settings,
            self._requests if settings.group_id else None,
            self._failed,
        )
        self.pool: ReassemblyPool | None = None
        """Of large messages; None: chunks are returned as they are."""
        self.taken: list[ConsumerRecord] = []
        """What `take` has returned, until the user has got it."""
        self.taken_batches: tuple[PartitionState, int | None, int] | None = None
        """Of what `take_batches` has returned, until the user has got it: the partition, its position before, and its
        moves."""
        self.batches_taken = 0
        """How many fetched batches `take` has read to their end. Those of chunks, or of aborted records, give none."""
        if settings.large is not None:
            self.pool = ReassemblyPool(
                bytes_max=settings.large.assembler_bytes,
                offset_gap_max=settings.large.offset_gap_max,
                age_ms_max=settings.large.age_ms_max,
                tracked_max=settings.large.tracked_max,
            )
            self._positions.on_begin = self._begin_at_committed
            self._positions.on_truncated = self.pool.seek
        self._fetcher = Fetcher(self.network, self.subscription, settings, self._positions)
        self.member: GroupMember | ConsumerGroupMember
        shared = (self.network, self._coordinators, self._requests, self.subscription, settings)
        if settings.by_coordinator:
            member_id = str(UUID(int=random.randrange(1 << 128), version=4))
            self.member = ConsumerGroupMember(*shared, self._failed, member_id=member_id)
        else:
            self.member = GroupMember(*shared, assignors, self._failed)
        self.member.callbacks.commit = self._commit_before_revocation
        self._told: frozenset[TopicPartition] = frozenset()
        """The partitions that `unsubscribe` is about to give up, for which a callback was called."""
        self._lookups: list[OffsetLookup] = []
        self._ran_ms = 0
        self._commit_due_ms: int | None = None
        self._auto_commit: OffsetCommit | None = None
        """The newest automatic commit. It takes the place of earlier ones that wait to be retried."""
        self._last_commit: tuple[Sequence[TopicPartition], OffsetCommit] | None = None
        """That of partitions which are given up, with the list of them."""
        self._services = (self.member, self._positions, self._fetcher, self._requests, self._coordinators)
        self.asked_topics: frozenset[str] = frozenset()
        """Those of which the user has asked for metadata, while it waits for them."""
        self._unknown = UnknownTopics(self.network.metadata, settings.api_timeout_ms, self._failed)
        self.network.services.append(self)

    # --- as a service of the network

    def run(self, now: Now) -> None:
        self._ran_ms = now.monotonic_ms
        self._want_topics()
        self._unknown.watch(self.subscription.topics | {tp.topic for tp in self.subscription.partitions}, now)
        for lookup in self._lookups:
            lookup.run(now)
        self._lookups = [lookup for lookup in self._lookups if not lookup.done]
        for service in self._services:
            service.run(now)
        if self.pool is not None:
            self.pool.keep_only(self.subscription.partitions)
        self._want_topics()  # a leader has learned what the members want

    def next_deadline_ms(self) -> int | None:
        due = [service.next_deadline_ms() for service in self._services]
        for lookup in self._lookups:  # one that is due waits for a leader, or for a response
            due += [ms for ms in (lookup.deadline_ms, lookup.due_ms) if ms > self._ran_ms]
        return min((ms for ms in due if ms is not None), default=None)

    # --- what is read

    def subscribe(self, topics: Iterable[str], pattern: re.Pattern[str] | None, regex: str | None = None) -> None:
        """Topics by name and by `regex`, which the coordinator resolves; or by `pattern`. Raises KafkaError."""
        self.check_group()
        names = frozenset(topics)
        check_topic_names(names)
        if not names and pattern is None and regex is None:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "subscribe() needs at least one topic; unsubscribe() ends it")
        self.subscription.subscribe(names, pattern, regex)
        self.network.metadata.all_topics = pattern is not None or regex is not None
        if self.network.metadata.all_topics:
            self.network.metadata.expire()
        self.member.subscribed()

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Raises KafkaError."""
        wanted = list(partitions)
        if any(not tp.topic for tp in wanted):
            raise KafkaError(ErrorCode.INVALID_REQUEST, "cannot assign a partition of topic ''")
        self.subscription.assign(wanted)

    def given_up(self) -> RebalanceCallback | None:
        """The rebalance callback that is due before `unsubscribe`.

        For partitions of which one was called or is running there is none: it may close the consumer itself.
        """
        running = self.member.callbacks.running
        if running is not None and running.kind is not CallbackKind.ASSIGNED:
            self._told |= set(running.partitions)
        partitions = self.subscription.partitions
        assigned = [tp for tp, state in partitions.items() if state.announced and tp not in self._told]
        if not self.subscription.by_group or not assigned:
            return None
        self._told |= set(assigned)
        return RebalanceCallback(CallbackKind.REVOKED if self.member.is_member else CallbackKind.LOST, assigned)

    def unsubscribe(
        self, reason: str, now: Now, timeout_ms: int, *, leave_group: bool | None = None
    ) -> CoordinatorRequest | None:
        """Leave the group. Returns the request to the coordinator, if there is one."""
        request = None
        if self.subscription.by_group:
            request = self.member.leave(reason, now, timeout_ms, leave_group=leave_group)
        self._told = frozenset()
        self.subscription.clear()
        self.network.metadata.all_topics = False
        return request

    # --- polling

    def begin_poll(self, now: Now) -> None:
        """Raises KafkaError: there is nothing to poll, or this member was fenced."""
        if not self.subscription.by_group and not self.subscription.partitions:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "poll() needs a subscription, or assigned partitions")
        self.member.polling = True
        if self.pool is not None:
            self.pool.now_ms = now.monotonic_ms
            self.pool.expire()
        self._commit_if_due(now)
        self.member.run(now)

    def end_poll(self, now: Now) -> None:
        self.member.polling = False
        self.member.polled_ms = now.monotonic_ms

    def raise_error(self) -> None:
        """What has gone wrong since the last poll()."""
        if self.member.fenced is not None:
            raise self.member.fenced
        if self.error is not None:
            error, self.error = self.error, None
            raise error
        if self.pool is not None:
            self._report_dropped(self.pool)

    def take(self, count: int) -> list[ConsumerRecord]:
        """At most `count` records, each partition in its turn. Raises MalformedBatch where there is nothing before it.

        The positions move behind them. They stay in `taken`, to be taken back if the user does not get them.
        """
        begun = [(state, state.position) for state in self._in_turn()]
        if self.pool is not None:
            self.pool.forget_oldest()
        taken = self.taken = list[ConsumerRecord]()
        try:
            for state, _ in begun:
                try:
                    taken += self._take_from(state, count - len(taken))
                except MalformedBatch:
                    if not taken:
                        raise
                    break
                if len(taken) >= count:
                    break
        except MalformedBatch:
            raise
        except BaseException:  # such as KeyboardInterrupt, while records are decoded
            if self.pool is None:
                self.taken = []
                for state, position in begun:
                    if position is not None and position != state.position:
                        state.seek(position)
            raise
        self.subscription.turn += 1
        return taken

    def take_batches(self) -> list[FetchedBatches]:
        """What is fetched of one partition, not decoded. The position moves behind it. Raises KafkaError."""
        if self.pool is not None:
            text = "batches of large messages are not reassembled; use poll(), or large.message.enabled=false"
            raise KafkaError(ErrorCode.INVALID_REQUEST, text)
        for state in self._in_turn()[:1]:
            fetched = state.buffered.popleft()
            self.taken_batches = (state, state.position, state.moves)
            state.position, state.epoch = fetched.next_offset, fetched.last_epoch
            self.subscription.turn += 1
            return [fetched]
        return []

    def needs_network(self, now: Now) -> bool:
        """Whether the services have something to do: not for partitions of which a fetch is in flight, something is
        fetched already, or the records are read from files."""
        partitions = self.subscription.partitions.values()
        return (
            self.network.has_touched
            or self._coordinators.waits
            or not partitions
            or any(not state.positioned for state in partitions)
            or (any(state.fetchable for state in partitions) and self._fetcher.is_due(now))
        )

    def _in_turn(self) -> list[PartitionState]:
        ready = [state for state in self.subscription.partitions.values() if state.buffered and state.returnable]
        turn = self.subscription.turn % len(ready) if ready else 0
        return ready[turn:] + ready[:turn]

    def _take_from(self, state: PartitionState, count: int) -> list[ConsumerRecord]:
        taken: list[ConsumerRecord] = []
        while state.buffered and len(taken) < count:
            fetched, start = state.buffered[0], state.position
            records: list[ConsumerRecord] = []
            try:
                records = fetched.take(count - len(taken))
            except MalformedBatch as error:
                if not taken:
                    error.tp = state.tp
                    raise
                break
            finally:
                state.position, state.epoch = fetched.position, fetched.epoch
                if self.pool is not None and start is not None:
                    records = self.pool.take(state.tp, records, start, fetched.position)
            taken += records
            if fetched.finished:
                state.buffered.popleft()
                self.batches_taken += 1
        return taken

    # --- partitions whose leader is on this machine

    def local_nodes(self, node_ids: set[int]) -> None:
        """The brokers whose files can be read."""
        self._fetcher.local_nodes = node_ids

    def local_partitions(self, now: Now) -> list[tuple[PartitionState, Node, int]]:
        """What is to be read from files: the partition, its leader, and the position."""
        found = []
        for state in self.subscription.partitions.values():
            leader = self.network.metadata.leader(state.tp)
            readable = state.position is not None and state.fetchable and self._fetcher.is_local(state, now)
            if leader is not None and state.position is not None and readable:
                found.append((state, leader, state.position))
        return found

    def read_locally(
        self,
        tp: TopicPartition,
        moves: int,
        fetched: FetchedBatches | None,
        page: PageSnapshot | None,
        error: KafkaError | None,
        now: Now,
    ) -> None:
        """What was read from files, as a response would bring it. `moves` is that of the state before."""
        state = self.subscription.partitions.get(tp)
        if state is None or state.moves != moves or not state.fetchable:
            return
        if page is not None:
            state.high_watermark, state.last_stable_offset = page.high_watermark, page.last_stable_offset
            state.log_start_offset = page.log_start_offset
        if fetched is not None:
            state.buffered.append(fetched)
        elif error is not None and error.code is ErrorCode.OFFSET_OUT_OF_RANGE:
            self._positions.reset(state, state.position)
        elif error is not None:  # what is wrong, the leader says
            state.requested_until_ms = now.monotonic_ms + FILES_RETRY_MS
            self.network.metadata.expire()

    # --- offsets

    def commit(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata] | None, now: Now, timeout_ms: int, *, retries: bool
    ) -> OffsetCommit:
        """Commit these offsets, or all positions. Raises KafkaError."""
        self.check_group()
        member = self.member.metadata
        if self.subscription.by_group and not self.member.is_member:
            what = "this consumer is not a member of its group: it has left it, or was removed from it"
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, f"offsets were not committed: {what}")
        if offsets is None:
            offsets = self.positions()
        return self._commit(member, offsets, now, timeout_ms, retries=retries)

    def committed(self, partitions: Iterable[TopicPartition], now: Now, timeout_ms: int) -> OffsetFetch:
        """Raises KafkaError."""
        self.check_group()
        wanted = list(partitions)
        fetch = OffsetFetch(self.network.metadata, self.settings.group_id, wanted, now.monotonic_ms + timeout_ms)
        self._requests.add(fetch)
        return fetch

    def look_up(self, timestamps: Mapping[TopicPartition, int], now: Now, timeout_ms: int) -> OffsetLookup:
        lookup = OffsetLookup(
            self.network, timestamps, now.monotonic_ms + timeout_ms, committed=self.settings.committed
        )
        self._lookups.append(lookup)
        return lookup

    def positions(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """Those that are known; with large messages, those from which on all unfinished ones are read again."""
        return {
            tp: self._to_commit(state, state.position)
            for tp, state in self.subscription.partitions.items()
            if state.position is not None and state.reset is None
        }

    def safe_position(self, state: PartitionState) -> int:
        """Where to go on reading. It must have a position."""
        assert state.position is not None
        return state.position if self.pool is None else self.pool.safe_offset(state.tp, state.position)

    def seek(self, state: PartitionState, offset: int) -> None:
        state.seek(offset if self.pool is None else self.pool.seek(state.tp, offset))

    def seek_by(self, state: PartitionState, reset: str | int) -> None:
        """To where a policy or a timestamp leads."""
        if self.pool is not None:
            self.pool.forget(state.tp)
        state.seek_by(reset)

    # --- the end

    def close_fetch_sessions(self, now: Now) -> None:
        """Nothing is fetched any more."""
        self._fetcher.close_sessions(now)

    @property
    def fetch_sessions_closed(self) -> bool:
        return self._fetcher.sessions_closed

    def abandon(self, error: KafkaError) -> None:
        """Whatever waits fails."""
        self._requests.abandon(error)
        for lookup in self._lookups:
            lookup.finish(error)

    def commit_positions(self, now: Now, timeout_ms: int) -> OffsetCommit | None:
        """The last automatic commit, before the consumer closes or unsubscribes; None if there is none."""
        offsets = self.positions() if self.settings.auto_commit else {}
        if not offsets or (self.subscription.by_group and not self.member.is_member):
            return None
        return self._commit(self.member.metadata, offsets, now, timeout_ms, retries=True, automatic=True)

    def take_batches_back(self) -> None:
        """Have the batches that were taken last taken again, unless the position was moved meanwhile."""
        if self.taken_batches is not None:
            state, position, moves = self.taken_batches
            if position is not None and state.moves == moves:
                state.seek(position)

    def take_back(self, taken: Iterable[ConsumerRecord]) -> None:
        """Have these records taken again, as none was returned; without partitions that were given up meanwhile."""
        assigned = self.subscription.partitions
        left = [record for record in taken if (record.topic, record.partition) in assigned]
        lead_back(left, lambda tp, offset: self.seek(assigned[tp], offset))

    # --- internals

    def _failed(self, error: KafkaError) -> None:
        if self.error is None:
            self.error = error

    def _to_commit(self, state: PartitionState, position: int) -> OffsetAndMetadata:
        safe, metadata = position, ""
        if self.pool is not None:
            safe, metadata = self.pool.safe_offset(state.tp, position), self.pool.committed_metadata(state.tp, position)
        return OffsetAndMetadata(safe, metadata, None if state.epoch < 0 or safe != position else state.epoch)

    def _begin_at_committed(self, tp: TopicPartition, committed: OffsetAndMetadata) -> None:
        assert self.pool is not None  # else it is not called
        self.pool.begin_at_committed(tp, committed.offset, committed.metadata)

    def _report_dropped(self, pool: ReassemblyPool) -> None:
        """Raises LargeMessageDroppedError, if that is wanted."""
        while pool.dropped:
            dropped = pool.dropped.popleft()
            log.warning(
                "large message dropped",
                extra={"tp": str(dropped.tp), "offset": dropped.first_offset, "reason": dropped.reason.value},
            )
            if self.settings.large is not None and self.settings.large.raises:
                raise LargeMessageDroppedError(str(dropped))

    def check_group(self) -> None:
        if not self.settings.group_id:
            raise KafkaError(ErrorCode.INVALID_GROUP_ID, "group.id must be set for this")

    def _want_topics(self) -> None:
        if self.network.metadata.all_topics:
            return
        subscription = self.subscription
        wanted = subscription.topics | self.member.leader_topics | self._requests.topics | self.asked_topics
        wanted |= {tp.topic for tp in subscription.partitions}
        for lookup in self._lookups:
            wanted |= lookup.topics
        self.network.metadata.want_only(sorted(wanted))

    def _commit(
        self,
        member: GroupMetadata,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        now: Now,
        timeout_ms: int,
        *,
        retries: bool,
        automatic: bool = False,
    ) -> OffsetCommit:
        owned = {tp: self.subscription.partitions.get(tp) for tp in offsets}

        def renewed() -> GroupMetadata | None:
            still = all(
                state is not None and self.subscription.partitions.get(tp) is state for tp, state in owned.items()
            )
            return self.member.metadata if still else None

        commit = OffsetCommit(
            self.network.metadata,
            member,
            offsets,
            now.monotonic_ms + timeout_ms,
            retries=retries,
            automatic=automatic,
            on_committed=self.on_committed,
            renewed=renewed,
        )
        if offsets:
            self._requests.add(commit)
            self._requests.run(now)
        else:
            commit.finish(None)
        return commit

    def _commit_if_due(self, now: Now) -> None:
        """The positions, which are behind the records that the user has got from earlier polls."""
        if not self.settings.auto_commit:
            return
        last = self._auto_commit
        if self._commit_due_ms is None:
            self._commit_due_ms = now.monotonic_ms + self.settings.auto_commit_ms
        elif now.monotonic_ms >= self._commit_due_ms and (last is None or last.done or last.waits_to_retry):
            self._commit_due_ms = now.monotonic_ms + self.settings.auto_commit_ms
            if last is not None and last.error is not None:
                log.warning("automatic commit failed", extra={"error": last.error.message})
            self._auto_commit = self.commit_positions(now, self.settings.network.request_timeout_ms)

    def _commit_before_revocation(self, partitions: Sequence[TopicPartition], now: Now) -> bool:
        """Whether the positions of these partitions are committed, as far as that is wanted and possible."""
        if not self.settings.auto_commit:
            return True
        last = self._last_commit
        if last is None or last[0] is not partitions:  # one of a revocation that was broken off says nothing of this
            offsets = {tp: offset for tp, offset in self.positions().items() if tp in set(partitions)}
            timeout_ms = min(self.settings.network.request_timeout_ms, self.settings.poll_ms_max)
            commit = self._commit(self.member.metadata, offsets, now, timeout_ms, retries=True, automatic=True)
            last = self._last_commit = (partitions, commit)
        if not last[1].done:
            return False
        if last[1].error is not None:
            log.warning("offsets were not committed", extra={"error": last[1].error.message})
        self._last_commit = None
        return True
