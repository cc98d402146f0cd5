"""What the performance commands count, and the lines that Kafka's tools print of it. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

SAMPLES_MAX: Final = 500_000
"""Most latencies that are kept; of more records, every second, third... is kept."""
REPORT_SECONDS: Final = 5.0
MEBIBYTE: Final = 1 << 20
SHARES: Final = (0.5, 0.95, 0.99, 0.999)


def percentile(ordered: Sequence[float], share: float) -> float:
    """The value below which this share of the values is, which are in ascending order; 0 if there are none."""
    return ordered[min(int(share * len(ordered)), len(ordered) - 1)] if ordered else 0.0


def wait_seconds(sent: int, rate: float, elapsed: float) -> float:
    """How long to wait before the next record, so that no more than `rate` are sent in a second; below 0: no limit."""
    return max(0.0, sent / rate - elapsed) if rate > 0 else 0.0


class Window:
    """Records since a moment."""

    def __init__(self, began: float) -> None:
        self.began = began
        self.count = self.size_bytes = 0
        self.total_ms = self.max_ms = 0.0

    def add(self, size_bytes: int, latency_ms: float) -> None:
        self.count += 1
        self.size_bytes += size_bytes
        self.total_ms += latency_ms
        self.max_ms = max(self.max_ms, latency_ms)

    def records_per_sec(self, now: float) -> float:
        return self.count / max(now - self.began, 1e-9)

    def mb_per_sec(self, now: float) -> float:
        return self.size_bytes / MEBIBYTE / max(now - self.began, 1e-9)

    @property
    def average_ms(self) -> float:
        return self.total_ms / self.count if self.count else 0.0


class ProducerStatistics:
    """Rate and latency of records that were acknowledged; `count` are expected. Times are in seconds of one clock."""

    def __init__(self, count: int, began: float) -> None:
        self.total = Window(began)
        self._window = Window(began)
        self._step = count // SAMPLES_MAX + 1
        self._latencies: list[float] = []

    def record(self, size_bytes: int, latency_ms: float) -> None:
        if self.total.count % self._step == 0:
            self._latencies.append(latency_ms)
        self.total.add(size_bytes, latency_ms)
        self._window.add(size_bytes, latency_ms)

    def progress(self, now: float) -> str | None:
        """A line about the last five seconds, once they have passed."""
        window = self._window
        if now - window.began < REPORT_SECONDS:
            return None
        self._window = Window(now)
        return (
            f"{window.count} records sent, {window.records_per_sec(now):.1f} records/sec"
            f" ({window.mb_per_sec(now):.2f} MB/sec), {window.average_ms:.1f} ms avg latency,"
            f" {window.max_ms:.1f} ms max latency."
        )

    def summary(self, now: float) -> dict[str, float]:
        """What --json prints."""
        ordered = sorted(self._latencies)
        return {
            "records": self.total.count,
            "records_per_sec": self.total.records_per_sec(now),
            "mb_per_sec": self.total.mb_per_sec(now),
            "avg_latency_ms": self.total.average_ms,
            "max_latency_ms": self.total.max_ms,
            **{f"p{share * 100:g}_ms": percentile(ordered, share) for share in SHARES},
        }

    def last_line(self, now: float) -> str:
        found = self.summary(now)
        parts = ", ".join(f"{found[f'p{share * 100:g}_ms']:.0f} ms {share * 100:g}th" for share in SHARES)
        return (
            f"{found['records']} records sent, {found['records_per_sec']:f} records/sec"
            f" ({found['mb_per_sec']:.2f} MB/sec), {found['avg_latency_ms']:.2f} ms avg latency,"
            f" {found['max_latency_ms']:.2f} ms max latency, {parts}."
        )
