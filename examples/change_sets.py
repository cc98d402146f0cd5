"""Change sets of a database as records of a topic: which of them a replica applies, and when a transaction is complete.

The topic has one partition, so that all members read the same records in the same order. The order determines which
records are valid:

- A master starts with a *claim* of a generation. The first claim of a generation higher than all before makes its
  author the master; later claims of the same generation are ignored.
- A transaction is a *begin*, its *changes* and an *end*. The records of a generation are numbered from its claim, which
  is 0. A record is valid only if it is from the master and has the next number. Duplicates are therefore ignored, and
  so is everything after a lost record.
- A transaction is applied as a whole when its end is read. If a higher generation begins before, it is dropped. Records
  that an old master still sends belong to an old generation, so it need not be stopped.

A standby that has read its own claim has therefore read all valid records of older generations. A master knows that a
transaction is complete when it has read its end, not when the record is acknowledged: another claim may precede it.

This module reads neither a topic nor a database; examples/replicated_sqlite.py does.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum, auto


@dataclass(frozen=True, slots=True)
class Change:
    """A deterministic SQL statement: no random(), no clock."""

    sql: str
    parameters: tuple[str | int | float | None, ...] = ()


class Kind(StrEnum):
    CLAIM = auto()
    BEGIN = auto()
    CHANGE = auto()
    END = auto()


@dataclass(frozen=True, slots=True)
class Record:
    generation: int
    sequence: int
    master: str
    kind: Kind
    change: Change | None = None

    def encode(self) -> bytes:
        change = None if self.change is None else [self.change.sql, self.change.parameters]
        return json.dumps([self.generation, self.sequence, self.master, self.kind, change]).encode()

    @classmethod
    def decode(cls, value: bytes) -> Record:
        generation, sequence, master, kind, change = json.loads(value)
        return cls(
            generation, sequence, master, Kind(kind), None if change is None else Change(change[0], tuple(change[1]))
        )


@dataclass(frozen=True, slots=True)
class Position:
    """The position of a database in the topic, which is stored in the same transaction as the changes."""

    generation: int = 0
    sequence: int = 0
    """The number of the last applied record, which is a claim or an end."""
    master: str = ""
    next_offset: int = 0
    """The next offset to read. Reading from an earlier offset has no effect."""


@dataclass(frozen=True, slots=True)
class Transaction:
    """Changes that are applied together with their position. A claim has no changes."""

    changes: tuple[Change, ...]
    position: Position


class Replica:
    """Receives every record of the topic in order, from `position.next_offset` or earlier.

    It assumes that the transactions that it returns are applied. If that fails, create a new one from the position in
    the database.
    """

    def __init__(self, position: Position) -> None:
        self.position = position
        self._sequence = position.sequence
        self._open: list[Change] = []

    def receive(self, offset: int, record: Record) -> Transaction | None:
        """The transaction to apply; None if the record is not an end or a claim, or is not valid."""
        if not self._counts(record):
            return None
        self._sequence = record.sequence
        match record.kind:
            case Kind.CHANGE:
                assert record.change is not None
                self._open.append(record.change)
                return None
            case Kind.BEGIN:
                self._open.clear()
                return None
            case Kind.CLAIM:
                self._open.clear()
        self.position = Position(record.generation, record.sequence, record.master, offset + 1)
        return Transaction(tuple(self._open), self.position)

    def _counts(self, record: Record) -> bool:
        if record.kind is Kind.CLAIM:
            return record.generation > self.position.generation
        is_masters = (record.generation, record.master) == (self.position.generation, self.position.master)
        return is_masters and record.sequence == self._sequence + 1


class Standing(StrEnum):
    STANDBY = auto()
    CLAIMING = auto()
    REIGNING = auto()
    DEPOSED = auto()
    """Final: to try again, use another name."""


@dataclass(slots=True)
class Master:
    """A replica that can become the master. Its name must be unique, also among former instances."""

    name: str
    replica: Replica
    standing: Standing = Standing.STANDBY
    _next_sequence: int = field(default=1, init=False)

    def claim(self) -> Record:
        """A record to write to the topic. When it was read back, `standing` is the result."""
        assert self.standing is Standing.STANDBY
        self.standing = Standing.CLAIMING
        return Record(self.replica.position.generation + 1, 0, self.name, Kind.CLAIM)

    def propose(self, changes: Sequence[Change]) -> list[Record]:
        """The records of a transaction to write to the topic. It is complete when `receive` returns it."""
        assert self.standing is Standing.REIGNING
        kinds = [Kind.BEGIN, *(Kind.CHANGE for _ in changes), Kind.END]
        first = self._next_sequence
        self._next_sequence += len(kinds)
        return [
            Record(self.replica.position.generation, first + number, self.name, kind, change)
            for number, (kind, change) in enumerate(zip(kinds, [None, *changes, None], strict=True))
        ]

    def receive(self, offset: int, record: Record) -> Transaction | None:
        """Like `Replica.receive`; also updates `standing`."""
        transaction = self.replica.receive(offset, record)
        position = self.replica.position
        if record.master == self.name and record.kind in (Kind.CLAIM, Kind.END):
            has_counted = position.master == self.name and position.sequence >= record.sequence
            if not has_counted:
                self.standing = Standing.DEPOSED
            elif self.standing is Standing.CLAIMING:
                self.standing = Standing.REIGNING
        elif self.standing is Standing.REIGNING and position.master != self.name:
            self.standing = Standing.DEPOSED
        return transaction
