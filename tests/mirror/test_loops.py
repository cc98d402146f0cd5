"""In a loop of flows each record arrives once in each other cluster, whether names tell the source or producers do."""

from __future__ import annotations

import random
import time
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from raylog.client.admin.admin_client import AdminClient
from raylog.mirror.config import FlowConfig, mirror_config
from tests.client.served import Target
from tests.mirror.conftest import CONFIG
from tests.mirror.flow_process import FlowProcess
from tests.mirror.flows import RunningFlow, create, ends, entries_among, flow_between, flows_among, running, seen
from tests.support.cluster_thread import cluster_thread
from tests.support.forms import by_form
from tests.support.hang import HANG_SECONDS


@pytest.mark.parametrize("ring", ["AB", "ABC", "ABCD"])
def test_a_topic_reaches_each_cluster_of_a_ring_once(ring: str) -> None:
    entries = {"clusters": ",".join(ring)} | {f"{alias}.bootstrap.servers": "x:1" for alias in ring}
    entries |= {f"{one}->{other}.enabled": "true" for one, other in zip(ring, ring[1:] + ring[0], strict=True)}
    topics = {alias: {"orders", "heartbeats"} for alias in ring}
    flows = mirror_config(entries).flows
    for _ in range(20):  # turns in which topics are found
        for flow in flows:
            found = topics[flow.source.alias]
            topics[flow.target.alias] |= {flow.remote_topic(topic) for topic in found if flow.copies_topic(topic)}
    for number, alias in enumerate(ring):
        before = [ring[number - step - 1] for step in range(len(ring) - 1)]
        paths = {"".join(f"{each}." for each in before[:length]) for length in range(len(ring))}
        assert topics[alias] == {f"{path}{topic}" for path in paths for topic in ("orders", "heartbeats")}


def two_more_turns(run: RunningFlow) -> None:
    turns = run.control("topics").runs
    run.wait(lambda _: run.control("topics").runs > turns + 1)


def test_two_active_clusters_have_the_records_of_both(east: Target, west: Target) -> None:
    topic = f"active-{east.new_topic()}"
    for cluster, value in ((east, b"from A"), (west, b"from B")):
        create(cluster, topic)
        producer = Producer({"bootstrap.servers": cluster.plain})
        for _ in range(20):
            producer.produce(topic, value, partition=0)
        assert producer.flush(60) == 0
        del producer
    topics = f".*{topic}"
    there = flow_between(east, west, topics=topics)
    back = flow_between(west, east, aliases=("B", "A"), topics=topics, exactly_once_source_support="enabled")
    with running(there) as one, running(back) as other:
        one.wait_for_end(topic, ends(east, topic))
        other.wait_for_end(topic, ends(west, topic))
        for run in (one, other):
            two_more_turns(run)  # in which each would find what the other has copied
    for cluster, copy, value in ((west, f"A.{topic}", b"from A"), (east, f"B.{topic}", b"from B")):
        with AdminClient(bootstrap_servers=cluster.plain) as admin:
            assert {each.name for each in admin.list_topics() if topic in each.name} == {topic, copy}
        assert [record[1] for record in seen(cluster, copy)] == [value] * 20


IDENTITY = "org.apache.kafka.connect.mirror.IdentityReplicationPolicy"
RENAMED = f"{__name__}:renamed"


def renamed(source: str, topic: str) -> str:
    """To itself, as a function of a program may do."""
    return topic


KILLS = by_form(0, long=15)


