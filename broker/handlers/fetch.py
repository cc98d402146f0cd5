"""Fetch (key 1), v4-18: record batches from given offsets; waits for min_bytes up to max_wait_ms.

v4 isolation level: read_committed stops at the last stable offset, and gets the list of aborted transactions; v5 log
start offset; v7 sessions (KIP-227); v9 leader epochs (KIP-320); v11 rack; v12 flexible, diverging epochs;
v13 topic ids; v15 replica state; v16 leader hints; v18 the follower's high watermark.
A follower's Fetch is also answered when the log start offset of the leader is raised.
Since v11 a consumer may read from any replica, up to the high watermark known there; if replica.selector.class is
rack-aware, a leader returns a replica on the consumer's rack (KIP-392).
A Fetch with the id of a broker comes from a follower and is refused except on the internal listener. It reads to the
end of the log, and its offsets show the leader the follower's progress. A consumer has a negative id, and requires READ
on each topic, on every read.
"""

from __future__ import annotations

from collections.abc import Hashable
from contextlib import suppress
from functools import partial
from itertools import groupby
from typing import TYPE_CHECKING, NamedTuple
from uuid import UUID

from raylog.broker.handlers.requested_topics import resolve
from raylog.broker.traffic import NOT_FAILURES
from raylog.core.errors import ErrorCode, KafkaError
from raylog.core.ids import NO_BROKER_ID, NO_LEADER_EPOCH, BrokerId, LeaderEpoch, Offset, TopicPartition
from raylog.logstore.cold_reads import ColdRead, FileRange, warm
from raylog.protocol.fetch import (
    AbortedTransaction,
    EpochEndOffset,
    FetchPartition,
    FetchPartitionResponse,
    FetchRequest,
    FetchResponse,
    FetchTopicResponse,
)
from raylog.protocol.fetch_session import NO_SESSION_ID, PartitionKey
from raylog.replication.fetch_sessions import FetchContext, Results
from raylog.replication.partition_change import Change, PartitionChange, SessionChange
from raylog.replication.replica_selector import closest_replica
from raylog.security.acl import Operation
from raylog.transport.node import Job, JobKind

if TYPE_CHECKING:
    from raylog.broker.services import BrokerServices
    from raylog.logstore.log import FetchSlice
    from raylog.quotas.client_quotas import Limit
    from raylog.replication.partition import Partition
    from raylog.transport.exchange import Exchange

RESPONSE_BYTES_MAX = 4 << 20
"""The upper limit of one response, regardless of the request: larger ones exceed the processor's cache."""
RESPONSE_BYTES_MAX_CROWDED = 256 << 10
"""The same while slow peers hold UNSENT_BYTES_MAX of responses."""
UNSENT_BYTES_MAX = 64 << 20
FIRST_VERSION_WITH_RACK = 11
READ_COMMITTED = 1
COLD_READS_MAX = 2
"""How often one Fetch starts a disk read: first for index pages, then for record pages. Then it blocks on the disk."""


def handle(broker: BrokerServices, exchange: Exchange, request: FetchRequest) -> FetchResponse | None:
    if request.from_follower and not exchange.internal:
        return _refuse_all(request)
    fetched = broker.fetch_sessions.context(request, version=exchange.api_version, now_ms=exchange.now.monotonic_ms)
    if isinstance(fetched, ErrorCode):
        return FetchResponse(error_code=fetched)
    reading = _Reading(broker, exchange, request, fetched)
    if reading.is_follower:
        reading.note_follower()
    return _read(broker, exchange, reading, cold_reads_max=COLD_READS_MAX)


