"""The headers of a record whose value is in a store, and what a store is. Pure; see docs/large-messages.md."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, Protocol

from raylog.client.chunks.envelope import Headers
from raylog.client.chunks.splitting import Pieces
from raylog.client.producer.delivery import ProducerRecord
from raylog.core.errors import ErrorCode, KafkaError

REFERENCE: Final = "raylog.reference"
SIZE: Final = "raylog.reference.size"
DIGEST: Final = "raylog.reference.digest"
NAMES: Final = (REFERENCE, SIZE, DIGEST)
_NAME: Final = re.compile(rb"(?!\.{1,2}/)[a-zA-Z0-9._-]{1,249}/[0-9a-f]{32}")
UNFINISHED: Final = ".unfinished"
"""Ends the name of a file with a value that is being written."""
_FILE: Final = re.compile(_NAME.pattern.decode() + f"({re.escape(UNFINISHED)})?")
_SIZE: Final = re.compile(rb"0|[1-9][0-9]{0,17}")
_DIGEST: Final = re.compile(rb"sha256:[0-9a-f]{64}")


class StoredValue(NamedTuple):
    """A value in a store."""

    name: str
    written_ms: int
    """Wall clock of the store."""


class ValueStore(Protocol):
    """Where values are kept. Its calls wait, and any thread may make them."""

    def write(self, name: str, source: Pieces) -> bytes:
        """Keep the value under this name; return its digest. It is durable, as far as the store promises that at all,
        when the call returns. Raises KafkaError."""

    def read(self, name: str, size: int) -> Iterator[bytes]:
        """The value in pieces, of which there may be more or fewer bytes than `size`. Raises ValueMissing."""

    def values_of(self, topic: str) -> Iterator[StoredValue]:
        """Those that were written for records of this topic. Raises KafkaError."""

    def delete(self, name: str) -> None:
        """Raises KafkaError; a value that is not there is none."""


class ValueMissing(Exception):
    """The store has no value of this name, or cannot read it; the text says why."""


@dataclass(frozen=True, slots=True)
class Reference:
    """Where the value of a record is."""

    name: str
    """Topic and 32 hexadecimal digits, with a slash between; a path below the URL of the store."""
    size: int
    digest: bytes


def stored_record(record: ProducerRecord, source: Pieces, store: ValueStore, value_id: bytes) -> ProducerRecord:
    """The record that refers to the value, which is written first. Waits for the store. Raises KafkaError."""
    name = f"{record.topic}/{value_id.decode()}"
    if not _NAME.fullmatch(name.encode()):
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"{record.topic!r} is not a topic's name")
    reference = Reference(name, source.size, store.write(name, source))
    return record._replace(value=b"", headers=[*reference_headers(reference), *record.headers])


def reference_headers(reference: Reference) -> list[tuple[str, bytes | None]]:
    values = (reference.name.encode(), b"%d" % reference.size, reference.digest)
    return list(zip(NAMES, values, strict=True))


def reference_of(headers: Headers) -> Reference | None:
    """None for a record that has its own value, or other headers than these. A name never leads out of the store."""
    if len(headers) < len(NAMES) or tuple(name for name, _ in headers[:3]) != NAMES:
        return None
    name, size, digest = (value or b"" for _, value in headers[:3])
    if not (_NAME.fullmatch(name) and _SIZE.fullmatch(size) and _DIGEST.fullmatch(digest)):
        return None
    return Reference(name.decode(), int(size), digest)


def headers_of_record(headers: tuple[tuple[str, bytes | None], ...]) -> tuple[tuple[str, bytes | None], ...]:
    """Those of the program."""
    return headers[len(NAMES) :]


def is_of_value(name: str) -> bool:
    """Whether a producer has written the file of this name; all others in a folder are not those of a store."""
    return _FILE.fullmatch(name) is not None


def superfluous(stored: Sequence[StoredValue], existing: set[str], *, before_ms: int) -> list[str]:
    """The values to delete: without a record, and written before this time."""
    return [value.name for value in stored if value.written_ms < before_ms and value.name not in existing]


def store_failed(what: str, error: BaseException) -> KafkaError:
    return KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{what}: {error!r}")
