"""Metrics that clients push: which ones each client is asked for, and what it has sent last (KIP-714).

What a client pushes is shown among the broker's metrics, so it is asked for only where these are shown. Each instance
of a client is known by a random id, and is forgotten when it has not pushed for three intervals.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple
from uuid import UUID
from zlib import crc32

from raylog.broker.telemetry_payload import ClientSeries
from raylog.config.client_metrics import (
    ALL_METRICS,
    DEFAULT_INTERVAL_MS,
    Subscription,
    client_metrics_configs,
    subscription_of,
)
from raylog.core.errors import ErrorCode, KafkaError

INSTANCES_MAX: Final = 16_384
"""The instance that was heard of least recently is forgotten for a new one, as in Kafka."""
SERIES_MAX: Final = 10_000
"""Series of all clients together, 30 MB at most; what exceeds them is dropped."""
KEPT_INTERVALS: Final = 3
"""For how many push intervals the metrics of a client are shown that does not push."""


class Asked(NamedTuple):
    """What a client is asked to push."""

    subscription_id: int
    metrics: tuple[str, ...]
    """Prefixes of names, or ALL_METRICS alone."""
    interval_ms: int


@dataclass(slots=True)
class _Instance:
    heard_ms: int | None = None
    """When it last asked or pushed (monotonic)."""
    may_push: bool = True
    """Whether it need not wait, because it has not pushed since it asked."""
    terminated: bool = False
    told_to_ask: bool = False
    """Whether its last answer was that its subscription has changed."""
    shown_until_ms: int = 0
    labels: tuple[tuple[str, str], ...] = ()
    series: list[ClientSeries] = field(default_factory=list)

    def is_early(self, asked: Asked, now_ms: int) -> bool:
        return self.heard_ms is not None and now_ms - self.heard_ms < asked.interval_ms


class ClientTelemetry:
    def __init__(self, stored: Callable[[], Mapping[str, Mapping[str, str]]]) -> None:
        """`stored` returns the configurations of the subscriptions, by name."""
        self._stored = stored
        self._subscriptions: list[Subscription] | None = None
        """None: to be made from the configurations."""
        self._instances: dict[UUID, _Instance] = {}
        """The one that was heard of least recently comes first."""
        self._series_count = 0
        self.dropped = 0
        """Series that were not kept, since the start."""

    def subscriptions_changed(self) -> None:
        self._subscriptions = None

    def ask(self, instance_id: UUID, client: Mapping[str, str], now_ms: int) -> Asked:
        """What this client is to push; for GetTelemetrySubscriptions. `client` has the keys MATCH_KEYS.

        Raises KafkaError(THROTTLING_QUOTA_EXCEEDED) if it asks too often.
        """
        asked, instance = self._asked(client), self._instance(instance_id)
        if not instance.told_to_ask and instance.is_early(asked, now_ms):
            raise KafkaError(ErrorCode.THROTTLING_QUOTA_EXCEEDED)
        instance.heard_ms, instance.may_push, instance.told_to_ask = now_ms, True, False
        return asked

    def begin_push(
        self, instance_id: UUID, client: Mapping[str, str], subscription_id: int, *, terminating: bool, now_ms: int
    ) -> Asked:
        """What a client may push now; for PushTelemetry. Raises KafkaError."""
        asked, instance = self._asked(client), self._instance(instance_id)
        if instance.terminated:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "The client instance has pushed its last metrics already.")
        if not terminating and not instance.may_push and instance.is_early(asked, now_ms):
            raise KafkaError(ErrorCode.THROTTLING_QUOTA_EXCEEDED)
        instance.heard_ms, instance.may_push = now_ms, False
        if subscription_id != asked.subscription_id:
            instance.told_to_ask = True
            raise KafkaError(ErrorCode.UNKNOWN_SUBSCRIPTION_ID)
        instance.terminated = terminating
        instance.shown_until_ms = now_ms + KEPT_INTERVALS * asked.interval_ms
        return asked

    def pushed(self, instance_id: UUID, labels: tuple[tuple[str, str], ...], series: list[ClientSeries]) -> None:
        """What a client has pushed replaces what it pushed before. `labels` say which client it is."""
        instance = self._instances.get(instance_id)
        if instance is None:
            return
        room = SERIES_MAX - self._series_count + len(instance.series)
        kept = series[:room]
        self.dropped += len(series) - len(kept)
        self._series_count += len(kept) - len(instance.series)
        instance.labels, instance.series = labels, kept

    def shown(self, now_ms: int) -> Iterable[tuple[tuple[tuple[str, str], ...], list[ClientSeries]]]:
        """(labels, series) of each client; those that have not pushed for long are forgotten."""
        for instance_id, instance in list(self._instances.items()):
            if instance.series and instance.shown_until_ms <= now_ms:
                self._forget(instance_id)
            elif instance.series:
                yield instance.labels, instance.series

    def __len__(self) -> int:
        """How many instances are known."""
        return len(self._instances)

    def _instance(self, instance_id: UUID) -> _Instance:
        instance = self._instances.pop(instance_id, None)
        if instance is None:
            instance = _Instance()
            if len(self._instances) >= INSTANCES_MAX:
                self._forget(next(iter(self._instances)))
        self._instances[instance_id] = instance
        return instance

    def _forget(self, instance_id: UUID) -> None:
        self._series_count -= len(self._instances.pop(instance_id).series)

    def _asked(self, client: Mapping[str, str]) -> Asked:
        if self._subscriptions is None:
            stored = self._stored().values()
            self._subscriptions = [subscription_of(client_metrics_configs(texts)) for texts in stored]
        matching = [each for each in self._subscriptions if each.matches(client)]
        metrics = tuple(sorted({prefix for each in matching for prefix in each.metrics}))
        if ALL_METRICS in metrics:
            metrics = (ALL_METRICS,)
        interval_ms = min((each.interval_ms for each in matching), default=DEFAULT_INTERVAL_MS)
        checksum = crc32("\n".join(metrics).encode(errors="surrogatepass")) ^ interval_ms
        return Asked(checksum - (1 << 31), metrics, interval_ms)  # an int32
