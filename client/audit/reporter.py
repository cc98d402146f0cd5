"""(shell) The thread that sends what was counted to the audit topic."""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping
from typing import Any, Final
from uuid import uuid4

from raylog.client.audit.audit_topic import CLIENT_ID, create_audit_topic
from raylog.client.audit.counting import Counts
from raylog.client.audit.reports import BUCKET_MS_MAX, INTERVAL_MS_MAX, NAME_CHARACTERS_MAX, Kind, Report, encode_report
from raylog.client.audit.stamps import Stamp
from raylog.client.client_config import ClientConfig
from raylog.client.io_thread import shared_io_thread
from raylog.client.producer.producer import Producer
from raylog.core.errors import ConfigError, KafkaError

log = logging.getLogger("raylog.client")
CLOSE_SECONDS: Final = 10.0
"""How long close() waits for the last report."""


CLOSED_MAX: Final = 4
"""So many large reports are not left waiting for the end of the interval."""


class Reporter:
    """Counts for one interceptor, from any thread, and reports until `close`."""

    def __init__(
        self,
        tier: str,
        *,
        config: Mapping[str, Any] | None,
        audit_topic: str,
        bucket_seconds: float,
        report_seconds: float,
        settings: Mapping[str, Any],
    ) -> None:
        """Raises ConfigError."""
        self.bucket_ms = _milliseconds("bucket_seconds", bucket_seconds, BUCKET_MS_MAX)
        interval_ms = _milliseconds("report_seconds", report_seconds, INTERVAL_MS_MAX)
        if not 0 < len(tier) <= NAME_CHARACTERS_MAX:
            raise ConfigError(f"tier={tier!r}: must have 1 to {NAME_CHARACTERS_MAX} characters")
        self.id = uuid4().bytes
        self._counts = Counts(self.id, tier, bucket_ms=self.bucket_ms, interval_ms=interval_ms)
        self._interval_ms = interval_ms
        self._topic = audit_topic
        self._config = {**(config or {}), **{name.replace("_", "."): value for name, value in settings.items()}}
        self._config.setdefault("client.id", CLIENT_ID)
        self._brokers = ClientConfig.of(None, self._config)
        self._producer = Producer(self._config)
        self._has_topic = False
        self._lock = threading.Lock()
        """Held while the counts are used."""
        self._wakes = threading.Event()
        """Set if there is something to be sent before the interval is over."""
        self._ends = False
        self._thread = threading.Thread(target=self._run, name="raylog-audit", daemon=True)
        self._thread.start()

    def count(self, kind: Kind, topic: str, stamp: Stamp) -> None:
        with self._lock:
            self._counts.count(kind, topic, stamp)
            if self._counts.closed_count >= CLOSED_MAX:
                self._wakes.set()

    def count_unstamped(self, topic: str, timestamp_ms: int) -> None:
        with self._lock:
            self._counts.count_unstamped(topic, timestamp_ms)
            if self._counts.closed_count >= CLOSED_MAX:
                self._wakes.set()

    def close(self) -> None:
        """Send the last report; waits for its end, at most CLOSE_SECONDS. Can be called twice."""
        self._ends = True
        self._wakes.set()
        if not shared_io_thread().is_current:
            self._thread.join(CLOSE_SECONDS)

    def _run(self) -> None:
        self._report(is_last=False)  # tells the check that there is somebody whose counts may be missing
        is_last = False
        while not is_last:
            self._wakes.wait(self._interval_ms / 1000)
            self._wakes.clear()
            is_last = self._ends
            self._report(is_last=is_last)
        self._producer.close(CLOSE_SECONDS)

    def _report(self, *, is_last: bool) -> None:
        try:
            if not self._has_topic:
                create_audit_topic(self._brokers, self._topic)
                self._has_topic = True
            with self._lock:
                reports = self._counts.take(is_last=is_last)
            for report in reports:
                self._send(report)
        except Exception:  # the program goes on; the numbers of reports that were not sent are missing in the topic
            log.exception("audit report failed", extra={"topic": self._topic})

    def _send(self, report: Report) -> None:
        def on_delivery(error: KafkaError | None, _: object) -> None:
            if error is not None:
                log.error("audit report failed", extra={"topic": self._topic, "reason": error.message})

        self._producer.send(self._topic, encode_report(report), report.reporter, on_delivery=on_delivery)


def _milliseconds(name: str, seconds: float, most: int) -> int:
    """Raises ConfigError."""
    if not 0.001 <= seconds <= most / 1000:
        raise ConfigError(f"{name}={seconds!r}: must be from 0.001 to {most // 1000} seconds")
    return round(seconds * 1000)
