"""(shell) Code of a program that sees each record before it is sent, and its end: Kafka's ProducerInterceptor."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any, NamedTuple

from raylog.client.given_values import checked_interceptors
from raylog.client.producer.delivery import OnDelivery, RecordMetadata
from raylog.client.producer.serialization import Headers
from raylog.core.errors import KafkaError

log = logging.getLogger("raylog.client")


class OutgoingRecord(NamedTuple):
    """A record as the program gave it, before serialization."""

    topic: str
    value: Any
    key: Any
    headers: Headers
    partition: int | None
    timestamp_ms: int


class ProducerInterceptor:
    """Override either method. An exception is logged, and the record goes on as it was before this interceptor."""

    def on_send(self, record: OutgoingRecord) -> OutgoingRecord:
        """The record to be sent in place of this one. Called by the thread that sends."""
        return record

    def on_acknowledgement(self, error: KafkaError | None, metadata: RecordMetadata | None) -> None:
        """The record was appended, or has failed. Called once for each record, before its own callback.

        In the thread of the connections, or by `send` itself if it raises.
        """

    def on_record_acknowledgement(
        self, topic: str, headers: Headers, error: KafkaError | None, metadata: RecordMetadata | None
    ) -> None:
        """Called in place of `on_acknowledgement`, with what the interceptors have made of the record (KIP-512)."""
        self.on_acknowledgement(error, metadata)

    def close(self) -> None:
        """The producer was closed, and every record has ended."""


class Interceptors:
    """Called in their order; each gets the record of the one before."""

    def __init__(self, interceptors: Sequence[ProducerInterceptor]) -> None:
        """Raises ConfigError."""
        self._interceptors = checked_interceptors(interceptors, ProducerInterceptor)
        self._told = [each for each in interceptors if _is_told(each)]

    def on_send(self, record: OutgoingRecord) -> OutgoingRecord:
        for interceptor in self._interceptors:
            try:
                record = interceptor.on_send(record)
            except Exception:
                log.exception("error in on_send of an interceptor", extra={"topic": record.topic})
        return record

    def on_acknowledgement(
        self, topic: str, headers: Headers, error: KafkaError | None, metadata: RecordMetadata | None
    ) -> None:
        for interceptor in self._told:
            try:
                interceptor.on_record_acknowledgement(topic, headers, error, metadata)
            except Exception:
                log.exception("error in on_acknowledgement of an interceptor")

    def before(self, topic: str, headers: Headers, on_delivery: OnDelivery | None) -> OnDelivery | None:
        """A callback that calls the interceptors, and then `on_delivery`."""
        if not self._told:
            return on_delivery

        def both(error: KafkaError | None, metadata: RecordMetadata | None) -> None:
            self.on_acknowledgement(topic, headers, error, metadata)
            if on_delivery is not None:
                on_delivery(error, metadata)

        return both

    def close(self) -> None:
        for interceptor in self._interceptors:
            try:
                interceptor.close()
            except Exception:
                log.exception("error in close of an interceptor")


def _is_told(interceptor: ProducerInterceptor) -> bool:
    """Whether it does anything at the end of a record."""
    kind, base = type(interceptor), ProducerInterceptor
    return (
        kind.on_acknowledgement is not base.on_acknowledgement
        or kind.on_record_acknowledgement is not base.on_record_acknowledgement
    )
