"""The quota controller_mutation_rate: partitions that clients create and delete per second (KIP-599).

Each client has a bucket of tokens, one for each partition. A request may take more than there are; while some are
missing, further changes are refused, or accepted and throttled where the version of the request has no such error.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from raylog.core.errors import ErrorCode, KafkaError
from raylog.quotas.client_quotas import CONTROLLER_MUTATION_RATE, ClientQuotas, Limit
from raylog.quotas.rate import Sampling
from raylog.quotas.token_bucket import TokenBucket
from raylog.quotas.usage import Meters
from raylog.security.principal import CLUSTER_PRINCIPAL

if TYPE_CHECKING:
    from raylog.transport.exchange import Exchange


class MutationQuota:
    """Charges one request."""

    def __init__(self, exchange: Exchange, limit: Limit | None, bucket: TokenBucket | None, *, strict: bool) -> None:
        self._exchange = exchange
        self._limit = limit
        self._bucket = bucket
        self._strict = strict

    def charge(self, partitions: int) -> None:
        """The request changes so many partitions. Raises KafkaError(THROTTLING_QUOTA_EXCEEDED) if it may not."""
        if self._limit is None or self._bucket is None:
            return
        rate, now_ms = self._limit.value, self._exchange.now.monotonic_ms
        refused = self._strict and self._bucket.throttle_ms(rate, now_ms) > 0
        if not refused:
            self._bucket.take(partitions, rate, now_ms)
        if refused or not self._strict:
            self._exchange.throttle_ms = max(self._exchange.throttle_ms, self._bucket.throttle_ms(rate, now_ms))
        if refused:
            raise KafkaError(ErrorCode.THROTTLING_QUOTA_EXCEEDED)


class MutationQuotas:
    """The buckets of all clients, of one active controller."""

    def __init__(self, sampling: Sampling, *, quotas: Callable[[], ClientQuotas]) -> None:
        self._quotas = quotas
        self._buckets = Meters(lambda: TokenBucket(sampling), span_ms=sampling.span_ms)

    def of(self, exchange: Exchange, *, strict_from: int) -> MutationQuota:
        """The quota of the client of this request. From version `strict_from` on it may be refused."""
        principal = exchange.client.principal
        strict = exchange.api_version >= strict_from
        if principal == CLUSTER_PRINCIPAL:
            return MutationQuota(exchange, None, None, strict=strict)
        limit = self._quotas().limit(CONTROLLER_MUTATION_RATE, principal.name, exchange.client_id or "")
        bucket = None if limit is None else self._buckets.of(limit, exchange.now.monotonic_ms)
        return MutationQuota(exchange, limit, bucket, strict=strict)
