"""What work returns for a record, and the records that are made of it. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple, SupportsIndex

from raylog.client.consumer.fetched import ConsumerRecord

ERROR_HEADER: Final = "__connect.errors."
"""Begins the names of the headers that Kafka Connect gives to records of its dead letter queues (KIP-298)."""
MESSAGE_BYTES_MAX: Final = 8 * 1024
"""Of the error, in the headers of a dead letter; the message often quotes the record."""
TRACE_BYTES_MAX: Final = 32 * 1024
KEY_AND_VALUE: Final = 2


class OutputRecord(NamedTuple):
    """A record to be produced. Keys and values are bytes or str."""

    value: Any = None
    key: Any = None
    headers: Sequence[tuple[str, bytes | None]] | Mapping[str, bytes | None] = ()
    topic: str | None = None
    """None: the pool's output topic."""
    partition: int | None = None
    timestamp_ms: int | None = None


class Failure(NamedTuple):
    """Why a record could not be processed."""

    error_class: str
    message: str
    trace: str = ""
    retriable: bool = True

    @classmethod
    def of(cls, error: BaseException, *, trace: str = "", retriable: bool = True) -> Failure:
        kind = type(error)
        return cls(f"{kind.__module__}.{kind.__qualname__}", str(error), trace, retriable)


def outputs_of(result: Any, topic: str | None) -> list[OutputRecord]:
    """What a function has returned, as records with their topics: None, one output, or several.

    An output is an OutputRecord, a value, or a tuple of a key and a value. Raises TypeError, and what a generator does.
    """
    if result is None:
        return []
    if _is_one(result):
        return [_output(result, topic)]
    if isinstance(result, Iterable) and not isinstance(result, (str, Mapping)):
        return [_output(each, topic) for each in result]
    raise _wrong(result)


def dead_letter(
    record: ConsumerRecord, failure: Failure, *, topic: str, pool: str, worker: int, work: str
) -> OutputRecord:
    """The record as it was read, with headers that say why it is in the dead-letter topic."""
    errors = {
        "topic": record.topic,
        "partition": str(record.partition),
        "offset": str(record.offset),
        "connector.name": pool,
        "task.id": str(worker),
        "class.name": work,
        "exception.class.name": failure.error_class,
    }
    encoded = {name: text.encode(errors="replace") for name, text in errors.items()}
    encoded["exception.message"] = _beginning(failure.message, MESSAGE_BYTES_MAX)
    encoded["exception.stacktrace"] = _beginning(failure.trace, TRACE_BYTES_MAX)
    headers = [*record.headers, *((ERROR_HEADER + name, text) for name, text in encoded.items())]
    return OutputRecord(record.value, record.key, headers, topic, timestamp_ms=max(record.timestamp_ms, 0))


def _beginning(text: str, bytes_max: int) -> bytes:
    """Whole characters."""
    return text[:bytes_max].encode(errors="replace")[:bytes_max].decode(errors="ignore").encode()


def _is_one(result: Any) -> bool:
    return isinstance(result, (OutputRecord, bytes, str, bytearray, memoryview)) or _is_pair(result)


def _is_pair(result: Any) -> bool:
    """(key, value), and no tuple of two outputs."""
    return (
        isinstance(result, tuple)
        and len(result) == KEY_AND_VALUE
        and all(each is None or isinstance(each, (bytes, str, bytearray, memoryview)) for each in result)
    )


def _output(result: Any, topic: str | None) -> OutputRecord:
    if isinstance(result, OutputRecord):
        output = result
        for name, number in (("partition", output.partition), ("timestamp_ms", output.timestamp_ms)):
            if number is not None and not isinstance(number, SupportsIndex):
                raise TypeError(f"OutputRecord.{name} must be an int, not {type(number).__name__}")
    elif _is_pair(result):
        output = OutputRecord(result[1], result[0])
    elif _is_one(result):
        output = OutputRecord(result)
    else:
        raise _wrong(result)
    if output.topic is not None:
        return output
    if topic is None:
        raise TypeError("the work returned a record, but the pool has no output topic: set output=, or return None")
    return output._replace(topic=topic)


def _wrong(result: Any) -> TypeError:
    expected = "None, bytes, str, (key, value), an OutputRecord, or a list of these"
    return TypeError(f"the work returned {type(result).__name__}: it must return {expected}")
