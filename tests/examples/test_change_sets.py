"""Databases that follow one topic of change sets agree, with masters and replicas killed, delayed or disconnected.

Nothing that a master has said is done is missing anywhere, and nothing is there twice.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from examples.change_sets import Change, Kind, Master, Position, Record, Replica, Standing, Transaction


@dataclass
class FakeDatabase:
    """What was applied, in its order, and the position that was stored with it."""

    position: Position = Position()
    applied: list[str] = field(default_factory=list)

    def apply(self, transaction: Transaction) -> None:
        self.applied += [change.sql for change in transaction.changes]
        self.position = transaction.position


def follow(database: FakeDatabase, log: Sequence[Record], *, start: int = 0, stop: int | None = None) -> Replica:
    """A replica made of the database reads on from `start`, and whatever it hands out is applied."""
    replica = Replica(database.position)
    for offset in range(start, len(log) if stop is None else stop):
        transaction = replica.receive(offset, log[offset])
        if transaction is not None:
            database.apply(transaction)
    return replica


def claim(generation: int, master: str) -> Record:
    return Record(generation, 0, master, Kind.CLAIM)


def transaction(generation: int, master: str, first: int, *changes: str) -> list[Record]:
    sequences = range(first, first + len(changes) + 2)
    kinds = [Kind.BEGIN, *[Kind.CHANGE] * len(changes), Kind.END]
    made = [None, *map(Change, changes), None]
    return [
        Record(generation, sequence, master, kind, change)
        for sequence, kind, change in zip(sequences, kinds, made, strict=True)
    ]


LOG = [
    claim(1, "a"),
    *transaction(1, "a", 1, "1", "2"),
    *transaction(1, "a", 1, "1", "2"),  # sent again
    *transaction(1, "a", 5, "dropped", "dropped")[:3],  # cut off by the fail-over
    claim(2, "b"),
    claim(2, "a"),  # too late: b has that generation
    transaction(1, "a", 5, "dropped", "dropped")[3],  # the end that a sent before it knew
    *transaction(2, "a", 1, "another's"),
    *transaction(2, "b", 1, "3"),
    *transaction(1, "a", 9, "late"),
    *transaction(2, "b", 4, "4", "5", "6"),
    claim(1, "a"),
    claim(3, "c"),
    *transaction(3, "c", 1),
    *transaction(3, "c", 4, "lost")[1:],  # the begin was lost, and with it the rest of the generation
    *transaction(3, "c", 7, "after a loss"),
    *transaction(2, "b", 9, "late"),
    claim(5, "a"),
    *transaction(5, "a", 1, "7"),
]
APPLIED = ["1", "2", "3", "4", "5", "6", "7"]


def test_complete_transactions_are_applied_and_incomplete_ones_are_not() -> None:
    database = FakeDatabase()
    follow(database, LOG)
    assert database.applied == APPLIED
    assert database.position == Position(5, 3, "a", len(LOG))


@pytest.mark.parametrize("cut", range(len(LOG) + 1))
def test_a_replica_may_restart_anywhere_and_read_again_from_any_earlier_offset(cut: int) -> None:
    for start in range(len(LOG)):
        database = FakeDatabase()
        follow(database, LOG, stop=cut)
        follow(database, LOG, start=min(start, database.position.next_offset))
        assert database.applied == APPLIED
        assert database.position == Position(5, 3, "a", len(LOG))


@pytest.mark.parametrize("cut", range(len(LOG) + 1))
def test_a_position_saved_with_the_changes_is_enough(cut: int) -> None:
    """The replica dies between what it was handed and its database; nothing of it was applied."""
    database = FakeDatabase()
    replica = follow(database, LOG, stop=cut)
    if cut < len(LOG):
        replica.receive(cut, LOG[cut])
    follow(database, LOG, start=database.position.next_offset)
    assert database.applied == APPLIED


@pytest.mark.parametrize(
    "record", [claim(3, "a"), *transaction(7, "b", 12, "INSERT INTO t VALUES (?)"), Record(1, 2, "é", Kind.END)]
)
def test_a_record_is_encoded_and_decoded(record: Record) -> None:
    assert Record.decode(record.encode()) == record
    change = Record(1, 2, "m", Kind.CHANGE, Change("DELETE FROM t WHERE a = ? AND b = ?", (1, "x")))
    assert Record.decode(change.encode()) == change


def test_a_master_is_active_once_it_has_read_its_claim() -> None:
    first, second = Master("first", Replica(Position())), Master("second", Replica(Position()))
    log = [first.claim(), second.claim()]
    for master in (first, second):
        assert master.standing is Standing.CLAIMING
        for offset, record in enumerate(log):
            master.receive(offset, record)
    assert [first.standing, second.standing] == [Standing.REIGNING, Standing.DEPOSED]


def test_an_end_after_the_claim_of_another_master_is_ignored() -> None:
    master = Master("old", Replica(Position()))
    master.receive(0, master.claim())
    begin, end = master.propose([])
    assert master.receive(1, begin) is None
    assert master.receive(2, claim(2, "new")) == Transaction((), Position(2, 0, "new", 3))
    assert master.standing is Standing.DEPOSED
    assert master.receive(3, end) is None


def test_a_master_detects_a_lost_record_and_tolerates_a_duplicate() -> None:
    master = Master("m", Replica(Position()))
    master.receive(0, master.claim())
    begin, end = master.propose([])
    standings = []
    for offset, record in enumerate([begin, end, end, master.propose([])[1]], 1):
        master.receive(offset, record)
        standings.append(master.standing)
    assert standings == [Standing.REIGNING] * 3 + [Standing.DEPOSED]


# --- everything at once


@dataclass
class Party:
    """A process with its database. What it has sent and the topic has not taken yet outlives it."""

    database: FakeDatabase
    machine: Master
    next_offset: int = 0
    has_proposed: bool = False
    """A transaction that is not decided."""

    @property
    def name(self) -> str:
        return self.machine.name


@dataclass
class Connection:
    """Records of one master on their way: they arrive in their order, or not at all."""

    records: list[Record] = field(default_factory=list)
    broken: bool = False
    """One of them was lost: what comes later cannot count."""


class World:
    """Three parties, each of them a replica that may become the master, over one topic.

    What is true is written down when a record comes into the topic, by who reigns there; the machines know nothing but
    what they read.
    """

    def __init__(self, random: Random) -> None:
        self.random = random
        self.log: list[Record] = []
        self.connections: dict[str, Connection] = {}
        self.winners: dict[int, str] = {}
        """By generation: whose claim came first."""
        self.promised: dict[Record, list[str]] = {}
        """By the end record of a transaction: its changes."""
        self.true: list[str] = []
        self.done: list[str] = []
        """What a master has said is done."""
        self.parties = [self.party(FakeDatabase()) for _ in range(3)]

    def party(self, database: FakeDatabase) -> Party:
        name = f"m{len(self.connections)}"
        self.connections[name] = Connection()
        return Party(database, Master(name, Replica(database.position)), database.position.next_offset)

    def step(self) -> None:
        weights = {
            self.lead: 20,
            self.arrive: 20,
            self.read: 20,
            self.take_over: 5,
            self.retry: 2,
            self.lose: 1,
            self.cut: 1,
            self.die: 1,
            self.die_between_reading_and_applying: 1,
            self.read_again: 1,
        }
        (act,) = self.random.choices(list(weights), list(weights.values()))
        act()
        for party in self.parties:
            assert party.database.applied == self.true[: len(party.database.applied)]

    # --- what masters do

    def take_over(self) -> None:
        number = self.random.randrange(3)
        party = self.parties[number]
        if party.machine.standing is Standing.DEPOSED:
            self.parties[number] = party = self.party(party.database)
        if party.machine.standing is Standing.STANDBY:
            self.send(party, [party.machine.claim()])

    def lead(self) -> None:
        for party in self.parties:
            if party.machine.standing is Standing.REIGNING and not party.has_proposed:
                party.has_proposed = True
                names = [f"{len(self.promised)}.{number}" for number in range(self.random.randrange(4))]
                records = party.machine.propose([Change(name) for name in names])
                self.promised[records[-1]] = names
                self.send(party, records)

    def send(self, party: Party, records: Sequence[Record]) -> None:
        self.connections[party.name].records += records

    # --- what becomes of it on its way

    def arrive(self) -> None:
        connection = self.sender()
        count = self.random.randrange(1, 7)
        arriving, connection.records = connection.records[:count], connection.records[count:]
        for record in arriving:
            self.append(record, connection)

    def retry(self) -> None:
        """The last record of a master comes again."""
        for record in reversed(self.log):
            if record.master == self.random.choice(self.parties).name:
                self.append(record, self.connections[record.master])
                return

    def lose(self) -> None:
        connection = self.sender()
        if connection.records:
            connection.records.pop(0)
            connection.broken = True

    def cut(self) -> None:
        """A connection ends with what was on its way; its master is gone or will never hear."""
        connection = self.sender()
        connection.broken = connection.broken or bool(connection.records)
        connection.records = []

    def sender(self) -> Connection:
        return self.random.choice([each for each in self.connections.values() if each.records] or [Connection()])

    def append(self, record: Record, connection: Connection) -> None:
        highest = max(self.winners, default=0)
        if record.kind is Kind.CLAIM:
            if record.generation > highest:
                self.winners[record.generation] = record.master
        elif record.kind is Kind.END and not connection.broken and record not in self.log:
            self.true += self.promised[record] if self.winners.get(highest) == record.master else []
        self.log.append(record)

    # --- what readers do

    def read(self) -> None:
        self.read_all(self.random.choice(self.parties))

    def read_all(self, party: Party) -> None:
        while party.next_offset < len(self.log):
            record = self.log[party.next_offset]
            handed = party.machine.receive(party.next_offset, record)
            party.next_offset += 1
            if handed is not None:
                party.database.apply(handed)
                if record.kind is Kind.END and record.master == party.name:
                    assert party.machine.standing is Standing.REIGNING
                    assert party.has_proposed
                    self.done += [change.sql for change in handed.changes]
                    party.has_proposed = False

    def die(self) -> None:
        number = self.random.randrange(3)
        self.parties[number] = self.party(self.parties[number].database)

    def die_between_reading_and_applying(self) -> None:
        number = self.random.randrange(3)
        party = self.parties[number]
        for offset in range(party.next_offset, len(self.log)):
            if party.machine.receive(offset, self.log[offset]) is not None:
                break
        self.parties[number] = self.party(party.database)

    def read_again(self) -> None:
        party = self.random.choice(self.parties)
        party.next_offset = self.random.randrange(party.next_offset + 1)

    def end(self) -> None:
        for party in self.parties:
            self.read_all(party)
            assert party.database.applied == self.true
            assert party.database.position.generation == max(self.winners, default=0)
            if party.machine.standing is Standing.REIGNING:
                assert party.name == self.winners[max(self.winners)]
        assert set(self.done) <= set(self.true)
        assert len(set(self.true)) == len(self.true)
        heir = self.party(self.parties[0].database)
        self.append(heir.machine.claim(), self.connections[heir.name])
        self.read_all(heir)
        assert heir.machine.standing is Standing.REIGNING


@settings(max_examples=200, deadline=None)
@given(random=st.randoms(use_true_random=True))
def test_all_faults_together(random: Random) -> None:
    world = World(random)
    for _ in range(400):
        world.step()
    world.end()
