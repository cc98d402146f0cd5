"""(shell) The auditor of the log: reads what topics have got since it last did, and reports it as the tier `log`.

Reports and the offsets up to which the log was read are committed in one transaction, so that each record of the log is
counted once, however often the auditor is interrupted.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from time import monotonic
from typing import Final
from uuid import uuid4

from raylog.client.admin.groups import list_consumer_group_offsets
from raylog.client.admin.partitions import OffsetSpec
from raylog.client.admin.topics import describe_topics
from raylog.client.audit.audit_topic import AUDIT_TOPIC, CLIENT_ID, create_audit_topic
from raylog.client.audit.counting import Counts
from raylog.client.audit.reports import LOG, Kind, Report, encode_report
from raylog.client.audit.stamps import read_stamp
from raylog.client.blocking_calls import BlockingCalls, config_of
from raylog.client.chunks.envelope import chunk_of, is_surplus
from raylog.client.client_config import ClientConfig
from raylog.client.partition_calls import fetch, locate, offset_for
from raylog.client.producer.producer import Producer
from raylog.client.range_reader import fetch_batches
from raylog.config.producer import PRODUCER_CONFIG
from raylog.core.errors import ErrorCode, KafkaError
from raylog.core.ids import TopicPartition
from raylog.logstore.local_log import Chunk
from raylog.protocol.records.batch import parse_header, split_batches, verify_crc
from raylog.protocol.records.isolation import AbortedBatches
from raylog.protocol.records.reader import read_records
from raylog.transport.system_time import now

GROUP: Final = "raylog-audit-log"
"""The group whose offsets tell what was read."""
BUCKET_MS: Final = 60_000
"""Of records without a stamp."""
COMMIT_SECONDS: Final = 10.0
"""How long a transaction is left open at most."""


@dataclass(frozen=True, slots=True)
class AuditedPartition:
    """`deleted` records were removed from the log before they could be counted."""

    tp: TopicPartition
    start_offset: int
    end_offset: int
    deleted: int


def audit_log(topic: str, brokers: ClientConfig, *, audit_topic: str = AUDIT_TOPIC) -> list[AuditedPartition]:
    """Count the records of all partitions, from the last audited offset to the last stable offset.

    Another auditor of the same topic is fenced. Raises KafkaError; OFFSET_OUT_OF_RANGE if the log ends before the last
    audited offset.
    """
    brokers = ClientConfig.of(brokers.bootstrap_servers, brokers.properties, isolation_level="read_committed")
    create_audit_topic(brokers, audit_topic)
    given = brokers.keys_of(PRODUCER_CONFIG)
    with (
        BlockingCalls(config_of(brokers, client_id=CLIENT_ID), topics=[topic]) as calls,
        Producer(given, client_id=CLIENT_ID, transactional_id=f"{GROUP}-{topic}") as producer,
    ):
        producer.init_transactions()
        return _LogAudit(brokers, calls, producer, topic, audit_topic).run()


class _LogAudit:
    """One run."""

    def __init__(
        self, brokers: ClientConfig, calls: BlockingCalls, producer: Producer, topic: str, audit_topic: str
    ) -> None:
        self._brokers = brokers
        self._calls = calls
        self._producer = producer
        self._topic = topic
        self._audit_topic = audit_topic
        self._counts = Counts(uuid4().bytes, LOG, bucket_ms=BUCKET_MS, interval_ms=1, topics=(topic,))
        self._audited: dict[TopicPartition, int] = {}
        """The offsets to be committed with the open transaction."""

    def run(self) -> list[AuditedPartition]:
        until_ms = now().wall_ms
        committed = self._calls.run(list_consumer_group_offsets(GROUP))
        audited = {tp: each.offset for tp, each in committed.items() if each is not None}
        partitions = [self._partition(tp, audited.get(tp)) for tp in self._partitions()]
        until_ms = min([until_ms, *(self._stable_until(each.tp, each.end_offset, until_ms) for each in partitions)])
        self._producer.begin_transaction()
        begun = monotonic()
        for each in partitions:
            for chunk in self._chunks(each):
                self._count(chunk, each.end_offset)
                self._send(self._counts.take_closed())
                self._audited[each.tp] = min(chunk.next_offset, each.end_offset)
                if monotonic() - begun > COMMIT_SECONDS:
                    self._commit()
                    self._producer.begin_transaction()
                    begun = monotonic()
            self._audited[each.tp] = each.end_offset
        self._commit(is_last=True, until_ms=until_ms)
        return partitions

    def _partitions(self) -> list[TopicPartition]:
        described = self._calls.run(describe_topics(self._topic))
        return [TopicPartition(self._topic, number) for number in range(len(described[self._topic].partitions))]

    def _partition(self, tp: TopicPartition, audited: int | None) -> AuditedPartition:
        end_offset = self._calls.run(offset_for(tp, OffsetSpec.LATEST, committed=True))
        log_start_offset = self._calls.run(offset_for(tp, OffsetSpec.EARLIEST))
        if audited is None:
            return AuditedPartition(tp, log_start_offset, end_offset, 0)
        if audited > end_offset:
            text = (
                f"{tp} ends at {end_offset}, before the audited offset {audited}: it was truncated or created again;"
                f" reset the offsets of group {GROUP!r}"
            )
            raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE, text)
        return AuditedPartition(tp, max(audited, log_start_offset), end_offset, max(0, log_start_offset - audited))

    def _stable_until(self, tp: TopicPartition, end_offset: int, until_ms: int) -> int:
        """The time of the first record that is not stable, since a transaction is open."""
        if self._calls.run(offset_for(tp, OffsetSpec.LATEST)) == end_offset:
            return until_ms
        topic_id = self._calls.run(locate(tp)).topic.topic_id
        batches, _ = self._calls.run(fetch(tp, topic_id, end_offset, max_bytes=1, max_wait_ms=0, committed=False))
        return max(0, parse_header(batches).base_timestamp) if batches else until_ms

    def _chunks(self, partition: AuditedPartition) -> Iterator[Chunk]:
        if partition.deleted:
            self._counts.leave_out()
        return fetch_batches(
            self._brokers,
            partition.tp.topic,
            partition.tp.partition,
            start_offset=partition.start_offset,
            end_offset=partition.end_offset,
        )

    def _count(self, chunk: Chunk, end_offset: int) -> None:
        aborted = AbortedBatches(chunk.aborted)
        counts, topic = self._counts, self._topic
        for position, header in split_batches(chunk.records):
            kind = Kind.ABORTED if aborted.include(header) else Kind.SEEN
            if header.is_control or header.next_offset <= chunk.start or header.base_offset >= end_offset:
                continue
            verify_crc(chunk.records, position, header)
            for record in read_records(chunk.records, position, header):
                if not chunk.start <= record.offset < end_offset:
                    continue
                stamp = read_stamp(record.headers)
                if stamp is not None:
                    counts.count(kind, topic, stamp)
                elif chunk_of(record.headers) is None and not is_surplus(record.headers):
                    counts.count_unstamped(topic, record.timestamp_ms)

    def _commit(self, *, is_last: bool = False, until_ms: int | None = None) -> None:
        self._send(self._counts.take(is_last=is_last, until_ms=until_ms))
        self._producer.send_offsets_to_transaction(self._audited, GROUP)
        self._producer.commit_transaction()
        self._audited = {}

    def _send(self, reports: list[Report]) -> None:
        for report in reports:
            self._producer.send(self._audit_topic, encode_report(report), report.reporter)
