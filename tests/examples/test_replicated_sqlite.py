"""Four replicated databases are equal row by row, with processes killed and paused at any time.

Masters and replicas are, and the brokers too. What counts is found out
here a second time, from the topic alone and in the simplest way, so that the four cannot agree on something wrong.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition

from examples.change_sets import Change, Kind, Position, Record, Transaction
from examples.replicated_sqlite import TOPIC, Bank, Database, bank, create_topic
from tests.support.cluster_process import ClusterProcess
from tests.support.forms import by_form

pytestmark = pytest.mark.compat

KILLS = by_form(5, long=100)
HANG_SECONDS = 60.0
DONE_PER_KILL_MIN = 20


def read_topic(bootstrap_servers: str) -> list[Record]:
    consumer = Consumer({"bootstrap.servers": bootstrap_servers, "group.id": "judge", "enable.auto.commit": False})
    place = TopicPartition(TOPIC, 0, 0)
    _, end = consumer.get_watermark_offsets(place, timeout=HANG_SECONDS)
    consumer.assign([place])
    records: list[Record] = []
    while len(records) < end:
        message = consumer.poll(HANG_SECONDS)
        assert message is not None
        assert message.error() is None
        value = message.value()
        assert value is not None
        records.append(Record.decode(value))
    consumer.close()
    return records


class Judgement:
    """What a topic says that was written by idempotent producers: nothing in it is there twice or missing."""

    def __init__(self, log: list[Record]) -> None:
        self.transfers: list[str] = []
        """In their order; the names of those that count."""
        self.ends: set[tuple[int, int]] = set()
        """Generation and sequence of every end that counts."""
        self.late_records = self.cut_transactions = 0
        highest, reigning = 0, ""
        sent: dict[str, list[str]] = {}
        for record in log:
            if record.kind is Kind.CLAIM and record.generation > highest:
                self.cut_transactions += reigning in sent
                highest, reigning = record.generation, record.master
            elif record.master != reigning:
                self.late_records += 1
            elif record.kind is Kind.BEGIN:
                sent[record.master] = []
            elif record.kind is Kind.CHANGE:
                assert record.change is not None
                if record.change.sql.startswith("INSERT INTO transfers"):
                    sent[record.master].append(str(record.change.parameters[0]))
            elif record.kind is Kind.END:
                self.transfers += sent.pop(record.master)
                self.ends.add((record.generation, record.sequence))


def check_acknowledged(running: Bank, log: list[Record], judgement: Judgement) -> None:
    """An end that was acknowledged is in the topic; it counts, unless another claim stands before it."""
    acknowledged = [
        (int(generation), int(sequence))
        for master in running.masters
        for generation, sequence in map(str.split, master.notes("acknowledged"))
    ]
    claims = {record.generation: number for number, record in reversed(list(enumerate(log))) if record.sequence == 0}
    places = {(record.generation, record.sequence): number for number, record in enumerate(log)}
    for generation, sequence in acknowledged:
        later = [place for other, place in claims.items() if other > generation]
        is_late = places[generation, sequence] > min(later, default=len(log))
        assert is_late or (generation, sequence) in judgement.ends


class MortalCluster:
    """One that is killed now and then, and comes back at the same address with what it had."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._process = ClusterProcess({}, path)
        self.bootstrap_servers = self._process.bootstrap_servers

    def kill(self) -> None:
        self._process.kill()

    def start(self) -> None:
        self._process = ClusterProcess({"listeners": f"PLAINTEXT://{self.bootstrap_servers}"}, self._path)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[MortalCluster]:
    running = MortalCluster(tmp_path / "cluster")
    yield running
    running.kill()


def test_four_databases_are_equal(cluster: MortalCluster, tmp_path: Path) -> None:
    create_topic(cluster.bootstrap_servers)
    with bank(cluster.bootstrap_servers, tmp_path, seed=KILLS) as running:
        troubles = []
        for number in range(KILLS):
            troubles.append(running.inject_fault())
            if number % 4 == 2:
                cluster.kill()
                cluster.start()
        assert any("took over" in trouble for trouble in troubles)
        transfers, generations = running.compare()
        log = read_topic(cluster.bootstrap_servers)
        judgement = Judgement(log)
        check_acknowledged(running, log, judgement)
    for member in running.members:
        assert [row[1] for row in Database(member.database).rows("transfers")] == judgement.transfers
    assert len(running.done()) > KILLS * DONE_PER_KILL_MIN
    assert generations >= sum("took over" in trouble for trouble in troubles)
    sys.stderr.write(
        f"{transfers} transfers, {generations} generations, {judgement.late_records} late records,"
        f" {judgement.cut_transactions} transactions cut\n"
    )


def test_a_transaction_is_applied_completely_or_not_at_all(tmp_path: Path) -> None:
    database = Database(tmp_path / "a.db")
    good = Change("CREATE TABLE t (a)")
    with pytest.raises(Exception, match="no such table"):
        database.apply(Transaction((good, Change("INSERT INTO nowhere VALUES (1)")), Position(1, 2, "m", 3)))
    assert database.position() == Position()
    database.apply(Transaction((good,), Position(1, 2, "m", 3)))
    assert Database(tmp_path / "a.db").position() == Position(1, 2, "m", 3)
