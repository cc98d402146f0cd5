"""What the clients of one node use of their quotas for bytes and request time, and how long each must be throttled."""

from __future__ import annotations

from typing import Final, NamedTuple

from raylog.quotas.client_quotas import (
    CONSUMER_BYTE_RATE,
    CONTROLLER_MUTATION_RATE,
    PRODUCER_BYTE_RATE,
    REQUEST_PERCENTAGE,
    ClientQuotas,
    Limit,
    shortened,
)
from raylog.quotas.rate import SampledRate, Sampling
from raylog.quotas.usage import Meters, ThrottledTime

KNOWN_CLIENTS_MAX: Final = 10_000
"""Clients whose limits are remembered; then all are looked up again."""
PERCENT_PER_SECOND: Final = 100 / 1_000_000_000
"""From nanoseconds of the loop to percent of a second."""
_UNKNOWN: Final = object()


class ClientLimits(NamedTuple):
    """The quotas of one client; None where it has none."""

    producer: Limit | None
    consumer: Limit | None
    request: Limit | None


class ClientUsage:
    """Charges clients for what they use. A client without a quota costs one look-up."""

    def __init__(self, sampling: Sampling) -> None:
        self.throttled = ThrottledTime()
        self.measures_time = False
        """Whether any client has a quota of request time."""
        self._sampling = sampling
        self._quotas = ClientQuotas()
        self._known: dict[tuple[str, str], ClientLimits | None] = {}
        self._meters = {
            key: Meters(lambda: SampledRate(sampling), span_ms=sampling.span_ms)
            for key in (PRODUCER_BYTE_RATE, CONSUMER_BYTE_RATE, REQUEST_PERCENTAGE)
        }

    def quotas_changed(self, quotas: ClientQuotas) -> None:
        """`quotas` are those of the cluster from now on. What clients have used stays."""
        self._quotas = quotas
        self._known.clear()
        self.measures_time = quotas.limits(REQUEST_PERCENTAGE)

    def limits(self, user: str, client_id: str) -> ClientLimits | None:
        """The quotas of a client; None if it has none."""
        found = self._known.get((user, client_id), _UNKNOWN)
        if found is _UNKNOWN:
            return self._look_up(shortened(user), shortened(client_id))
        return found  # type: ignore[return-value]  # not the mark

    def _look_up(self, user: str, client_id: str) -> ClientLimits | None:
        limits = ClientLimits(
            *(
                self._quotas.limit(key, user, client_id)
                for key in (PRODUCER_BYTE_RATE, CONSUMER_BYTE_RATE, REQUEST_PERCENTAGE)
            )
        )
        if len(self._known) >= KNOWN_CLIENTS_MAX:
            self._known.clear()
        found = self._known[user, client_id] = None if limits == (None, None, None) else limits
        return found

    def charge_produced(self, limit: Limit, size_bytes: int, now_ms: int) -> int:
        """For how many milliseconds the client must be throttled."""
        rate = self._meters[PRODUCER_BYTE_RATE].of(limit, now_ms)
        rate.record(size_bytes, now_ms)
        return self._throttled(PRODUCER_BYTE_RATE, limit, rate.throttle_ms(limit.value, now_ms))

    def charge_fetched(self, limit: Limit, size_bytes: int, now_ms: int) -> tuple[int, bool]:
        """For how long the client must be throttled, and whether it may have these bytes.

        Bytes that it may not have are not charged. A response that exceeds the quota of all samples is permitted if it
        is the only one, since the client could never have it otherwise.
        """
        rate = self._meters[CONSUMER_BYTE_RATE].of(limit, now_ms)
        permitted = rate.per_second(now_ms) == 0
        rate.record(size_bytes, now_ms)
        throttle_ms = self._throttled(CONSUMER_BYTE_RATE, limit, rate.throttle_ms(limit.value, now_ms))
        if throttle_ms and not permitted:
            rate.record(-size_bytes, now_ms)
        return throttle_ms, permitted or not throttle_ms

    def charge_delivered(self, limit: Limit, size_bytes: int, now_ms: int) -> int:
        """For how long the client must be throttled. It has these bytes in any case."""
        rate = self._meters[CONSUMER_BYTE_RATE].of(limit, now_ms)
        rate.record(size_bytes, now_ms)
        return self._throttled(CONSUMER_BYTE_RATE, limit, rate.throttle_ms(limit.value, now_ms))

    def fetched_bytes_max(self, limit: Limit) -> int:
        """More in one response would always exceed the quota."""
        whole_windows_ms = (self._sampling.samples - 1) * self._sampling.window_ms
        return max(int(limit.value * whole_windows_ms / 1000), 1)

    def charge_time(self, limit: Limit, used_ns: int, now_ms: int) -> int:
        """For how many milliseconds the client must be throttled: at most one window."""
        rate = self._meters[REQUEST_PERCENTAGE].of(limit, now_ms)
        rate.record(used_ns * PERCENT_PER_SECOND, now_ms)
        throttle_ms = min(rate.throttle_ms(limit.value, now_ms), self._sampling.window_ms)
        return self._throttled(REQUEST_PERCENTAGE, limit, throttle_ms)

    def add_time(self, limit: Limit, used_ns: int, now_ms: int) -> None:
        """Count time that was used after the response: it counts for the next request."""
        self._meters[REQUEST_PERCENTAGE].of(limit, now_ms).record(used_ns * PERCENT_PER_SECOND, now_ms)

    def throttled_by_controller(self, user: str, client_id: str, throttle_ms: int) -> None:
        limit = self._quotas.limit(CONTROLLER_MUTATION_RATE, user, client_id)
        if limit is not None:
            self._throttled(CONTROLLER_MUTATION_RATE, limit, throttle_ms)

    def _throttled(self, key: str, limit: Limit, throttle_ms: int) -> int:
        if throttle_ms:
            self.throttled.add(key, limit.identity, throttle_ms)
        return throttle_ms
