"""PushTelemetry (key 72), v0: metrics of the client, which are shown among this broker's (KIP-714). No ACL check.

They are decompressed and read by a job, one at a time for each connection.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from raylog.broker.handlers.get_telemetry_subscriptions import NO_INSTANCE, told_of
from raylog.broker.telemetry_payload import TEXT_CHARACTERS_MAX, ClientSeries, read_payload
from raylog.core.errors import ErrorCode, KafkaError
from raylog.protocol.messages.push_telemetry import PushTelemetryRequest, PushTelemetryResponse
from raylog.protocol.records.compression import Codec
from raylog.transport.node import Job, JobKind

if TYPE_CHECKING:
    from raylog.broker.services import BrokerServices
    from raylog.transport.exchange import Exchange


def handle(broker: BrokerServices, exchange: Exchange, request: PushTelemetryRequest) -> PushTelemetryResponse | None:
    instance_id, data = request.client_instance_id, bytes(request.metrics)
    told = told_of(exchange, instance_id)
    try:
        if instance_id == NO_INSTANCE:
            raise KafkaError(ErrorCode.INVALID_REQUEST)
        asked = broker.telemetry.begin_push(
            instance_id,
            told,
            request.subscription_id,
            terminating=request.terminating,
            now_ms=exchange.now.monotonic_ms,
        )
        codec = _codec(request.compression_type)
        if len(data) > broker.settings.metrics.telemetry_bytes_max:
            raise KafkaError(ErrorCode.TELEMETRY_TOO_LARGE)
    except KafkaError as error:
        return PushTelemetryResponse(error_code=error.code)
    labels = (
        ("client_id", told["client_id"][:TEXT_CHARACTERS_MAX]),
        ("client_instance_id", told["client_instance_id"]),
        ("user", exchange.client.principal.name[:TEXT_CHARACTERS_MAX]),
    )
    read: list[ClientSeries] = []

    def run() -> None:
        read.extend(read_payload(data, codec, asked.metrics))

    def done(failure: Exception | None) -> None:
        if isinstance(failure, KafkaError):
            exchange.answer(PushTelemetryResponse(error_code=failure.code))
            return
        broker.telemetry.pushed(instance_id, labels, read)
        exchange.answer(PushTelemetryResponse())

    exchange.hold_back()
    broker.add_job(Job(run, done, JobKind.COMPUTE, expected=KafkaError))
    return None


def _codec(number: int) -> Codec:
    try:
        return Codec(number)
    except ValueError:
        raise KafkaError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE) from None
