"""The three delivery semantics hold when members die between processing and commit."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Message

from examples.delivery import BATCH_MAX, CONFIG, DEATHS, Database, Outcome, Semantics, outcome_of, run_trial, write
from tests.support.cluster_process import ClusterProcess, cluster_process

RECORDS = 4000


def never_mind() -> None:
    """At the worst moment, nothing happens."""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterProcess]:
    config = {key: str(value) for key, value in CONFIG.items()}
    with cluster_process(config, tmp_path_factory.mktemp("delivery")) as process:
        write(process.bootstrap_servers, RECORDS)
        yield process


@pytest.mark.compat
class TestMembersThatDie:
    """One batch of each that died is what a way may lose, or do again."""

    def test_at_most_once(self, cluster: ClusterProcess, tmp_path: Path) -> None:
        found = run_trial(Semantics.AT_MOST_ONCE, cluster.bootstrap_servers, tmp_path, RECORDS)
        assert found.twice == 0
        assert DEATHS <= found.lost <= DEATHS * BATCH_MAX

    def test_at_least_once(self, cluster: ClusterProcess, tmp_path: Path) -> None:
        found = run_trial(Semantics.AT_LEAST_ONCE, cluster.bootstrap_servers, tmp_path, RECORDS)
        assert found.lost == 0
        assert found.twice >= DEATHS

    def test_exactly_once(self, cluster: ClusterProcess, tmp_path: Path) -> None:
        found = run_trial(Semantics.EXACTLY_ONCE, cluster.bootstrap_servers, tmp_path, RECORDS)
        assert found == Outcome(once=RECORDS, twice=0, lost=0)


def messages(partition: int, offsets: range) -> list[Message]:
    return [Message(partition=partition, offset=offset, value=b"%d" % offset) for offset in offsets]


def test_a_member_removed_from_the_group_processes_nothing_twice(tmp_path: Path) -> None:
    """It held a batch while another member read the same records and went on."""
    old, new = Database(tmp_path / "a.db"), Database(tmp_path / "a.db")
    old.handle_once(messages(0, range(5)), never_mind)
    new.handle_once(messages(0, range(5, 15)), never_mind)
    old.handle_once([*messages(0, range(5, 10)), *messages(1, range(3))], never_mind)
    old.handle_once(messages(0, range(10, 20)), never_mind)
    new.handle_once(messages(0, range(15, 22)), never_mind)
    assert sorted(new.offsets()) == [*((0, offset) for offset in range(22)), *((1, offset) for offset in range(3))]
    assert new.positions() == {0: 22, 1: 3}


def test_results_and_positions_are_saved_together(tmp_path: Path) -> None:
    database = Database(tmp_path / "a.db")

    def fail() -> None:
        raise OSError

    with pytest.raises(OSError):
        database.handle_once(messages(0, range(5)), fail)
    assert (database.offsets(), database.positions()) == ([], {})


def test_lost_and_repeated_records_are_counted() -> None:
    assert outcome_of([(0, 0), (0, 1), (0, 1), (1, 0), (0, 1)], 5) == Outcome(once=3, twice=2, lost=2)
