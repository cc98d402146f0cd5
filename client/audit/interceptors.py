"""(shell) The interceptors that stamp and count records, for the producers and consumers of a program."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from time import time_ns
from typing import Any

from raylog.client.audit.audit_topic import AUDIT_TOPIC
from raylog.client.audit.reporter import Reporter
from raylog.client.audit.reports import LOG, PRODUCER, Kind
from raylog.client.audit.stamps import Stamper, read_stamp
from raylog.client.consumer.fetched import ConsumerRecord
from raylog.client.consumer.interceptors import ConsumerInterceptor
from raylog.client.producer.delivery import RecordMetadata
from raylog.client.producer.interceptors import OutgoingRecord, ProducerInterceptor
from raylog.client.producer.serialization import Headers
from raylog.core.errors import ConfigError, KafkaError


class ProducerAudit(ProducerInterceptor):
    """Stamps each record of one producer, and reports what was acknowledged and what has failed.

    From `__init__` to the `close` of its producer.
    """

    def __init__(
        self,
        config: Mapping[str, Any] | None = None,
        *,
        audit_topic: str = AUDIT_TOPIC,
        bucket_seconds: float = 60.0,
        report_seconds: float = 10.0,
        **settings: Any,
    ) -> None:
        """`config` and `settings` are those of the Producer that sends the reports. Raises ConfigError."""
        self._reporter = Reporter(
            PRODUCER,
            config=config,
            audit_topic=audit_topic,
            bucket_seconds=bucket_seconds,
            report_seconds=report_seconds,
            settings=settings,
        )
        self._stamper = Stamper(self._reporter.id, self._reporter.bucket_ms)
        self._lock = threading.Lock()
        """Held while a sequence number is drawn."""

    @property
    def client(self) -> bytes:
        """The id of this producer in its stamps."""
        return self._reporter.id

    def on_send(self, record: OutgoingRecord) -> OutgoingRecord:
        with self._lock:
            headers = self._stamper.stamped(record.topic, record.headers, time_ns() // 1_000_000)
        return OutgoingRecord(record.topic, record.value, record.key, headers, record.partition, record.timestamp_ms)

    def on_record_acknowledgement(
        self, topic: str, headers: Headers, error: KafkaError | None, metadata: RecordMetadata | None
    ) -> None:
        stamp = read_stamp(headers.items() if isinstance(headers, Mapping) else headers)
        if stamp is not None and stamp.client == self._reporter.id:
            self._reporter.count(Kind.ACKNOWLEDGED if error is None else Kind.FAILED, topic, stamp)

    def close(self) -> None:
        """Called by the producer's close(). Sends the last report."""
        self._reporter.close()


class ConsumerAudit(ConsumerInterceptor):
    """Counts what one consumer returns, and reports it as of a tier, which the members of a group share.

    From `__init__` to the `close` of its consumer.
    """

    def __init__(
        self,
        tier: str,
        config: Mapping[str, Any] | None = None,
        *,
        audit_topic: str = AUDIT_TOPIC,
        bucket_seconds: float = 60.0,
        report_seconds: float = 10.0,
        topic_of: Callable[[str], str] = str,
        **settings: Any,
    ) -> None:
        """`tier` is best the group id. `config` and `settings` as for `ProducerAudit`. Raises ConfigError.

        Records of a topic are counted as those of `topic_of` its name: for the copy of a mirror, the source's topic.
        """
        if tier in (PRODUCER, LOG):
            raise ConfigError(f"tier={tier!r}: is not a tier of consumers")
        self._reporter = Reporter(
            tier,
            config=config,
            audit_topic=audit_topic,
            bucket_seconds=bucket_seconds,
            report_seconds=report_seconds,
            settings=settings,
        )
        self._topic_of = topic_of
        self._next: dict[tuple[str, int], int] = {}
        """By topic and partition, one past the greatest offset that was returned."""

    def on_consume(self, records: list[ConsumerRecord]) -> list[ConsumerRecord]:
        reporter = self._reporter
        for record in records:
            tp = record.topic, record.partition
            passed = self._next.get(tp, 0)
            if record.offset >= passed:
                self._next[tp] = record.offset + 1
            stamp, topic = read_stamp(record.headers), self._topic_of(record.topic)
            if stamp is None:
                reporter.count_unstamped(topic, record.timestamp_ms)
            else:
                kind = Kind.SEEN if record.offset >= passed else Kind.REDELIVERED
                reporter.count(kind, topic, stamp)
        return records

    def close(self) -> None:
        """Called by the consumer's close(). Sends the last report."""
        self._reporter.close()
