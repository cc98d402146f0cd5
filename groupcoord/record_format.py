"""How the records of consumer, share and streams groups are encoded in __consumer_offsets.

A key is an int16 with the kind of the record, the group id and, for some kinds, a name: int16-prefixed UTF-8 strings.
A value is an int16 with its version, 0, and a flexible structure (KIP-482). A null value is a tombstone.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any, Final, Generic, Protocol, TypeVar

from raylog.core.errors import InvariantViolation, ProtocolViolation
from raylog.protocol import codec
from raylog.protocol.records.strings import pack_string, unpack_string
from raylog.protocol.schema import Api

VALUE_VERSION: Final = 0


class OfGroup(Protocol):
    """A record of a group."""

    @property
    def group(self) -> str: ...


Record = TypeVar("Record", bound=OfGroup)


def value_api(name: str) -> Api:
    """What the structure of a value has in place of a request's key and versions."""
    return Api(key=-1, name=name, lowest=0, highest=0, flexible_from=0)


@dataclass(frozen=True, slots=True)
class RecordFormat(Generic[Record]):
    """The records of one kind of groups."""

    values: Mapping[int, type[Any]]
    """The structure of the value, by the kind of the record."""
    named: Collection[int]
    """The kinds whose keys have a name."""
    parts: Callable[[Record], tuple[int, str, Any]]
    """Kind, name and value; None for a tombstone."""
    record: Callable[[str, str, Any], Record]
    """From group, name and value."""
    deleted: Callable[[str, int, str], Record]
    """From group, kind and name."""

    def encode(self, record: Record) -> tuple[bytes, bytes | None]:
        """Key and value."""
        kind, name, value = self.parts(record)
        key = struct.pack(">h", kind) + pack_string(record.group)
        if kind in self.named:
            key += pack_string(name)
        if value is None:
            return key, None
        return key, struct.pack(">h", VALUE_VERSION) + codec.encode(value, VALUE_VERSION)

    def decode(self, kind: int, key: bytes, value: bytes | None) -> Record:
        """The record of a kind in `values`.

        Raises InvariantViolation, struct.error, IndexError or UnicodeDecodeError.
        """
        group, position = unpack_string(key, 2)
        name = unpack_string(key, position)[0] if kind in self.named else ""
        if value is None:
            return self.deleted(group, kind, name)
        (version,) = struct.unpack_from(">h", value)
        if version != VALUE_VERSION:
            raise InvariantViolation(f"record of kind {kind} of group {group!r}: value version {version} is unknown")
        try:
            return self.record(group, name, codec.decode(self.values[kind], version, value, 2))
        except (ProtocolViolation, ValueError) as error:
            raise InvariantViolation(f"record of kind {kind} of group {group!r}: {error}") from error
