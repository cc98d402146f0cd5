"""ShareFetch (key 78), v1-2: acquire records for a member of a share group, and acknowledge earlier ones (KIP-932).

v2 the acquire mode, and renewal of acquisition locks. A session lists the partitions; the request holds what changes.
Acknowledgements come first: the response waits until they are stored. Then it waits for min_bytes up to max_wait_ms.
Requires READ on the group and on each topic.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from raylog.broker.handlers.fetch import COLD_READS_MAX, RESPONSE_BYTES_MAX
from raylog.broker.share.acknowledgements import Results, acknowledge, client_code
from raylog.broker.share.member_requests import check_enabled, check_member, leader_of, node_endpoints
from raylog.broker.share.sessions import INITIAL_EPOCH, SessionKey, ShareSession, TopicIdPartition
from raylog.broker.share.share_partition import Span
from raylog.broker.share.share_partitions import Acquirable
from raylog.core.errors import ErrorCode, KafkaError
from raylog.core.ids import Offset, TopicPartition
from raylog.logstore.cold_reads import ColdRead, FileRange, warm
from raylog.protocol.messages.share_fetch import (
    AcquiredRecords,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
    ShareFetchableTopicResponse,
    ShareFetchRequest,
    ShareFetchResponse,
)
from raylog.protocol.records.batch import split_batches
from raylog.protocol.records.isolation import Aborted, AbortedBatches
from raylog.protocol.share import AcquireMode
from raylog.replication.partition_change import Change, PartitionChange
from raylog.security.acl import Operation, Resource
from raylog.sharecoord.records import SharePartitionKey
from raylog.transport.node import Job, JobKind

if TYPE_CHECKING:
    from raylog.broker.services import BrokerServices
    from raylog.broker.share.share_partition import SharePartition
    from raylog.logstore.log import FetchSlice
    from raylog.replication.partition import Partition
    from raylog.transport.exchange import Exchange


def handle(broker: BrokerServices, exchange: Exchange, request: ShareFetchRequest) -> ShareFetchResponse | None:
    try:
        session, wanted = _session(broker, exchange, request)
    except KafkaError as error:
        return ShareFetchResponse(error_code=error.code, error_message=error.message)

    def acknowledged(results: Results) -> None:
        if session.ended:  # also if its connection has closed meanwhile
            broker.end_share_session(session.key, broker.now, orderly=True)
        if exchange.cancelled:
            return
        fetch = _ShareFetch(broker, exchange, request, session, results)
        fetch.run(cold_reads_max=COLD_READS_MAX)

    acknowledge(broker, exchange, request, wanted, acknowledged)
    return None


def _session(
    broker: BrokerServices, exchange: Exchange, request: ShareFetchRequest
) -> tuple[ShareSession, list[tuple[TopicIdPartition, Sequence[Any]]]]:
    """The session, and the partitions with acknowledgements. Raises KafkaError for the whole request."""
    group, member_id = check_member(request)
    check_enabled(broker)
    broker.authorization.check(exchange, Operation.READ, Resource.group(group))
    named = [(topic.topic_id, each) for topic in request.topics for each in topic.partitions]
    wanted: list[tuple[TopicIdPartition, Sequence[Any]]] = [
        ((topic_id, each.partition_index), each.acknowledgement_batches)
        for topic_id, each in named
        if each.acknowledgement_batches
    ]
    if wanted and request.share_session_epoch == INITIAL_EPOCH:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "The first request of a session cannot acknowledge records.")
    if len({partition for partition, _ in wanted}) < len(wanted):
        raise KafkaError(ErrorCode.INVALID_REQUEST, "A partition is named twice.")
    if request.share_acquire_mode not in list(AcquireMode):
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"The acquire mode {request.share_acquire_mode} is unknown.")
    limits = (request.max_wait_ms, request.min_bytes, request.max_bytes, request.max_records)
    if request.is_renew_ack and any(limits):
        raise KafkaError(ErrorCode.INVALID_REQUEST, "A request that renews locks cannot fetch records.")
    session = broker.share_sessions.fetched(
        SessionKey(group, member_id),
        request.share_session_epoch,
        exchange.connection,
        added=[(topic_id, each.partition_index) for topic_id, each in named],
        forgotten=[(topic.topic_id, number) for topic in request.forgotten_topics_data for number in topic.partitions],
    )
    return session, wanted


class _Piece(NamedTuple):
    """What was read of a share-partition, from the first offset that can be acquired."""

    topic_id_partition: TopicIdPartition
    key: SharePartitionKey
    machine: SharePartition
    partition: Partition
    slice: FetchSlice
    is_cut: bool
    """Whether the limit of bytes ended it before the last batch that can be read."""


class _ShareFetch:
    """One ShareFetch whose acknowledgements are stored. It reads, and acquires only once it answers."""

    def __init__(
        self,
        broker: BrokerServices,
        exchange: Exchange,
        request: ShareFetchRequest,
        session: ShareSession,
        results: Results,
    ) -> None:
        self._broker = broker
        self._exchange = exchange
        self._request = request
        self._session = session
        self._results = results
        self.deadline_ms = exchange.now.monotonic_ms + max(request.max_wait_ms, 0)
        self._limits = broker.share_limits(session.key.group)
        limits = None if broker.quotas is None else broker.quotas.limits_of(exchange)
        self._quota = None if limits is None else limits.consumer
        self._errors: dict[TopicIdPartition, KafkaError] = {}
        self._max_bytes = min(request.max_bytes, RESPONSE_BYTES_MAX)
        self._min_bytes = min(request.min_bytes, self._max_bytes)  # more would never fit
        self._missing_bytes = 0
        """How many bytes the last `_read` lacked."""

    @property
    def _fetches(self) -> bool:
        return not self._session.ended and self._request.max_records > 0 and self._request.max_bytes > 0

    def run(self, *, cold_reads_max: int) -> None:
        """Answer, now or later."""
        cold: list[FileRange] = []
        pieces = self._read(cold if cold_reads_max else None)
        if cold:

            def warmed(_: OSError | None) -> None:
                if not self._exchange.cancelled:
                    self.run(cold_reads_max=cold_reads_max - 1)

            self._broker.add_job(Job(partial(warm, self._broker.disk, cold), warmed, JobKind.READ))
        elif self._must_answer(pieces) or self._request.max_wait_ms <= 0:
            self._answer(pieces)
        else:
            self._exchange.wait_for(self, self._keys())

    # --- as a delayed operation

    def try_complete(self, grown_bytes: int) -> bool:
        self._missing_bytes -= grown_bytes
        if grown_bytes and self._missing_bytes > 0:
            return False
        pieces = self._read()
        if not self._must_answer(pieces):
            return False
        self._answer(pieces)
        return True

    def complete(self) -> None:
        self._answer(self._read())

    # --- reading

    def _keys(self) -> list[Hashable]:
        keys: list[Hashable] = []
        change = Change.readable(committed=self._broker.share_read_committed(self._session.key.group))
        for topic_id, number in self._session.partitions:
            topic = self._broker.image.topics_by_id.get(topic_id)
            if topic is not None:
                tp = TopicPartition(topic.name, number)
                keys += [
                    PartitionChange(tp, change),
                    Acquirable(SharePartitionKey(self._session.key.group, topic_id, number)),
                ]
        return keys

    def _must_answer(self, pieces: Sequence[_Piece]) -> bool:
        if not self._fetches or not self._session.partitions or self._errors:
            return True
        return bool(pieces) and self._missing_bytes <= 0

    def _read(self, cold: list[FileRange] | None = None) -> list[_Piece]:
        """What can be acquired of each partition, up to the limit of bytes."""
        self._errors = {}
        pieces: list[_Piece] = []
        self._missing_bytes = self._min_bytes
        if not self._fetches:
            return pieces
        remaining = self._max_bytes
        for topic_id_partition in self._session.partitions:
            try:
                piece = self._read_partition(
                    topic_id_partition, remaining, first=not pieces, resident_only=cold is not None
                )
            except ColdRead as read:
                assert cold is not None
                cold.append(read.cold)
                continue
            except KafkaError as error:
                self._errors[topic_id_partition] = error
                continue
            if piece is not None and piece.slice.records:
                pieces.append(piece)
                if piece.is_cut:  # the next batch does not fit into what is left
                    self._missing_bytes -= max(0, remaining - len(piece.slice.records))
                self._missing_bytes -= len(piece.slice.records)
                remaining -= len(piece.slice.records)
                if remaining <= 0:
                    break
        return pieces

    def _read_partition(
        self, topic_id_partition: TopicIdPartition, remaining: int, *, first: bool, resident_only: bool
    ) -> _Piece | None:
        topic_id, number = topic_id_partition
        topic = self._broker.image.topics_by_id.get(topic_id)
        if topic is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID)
        self._broker.authorization.check(self._exchange, Operation.READ, Resource.topic(topic.name))
        partition = self._broker.partition(TopicPartition(topic.name, number))
        key = SharePartitionKey(self._session.key.group, topic_id, number)
        machine = self._broker.share_partitions.open(key, partition, self._broker.now)
        offset = None if machine is None else machine.fetch_offset()
        if machine is None or offset is None:
            return None
        upto = partition.readable_upto(committed=self._broker.share_read_committed(key.group))
        if offset >= upto:
            return None
        piece = partition.log.read(
            Offset(offset), upto=upto, max_bytes=remaining, at_least_one_batch=first, resident_only=resident_only
        )
        return _Piece(topic_id_partition, key, machine, partition, piece, piece.next_offset < upto)

    # --- the answer

    def _answer(self, pieces: Sequence[_Piece]) -> None:
        found: dict[TopicIdPartition, PartitionData] = {}
        remaining = self._request.max_records
        size_bytes = 0
        for piece in pieces:
            data = self._acquire(piece, remaining)
            if data is not None:
                found[piece.topic_id_partition] = data
                size_bytes += len(data.records)
                remaining -= sum(each.last_offset - each.first_offset + 1 for each in data.acquired_records)
        if found:
            self._session.read_first(next(iter(found)))
        self._charge(size_bytes)
        leaders: dict[TopicIdPartition, LeaderIdAndEpoch] = {}
        codes = {key: client_code(error) for key, error in [*self._results.items(), *self._errors.items()]}
        for key, (code, _) in codes.items():
            if code is ErrorCode.NOT_LEADER_OR_FOLLOWER:
                leader_id, leader_epoch = leader_of(self._broker, key)
                leaders[key] = LeaderIdAndEpoch(leader_id=leader_id, leader_epoch=leader_epoch)
        answered: dict[object, list[PartitionData]] = {}
        for key in dict.fromkeys((*found, *self._results, *self._errors)):
            acknowledge_code, acknowledge_message = client_code(self._results.get(key))
            code, message = client_code(self._errors.get(key))
            data = found.get(key)
            answered.setdefault(key[0], []).append(
                PartitionData(
                    partition_index=key[1],
                    error_code=code,
                    error_message=message,
                    acknowledge_error_code=acknowledge_code,
                    acknowledge_error_message=acknowledge_message,
                    current_leader=leaders.get(key, LeaderIdAndEpoch()),
                    records=b"" if data is None else data.records,
                    acquired_records=() if data is None else data.acquired_records,
                )
            )
        ends = node_endpoints(self._broker, self._exchange, [leader.leader_id for leader in leaders.values()])
        self._exchange.answer(
            ShareFetchResponse(
                acquisition_lock_timeout_ms=self._limits.lock_duration_ms,
                responses=tuple(
                    ShareFetchableTopicResponse(topic_id=topic_id, partitions=tuple(partitions))  # type: ignore[arg-type]
                    for topic_id, partitions in answered.items()
                ),
                node_endpoints=tuple(
                    NodeEndpoint(node_id=node_id, host=host, port=port, rack=rack) for node_id, host, port, rack in ends
                ),
            )
        )

    def _acquire(self, piece: _Piece, max_records: int) -> PartitionData | None:
        """The acquired records, and the batches that hold them."""
        records = piece.slice.records
        aborted = AbortedBatches(())
        if self._broker.share_read_committed(piece.key.group):
            found = piece.partition.log.aborted_transactions(piece.slice.start, piece.slice.next_offset)
            aborted = AbortedBatches([Aborted(one.producer_id, one.first_offset) for one in found])
        spans: list[Span] = []
        places: list[tuple[int, int]] = []
        for position, header in split_batches(records):
            is_aborted = aborted.include(header)
            is_delivered = not header.is_control and not is_aborted
            spans.append(Span(header.base_offset, header.last_offset, is_delivered))
            places.append((position, position + header.size_bytes))
        acquired = piece.machine.acquire(
            self._session.key.member_id,
            spans,
            next_offset=piece.slice.next_offset,
            max_records=max_records,
            mode=AcquireMode(self._request.share_acquire_mode),
            now_ms=self._broker.now.monotonic_ms,
        )
        if not acquired:
            return None
        self._broker.share_partitions.acquired(piece.key)
        first, last = acquired[0].first_offset, acquired[-1].last_offset
        held = [place for span, place in zip(spans, places, strict=True) if span.last_offset >= first]
        held = held[: sum(span.last_offset >= first and span.first_offset <= last for span in spans)]
        return PartitionData(
            partition_index=piece.key.partition,
            records=bytes(records[held[0][0] : held[-1][1]]),
            acquired_records=tuple(
                AcquiredRecords(first_offset=one, last_offset=other, delivery_count=count)
                for one, other, count in acquired
            ),
        )

    def _charge(self, size_bytes: int) -> None:
        """A member that is over its quota has what it has acquired, and is throttled."""
        quotas = self._broker.quotas
        if self._quota is not None and quotas is not None and size_bytes:
            now_ms = self._exchange.node.now_ms
            self._exchange.throttle_ms = quotas.usage.charge_delivered(self._quota, size_bytes, now_ms)
