"""The keys of signed tokens: fetched in jobs from the endpoints that the configuration names, when they are due."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from raylog.security.bounded_http import fetch
from raylog.security.sasl.json_web_tokens import KeySet, parse_keys
from raylog.security.sasl.key_cache import KeyCache
from raylog.security.tls import client_context
from raylog.transport.node import Job, JobKind

if TYPE_CHECKING:
    from raylog.config.oauthbearer import TokenSettings
    from raylog.config.tls import TlsSettings
    from raylog.core.clock import Now

log = logging.getLogger("raylog.broker")


class TokenKeys:
    """One cache for each mechanism of a listener that accepts signed tokens."""

    def __init__(self, clock: Callable[[], Now], add_job: Callable[[Job], None]) -> None:
        self._clock = clock
        self._add_job = add_job
        self._urls: dict[KeyCache, str] = {}
        self._tls: dict[KeyCache, Callable[[], TlsSettings | None]] = {}

    def add(self, settings: TokenSettings, tls: Callable[[], TlsSettings | None]) -> KeyCache:
        """`tls` returns the current settings for https:, in a thread; None: the authorities of the system are trusted.

        It may raise ConfigError.
        """
        cache = KeyCache(
            refresh_ms=settings.keys_refresh_ms,
            backoff_ms=settings.keys_backoff_ms,
            backoff_max_ms=settings.keys_backoff_max_ms,
            now_ms=self._clock().monotonic_ms,
        )
        self._urls[cache] = settings.keys_url
        self._tls[cache] = tls
        return cache

    @property
    def attempted(self) -> bool:
        """Whether every endpoint has been asked once. Until then all tokens would be refused."""
        return all(cache.attempted for cache in self._urls)

    def next_deadline_ms(self) -> int | None:
        return min((ms for cache in self._urls if (ms := cache.next_fetch_ms) is not None), default=None)

    def tick(self, now: Now) -> None:
        """Fetch the keys that are due."""
        for cache, url in self._urls.items():
            if cache.next_fetch_ms is not None and now.monotonic_ms >= cache.next_fetch_ms:
                self._fetch(cache, url)

    def _fetch(self, cache: KeyCache, url: str) -> None:
        fetched: list[KeySet] = []
        current_tls = self._tls[cache]

        def run() -> None:
            tls = current_tls()
            context = None if tls is None else client_context(tls, check_host_name=True)
            fetched.append(parse_keys(fetch(url, tls=context)))

        def done(failure: Exception | None) -> None:
            now_ms = self._clock().monotonic_ms
            if failure is None:
                cache.fetched(fetched[0], now_ms)
            else:
                log.warning("keys not available", extra={"url": url, "reason": str(failure)})
                cache.failed(now_ms)

        cache.begin()
        self._add_job(Job(run, done, JobKind.DOWNLOAD, expected=Exception))