def _read(
    broker: BrokerServices, exchange: Exchange, reading: _Reading, *, cold_reads_max: int
) -> FetchResponse | None:
    """The response, or None if it is sent later: when data arrives, or when a job has read the data from the disk."""
    cold: list[FileRange] = []
    results = reading.read(cold if cold_reads_max else None)
    if cold:

        def warmed(_: OSError | None) -> None:
            if exchange.cancelled:
                return
            reading.resolve()
            response = _read(broker, exchange, reading, cold_reads_max=cold_reads_max - 1)
            if response is not None:
                exchange.answer(response)

        broker.add_job(Job(partial(warm, broker.disk, cold), warmed, JobKind.READ))
    elif reading.must_answer(results) or reading.max_wait_ms <= 0:
        return reading.response(results)
    else:
        exchange.wait_for(DelayedFetch(reading), reading.keys())
    return None


class DelayedFetch:
    """A Fetch that waits for bytes. It counts new bytes, and reads only when they may be enough."""

    def __init__(self, reading: _Reading) -> None:
        self._reading = reading
        self._missing_bytes = reading.missing_bytes
        self.deadline_ms = reading.deadline_ms

    def try_complete(self, grown_bytes: int) -> bool:
        """`grown_bytes` 0 is another change, such as a new log start offset."""
        self._missing_bytes -= grown_bytes
        if grown_bytes and self._missing_bytes > 0:
            return False
        self._reading.resolve()
        results = self._reading.read()
        if not self._reading.must_answer(results):
            self._missing_bytes = self._reading.missing_bytes
            return False
        self._reading.reply(results)
        return True

    def complete(self) -> None:
        self._reading.resolve()
        self._reading.reply(self._reading.read())


class _Wanted(NamedTuple):
    """A partition of the request, and the result of resolving its name or id."""

    key: PartitionKey
    wanted: FetchPartition
    tp: TopicPartition
    refusal: ErrorCode | None


