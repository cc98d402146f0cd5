"""At most once, at least once, exactly once: three consumer groups read the same records while members are killed.

- *at most once* commits its offsets, then processes the records: a member that dies in between leaves records that are
  never processed.
- *at least once* processes the records, then commits: a member that dies in between leaves records that are processed
  again.
- *exactly once* stores the position with the result, in one database transaction. The group only assigns partitions;
  the positions are read from the database. No offsets are committed to the group. A member that has been removed from
  the group without knowing it is harmless: the transaction skips records below the position.

    python -m examples.delivery                starts three brokers, and kills members of each group at the worst time
    python -m examples.delivery exactly-once --bootstrap-servers HOST:PORT --database FILE      one member
"""

from __future__ import annotations

import argparse
import os
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import Any, NamedTuple

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

ROOT = Path(__file__).resolve().parent.parent
TOPIC = "orders"
BROKERS, PARTITIONS = 3, 4
RECORDS = 6000
BATCH_MAX = 50
DEATHS = 2
DIES_IN_BATCH = 5
TIMEOUT_SECONDS = 120.0
SESSION_MS = 6000
"""A dead member is removed after this time, the shortest that brokers permit by default. So is a member that gets no
CPU time for this long; a later commit of it is accepted if the group is empty, since Kafka does not check generations
then."""
CONFIG = {"group.initial.rebalance.delay.ms": 100}
Worst = Callable[[], None]
"""Called at the worst time for a crash."""


class Semantics(StrEnum):
    AT_MOST_ONCE = "at-most-once"
    AT_LEAST_ONCE = "at-least-once"
    EXACTLY_ONCE = "exactly-once"


class Database:
    """The system outside of Kafka: a table of the processed records, and a table of positions."""

    def __init__(self, path: Path) -> None:
        self._connection = sqlite3.connect(path, isolation_level=None, timeout=TIMEOUT_SECONDS)
        self._connection.execute("PRAGMA journal_mode = WAL")
        self._connection.execute("CREATE TABLE IF NOT EXISTS handled (partition INTEGER, offset INTEGER, value BLOB)")
        self._connection.execute(
            "CREATE TABLE IF NOT EXISTS positions (partition INTEGER PRIMARY KEY, next_offset INTEGER)"
        )

    def handle(self, messages: Sequence[Message]) -> None:
        """Process records without storing positions."""
        with self._transaction():
            for message in messages:
                self._insert(message)

    def handle_once(self, messages: Sequence[Message], worst: Worst) -> None:
        """Process records and store the positions in one transaction; skip records below the stored positions."""
        with self._transaction():
            positions = self.positions()
            for message in messages:
                partition, offset = _place(message)
                if offset >= positions.get(partition, 0):
                    self._insert(message)
                    positions[partition] = offset + 1
            worst()
            self._connection.executemany("REPLACE INTO positions VALUES (?, ?)", positions.items())

    def positions(self) -> dict[int, int]:
        """The offset of the next record to process, by partition; without partitions that have none."""
        return dict(self._connection.execute("SELECT partition, next_offset FROM positions"))

    def offsets(self) -> list[tuple[int, int]]:
        """Partition and offset of every processed record, with duplicates."""
        return self._connection.execute("SELECT partition, offset FROM handled").fetchall()

    def close(self) -> None:
        self._connection.close()

    def _insert(self, message: Message) -> None:
        self._connection.execute("INSERT INTO handled VALUES (?, ?, ?)", (*_place(message), message.value()))

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        """A write transaction, so that what it reads does not change until its end."""
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            yield
        except BaseException:
            self._connection.execute("ROLLBACK")
            raise
        self._connection.execute("COMMIT")


def at_most_once(consumer: Consumer, messages: Sequence[Message], database: Database, worst: Worst) -> None:
    try:
        consumer.commit(offsets=_next_offsets(messages), asynchronous=False)
    except KafkaException:
        return  # the commit may have succeeded nevertheless, so these records are skipped
    worst()
    database.handle(messages)


def at_least_once(consumer: Consumer, messages: Sequence[Message], database: Database, worst: Worst) -> None:
    database.handle(messages)
    worst()
    try:
        consumer.commit(offsets=_next_offsets(messages), asynchronous=False)
    except KafkaException:
        return  # the next owner of these partitions processes these records again


