"""`raylog transactions` shows the transactions of stock clients, finds those that hang, and ends them."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from confluent_kafka import Producer

from raylog.cli.transactions import hanging, open_before
from raylog.client.admin.partitions import ProducerState
from raylog.client.admin.transactions import TransactionDescription
from raylog.core.ids import TopicPartition
from tests.cli.conftest import Cli
from tests.support.cluster_thread import RunningCluster

TP = TopicPartition("orders", 0)


def state(
    producer_id: int = 7, *, epoch: int = 0, start_offset: int | None = 12, last_timestamp_ms: int = 1000
) -> ProducerState:
    return ProducerState(producer_id, epoch, 4, last_timestamp_ms, 0, start_offset)


def described(*partitions: TopicPartition, epoch: int = 0) -> TransactionDescription:
    return TransactionDescription("t", "Ongoing", 7, epoch, 60_000, 500, partitions)


class TestHanging:
    def test_only_open_transactions_without_recent_writes_are_candidates(self) -> None:
        states = {TP: [state(1), state(2, start_offset=None), state(3, last_timestamp_ms=2000)]}
        assert [found.producer_id for _, found in open_before(states, 2000)] == [1]

    def test_one_that_its_coordinator_has_does_not_hang(self) -> None:
        assert hanging([(TP, state())], [described(TP)]) == []
        assert hanging([(TP, state(epoch=1))], [described(TP, epoch=1)]) == []

    @pytest.mark.parametrize(
        "known",
        [[], [described()], [described(TopicPartition("orders", 1))], [described(TP, epoch=1)]],
        ids=["unknown producer", "ended", "in another partition", "fenced"],
    )
    def test_one_that_its_coordinator_does_not_have_hangs(self, known: list[TransactionDescription]) -> None:
        assert hanging([(TP, state())], known) == [(TP, state())]


@pytest.fixture
def open_transaction(cli: Cli, cluster: RunningCluster, topic: str) -> Iterator[Producer]:
    """One record of a stock producer with the transactional id `id-<topic>`, in partition 0."""
    cli("topics", "create", topic)
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "transactional.id": f"id-{topic}"})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(topic, b"open", partition=0)
    assert producer.flush(30) == 0
    yield producer
    producer.abort_transaction(30)


def test_an_open_transaction_of_a_stock_producer(cli: Cli, topic: str, open_transaction: Producer) -> None:
    listed = {each["transactional_id"]: each for each in json.loads(cli("transactions", "list", "--json").out)}
    assert listed[f"id-{topic}"]["state"] == "Ongoing"
    assert f"id-{topic}" in cli("transactions", "list", "--state", "Ongoing").out
    assert f"id-{topic}" not in cli("transactions", "list", "--state", "Empty").out
    assert f"id-{topic}" not in cli("transactions", "list", "--duration-filter", "3600000").out

    (one,) = json.loads(cli("transactions", "describe", f"id-{topic}", "--json").out)
    assert one["partitions"] == [{"topic": topic, "partition": 0}]
    assert one["duration_ms"] >= 0
    head, line = cli("transactions", "describe", f"id-{topic}").out.splitlines()
    assert head.split()[-1] == "PARTITIONS"
    assert line.split()[-1] == f"{topic}-0"

    (producer,) = json.loads(cli("transactions", "describe-producers", topic, "--json").out)
    assert (producer["producer_id"], producer["start_offset"]) == (one["producer_id"], 0)
    arguments = ("transactions", "find-hanging", topic, "--max-transaction-timeout", "0")
    assert cli(*arguments) == (0, "No hanging transactions found.\n", "")


def test_abort_ends_what_begins_at_the_offset_and_nothing_else(
    cli: Cli, topic: str, open_transaction: Producer
) -> None:
    wrong = cli("transactions", "abort", f"{topic}:0", "--start-offset", "3")
    assert wrong.err == f"raylog: INVALID_TXN_STATE: {topic}-0: no open transaction begins at offset 3\n"
    assert cli("transactions", "abort", topic, "--start-offset", "0").code == 2
    assert cli("consume", topic, "--exit-at-end").out == ""
    aborted = cli("transactions", "abort", f"{topic}:0", "--start-offset", "0")
    assert (aborted.code, aborted.err) == (0, "")
    (producer,) = json.loads(cli("transactions", "describe-producers", topic, "--json").out)
    assert producer["start_offset"] is None


def test_errors(cli: Cli, topic: str) -> None:
    assert cli("transactions", "describe", topic).err.startswith("raylog: TRANSACTIONAL_ID_NOT_FOUND: ")
    assert cli("transactions", "list", "--producer-id", "-1").code == 2
    assert cli("transactions", "describe").code == 2
