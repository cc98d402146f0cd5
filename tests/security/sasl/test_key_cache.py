"""When the keys of tokens are fetched: regularly, after failures with a backoff, and rarely for unknown keys."""

from __future__ import annotations

import pytest

from raylog.security.sasl.json_web_tokens import KeySet, parse_keys
from raylog.security.sasl.key_cache import KeyCache
from tests.support.token_issuer import jwks, signing_key

ONE = parse_keys(jwks(signing_key("ES256", "one")))
TWO = parse_keys(jwks(signing_key("ES256", "one"), signing_key("ES256", "two")))


@pytest.fixture
def cache() -> KeyCache:
    return KeyCache(refresh_ms=60_000, backoff_ms=100, backoff_max_ms=1000, now_ms=0)


def fetch(cache: KeyCache, keys: KeySet | None, now_ms: int) -> None:
    cache.begin()
    assert cache.next_fetch_ms is None, "one fetch at a time"
    if keys is None:
        cache.failed(now_ms)
    else:
        cache.fetched(keys, now_ms)


def test_regular_fetches(cache: KeyCache) -> None:
    assert (cache.next_fetch_ms, cache.attempted, cache.keys) == (0, False, None)
    fetch(cache, ONE, 5)
    assert (cache.next_fetch_ms, cache.attempted, cache.keys) == (60_005, True, ONE)


def test_failures_are_repeated_with_a_backoff_and_keep_the_keys(cache: KeyCache) -> None:
    fetch(cache, ONE, 0)
    waits, now_ms = [], 60_000
    for _ in range(6):
        fetch(cache, None, now_ms)
        assert cache.next_fetch_ms is not None
        waits.append(cache.next_fetch_ms - now_ms)
        now_ms = cache.next_fetch_ms
    assert waits == [100, 200, 400, 800, 1000, 1000]
    assert cache.keys == ONE
    fetch(cache, TWO, now_ms)
    assert cache.next_fetch_ms == now_ms + 60_000


def test_a_failed_first_fetch_is_an_attempt(cache: KeyCache) -> None:
    fetch(cache, None, 7)
    assert (cache.next_fetch_ms, cache.attempted, cache.keys) == (107, True, None)


def test_an_unknown_key_is_fetched_early(cache: KeyCache) -> None:
    fetch(cache, ONE, 0)
    cache.key_missing()
    assert cache.next_fetch_ms == 100
    fetch(cache, TWO, 110)
    assert cache.next_fetch_ms == 60_110
    cache.key_missing()
    assert cache.next_fetch_ms == 210, "it brought a new key, so that the next may come as soon"


def test_a_thousand_unknown_keys_cause_few_fetches(cache: KeyCache) -> None:
    fetch(cache, ONE, 0)
    fetches = []
    for now_ms in range(10_000):
        cache.key_missing()
        if cache.next_fetch_ms is not None and now_ms >= cache.next_fetch_ms:
            fetch(cache, ONE, now_ms)
            fetches.append(now_ms)
    assert fetches == [100, 200, 400, 800, *range(1600, 10_000, 1000)]


def test_a_regular_fetch_ends_the_backoff(cache: KeyCache) -> None:
    fetch(cache, ONE, 0)
    for now_ms in (100, 200, 400):
        cache.key_missing()
        fetch(cache, ONE, now_ms)
    fetch(cache, ONE, 60_000)
    cache.key_missing()
    assert cache.next_fetch_ms == 60_100


def test_a_key_that_is_missed_during_a_fetch_starts_no_other(cache: KeyCache) -> None:
    cache.begin()
    cache.key_missing()
    assert cache.next_fetch_ms is None