@pytest.fixture(scope="module")
def north(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    with cluster_thread(CONFIG, tmp_path_factory.mktemp("north") / "data") as running:
        yield Target(running.bootstrap_servers)


def produce(cluster: Target, topic: str, name: str, numbers: range, **given: Any) -> None:
    producer = Producer({"bootstrap.servers": cluster.plain, **given})
    if "transactional.id" in given:
        producer.init_transactions(20)
        producer.begin_transaction()
    for number in numbers:
        producer.produce(topic, f"{name}-{number}".encode(), partition=0)
    if "transactional.id" in given:
        producer.commit_transaction(20)
    assert producer.flush(60) == 0


def produce_all_kinds(clusters: dict[str, Target], topic: str) -> list[bytes]:
    for alias, cluster in clusters.items():
        produce(cluster, topic, alias, range(10), **{"enable.idempotence": True})
        produce(cluster, topic, alias, range(10, 20), **{"enable.idempotence": False, "acks": 1})
        produce(cluster, topic, alias, range(20, 30), **{"transactional.id": f"{alias}-{topic}"})
    return sorted(f"{alias}-{number}".encode() for alias in clusters for number in range(30))


def wait_for(clusters: dict[str, Target], topic: str, values: list[bytes]) -> None:
    """Until each cluster has these values, and then some time more in which one could come again."""
    deadline = time.monotonic() + HANG_SECONDS
    for cluster in clusters.values():
        while not set(values) <= {record[1] for record in seen(cluster, topic)}:
            assert time.monotonic() < deadline, sorted(set(values) - {record[1] for record in seen(cluster, topic)})
            time.sleep(0.05)


def in_order(cluster: Target, topic: str, alias: str) -> list[int]:
    values = [record[1].decode() for record in seen(cluster, topic)]
    return [int(value.partition("-")[2]) for value in values if value.startswith(alias)]


@contextmanager
def all_running(flows: Iterable[FlowConfig]) -> Iterator[list[RunningFlow]]:
    with ExitStack() as stack:
        yield [stack.enter_context(running(flow)) for flow in flows]


def settle(runs: list[RunningFlow], topic: str) -> None:
    """Each flow has read all that there is."""
    for run in runs:
        run.wait(lambda status: all(each.lag == 0 for each in status.partitions if each.topic == topic))


@pytest.mark.parametrize(("mode", "policy"), [("disabled", RENAMED), ("enabled", IDENTITY)])
def test_a_loop_of_two_with_equal_names_copies_each_record_once(
    east: Target, west: Target, mode: str, policy: str
) -> None:
    clusters, topic = {"A": east, "B": west}, f"same-{east.new_topic()}"
    for cluster in clusters.values():
        create(cluster, topic)
    values = produce_all_kinds(clusters, topic)
    given = {"topics": topic, "exactly_once_source_support": mode, "replication_policy_class": policy}
    with all_running(flows_among(clusters, "A->B", "B->A", **given)) as runs:
        wait_for(clusters, topic, values)
        settle(runs, topic)
    with all_running(flows_among(clusters, "A->B", "B->A", **given)) as runs:  # with other producer ids
        for alias, cluster in clusters.items():
            produce(cluster, topic, alias, range(30, 40))
        values = sorted([*values, *(f"{alias}-{number}".encode() for alias in "AB" for number in range(30, 40))])
        wait_for(clusters, topic, values)
        settle(runs, topic)
    for cluster in clusters.values():
        assert sorted(record[1] for record in seen(cluster, topic)) == values
        for alias in clusters:
            assert in_order(cluster, topic, alias) == list(range(40))


def test_two_flows_of_different_files_do_not_copy_back_what_the_other_one_has_copied(
    east: Target, west: Target
) -> None:
    clusters, topic = {"A": east, "B": west}, f"files-{east.new_topic()}"
    for cluster in clusters.values():
        create(cluster, topic)
    values = produce_all_kinds(clusters, topic)
    given = {"topics": topic, "replication_policy_class": IDENTITY}
    flows = [
        *flows_among(clusters, "A->B", exactly_once_source_support="enabled", **given),
        *flows_among({"C": west, "D": east}, "C->D", **given),  # clusters are known by their ids
    ]
    with all_running(flows) as runs:
        wait_for(clusters, topic, values)
        settle(runs, topic)
    for cluster in clusters.values():
        assert sorted(record[1] for record in seen(cluster, topic)) == values


@pytest.mark.parametrize("mode", ["enabled", "disabled"][: by_form(1, long=2)])
def test_a_ring_of_three_with_equal_names_copies_each_record_once(
    east: Target, west: Target, north: Target, mode: str
) -> None:
    clusters, topic = {"A": east, "B": west, "C": north}, f"ring-{east.new_topic()}"
    for cluster in clusters.values():
        create(cluster, topic)
    values = produce_all_kinds(clusters, topic)
    given = {"topics": topic, "exactly_once_source_support": mode, "replication_policy_class": IDENTITY}
    with all_running(flows_among(clusters, "A->B", "B->C", "C->A", **given)) as runs:
        wait_for(clusters, topic, values)
        settle(runs, topic)
        shown = [run.partition(topic) for run in runs]
        assert [each.records for each in shown if each is not None] == [60, 60, 60]
    for cluster in clusters.values():
        assert sorted(record[1] for record in seen(cluster, topic)) == values
        for alias in clusters:
            assert in_order(cluster, topic, alias) == list(range(30))


def test_a_worker_of_a_loop_that_is_replaced_in_a_transaction_copies_nothing_twice(east: Target, west: Target) -> None:
    clusters, topic = {"A": east, "B": west}, f"replaced-{east.new_topic()}"
    for cluster in clusters.values():
        create(cluster, topic)
    values = produce_all_kinds(clusters, topic)
    given = {"topics": topic, "exactly_once_source_support": "enabled", "replication_policy_class": IDENTITY}
    there, back = flows_among(clusters, "A->B", "B->A", **given)
    with running(there, commit_interval_ms=2_000) as former, running(back) as other:
        former.wait(lambda _: len(seen(west, topic, isolation="read_uncommitted")) == 60)
        former.freeze()
        with running(there) as latter:
            wait_for(clusters, topic, values)
            settle([latter, other], topic)
            former.thaw()
            former.wait(lambda status: status.errors)
    for cluster in clusters.values():
        assert sorted(record[1] for record in seen(cluster, topic)) == values


@pytest.mark.skipif(KILLS == 0, reason="takes a minute: --long")
@pytest.mark.parametrize("mode", ["disabled", "enabled"], ids=["at-least-once", "exactly-once"])
def test_a_ring_whose_workers_are_killed_loses_nothing_and_copies_nothing_without_end(
    east: Target, west: Target, north: Target, tmp_path: Path, mode: str
) -> None:
    clusters, topic = {"A": east, "B": west, "C": north}, f"killed-{east.new_topic()}"
    for cluster in clusters.values():
        create(cluster, topic)
    given = {"topics": topic, "exactly_once_source_support": mode, "replication_policy_class": IDENTITY}
    entries = entries_among(clusters, "A->B", "B->C", "C->A", **given)
    values: list[bytes] = []
    worker = FlowProcess(entries, tmp_path / "worker.log", commit_interval_ms=50)
    try:
        for turn in range(KILLS):
            for alias, cluster in clusters.items():
                produce(cluster, topic, alias, range(20 * turn, 20 * turn + 20))
                values += [f"{alias}-{number}".encode() for number in range(20 * turn, 20 * turn + 20)]
            time.sleep(random.Random(turn).uniform(0.5, 4))
            worker.kill()
            worker = FlowProcess(entries, tmp_path / "worker.log", commit_interval_ms=50)
        wait_for(clusters, topic, values)
        time.sleep(3)  # in which what has come once could come again
    finally:
        worker.kill()
    for cluster in clusters.values():
        found = [record[1] for record in seen(cluster, topic)]
        assert set(found) == set(values)
        if mode == "enabled":
            assert sorted(found) == sorted(values)
        else:
            assert len(found) <= 3 * len(values)


def test_a_flow_does_not_copy_equal_names_where_mirror_maker_copies_back_or_to_its_own_source(
    east: Target, west: Target
) -> None:
    topic = east.new_topic()
    create(west, topic)
    given = {"topics": topic, "replication_policy_class": IDENTITY}
    create(east, "mm2-configs.M.internal")
    (looped,) = flows_among({"A": east, "M": west}, "A->M", **given)
    (selfsame,) = flows_among({"A": east, "B": east}, "A->B", **given)
    with all_running([looped, selfsame]) as (one, other):
        other.wait(lambda status: any("are the same cluster" in error for error in status.errors))
        one.wait(lambda status: status.partitions)
        create(east, "M.checkpoints.internal")  # while the flow runs
        one.wait(lambda status: any("that copies the other way" in error for error in status.errors))
        one.wait(lambda status: not status.partitions)
        assert other.status().partitions == ()
        with AdminClient(bootstrap_servers=east.plain) as admin:
            admin.delete_topics(["mm2-configs.M.internal"])
        one.wait(lambda status: status.partitions and not status.errors)
