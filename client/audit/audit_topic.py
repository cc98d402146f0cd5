"""(shell) The topic with the reports: creating it, and checking what is in it."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

from raylog.client.admin.admin_client import AdminClient
from raylog.client.admin.partitions import OffsetSpec, list_offsets
from raylog.client.admin.topics import NewTopic, describe_topics
from raylog.client.audit.checking import AuditResult, Checker
from raylog.client.audit.reports import MalformedReport, decode_report
from raylog.client.blocking_calls import BlockingCalls, config_of
from raylog.client.client_config import ClientConfig
from raylog.client.range_reader import fetch_range
from raylog.config.admin import ADMIN_CONFIG
from raylog.core.errors import ErrorCode, KafkaError
from raylog.core.ids import TopicPartition
from raylog.transport.system_time import now

AUDIT_TOPIC: Final = "raylog.audit"
CLIENT_ID: Final = "raylog-audit"
TOPIC_CONFIGS: Final = {"message.timestamp.type": "LogAppendTime"}
"""Reports are judged by the clock of the brokers, so that the clocks of clients may be wrong."""
CLOCKS_MS: Final = 3_600_000
"""How much before `from_ms` reports are read: the clocks of producers may be ahead by as much."""


@dataclass(frozen=True, slots=True)
class CheckedAudit:
    result: AuditResult
    reports: int
    malformed: int
    """Records of the audit topic that are no reports."""


def create_audit_topic(brokers: ClientConfig, topic: str) -> None:
    """Unless it is there. Raises KafkaError."""
    wanted = NewTopic(topic, num_partitions=1, configs=TOPIC_CONFIGS)
    with AdminClient(brokers.keys_of(ADMIN_CONFIG), waits_for_brokers=False) as client:
        try:
            client.create_topics([wanted])
        except KafkaError as error:
            if error.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
                raise


def check_audit(
    brokers: ClientConfig,
    *,
    audit_topic: str = AUDIT_TOPIC,
    topics: Collection[str] = (),
    from_ms: int | None = None,
    to_ms: int | None = None,
    grace_ms: int,
    now_ms: int | None = None,
) -> CheckedAudit:
    """Compare the reports that are there now. The arguments are those of `Checker`. Raises KafkaError."""
    checker = Checker(grace_ms=grace_ms, topics=topics, from_ms=from_ms, to_ms=to_ms)
    reports = malformed = 0
    for tp, start_offset, end_offset in _ranges(brokers, audit_topic, from_ms):
        for records in fetch_range(brokers, tp.topic, tp.partition, start_offset=start_offset, end_offset=end_offset):
            for record in records:
                try:
                    report = decode_report(record.value)
                except MalformedReport:
                    malformed += 1
                    continue
                reports += 1
                checker.add(report, record.timestamp_ms)
    return CheckedAudit(checker.check(now().wall_ms if now_ms is None else now_ms), reports, malformed)


def _ranges(brokers: ClientConfig, topic: str, from_ms: int | None) -> list[tuple[TopicPartition, int, int]]:
    """The offsets to be read of each partition."""
    start = OffsetSpec.EARLIEST if from_ms is None else max(0, from_ms - CLOCKS_MS)
    with BlockingCalls(config_of(brokers, client_id=CLIENT_ID), waits_for_brokers=False) as calls:
        partitions = range(len(calls.run(describe_topics(topic))[topic].partitions))
        tps = [TopicPartition(topic, number) for number in partitions]
        starts = calls.run(list_offsets(dict.fromkeys(tps, start)))
        ends = calls.run(list_offsets(dict.fromkeys(tps, OffsetSpec.LATEST), read_committed=brokers.reads_committed))
    return [(tp, starts[tp].offset, ends[tp].offset) for tp in tps if 0 <= starts[tp].offset < ends[tp].offset]
