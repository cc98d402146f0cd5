"""Topics that a client wants and that do not exist: the program learns of each once. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from raylog.client.cluster_metadata import ClusterMetadata
from raylog.core.clock import Now
from raylog.core.errors import ErrorCode, KafkaError


class UnknownTopics:
    """A topic may be about to be created, or its creation not be known everywhere: it is given some time."""

    def __init__(self, metadata: ClusterMetadata, patience_ms: int, on_error: Callable[[KafkaError], None]) -> None:
        self._metadata = metadata
        self._patience_ms = patience_ms
        self._on_error = on_error
        self._since: dict[str, int | None] = {}
        """Since when topics are said not to exist (monotonic); None once that was reported."""

    def watch(self, wanted: Iterable[str], now: Now) -> None:
        for topic in wanted:
            known = self._metadata.topic(topic)
            if known is None or known.error_code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                self._since.pop(topic, None)
                continue
            since_ms = self._since.setdefault(topic, now.monotonic_ms)
            if since_ms is not None and now.monotonic_ms >= since_ms + self._patience_ms:
                self._since[topic] = None
                self._on_error(KafkaError(known.error_code, f"topic {topic!r} does not exist"))
