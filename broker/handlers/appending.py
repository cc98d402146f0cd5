"""Appends the batches of a Produce request, and says what its response waits for.

All records of a batch are checked first (`logstore/record_set.py`). Where that takes long, because the batch is
compressed or has very many records, a job does it, and later requests of the connection wait.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from raylog.broker.handlers.zstd import refuse_zstd
from raylog.core.errors import ErrorCode, KafkaError
from raylog.core.ids import TopicPartition
from raylog.logstore.record_set import INLINE_BYTES_MAX, CheckedRecordSet, RecordsRefused, TooMuchWork, check_record_set
from raylog.protocol.produce import ProducePartition, ProducePartitionResponse, ProduceRequest, RecordError
from raylog.protocol.records.batch import BatchHeader, parse_header
from raylog.protocol.records.record_scan import compile_kernel
from raylog.transport.commits import CommitPoint
from raylog.transport.node import Job, JobKind

if TYPE_CHECKING:
    from raylog.broker.services import BrokerServices
    from raylog.logstore.settings import LogSettings
    from raylog.replication.partition import Partition
    from raylog.transport.exchange import Exchange

ACKS_ALL = -1
REFUSED_FOR_NOW = "an idempotent batch was refused with a retriable error"
"""Why a connection is closed, for example after another broker has become the leader."""
FIRST_VERSION_WITH_ZSTD = 7
DECOMPRESSION_BYTES_MIN = 8192
"""What a compressed batch counts at least among INLINE_BYTES_MAX: to begin takes time as well."""


UNDECIDED = ProducePartitionResponse()
"""In the place of a result until the batch is appended or refused."""


class Place(NamedTuple):
    """Where the result of a partition stands."""

    results: list[ProducePartitionResponse]
    at: int


class _Postponed(NamedTuple):
    """A batch that a job checks before it is appended."""

    place: Place
    tp: TopicPartition
    sent: ProducePartition
    """In its own memory."""
    settings: LogSettings


class Appending:
    """The appends of one request."""

    def __init__(self, broker: BrokerServices, exchange: Exchange, request: ProduceRequest) -> None:
        self.uncommitted: list[Place] = []
        self.points: list[CommitPoint] = []
        """What the batches at `uncommitted` wait for."""
        self.postponed: list[_Postponed] = []
        self._broker = broker
        self.exchange = exchange
        self._request = request
        self._inline_bytes = INLINE_BYTES_MAX

    def append(
        self,
        place: Place,
        tp: TopicPartition,
        sent: ProducePartition,
        checked: CheckedRecordSet | KafkaError | None = None,
    ) -> None:
        """Append one batch, or postpone it unless it is already `checked`; its result is set at `place`."""
        results, at = place
        broker, exchange = self._broker, self.exchange
        acks_all = self._request.acks == ACKS_ALL
        try:
            partition = broker.partition(tp)
            if acks_all and not partition.has_enough_replicas:
                partition.check_insync_replicas()
        except KafkaError as error:
            close_if_idempotent(exchange, sent)
            results[at] = _refused(tp, error)
            broker.traffic.others.produce_refused(error.code, len(sent.records or b""))
            return
        traffic = broker.traffic.topics[tp.topic]
        try:
            if checked is None:
                checked = self._check(sent, partition.log.settings)
            if isinstance(checked, KafkaError):
                raise checked
            appended = partition.append_as_leader(checked, now_ms=exchange.now.wall_ms)
        except TooMuchWork:
            own = own_memory(sent)
            self.postponed.append(_Postponed(place, tp, own, partition.log.settings))
            return
        except KafkaError as error:
            results[at] = _refused(tp, error)
            traffic.produce_refused(error.code, len(sent.records or b""))
            return
        size_bytes = len(checked.data)
        if not appended.duplicate:
            traffic.messages_in += appended.record_count
            traffic.bytes_in += size_bytes
        traffic.produces += 1
        broker.partition_appended(tp, size_bytes)
        results[at] = ProducePartitionResponse(
            index=tp.partition,
            base_offset=appended.first_offset,
            log_append_time_ms=appended.log_append_time_ms,
            log_start_offset=appended.log_start_offset,
        )
        if acks_all:
            self._wait_for_commit(place, partition)

    def _wait_for_commit(self, place: Place, partition: Partition) -> None:
        point = partition.commit_point()
        if point is not None:
            self.uncommitted.append(place)
            self.points.append(point)

    def _check(self, sent: ProducePartition, settings: LogSettings) -> CheckedRecordSet:
        if not sent.records:
            raise KafkaError(ErrorCode.INVALID_RECORD, "no record batch")
        exchange = self.exchange
        if exchange.api_version < FIRST_VERSION_WITH_ZSTD:
            refuse_zstd(sent.records)
        left, self._inline_bytes = self._inline_bytes, 0  # nothing is left if it is refused: its cost is unknown
        checked = check_record_set(
            sent.records, settings, now_ms=exchange.now.wall_ms, from_client=True, inline_bytes=left
        )
        if checked.decompressed_bytes:
            left -= max(checked.decompressed_bytes, DECOMPRESSION_BYTES_MIN)
        self._inline_bytes = left
        return checked


def check_in_job(broker: BrokerServices, appending: Appending, *, then: Callable[[], None]) -> None:
    """Check the postponed batches in a job, append them, then call `then` and serve the connection's next request."""
    exchange, postponed = appending.exchange, appending.postponed
    outcomes: list[CheckedRecordSet | KafkaError] = []

    def check() -> None:
        compile_kernel()
        for _, _, sent, settings in postponed:
            assert sent.records is not None
            try:
                outcomes.append(check_record_set(sent.records, settings, now_ms=exchange.now.wall_ms, from_client=True))
            except KafkaError as error:
                outcomes.append(error)

    def checked(_: OSError | None) -> None:
        for (place, tp, sent, _settings), outcome in zip(postponed, outcomes, strict=True):
            appending.append(place, tp, sent, outcome)
        then()
        exchange.release()

    broker.add_job(Job(check, checked, JobKind.COMPUTE))


def own_memory(sent: ProducePartition) -> ProducePartition:
    return sent if sent.records is None else replace(sent, records=memoryview(bytearray(sent.records)))


def close_if_idempotent(exchange: Exchange, refused: ProducePartition) -> None:
    if _is_idempotent(refused):
        exchange.close_after_answer(REFUSED_FOR_NOW)


def _refused(tp: TopicPartition, error: KafkaError) -> ProducePartitionResponse:
    records = [
        RecordError(batch_index=each.record_index, batch_index_error_message=each.message)
        for each in (error.errors if isinstance(error, RecordsRefused) else ())
    ]
    return ProducePartitionResponse(
        index=tp.partition, error_code=error.code, record_errors=records, error_message=error.message
    )


def _is_idempotent(sent: ProducePartition) -> bool:
    header = header_of(sent)
    return header is not None and header.producer_id >= 0


def header_of(sent: ProducePartition) -> BatchHeader | None:
    """The header of the first batch, if there is one."""
    try:
        return None if sent.records is None else parse_header(sent.records)
    except KafkaError:
        return None
