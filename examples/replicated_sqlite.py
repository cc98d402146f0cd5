"""A bank in SQLite, replicated through a topic: a master, a standby and two replicas, which are killed at random.

examples/change_sets.py determines which records are valid. This module connects it to a topic and databases:

- A database stores a transaction and the position after it in one transaction of its own. A process that was killed
  continues at the position in its database.
- A master runs a transaction in its own database, writes it to the topic, and commits when it has read its end from the
  topic. If it is killed before, it reads the end, or the next master's claim, after its restart.
- A standby takes over when the topic has been silent for some time. If the old master is still alive, its transactions
  are no longer valid, which it notices by reading the topic.

    python -m examples.replicated_sqlite            starts three brokers and four members, kills ten times, and compares
    python -m examples.replicated_sqlite --kills 50
    python -m examples.replicated_sqlite master --bootstrap-servers HOST:PORT --database FILE
    python -m examples.replicated_sqlite replica --bootstrap-servers HOST:PORT --database FILE
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from examples.change_sets import Change, Kind, Master, Position, Record, Replica, Standing, Transaction

ROOT = Path(__file__).resolve().parent.parent
TOPIC = "bank"
BROKERS = 3
MASTERS = ("anne", "bert")
REPLICAS = ("carl", "dora")
ACCOUNTS = 10
SILENCE_SECONDS = (0.7, 1.4)
"""Range of the random time of silence after which a standby takes over."""
TIMEOUT_SECONDS = 120.0
_POSITION = "CREATE TABLE IF NOT EXISTS position (generation, sequence, master, next_offset)"
_BANK = (
    Change("CREATE TABLE IF NOT EXISTS accounts (id INTEGER PRIMARY KEY, balance INTEGER)"),
    Change("CREATE TABLE IF NOT EXISTS transfers (id TEXT, source INTEGER, target INTEGER, amount INTEGER)"),
    *(Change("INSERT OR IGNORE INTO accounts VALUES (?, 1000)", (number,)) for number in range(ACCOUNTS)),
)


class Mismatch(Exception):
    """The databases differ, or are wrong."""


class Database:
    """A SQLite file that stores its position in the topic atomically with its data."""

    def __init__(self, path: Path) -> None:
        self._connection = sqlite3.connect(path, isolation_level=None, timeout=TIMEOUT_SECONDS)
        self._connection.execute("PRAGMA journal_mode = WAL")
        self._connection.execute(_POSITION)

    def position(self) -> Position:
        row = self._connection.execute("SELECT * FROM position").fetchone()
        return Position() if row is None else Position(*row)

    def apply(self, transaction: Transaction) -> None:
        self.begin(transaction.changes)
        self.commit(transaction.position)

    def begin(self, changes: Sequence[Change]) -> None:
        """Begin a transaction. Raises sqlite3.Error after a rollback."""
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            for change in changes:
                self._connection.execute(change.sql, change.parameters)
        except sqlite3.Error:
            self.rollback()
            raise

    def commit(self, position: Position) -> None:
        row = (position.generation, position.sequence, position.master, position.next_offset)
        self._connection.execute("DELETE FROM position")
        self._connection.execute("INSERT INTO position VALUES (?, ?, ?, ?)", row)
        self._connection.execute("COMMIT")

    def rollback(self) -> None:
        self._connection.execute("ROLLBACK")

    def rows(self, table: str) -> list[tuple[Any, ...]]:
        return self._connection.execute(f"SELECT rowid, * FROM {table} ORDER BY rowid").fetchall()

    def close(self) -> None:
        self._connection.close()


class Reader:
    """Reads the topic in order. It uses no group, since the position is in the database."""

    def __init__(self, bootstrap_servers: str, next_offset: int) -> None:
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap_servers,
                "group.id": "replication",  # required, but no offsets are committed
                "enable.auto.commit": False,
                "auto.offset.reset": "error",  # deleted records cannot be replaced
                "reconnect.backoff.max.ms": 1000,
                "log_level": 0,
            }
        )
        self._consumer.assign([TopicPartition(TOPIC, 0, next_offset or OFFSET_BEGINNING)])

    def read(self, seconds: float) -> tuple[int, Record] | None:
        """The next record and its offset, or None after the timeout. Raises KafkaException."""
        message = self._consumer.poll(seconds)
        if message is None:
            return None
        error, offset, value = message.error(), message.offset(), message.value()
        if error is not None:
            if error.code() == KafkaError._AUTO_OFFSET_RESET or error.fatal():
                raise KafkaException(error)
            return None
        assert offset is not None
        assert value is not None
        return offset, Record.decode(value)

    def log_end_offset(self) -> int:
        _, high = self._consumer.get_watermark_offsets(TopicPartition(TOPIC, 0), timeout=TIMEOUT_SECONDS)
        return int(high)

    def close(self) -> None:
        self._consumer.close()


class Writer:
    """An idempotent producer, which writes records in order without duplicates. An error ends the process."""

    def __init__(self, bootstrap_servers: str, *, pause_ms: int) -> None:
        self._pause_seconds = pause_ms / 1000
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap_servers,
                "enable.idempotence": True,
                "linger.ms": 0,
                "reconnect.backoff.max.ms": 1000,
                "log_level": 0,
            }
        )

    def write(self, records: Sequence[Record]) -> None:
        """Send records without waiting for acknowledgements; `pause_ms` apart, so that a kill can hit in between."""
        for record in records:
            self._producer.produce(TOPIC, record.encode(), partition=0, on_delivery=_delivered)
            self._producer.poll(self._pause_seconds)

    def poll(self) -> None:
        self._producer.poll(0)


def _delivered(error: KafkaError | None, message: Message) -> None:
    if error is not None:
        raise KafkaException(error)
    value = message.value()
    assert value is not None
    record = Record.decode(value)
    if record.kind is Kind.END:
        _note("acknowledged", record.generation, record.sequence)


def _note(*words: object) -> None:
    """Write a line to stdout, the ledger of the process."""
    sys.stdout.write(" ".join(map(str, words)) + "\n")
    sys.stdout.flush()


class Deposed(Exception):
    """Another member is the master, or the transaction is not complete in the topic."""


class MasterProcess:
    """A standby that takes over if the master is silent, makes transfers, and becomes a standby when deposed."""

    def __init__(self, bootstrap_servers: str, path: Path, *, pause_ms: int) -> None:
        self._database = Database(path)
        self._servers = bootstrap_servers
        self._pause_ms = pause_ms
        self._random = random.Random()

    def run(self) -> None:
        while True:
            position = self._database.position()
            self._master = Master(f"{os.uname().nodename}-{uuid4()}", Replica(position))
            self._reader = Reader(self._servers, position.next_offset)
            self._writer = Writer(self._servers, pause_ms=self._pause_ms)
            try:
                self._stand_by()
                self._take_over()
                _note("reigns", self._master.replica.position.generation)
                self._transact(_BANK, "the bank")
                while True:
                    transfer, changes = self._transfer()
                    self._transact(changes, transfer)
            except Deposed:
                _note("deposed")
            finally:
                self._reader.close()

    def _stand_by(self) -> None:
        silence_seconds = self._random.uniform(*SILENCE_SECONDS)
        heard = time.monotonic()
        while time.monotonic() < heard + silence_seconds:
            if self._follow(0.1):
                heard = time.monotonic()

    def _take_over(self) -> None:
        """Become the master. On return the database has all valid transactions of older generations."""
        self._writer.write([self._master.claim()])
        while self._master.standing is Standing.CLAIMING:
            self._follow(0.1)
        if self._master.standing is Standing.DEPOSED:
            raise Deposed

    def _follow(self, seconds: float) -> bool:
        """Read and apply records. Returns whether there were any."""
        self._writer.poll()
        read = self._reader.read(seconds)
        if read is not None:
            transaction = self._master.receive(*read)
            if transaction is not None:
                self._database.apply(transaction)
        return read is not None

    def _transact(self, changes: Sequence[Change], name: str) -> None:
        """Complete a transaction. Raises Deposed if it is not complete and will never be."""
        self._database.begin(changes)
        self._writer.write(self._master.propose(changes))
        while True:
            self._writer.poll()
            read = self._reader.read(0.1)
            if read is None:
                continue
            transaction = self._master.receive(*read)
            if self._master.standing is Standing.DEPOSED:
                self._database.rollback()
                if transaction is not None:
                    self._database.apply(transaction)
                raise Deposed
            if transaction is not None:
                self._database.commit(transaction.position)
                _note("done", name)
                return

    def _transfer(self) -> tuple[str, list[Change]]:
        source, target = self._random.sample(range(ACCOUNTS), 2)
        amount = self._random.randrange(1, 100)
        name = str(uuid4())
        return name, [
            Change("INSERT INTO transfers VALUES (?, ?, ?, ?)", (name, source, target, amount)),
            Change("UPDATE accounts SET balance = balance - ? WHERE id = ?", (amount, source)),
            Change("UPDATE accounts SET balance = balance + ? WHERE id = ?", (amount, target)),
        ]


def follow(bootstrap_servers: str, path: Path, *, until_end: bool = False) -> None:
    """Run a replica, forever or up to the end of the topic at its start."""
    database = Database(path)
    replica = Replica(database.position())
    reader = Reader(bootstrap_servers, replica.position.next_offset)
    end = reader.log_end_offset() if until_end else None
    next_offset = replica.position.next_offset
    while end is None or next_offset < end:
        read = reader.read(1.0)
        if read is not None:
            next_offset = read[0] + 1
            transaction = replica.receive(*read)
            if transaction is not None:
                database.apply(transaction)
    reader.close()
    database.close()


# --- the demonstration


class Member:
    """One of the four members: its process, which can be killed and restarted, its database and its ledger."""

    def __init__(self, role: str, name: str, bootstrap_servers: str, directory: Path, *, pause_ms: int) -> None:
        self.name = name
        self.database = directory / f"{name}.db"
        self._ledger = directory / f"{name}.ledger"
        self._command = [sys.executable, "-m", "examples.replicated_sqlite", role]
        self._command += ["--bootstrap-servers", bootstrap_servers, "--database", str(self.database)]
        self._command += ["--pause-ms", str(pause_ms)]
        self.start()

    def start(self) -> None:
        with open(self._ledger, "ab") as ledger:
            self._process = subprocess.Popen(self._command, cwd=ROOT, stdout=ledger)

    def kill(self) -> None:
        """Raises Mismatch if the process has ended on its own."""
        if self._process.poll() is not None:
            raise Mismatch(f"{self.name} ended on its own with exit code {self._process.returncode}")
        self._process.kill()
        self._process.wait()

    def signal(self, number: int) -> None:
        self._process.send_signal(number)

    def close(self) -> None:
        self._process.kill()
        self._process.wait()

    def notes(self, kind: str) -> list[str]:
        """The rest of each line of that kind; ignores an incomplete line after a kill."""
        lines = self._ledger.read_text().split("\n")[:-1]
        return [line.removeprefix(f"{kind} ") for line in lines if line.startswith(f"{kind} ")]


class Bank:
    """The four members over one topic, and their faults."""

    def __init__(self, bootstrap_servers: str, directory: Path, *, seed: int, pause_ms: int = 2) -> None:
        self.servers = bootstrap_servers
        self.masters = [Member("master", name, bootstrap_servers, directory, pause_ms=pause_ms) for name in MASTERS]
        self.replicas = [Member("replica", name, bootstrap_servers, directory, pause_ms=0) for name in REPLICAS]
        self._random = random.Random(seed)

    @property
    def members(self) -> list[Member]:
        return [*self.masters, *self.replicas]

    def done(self) -> list[str]:
        """Transactions that a master has reported as complete, except the creation of the bank."""
        return [name for master in self.masters for name in master.notes("done") if name != "the bank"]

    def current_master(self) -> Member:
        """The member that became the master last."""
        return max(self.masters, key=self._generation)

    def inject_fault(self) -> str:
        """Inject a random fault at a random time, and return its description."""
        self._wait_for_business()
        time.sleep(self._random.uniform(0, 0.3))
        master = self.current_master()
        act = self._random.choice([self._kill_master, self._kill_master, self._kill_replica, self._pause_master])
        return act(master)

    def close(self) -> None:
        for member in self.members:
            member.close()

    def compare(self) -> tuple[int, int]:
        """Kill all members, let their databases read the topic to its end, and compare them. Returns the number of
        transfers and generations. Raises Mismatch."""
        for member in self.members:
            member.kill()
        for member in self.members:
            follow(self.servers, member.database, until_end=True)
        databases = [Database(member.database) for member in self.members]
        transfers, accounts = databases[0].rows("transfers"), databases[0].rows("accounts")
        for member, database in zip(self.members, databases, strict=True):
            if (database.rows("transfers"), database.rows("accounts")) != (transfers, accounts):
                raise Mismatch(f"the database of {member.name} differs from that of {self.members[0].name}")
        names = [row[1] for row in transfers]
        if len(set(names)) != len(names):
            raise Mismatch("a transfer was made twice")
        if lost := set(self.done()) - set(names):
            raise Mismatch(f"{len(lost)} completed transfers are lost")
        balances = [1000] * ACCOUNTS
        for _, _, source, target, amount in transfers:
            balances[source] -= amount
            balances[target] += amount
        if [row[2] for row in accounts] != balances:
            raise Mismatch("the balances do not match the transfers")
        return len(transfers), databases[0].position().generation

    def _generation(self, master: Member) -> int:
        return max(map(int, master.notes("reigns")), default=0)

    def _wait_for_business(self) -> None:
        count = len(self.done())
        _wait_until(lambda: len(self.done()) >= count + 20)

    def _kill_master(self, master: Member) -> str:
        master.kill()
        before = self._generation(master)
        if self._random.random() < 0.5:  # restart at once, or after another master took over
            _wait_until(lambda: self._generation(self.current_master()) > before)
        master.start()
        _wait_until(lambda: self._generation(self.current_master()) > before)
        return f"killed {master.name}, the master; {self.current_master().name} took over"

    def _kill_replica(self, _: Member) -> str:
        replica = self._random.choice(self.replicas)
        replica.kill()
        replica.start()
        return f"killed {replica.name}, a replica"

    def _pause_master(self, master: Member) -> str:
        before = self._generation(master)
        master.signal(signal.SIGSTOP)
        try:
            _wait_until(lambda: self._generation(self.current_master()) > before)
        finally:
            master.signal(signal.SIGCONT)
        return f"paused {master.name}, the master, until {self.current_master().name} took over"


def _wait_until(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + TIMEOUT_SECONDS
    while not is_so():
        if time.monotonic() > deadline:
            raise Mismatch("the bank makes no progress")
        time.sleep(0.02)


def create_topic(bootstrap_servers: str) -> None:
    """One partition for a total order, and unlimited retention, since a new replica reads from the start."""
    topic = NewTopic(TOPIC, num_partitions=1, replication_factor=1, config={"retention.ms": "-1"})
    admin = AdminClient({"bootstrap.servers": bootstrap_servers, "log_level": 4})  # no news, warnings only
    admin.create_topics([topic])[TOPIC].result(30)


@contextmanager
def bank(bootstrap_servers: str, directory: Path, *, seed: int) -> Iterator[Bank]:
    """A running bank; all its processes are stopped at the end of the block."""
    running = Bank(bootstrap_servers, directory, seed=seed)
    try:
        yield running
    finally:
        running.close()


def demonstrate(kills: int) -> None:
    import raylog  # members need only a Kafka client

    with (
        tempfile.TemporaryDirectory(prefix="raylog-bank-") as directory,
        raylog.start("bank", brokers=BROKERS) as cluster,
    ):
        create_topic(cluster.bootstrap_servers)
        print(f"{BROKERS} brokers at {cluster.bootstrap_servers}; {', '.join(MASTERS)} may be masters")
        with bank(cluster.bootstrap_servers, Path(directory), seed=random.randrange(1 << 30)) as running:
            for number in range(kills):
                print(f"{number + 1:4}. {running.inject_fault()}")
            transfers, generations = running.compare()
    print(f"{transfers:,} transfers under {generations} generations of masters: the four databases are the same.")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m examples.replicated_sqlite")
    parser.add_argument("role", nargs="?", choices=["demo", "master", "replica"], default="demo")
    parser.add_argument("--kills", type=int, default=10, help="number of faults in the demonstration (default: 10)")
    parser.add_argument("--bootstrap-servers", help="for a master or a replica")
    parser.add_argument("--database", type=Path, help="for a master or a replica: its SQLite file")
    parser.add_argument("--pause-ms", type=int, default=0, help="for a master: pause between two records")
    options = parser.parse_args()
    if options.role == "demo":
        demonstrate(options.kills)
    elif options.bootstrap_servers is None or options.database is None:
        parser.error("a master or a replica needs --bootstrap-servers and --database")
    elif options.role == "master":
        MasterProcess(options.bootstrap_servers, options.database, pause_ms=options.pause_ms).run()
    else:
        follow(options.bootstrap_servers, options.database)


if __name__ == "__main__":
    main()
