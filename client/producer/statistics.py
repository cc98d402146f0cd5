"""What a producer has done, under the names of Kafka's producer metrics. Pure.

Averages and maxima are those since the producer was made; Kafka's are of the last 60 seconds.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import nan

from raylog.client.producer.accumulator import ProducerBatch


class Distribution:
    """The average and the maximum of numbers."""

    __slots__ = ("count", "largest", "total")

    def __init__(self) -> None:
        self.count = 0
        self.total = 0.0
        self.largest = nan

    def add(self, number: float) -> None:
        self.largest = max(number, self.largest) if self.count else number
        self.count += 1
        self.total += number

    @property
    def average(self) -> float:
        return self.total / self.count if self.count else nan


class Statistics:
    """Updated by the sender, once for a batch or request."""

    def __init__(self) -> None:
        self.records_sent = 0
        self.records_failed = 0
        self.records_retried = 0
        self.bytes_sent = 0
        self.batches_split = 0
        self.requests_in_flight = 0
        self.batch_bytes = Distribution()
        self.compression = Distribution()
        self.queue_ms = Distribution()
        self.request_records = Distribution()
        self.request_ms = Distribution()

    def sent(self, batches: Sequence[ProducerBatch], now_ms: int) -> None:
        """A request with these batches is handed to the connection."""
        self.requests_in_flight += 1
        self.request_records.add(sum(batch.builder.count for batch in batches))
        for batch in batches:
            if batch.attempts > 1:
                self.records_retried += batch.builder.count
            else:
                self.records_sent += batch.builder.count
                self.queue_ms.add(now_ms - batch.created_ms)

    def encoded(self, batch: ProducerBatch, size_bytes: int) -> None:
        self.bytes_sent += size_bytes
        self.batch_bytes.add(size_bytes)
        self.compression.add(size_bytes / max(batch.size_bytes, 1))

    def answered(self, elapsed_ms: int) -> None:
        self.requests_in_flight -= 1
        self.request_ms.add(elapsed_ms)

    def shown(self) -> dict[str, float]:
        return {
            "record-send-total": self.records_sent,
            "record-error-total": self.records_failed,
            "record-retry-total": self.records_retried,
            "byte-total": self.bytes_sent,
            "batch-split-total": self.batches_split,
            "batch-size-avg": self.batch_bytes.average,
            "batch-size-max": self.batch_bytes.largest,
            "compression-rate-avg": self.compression.average,
            "record-queue-time-avg": self.queue_ms.average,
            "record-queue-time-max": self.queue_ms.largest,
            "records-per-request-avg": self.request_records.average,
            "request-total": self.request_records.count,
            "request-latency-avg": self.request_ms.average,
            "request-latency-max": self.request_ms.largest,
            "requests-in-flight": self.requests_in_flight,
        }
