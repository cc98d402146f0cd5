"""Client quotas of produced bytes and request time, charged when a request is answered (KIP-13, KIP-124, KIP-219).

The client gets its response at once, with the time for which its connection is muted. Fetch charges the fetched bytes
itself, before it builds the response.
"""

from __future__ import annotations

from dataclasses import fields, replace
from functools import cache
from typing import TYPE_CHECKING, Any, Final, Protocol

from raylog.protocol import registry
from raylog.protocol.header import decode_response_header
from raylog.protocol.wire import Buffer
from raylog.quotas.client_usage import ClientLimits, ClientUsage

if TYPE_CHECKING:
    from collections.abc import Callable

    from raylog.protocol.registry import ApiSpec
    from raylog.quotas.rate import Sampling
    from raylog.transport.accepted_connection import AcceptedConnection

EXEMPT: Final = frozenset({registry.SASL_HANDSHAKE, registry.SASL_AUTHENTICATE})
_THROTTLE_TIME: Final = "throttle_time_ms"
_THROTTLE_BYTES: Final = 4
_NO_TAGGED_FIELDS_BYTES: Final = 1


class Charged(Protocol):
    """What is charged: an exchange."""

    spec: ApiSpec
    connection: AcceptedConnection
    client_id: str | None
    size_bytes: int
    throttle_ms: int

    @property
    def internal(self) -> bool:
        """Whether the peer is a node of the cluster."""

    def take_work_ns(self) -> int:
        """The time that the request has used since the last call."""


class RequestQuotas:
    """Charges the clients of a node. Other nodes of the cluster, and clients before authentication, are exempt."""

    def __init__(self, sampling: Sampling, *, clock_ns: Callable[[], int]) -> None:
        self.usage = ClientUsage(sampling)
        self.clock_ns = clock_ns
        """Measures how long requests take."""

    def begin_ns(self) -> int:
        """The time at which work for a request begins; 0 if it need not be measured."""
        return self.clock_ns() if self.usage.measures_time else 0

    def limits_of(self, exchange: Charged) -> ClientLimits | None:
        """The quotas of the client of this request; None if it has none or is exempt."""
        identity = exchange.connection.authenticator.identity
        if identity is None or exchange.internal or exchange.spec.key in EXEMPT:
            return None
        return self.usage.limits(identity.principal.name, exchange.client_id or "")

    def charge(self, exchange: Charged, now_ms: int) -> None:
        """The request is answered: set how long its connection is muted."""
        limits = self.limits_of(exchange)
        if limits is None:
            return
        if limits.producer is not None and exchange.spec.key == registry.PRODUCE:
            throttle_ms = self.usage.charge_produced(limits.producer, exchange.size_bytes, now_ms)
            exchange.throttle_ms = max(exchange.throttle_ms, throttle_ms)
        if limits.request is not None:
            throttle_ms = self.usage.charge_time(limits.request, exchange.take_work_ns(), now_ms)
            exchange.throttle_ms = max(exchange.throttle_ms, throttle_ms)

    def charge_rest(self, exchange: Charged, now_ms: int) -> None:
        """Work for a request that had been answered before the work ended."""
        limits = self.limits_of(exchange)
        if limits is not None and limits.request is not None:
            self.usage.add_time(limits.request, exchange.take_work_ns(), now_ms)

    def throttled_by_controller(self, exchange: Charged, throttle_ms: int) -> None:
        """The controller has charged the client for changes of partitions."""
        exchange.throttle_ms = throttle_ms
        identity = exchange.connection.authenticator.identity
        if identity is not None:
            self.usage.throttled_by_controller(identity.principal.name, exchange.client_id or "", throttle_ms)


def with_throttle_time(response: Any, spec: ApiSpec, version: int, throttle_ms: int) -> Any:
    """The same response with the throttle time, if it has a field for it in this version."""
    return replace(response, throttle_time_ms=throttle_ms) if _has_throttle_time(spec.key, version) else response


def encoded_with_throttle_time(data: Buffer, spec: ApiSpec, version: int, throttle_ms: int) -> Buffer:
    """The same for a response that is encoded, header included."""
    at = _throttle_time_at(data, spec, version)
    if at is None:
        return data
    return b"".join((data[:at], throttle_ms.to_bytes(_THROTTLE_BYTES, "big"), data[at + _THROTTLE_BYTES :]))


def encoded_throttle_time(data: Buffer, spec: ApiSpec, version: int) -> int:
    """The throttle time in an encoded response; 0 if it has no field for it."""
    at = _throttle_time_at(data, spec, version)
    return 0 if at is None else int.from_bytes(data[at : at + _THROTTLE_BYTES], "big", signed=True)


def _throttle_time_at(data: Buffer, spec: ApiSpec, version: int) -> int | None:
    """Its position: it is the first field of a response that a controller encodes, or the last one."""
    names = [each.name for each in fields(spec.response)]
    if _THROTTLE_TIME not in (names[0], names[-1]) or not _has_throttle_time(spec.key, version):
        return None
    if names[0] == _THROTTLE_TIME:
        return decode_response_header(spec.key, version, data)[1]
    return len(data) - _THROTTLE_BYTES - (_NO_TAGGED_FIELDS_BYTES if spec.is_flexible(version) else 0)


@cache
def _has_throttle_time(api_key: int, version: int) -> bool:
    spec = registry.api_for(api_key)
    assert spec is not None
    wires = [each.metadata["wire"] for each in fields(spec.response) if each.name == _THROTTLE_TIME]
    return bool(wires) and bool(wires[0].exists_in(version))