def exactly_once(_: Consumer, messages: Sequence[Message], database: Database, worst: Worst) -> None:
    database.handle_once(messages, worst)


WAYS = {
    Semantics.AT_MOST_ONCE: at_most_once,
    Semantics.AT_LEAST_ONCE: at_least_once,
    Semantics.EXACTLY_ONCE: exactly_once,
}


class Member:
    """A group member that runs until it is stopped."""

    def __init__(self, semantics: Semantics, bootstrap_servers: str, path: Path) -> None:
        self._work = WAYS[semantics]
        self._database = Database(path)
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap_servers,
                "group.id": semantics.value,
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "session.timeout.ms": SESSION_MS,
                "heartbeat.interval.ms": 300,
            }
        )
        seek = {"on_assign": self._begin_where_the_database_is} if semantics is Semantics.EXACTLY_ONCE else {}
        self._consumer.subscribe([TOPIC], on_revoke=self._let_go, on_lost=self._let_go, **seek)
        self._batch: list[Message] = []
        self._taken: dict[int, int] = {}
        """The next offset of each partition in this assignment."""
        self._goes_on = True

    def run(self, *, dies_in_batch: int | None = None) -> None:
        batches = 0

        def worst() -> None:
            if batches == dies_in_batch:
                os.kill(os.getpid(), signal.SIGKILL)

        while self._goes_on:
            messages = self._next_batch()
            if messages:
                batches += 1
                self._work(self._consumer, messages, self._database, worst)
        self._consumer.close()

    def end(self, *_: object) -> None:
        """Stop after the current batch."""
        self._goes_on = False

    def _next_batch(self) -> list[Message]:
        """Poll records one by one, so that the batch is known when partitions are revoked in between.

        A record that was taken before is skipped: rarely, librdkafka returns the first records of a partition without
        a committed offset, and half a second later returns them again, in the same assignment.
        """
        self._batch = []
        while len(self._batch) < BATCH_MAX:
            message = self._consumer.poll(0 if self._batch else 0.1)
            if message is None:
                break
            if message.error() is None:
                partition, offset = _place(message)
                if offset >= self._taken.get(partition, 0):
                    self._batch.append(message)
                    self._taken[partition] = offset + 1
        return self._batch

    def _let_go(self, _: Consumer, partitions: list[TopicPartition]) -> None:
        """Drop the current batch of revoked partitions; none of it has been committed or processed.

        Without this callback the library revokes partitions and rejoins in the background, and a later commit of the
        batch would be accepted in the new generation: the coordinator does not check who owns a partition.
        """
        self._batch.clear()
        self._taken.clear()

    def _begin_where_the_database_is(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        positions = self._database.positions()
        for each in partitions:
            each.offset = positions.get(each.partition, OFFSET_BEGINNING)
        consumer.assign(partitions)


def _place(message: Message) -> tuple[int, int]:
    partition, offset = message.partition(), message.offset()
    assert partition is not None
    assert offset is not None
    return partition, offset


def _next_offsets(messages: Sequence[Message]) -> list[TopicPartition]:
    next_offsets = {partition: offset + 1 for partition, offset in map(_place, messages)}
    return [TopicPartition(TOPIC, partition, offset) for partition, offset in next_offsets.items()]


# --- the demonstration


class Outcome(NamedTuple):
    once: int
    """Number of records that were processed at least once."""
    twice: int
    """Number of repetitions."""
    lost: int
    """Number of records that were never processed."""


class Trial:
    """A group of two members, one of which is killed repeatedly at the worst time."""

    def __init__(self, semantics: Semantics, bootstrap_servers: str, directory: Path) -> None:
        self.semantics = semantics
        self.path = directory / f"{semantics}.db"
        Database(self.path).close()
        self._servers = bootstrap_servers
        self._command = [sys.executable, "-m", "examples.delivery", semantics]
        self._command += ["--bootstrap-servers", bootstrap_servers, "--database", str(self.path)]
        self._members: list[subprocess.Popen[bytes]] = []

    def run(self, records: int) -> Outcome:
        for number in range(DEATHS):
            mortal = self._start("--dies-in-batch", str(DIES_IN_BATCH))
            mortal.wait(TIMEOUT_SECONDS)
            assert mortal.returncode == -signal.SIGKILL, mortal.returncode
            if number == 0:
                self._start()
        self._start()
        self._wait_until_all_is_read(records)
        for member in self._members:
            if member.poll() is None:
                member.terminate()
                assert member.wait(TIMEOUT_SECONDS) == 0, member.returncode
        return outcome_of(Database(self.path).offsets(), records)

    def close(self) -> None:
        for member in self._members:
            member.kill()
            member.wait()

    def _start(self, *arguments: str) -> subprocess.Popen[bytes]:
        self._members.append(subprocess.Popen([*self._command, *arguments], cwd=ROOT))
        return self._members[-1]

    def _wait_until_all_is_read(self, records: int) -> None:
        deadline = time.monotonic() + TIMEOUT_SECONDS
        while self._read() < records:
            assert time.monotonic() < deadline, f"{self.semantics} makes no progress at {self._read()} of {records}"
            time.sleep(0.1)

    def _read(self) -> int:
        if self.semantics is Semantics.EXACTLY_ONCE:
            return sum(Database(self.path).positions().values())
        consumer = Consumer({"bootstrap.servers": self._servers, "group.id": self.semantics.value})
        try:
            found = consumer.committed([TopicPartition(TOPIC, number) for number in range(PARTITIONS)], 30)
        except KafkaException:
            return 0
        finally:
            consumer.close()
        return sum(max(each.offset, 0) for each in found)


def outcome_of(offsets: Sequence[tuple[int, int]], records: int) -> Outcome:
    once = len(set(offsets))
    return Outcome(once=once, twice=len(offsets) - once, lost=records - once)


def write(bootstrap_servers: str, records: int) -> None:
    """Create the topic and write records, all of which are acknowledged."""
    admin = AdminClient({"bootstrap.servers": bootstrap_servers, "log_level": 4})  # warnings only
    admin.create_topics([NewTopic(TOPIC, PARTITIONS)])[TOPIC].result(30)
    producer = Producer({"bootstrap.servers": bootstrap_servers, "enable.idempotence": True})
    for number in range(records):
        producer.produce(TOPIC, b"%d" % number, partition=number % PARTITIONS)
    left = producer.flush(TIMEOUT_SECONDS)
    assert left == 0, f"{left} records were not acknowledged"


def run_trial(semantics: Semantics, bootstrap_servers: str, directory: Path, records: int) -> Outcome:
    trial = Trial(semantics, bootstrap_servers, directory)
    try:
        return trial.run(records)
    finally:
        trial.close()


def demonstrate() -> None:
    import raylog  # members need only a Kafka client

    config: dict[str, Any] = CONFIG
    with (
        tempfile.TemporaryDirectory(prefix="raylog-delivery-") as directory,
        raylog.start("delivery", brokers=BROKERS, config=config) as cluster,
    ):
        write(cluster.bootstrap_servers, RECORDS)
        print(f"{RECORDS:,} records; in each group {DEATHS} members are killed while they process records")
        for semantics in Semantics:
            found = run_trial(semantics, cluster.bootstrap_servers, Path(directory), RECORDS)
            print(f"{semantics:>14}: {found.once:,} processed, {found.twice} repeated, {found.lost} lost")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m examples.delivery")
    parser.add_argument("semantics", nargs="?", type=Semantics, choices=list(Semantics), help="for one member")
    parser.add_argument("--bootstrap-servers", help="for one member")
    parser.add_argument("--database", type=Path, help="for one member: its SQLite file, the same for the whole group")
    parser.add_argument(
        "--dies-in-batch", type=int, help="for one member: kill itself in this batch, at the worst time"
    )
    options = parser.parse_args()
    if options.semantics is None:
        demonstrate()
        return
    if options.bootstrap_servers is None or options.database is None:
        parser.error("a member needs --bootstrap-servers and --database")
    member = Member(options.semantics, options.bootstrap_servers, options.database)
    signal.signal(signal.SIGTERM, member.end)
    signal.signal(signal.SIGINT, member.end)
    member.run(dies_in_batch=options.dies_in_batch)


if __name__ == "__main__":
    main()
