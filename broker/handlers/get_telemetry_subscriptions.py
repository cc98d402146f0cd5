"""GetTelemetrySubscriptions (key 71), v0: which metrics this client is to push, and how often (KIP-714).

A client that has no instance id yet gets one. No ACL check.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final
from uuid import UUID

from raylog.core.errors import KafkaError
from raylog.core.ids import id_text
from raylog.protocol.messages.get_telemetry_subscriptions import (
    GetTelemetrySubscriptionsRequest,
    GetTelemetrySubscriptionsResponse,
)
from raylog.protocol.records.compression import Codec

if TYPE_CHECKING:
    from raylog.broker.services import BrokerServices
    from raylog.transport.exchange import Exchange

NO_INSTANCE: Final = UUID(int=0)
ACCEPTED: Final = (Codec.ZSTD, Codec.LZ4, Codec.GZIP, Codec.SNAPPY)
"""The preferred one first."""


def handle(
    broker: BrokerServices, exchange: Exchange, request: GetTelemetrySubscriptionsRequest
) -> GetTelemetrySubscriptionsResponse:
    instance_id = request.client_instance_id
    if instance_id == NO_INSTANCE:
        instance_id = broker.new_id()
    try:
        asked = broker.telemetry.ask(instance_id, told_of(exchange, instance_id), exchange.now.monotonic_ms)
    except KafkaError as error:
        return GetTelemetrySubscriptionsResponse(error_code=error.code)
    return GetTelemetrySubscriptionsResponse(
        client_instance_id=instance_id,
        subscription_id=asked.subscription_id,
        accepted_compression_types=tuple(map(int, ACCEPTED)),
        push_interval_ms=asked.interval_ms,
        telemetry_max_bytes=broker.settings.metrics.telemetry_bytes_max,
        delta_temporality=False,
        requested_metrics=asked.metrics,
    )


def told_of(exchange: Exchange, instance_id: UUID) -> dict[str, str]:
    """What subscriptions match: the values of MATCH_KEYS."""
    name, version = exchange.connection.software
    return {
        "client_instance_id": id_text(instance_id),
        "client_id": exchange.client_id or "",
        "client_software_name": name,
        "client_software_version": version,
        "client_source_address": exchange.client.host,
    }
