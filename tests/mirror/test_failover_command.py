"""`raylog mirror failover` and `failback` move idle groups, never ahead of what they have read, and show what lacks."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer

from raylog.cli.main import main
from raylog.client.admin.admin_client import AdminClient
from raylog.core.ids import TopicPartition
from tests.client.served import Target
from tests.mirror.flows import flow_between, running
from tests.support.hang import wait_until


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> Any:
    assert main(["mirror", *arguments, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def produce(target: Target, topic: str, count: int) -> None:
    producer = Producer({"bootstrap.servers": target.plain})
    for number in range(count):
        producer.produce(topic, b"%d" % number, partition=0)
    assert producer.flush(60) == 0


def offset_of(admin: AdminClient, group: str, topic: str) -> int | None:
    found = admin.list_consumer_group_offsets(group, [TopicPartition(topic, 0)])[TopicPartition(topic, 0)]
    return None if found is None else found.offset


@pytest.mark.parametrize("command", ["failover", "failback"])
def test_in_a_loop_with_equal_names_no_offset_is_translated(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    file = tmp_path / "mm2.properties"
    lines = ["clusters=A,B", "A.bootstrap.servers=x:1", "B.bootstrap.servers=x:1", "A->B.enabled=true"]
    file.write_text("\n".join([*lines, "B->A.enabled=true", "replication.policy.class=IdentityReplicationPolicy"]))
    assert main(["mirror", command, "--config", str(file), "--flow", "A->B"]) != 0
    assert "--flow=A->B: offsets are not translated in a loop of flows with equal names" in capsys.readouterr().err


def test_groups_move_there_and_back(
    east: Target, west: Target, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    topic = east.new_topic()
    copy, tp = f"A.{topic}", TopicPartition(topic, 0)
    produce(east, topic, 50)
    flow = flow_between(east, west, topics=topic, groups="mover.*", exactly_once_source_support="enabled")
    file = tmp_path / "mm2.properties"
    text = f"""
        clusters=A,B
        A.bootstrap.servers={east.plain}
        B.bootstrap.servers={west.plain}
        A->B.enabled=true
        groups=mover.*
        admin.timeout.ms=60000
    """
    file.write_text(text)
    with (
        AdminClient(bootstrap_servers=east.plain) as there,
        AdminClient(bootstrap_servers=west.plain) as here,
    ):
        before = checkpoints(here)
        with running(flow) as it:
            it.wait_for_end(topic, {0: 50})
            there.alter_consumer_group_offsets("mover", {tp: 50})
            it.wait(lambda _: checkpoints(here) > before)
        produce(east, topic, 7)
        there.alter_consumer_group_offsets("mover-ahead", {tp: 55})
        there.alter_consumer_group_offsets("mover-behind", {tp: 3})
        there.alter_consumer_group_offsets("other", {tp: 50})

        tried = run(capsys, "failover", "--config", str(file), "--dry-run")
        ours = [each for each in tried["uncopied"] if each["topic"] == topic]
        assert ours == [{"topic": topic, "partition": 0, "copied": 50, "source_end": 57}]
        moves = {each["group"]: (each["topic"], each["offset"]) for each in tried["moves"]}
        assert moves == {"mover": (copy, 50), "mover-ahead": (copy, 50)}
        assert any("mover-behind" in problem and "auto.offset.reset" in problem for problem in tried["problems"])
        assert offset_of(here, "mover", copy) is None

        done = run(capsys, "failover", "--config", str(file), "--flow", "A->B")
        assert (done["moves"], done["dry_run"]) == (tried["moves"], False)
        assert offset_of(here, "mover", copy) == 50
        assert run(capsys, "failover", "--config", str(file))["moves"] == []

        with member(west, "mover", copy):
            assert busy(run(capsys, "failover", "--config", str(file)), "mover")

        file.write_text(text.replace(east.plain, "127.0.0.1:1").replace("60000", "500"))
        here.delete_consumer_groups(["mover"])
        without = run(capsys, "failover", "--config", str(file))
        assert [(each["group"], each["offset"]) for each in without["moves"]] == [("mover", 50)]
        assert [each["source_end"] for each in without["uncopied"] if each["topic"] == topic] == [None]
        assert any("lost" in problem for problem in without["problems"])

        file.write_text(text)
        there.alter_consumer_group_offsets("mover", {tp: 10})
        back = run(capsys, "failback", "--config", str(file), "--dry-run")
        assert [(each["group"], each["topic"], each["offset"]) for each in back["moves"]] == [("mover", topic, 50)]
        assert offset_of(there, "mover", topic) == 10
        with member(east, "mover", topic):
            refused = run(capsys, "failback", "--config", str(file))
            assert busy(refused, "mover")
            assert refused["moves"] == []
        run(capsys, "failback", "--config", str(file))
        assert offset_of(there, "mover", topic) == 50
    assert main(["mirror", "failover", "--config", str(file), "--flow", "B->A"]) != 0


@contextmanager
def member(target: Target, group: str, topic: str) -> Iterator[None]:
    """A consumer that has joined the group."""
    settings = {"bootstrap.servers": target.plain, "group.id": group, "enable.auto.commit": False}
    consumer = Consumer(settings)
    try:
        consumer.subscribe([topic])
        wait_until(lambda: consumer.poll(0.1) is None and bool(consumer.assignment()), lambda: "no assignment")
        yield
    finally:
        consumer.close()


def busy(report: Any, group: str) -> bool:
    """Whether the report says why the group was not moved."""
    pattern = rf"group {group}: has members there \(state \w+\): its offsets are not moved"
    return any(re.fullmatch(pattern, problem) for problem in report["problems"])


def checkpoints(admin: AdminClient) -> int:
    """The number of records in the topic of checkpoints."""
    if "A.checkpoints.internal" not in {each.name for each in admin.list_topics()}:
        return 0
    tp = TopicPartition("A.checkpoints.internal", 0)
    return admin.list_offsets({tp: -1})[tp].offset
