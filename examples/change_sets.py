"""Change sets of a database as records of a topic: what a replica applies of them, and when a master may say "done".

The topic has one partition, so everybody reads the same records in the same order, and what counts follows from that
order alone:

- A master begins with a *claim* of a generation. The first claim of a generation that is higher than all before makes
  its author the master; another claim of the same generation comes too late and counts for nothing.
- A transaction is a *begin*, its *changes* and an *end*. The records of a generation are numbered from its claim, which
  is 0. A record counts only when it is the master's, and the next one in number. So what comes a second time counts
  for nothing, and nothing counts any more after a record that was lost.
- A transaction is applied as a whole when its end is read. One that is open when a higher generation begins is dropped,
  and what an old master still sends after that belongs to an old generation: nobody needs to stop it.

So a standby that has read its own claim has read everything of the older generations that ever will count; and a master
knows that a transaction is done when it has read its end, not when it was told that the record is in the topic: another
claim may stand before it.

Nothing here reads a topic or a database; examples/replicated_sqlite.py does.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum, auto


@dataclass(frozen=True, slots=True)
class Change:
    """A statement that does the same in every database that is in the same state: no random(), no clock."""

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
    """How far a database has come. It is stored in the same transaction as what was applied."""

    generation: int = 0
    sequence: int = 0
    """Of the last record that was applied: a claim or an end."""
    master: str = ""
    next_offset: int = 0
    """Where to read on. Reading again from further back changes nothing."""


@dataclass(frozen=True, slots=True)
class Transaction:
    """To be applied as a whole, together with its position. A claim is one without changes."""

    changes: tuple[Change, ...]
    position: Position


class Replica:
    """Is told of every record of the topic in its order, from `position.next_offset` or from before.

    It takes for granted that what it hands out is applied. Where that fails it is of no use any more: make another one
    of the position that is in the database.
    """

    def __init__(self, position: Position) -> None:
        self.position = position
        self._sequence = position.sequence
        self._open: list[Change] = []

    def receive(self, offset: int, record: Record) -> Transaction | None:
        """What is to be applied now; None where the record ends nothing, or does not count."""
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
    """For good. Who wants to try again does so under another name."""


@dataclass(slots=True)
class Master:
    """A replica that may become the master, under a name that no other has or had, also not its own former self."""

    name: str
    replica: Replica
    standing: Standing = Standing.STANDBY
    _next_sequence: int = field(default=1, init=False)

    def claim(self) -> Record:
        """To be written to the topic. Whether it is the master now `standing` says, once the claim was read."""
        assert self.standing is Standing.STANDBY
        self.standing = Standing.CLAIMING
        return Record(self.replica.position.generation + 1, 0, self.name, Kind.CLAIM)

    def propose(self, changes: Sequence[Change]) -> list[Record]:
        """A transaction, to be written to the topic. It is done when `receive` hands it out, and not before."""
        assert self.standing is Standing.REIGNING
        kinds = [Kind.BEGIN, *(Kind.CHANGE for _ in changes), Kind.END]
        first = self._next_sequence
        self._next_sequence += len(kinds)
        return [
            Record(self.replica.position.generation, first + number, self.name, kind, change)
            for number, (kind, change) in enumerate(zip(kinds, [None, *changes, None], strict=True))
        ]

    def receive(self, offset: int, record: Record) -> Transaction | None:
        """As a replica; and `standing` follows."""
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
