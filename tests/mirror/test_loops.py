"""In a loop of flows with names that tell the source, each record arrives once in each other cluster."""

from __future__ import annotations

import pytest
from confluent_kafka import Producer

from raylog.client.admin.admin_client import AdminClient
from raylog.mirror.config import mirror_config
from tests.client.served import Target
from tests.mirror.flows import RunningFlow, create, ends, flow_between, running, seen


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
