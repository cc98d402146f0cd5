"""The log of slow requests: what took longer than raylog.slow.request.ms, and where its time went.

    INFO raylog.requests slow request api=Produce version=11 client_id=app principal=User:app host=10.0.0.9
        bytes=64210 queue_ms=0 local_ms=3 remote_ms=2140 throttle_ms=0

`local` is the work for the request, `remote` its wait for commits or other nodes. Waits that the client asked for, such
as a consumer's for new records, do not count. Clients cannot fill the log: at most PERIOD_REQUESTS_MAX are logged in a
period, the others are counted.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from raylog.protocol.registry import FETCH, JOIN_GROUP, SHARE_FETCH, SYNC_GROUP

if TYPE_CHECKING:
    from raylog.core.journal import Journal
    from raylog.transport.exchange import Exchange

log = logging.getLogger("raylog.requests")
PERIOD_MS: Final = 1000
PERIOD_REQUESTS_MAX: Final = 10
CLIENT_ID_CHARACTERS_MAX: Final = 100
"""Longer client ids are shortened."""
_WAITING_APIS: Final = frozenset((FETCH, SHARE_FETCH, JOIN_GROUP, SYNC_GROUP))
"""Clients send these in order to wait."""
_NS_PER_MS: Final = 1_000_000
NEVER_NS: Final = (1 << 63) - 1


class SlowRequests:
    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._threshold_ms = -1
        self.check_from_ns = NEVER_NS
        """`completed` must be called for a request that took so long, or that has waited for its turn."""
        self._period_began_ms = 0
        self._logged = 0
        """In this period."""
        self._suppressed = 0

    def configure(self, threshold_ms: int) -> None:
        """Log requests that take at least this long; -1: none."""
        self._threshold_ms = threshold_ms
        self.check_from_ns = NEVER_NS if threshold_ms < 0 else threshold_ms * _NS_PER_MS

    def completed(self, exchange: Exchange, took_ns: int) -> None:
        """The response is encoded, `took_ns` after processing of the request began."""
        local_ns = took_ns if exchange.local_ns < 0 else exchange.local_ns
        counted_ns = local_ns if exchange.spec.key in _WAITING_APIS else took_ns
        if self._threshold_ms < 0 or exchange.queue_ms + counted_ns // _NS_PER_MS < self._threshold_ms:
            return
        now_ms = exchange.node.now_ms
        if now_ms - self._period_began_ms >= PERIOD_MS:
            if self._suppressed:
                log.info("slow requests suppressed", extra={"count": self._suppressed})
            self._period_began_ms, self._logged, self._suppressed = now_ms, 0, 0
        if self._logged >= PERIOD_REQUESTS_MAX:
            self._suppressed += 1
            return
        self._logged += 1
        client = exchange.client
        fields = {
            "api": exchange.spec.name,
            "version": exchange.api_version,
            "client_id": (exchange.client_id or "")[:CLIENT_ID_CHARACTERS_MAX],
            "principal": str(client.principal),
            "host": client.host,
            "bytes": exchange.size_bytes,
            "queue_ms": exchange.queue_ms,
            "local_ms": local_ns // _NS_PER_MS,
            "remote_ms": (took_ns - local_ns) // _NS_PER_MS,
            "throttle_ms": exchange.throttle_ms,
        }
        log.info("slow request", extra=fields)
        self._journal.note(exchange.now, "slow request", **fields)
