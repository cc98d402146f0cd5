"""(shell) From the objects of a program to the bytes of a record, by the serializers of the program."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import NoneType
from typing import Any

from raylog.client.chunks.source import ValueSource
from raylog.client.errors import SerializationError
from raylog.client.given_values import checked_function, shown
from raylog.client.producer.delivery import OnDelivery, ProducerRecord
from raylog.client.serialization import SerializationContext

Headers = Sequence[tuple[str, bytes | None]] | Mapping[str, bytes | None]
Serializer = Callable[[Any, Any], bytes | None]
"""Makes the bytes of a key or value, given a SerializationContext to whose headers it may add."""


@dataclass(frozen=True, slots=True)
class Serializers:
    """Without one, keys and values must be bytes or str."""

    key: Serializer | None
    value: Serializer | None

    def __post_init__(self) -> None:
        """Raises ConfigError."""
        checked_function("key_serializer", self.key)
        checked_function("value_serializer", self.value)

    def record(
        self,
        topic: str,
        value: Any,
        key: Any,
        *,
        headers: Headers,
        partition: int | None,
        timestamp_ms: int,
        on_delivery: OnDelivery | None,
        value_bytes_max: int | None,
    ) -> tuple[ProducerRecord, ValueSource | None]:
        """A value larger than `value_bytes_max`, or a file with one, is returned beside a record without it.

        Without this limit all values are in their records, and files are refused. Raises SerializationError.
        """
        pairs = checked_headers(headers)
        key_bytes = serialized("key", key, self.key, topic, pairs)
        if value_bytes_max is None:
            value_bytes = serialized("value", value, self.value, topic, pairs)
            return ProducerRecord(topic, key_bytes, value_bytes, pairs, partition, timestamp_ms, on_delivery), None
        made = made_by("value", value, self.value, topic, pairs)
        if isinstance(made, str):
            made = as_bytes("value", made)
        source: ValueSource | None = None
        if ValueSource.can_read(made):
            source = ValueSource(made)
            if source.size <= value_bytes_max:
                made, source = source.whole(), None
        value_bytes = None if source is not None else as_bytes("value", made)
        return ProducerRecord(topic, key_bytes, value_bytes, pairs, partition, timestamp_ms, on_delivery), source


def serialized(
    what: str, data: Any, serializer: Serializer | None, topic: str, headers: list[tuple[str, bytes | None]]
) -> bytes | None:
    """`data` as bytes. Raises SerializationError."""
    advice = f"; or give the producer a {what}_serializer"
    return as_bytes(what, made_by(what, data, serializer, topic, headers), advice)


def as_bytes(what: str, data: Any, advice: str = "") -> bytes | None:
    """Raises SerializationError, which ends with `advice`, for what is neither bytes nor str."""
    if data is None or isinstance(data, bytes):
        return data
    if isinstance(data, str):
        try:
            return data.encode()
        except UnicodeEncodeError as error:
            raise SerializationError(f"the {what} is no UTF-8: {error}") from error
    if isinstance(data, (bytearray, memoryview)):
        return bytes(data)
    raise SerializationError(f"the {what} must be bytes or str, not {type(data).__name__}{advice}")


def made_by(
    what: str, data: Any, serializer: Serializer | None, topic: str, headers: list[tuple[str, bytes | None]]
) -> Any:
    """What the serializer makes of `data`. Raises SerializationError."""
    if serializer is None:
        return data
    try:
        return serializer(data, SerializationContext(topic, what, headers))
    except Exception as error:  # whatever a serializer of the user raises is its answer for this record
        raise SerializationError(f"the {what} cannot be serialized: {error!r}") from error


def check_pairs(records: Sequence[Any]) -> None:
    """Raises SerializationError unless each is the key and the value of a record, both bytes or None."""
    for record in records:
        if not isinstance(record, (tuple, list)) or len(record) != 2:
            raise SerializationError(f"a record must be a pair of a key and a value, not {shown(record)}")
        for what, data in zip(("key", "value"), record, strict=True):
            if not isinstance(data, (bytes, bytearray, memoryview, NoneType)):
                raise SerializationError(f"the {what} must be bytes or None, not {type(data).__name__}")


def checked_headers(headers: Headers) -> list[tuple[str, bytes | None]]:
    """Raises SerializationError."""
    if not headers:
        return []
    pairs = headers.items() if isinstance(headers, Mapping) else headers
    checked = []
    try:
        for name, value in pairs:
            if not isinstance(name, str):
                raise SerializationError(f"the name of a header must be str, not {type(name).__name__}")
            if not name.isascii():
                as_bytes("name of a header", name)
            checked.append((name, as_bytes(f"header {name!r}", value)))
    except (TypeError, ValueError) as error:
        raise SerializationError(f"headers must be pairs of a name and a value, not {shown(headers)}") from error
    return checked
