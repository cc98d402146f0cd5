"""Request times by API, recorded once, when an exchange is complete.

Phases as in Kafka's RequestMetrics: local is the time in the handler until it answers, remote the wait for commits.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from raylog.transport.exchange import Exchange


@dataclass(slots=True)
class ApiTimes:
    """Sums over all requests of one API since the node started."""

    requests: int = 0
    bytes_in: int = 0
    bytes_out: int = 0
    local_ms: int = 0
    remote_ms: int = 0
    throttle_ms: int = 0
    total_ms_max: int = 0


class RequestTimes:
    """The sums by API name."""

    def __init__(self) -> None:
        self.by_api: dict[str, ApiTimes] = {}

    def record(self, exchange: Exchange) -> None:
        times = self.by_api.get(exchange.spec.name)
        if times is None:
            times = self.by_api[exchange.spec.name] = ApiTimes()
        arrived_ms = exchange.now.monotonic_ms
        times.requests += 1
        times.bytes_in += exchange.size_bytes
        times.bytes_out += exchange.output_bytes
        times.local_ms += exchange.answered_ms - arrived_ms
        times.remote_ms += exchange.completed_ms - exchange.answered_ms
        times.throttle_ms += exchange.throttle_ms
        total_ms = exchange.completed_ms - arrived_ms
        if total_ms > times.total_ms_max:
            times.total_ms_max = total_ms