class _Reading:
    """One Fetch in its session: the partitions to read, and the limits."""

    def __init__(
        self, broker: BrokerServices, exchange: Exchange, request: FetchRequest, fetched: FetchContext
    ) -> None:
        self._broker = broker
        self._exchange = exchange
        self._request = request
        self._fetched = fetched
        crowded = broker.unsent_bytes > UNSENT_BYTES_MAX
        response_bytes_max = RESPONSE_BYTES_MAX_CROWDED if crowded else RESPONSE_BYTES_MAX
        self._max_bytes = min(request.max_bytes, broker.settings.requests.fetch_bytes_max, response_bytes_max)
        limits = None if broker.quotas is None else broker.quotas.limits_of(exchange)
        self._quota = None if limits is None else limits.consumer
        if self._quota is not None and broker.quotas is not None:
            self._max_bytes = min(self._max_bytes, broker.quotas.usage.fetched_bytes_max(self._quota))
        self.deadline_ms = exchange.now.monotonic_ms + request.max_wait_ms
        self.max_wait_ms = request.max_wait_ms
        self.min_bytes = min(request.min_bytes, max(1, self._max_bytes))  # more would never fit
        self.committed = request.isolation_level == READ_COMMITTED
        self.is_follower = request.from_follower
        self.record_bytes = 0
        """Of the last `read`."""
        self._cut_bytes = 0
        """What its limits left unused because the next batch did not fit."""
        rack_aware = broker.settings.replication.rack_aware
        self._rack_id = request.rack_id if rack_aware and not self.is_follower else ""
        self.resolve()

    def resolve(self) -> None:
        """Resolve the topics and check the client's rights, before every read of the partitions."""
        by_id = self._exchange.api_version >= 13
        topic: str | None = None
        topic_id: UUID | None = None
        name, refusal = "", None
        wanted: list[_Wanted] = []
        for key, partition in self._fetched.to_read():
            if key.topic is not topic or key.topic_id is not topic_id:  # those of a topic mostly follow one another
                topic, topic_id = key.topic, key.topic_id
                name, refusal = resolve(self._broker, self._exchange, Operation.READ, topic, topic_id, by_id=by_id)
            wanted.append(_Wanted(key, partition, TopicPartition(name, key.partition), refusal))
        self._wanted = wanted

    def keys(self) -> list[Hashable]:
        """The keys under which the Fetch waits: in a session the changes of any of its partitions."""
        changes = [Change.readable(committed=self.committed)]
        if self.is_follower:
            changes = [Change.APPENDED, *([Change.COMMITTED] if self._fetched.hears_of_commits else ())]
        if self._fetched.is_incremental:
            for one in self._wanted:
                if one.refusal is None:
                    self._fetched.watch(one.key, one.tp)
            return [SessionChange(self._fetched.session_id, change) for change in changes]
        return [PartitionChange(one.tp, change) for one in self._wanted if one.refusal is None for change in changes]

    @property
    def missing_bytes(self) -> int:
        """How many bytes the last `read` lacked."""
        return self.min_bytes - self.record_bytes - self._cut_bytes

    def note_follower(self) -> None:
        """Record the follower's fetch offset if the logs agree up to it; this may complete waiting requests."""
        for _, wanted, tp, refusal in self._wanted:
            if refusal is None:
                with suppress(KafkaError):  # the partition's result has the error
                    self._note_position(tp, wanted)

    def _note_position(self, tp: TopicPartition, wanted: FetchPartition) -> None:
        partition = self._broker.partition(tp)
        partition.check_leader_epoch(wanted.current_leader_epoch)
        offset = Offset(wanted.fetch_offset)
        if self._diverging_epoch(partition, wanted) is not None:
            return
        if not partition.log.log_start_offset <= offset <= partition.log.log_end_offset:
            return
        replica = self._request.replica_state
        moved = partition.follower_fetched(
            BrokerId(replica.replica_id),
            offset,
            log_start_offset=wanted.log_start_offset,
            broker_epoch=replica.replica_epoch,
            now_ms=self._exchange.now.monotonic_ms,
        )
        if moved:
            self._broker.partition_committed(tp)
        self._broker.isr_changes.check(tp, self._exchange.now)

    def must_answer(self, results: Results) -> bool:
        """Whether to respond now: enough bytes, other news for the client, or no partitions requested."""
        if self._fetched.is_empty or self.missing_bytes <= 0:
            return True
        return any(
            result.error_code != ErrorCode.NONE
            or result.diverging_epoch.epoch != NO_LEADER_EPOCH
            or result.preferred_read_replica != NO_BROKER_ID
            or result.high_watermark > one.wanted.high_watermark  # only followers that wait for it send it
            or (self.is_follower and self._fetched.raises_log_start(key, result))
            for (key, result), one in zip(results, self._wanted, strict=True)
        )

    def read(self, cold: list[FileRange] | None = None) -> Results:
        """Every partition in the session's order, until the byte limit; the first with data gives at least a batch.

        With `cold`, no read blocks on the disk: ranges that are not in memory are added to it, and their records
        omitted.
        """
        remaining = self._max_bytes
        self._cut_bytes = 0
        results: Results = []
        for key, wanted, tp, refusal in self._wanted:
            if refusal is None:
                first = remaining == self._max_bytes
                try:
                    result = self._read_partition(tp, wanted, remaining, first=first, resident_only=cold is not None)
                except ColdRead as read:
                    assert cold is not None
                    cold.append(read.cold)
                    result = FetchPartitionResponse(partition_index=key.partition, records=())
            else:
                result = FetchPartitionResponse(partition_index=key.partition, error_code=refusal, records=())
            if result.records:
                remaining -= len(result.records[0])
            elif refusal is None and self._is_at_end(tp, wanted, result):
                self._fetched.settle(key, tp, result)
            results.append((key, result))
        self.record_bytes = self._max_bytes - remaining
        return results

    def _is_at_end(self, tp: TopicPartition, wanted: FetchPartition, result: FetchPartitionResponse) -> bool:
        """Whether the reader has all that it may have, and `result` tells it to go on here."""
        if (
            self._rack_id  # other replicas may come closer at any time
            or result.error_code != ErrorCode.NONE
            or result.diverging_epoch.epoch != NO_LEADER_EPOCH
        ):
            return False
        if self.is_follower:
            return wanted.fetch_offset == self._broker.partitions[tp].log.log_end_offset
        return wanted.fetch_offset == (result.last_stable_offset if self.committed else result.high_watermark)

    def response(self, results: Results) -> FetchResponse:
        if self.is_follower:
            self._count_for_throttle(results)
            self._broker.traffic.replication_bytes_out += self.record_bytes
        elif self._quota is not None and not self._may_have(results, self._quota):
            return FetchResponse(session_id=self._broker.fetch_sessions.of_empty_response(self._fetched))
        else:
            self._count_traffic(results)
        topics = [
            FetchTopicResponse(name=name, topic_id=topic_id, partitions=[result for _, result in entries])
            for (name, topic_id), entries in groupby(self._fetched.changed(results), key=lambda entry: entry[0][:2])
        ]
        return FetchResponse(session_id=self._fetched.session_id, responses=topics)

    def _count_traffic(self, results: Results) -> None:
        known, partitions = self._broker.traffic, self._broker.partitions
        topic, traffic = "", known.others
        for (_, result), one in zip(results, self._wanted, strict=True):
            if one.tp.topic is not topic:  # those of a topic mostly follow one another
                topic = one.tp.topic
                traffic = known.topics[topic] if one.tp in partitions else known.others
            traffic.fetches += 1
            if result.records:
                traffic.bytes_out += len(result.records[0])
            elif result.error_code != ErrorCode.NONE and result.error_code not in NOT_FAILURES:
                traffic.failed_fetches += 1

    def _may_have(self, results: Results, quota: Limit) -> bool:
        """Charge the consumer. Over its quota it gets an empty response, with the time for which it is throttled."""
        quotas = self._broker.quotas
        size_bytes = sum(len(piece) for _, result in results for piece in result.records or ())
        if quotas is None or not size_bytes:
            return True
        throttle_ms, permitted = quotas.usage.charge_fetched(quota, size_bytes, self._exchange.node.now_ms)
        self._exchange.throttle_ms = throttle_ms
        return permitted

    # --- throttling of followers that catch up (KIP-73)

    def _is_throttled(self, partition: Partition) -> bool:
        return partition.throttled_as_leader and not partition.is_in_sync(BrokerId(self._request.replica_id))

    def _is_held_back(self, partition: Partition) -> bool:
        if not self._is_throttled(partition):
            return False
        rate, now_ms = self._broker.settings.replication.leader_rate_bytes_per_sec, self._exchange.now.monotonic_ms
        return self._broker.leader_throttle.free_ms(rate_bytes_per_sec=rate, now_ms=now_ms) > now_ms

    def _count_for_throttle(self, results: Results) -> None:
        rate = self._broker.settings.replication.leader_rate_bytes_per_sec
        for one, (_, result) in zip(self._wanted, results, strict=True):
            partition = self._broker.partitions.get(one.tp) if result.records else None
            if partition is not None and self._is_throttled(partition):
                size_bytes = sum(map(len, result.records or ()))
                self._broker.leader_throttle.used(
                    size_bytes, rate_bytes_per_sec=rate, now_ms=self._exchange.now.monotonic_ms
                )

    def reply(self, results: Results) -> None:
        self._exchange.answer(self.response(results))

    def _replica(self, tp: TopicPartition) -> Partition:
        if self.is_follower or self._exchange.api_version < FIRST_VERSION_WITH_RACK:
            return self._broker.partition(tp)
        return self._broker.replica(tp)

    def _diverging_epoch(self, partition: Partition, wanted: FetchPartition) -> tuple[LeaderEpoch, Offset] | None:
        """Where the reader's log diverges from this one. Raises KafkaError as `Partition` does."""
        if self.is_follower:
            replica = BrokerId(self._request.replica_id)
            partition.check_follower_start(replica, wanted.fetch_offset, log_start_offset=wanted.log_start_offset)
        return partition.diverging_epoch(LeaderEpoch(wanted.last_fetched_epoch), Offset(wanted.fetch_offset))

    def _preferred_replica(self, partition: Partition, offset: int) -> BrokerId:
        """The replica the consumer should read from instead of this leader; NO_BROKER_ID: none."""
        if not self._rack_id or partition.replicas is None:
            return NO_BROKER_ID
        reachable = self._broker.alive_on(self._exchange.connection.listener.name)
        racks = {broker_id: rack for broker_id, _, _, rack in reachable}
        own_id = self._broker.identity.node_id
        closest = closest_replica(self._rack_id, racks, own_id, partition.replicas.holders(offset))
        return NO_BROKER_ID if closest == own_id else closest

    def _read_partition(
        self, tp: TopicPartition, wanted: FetchPartition, remaining: int, *, first: bool, resident_only: bool
    ) -> FetchPartitionResponse:
        log_start_offset = -1
        try:
            partition = self._replica(tp)
            partition.check_leader_epoch(wanted.current_leader_epoch)
            if not partition.is_leader and wanted.fetch_offset > partition.log.log_end_offset:
                raise KafkaError(ErrorCode.OFFSET_NOT_AVAILABLE)  # the leader may have it
            preferred = self._preferred_replica(partition, wanted.fetch_offset)
            if preferred != NO_BROKER_ID:
                return FetchPartitionResponse(
                    partition_index=tp.partition,
                    high_watermark=partition.high_watermark,
                    last_stable_offset=partition.last_stable_offset,
                    log_start_offset=partition.log.log_start_offset,
                    preferred_read_replica=preferred,
                    records=(),
                )
            if self.is_follower:  # it may have to restart its log there
                log_start_offset = partition.log.log_start_offset
            diverging = self._diverging_epoch(partition, wanted)
            if diverging is not None:
                epoch, end_offset = diverging
                return FetchPartitionResponse(
                    partition_index=tp.partition,
                    high_watermark=partition.high_watermark,
                    last_stable_offset=partition.last_stable_offset,
                    log_start_offset=partition.log.log_start_offset,
                    records=(),
                    diverging_epoch=EpochEndOffset(epoch=epoch, end_offset=end_offset),
                )
            high_watermark, last_stable_offset = partition.high_watermark, partition.last_stable_offset
            upto = last_stable_offset if self.committed else high_watermark
            if self.is_follower:
                upto = partition.log.log_end_offset
                if self._is_held_back(partition):
                    upto = min(upto, Offset(wanted.fetch_offset))
            max_bytes = max(0, min(wanted.partition_max_bytes, remaining))
            piece = partition.log.read(
                Offset(wanted.fetch_offset),
                upto=upto,
                max_bytes=max_bytes,
                at_least_one_batch=first,
                resident_only=resident_only,
            )
            records = piece.records
            if piece.next_offset < upto:
                self._cut_bytes += max(0, max_bytes - len(records))
            return FetchPartitionResponse(
                partition_index=tp.partition,
                high_watermark=high_watermark,
                last_stable_offset=last_stable_offset,
                log_start_offset=piece.log_start_offset,
                aborted_transactions=_aborted(partition, piece) if self.committed else None,
                records=(records,) if records else (),
            )
        except KafkaError as error:
            return FetchPartitionResponse(
                partition_index=tp.partition, error_code=error.code, log_start_offset=log_start_offset, records=()
            )


def _refuse_all(request: FetchRequest) -> FetchResponse:
    topics = [
        FetchTopicResponse(
            name=topic.name,
            topic_id=topic.topic_id,
            partitions=[
                FetchPartitionResponse(
                    partition_index=wanted.partition, error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED, records=()
                )
                for wanted in topic.partitions
            ],
        )
        for topic in request.topics
    ]
    return FetchResponse(session_id=NO_SESSION_ID, responses=topics)


def _aborted(partition: Partition, piece: FetchSlice) -> list[AbortedTransaction]:
    """The aborted transactions in the range that was read."""
    found = partition.log.aborted_transactions(piece.start, piece.next_offset)
    return [AbortedTransaction(producer_id=one.producer_id, first_offset=one.first_offset) for one in found]
