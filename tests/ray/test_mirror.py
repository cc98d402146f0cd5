"""A mirror copies each record once and in order, and does all else, while its actors are killed, added and removed."""

from __future__ import annotations

import os
import random
import signal
from collections.abc import Iterator
from urllib.request import urlopen

import pytest

import raylog
from raylog.cli.mirror import table
from tests.client.served import Target
from tests.mirror.flows import ends, seen
from tests.support.forms import by_form
from tests.support.hang import wait_until

pytestmark = [pytest.mark.ray, pytest.mark.usefixtures("ray_runtime")]

KILLS = by_form(3, long=100)
PARTITIONS = 4
RECORDS = 200
"""For each kill."""


@pytest.fixture(scope="module")
def cluster(ray_runtime: None) -> Iterator[raylog.Cluster]:
    with raylog.start("mirrored") as cluster:
        yield cluster


def test_each_record_is_copied_once_while_actors_are_killed_added_and_removed(cluster: raylog.Cluster) -> None:
    """Both ends are one cluster: the copy has another name. The first actor, which has the control, is killed first."""
    target = Target(cluster.bootstrap_servers)
    with raylog.AdminClient(bootstrap_servers=target.plain) as admin:
        admin.create_topics(raylog.NewTopic("orders", PARTITIONS, 1))
    rng = random.Random(1)
    options = {"source_alias": "A", "target_alias": "B", "replication_factor": 1, "commit_interval_ms": 50}
    options |= {"groups": "readers", "sync_group_offsets_enabled": True, "heartbeats_replication_enabled": False}
    options |= {f"{task}_interval_seconds": 1 for task in ("refresh_groups", "sync_group_offsets", "emit_checkpoints")}
    options |= {"topics": "orders", "actors": 2, "metrics_address": "127.0.0.1:0"}
    with raylog.mirror(source=target.plain, target=target.plain, **options) as mirror:
        for kill in range(KILLS):
            with raylog.Producer(bootstrap_servers=target.plain) as producer:
                for number in range(RECORDS):
                    producer.send("orders", b"%d-%d" % (kill, number), partition=number % PARTITIONS)
            wait_until(lambda: mirror.status()[0].pid)
            pids = [each.pid for each in mirror.status() if each.pid]
            os.kill(pids[0] if kill == 0 else rng.choice(pids), signal.SIGKILL)
            mirror.scale(1 + kill % 3)
        wanted = set(ends(target, "orders", PARTITIONS).items())

        def copied() -> set[tuple[int, int | None]]:
            return {
                (each.partition, each.next_offset)
                for actor in mirror.status()
                for flow in actor.flows
                for each in flow.partitions
            }

        wait_until(lambda: copied() == wanted, lambda: str(mirror.status()))
        assert sum(actor.restarts for actor in mirror.status()) > 0
        with raylog.AdminClient(bootstrap_servers=target.plain) as admin:
            admin.alter_consumer_group_offsets("readers", {("orders", number): end for number, end in wanted})
            wait_until(lambda: sum(copied_offsets(admin)) >= KILLS * RECORDS, lambda: str(mirror.status()))
        assert "A->B  orders" in table(mirror.status())

        def shown() -> list[str]:
            return [urlopen(f"http://{actor.metrics}/metrics").read().decode() for actor in mirror.status()]

        assert all('raylog_mirror_shards{source="A",target="B"' in each for each in shown())
        lag = 'raylog_mirror_lag{source="A",target="B",topic="A.orders"'
        wait_until(lambda: any(lag in each for each in shown()), shown)  # an actor that has just begun knows it soon
        with pytest.raises(raylog.ConfigError, match="actors=0"):
            mirror.scale(0)
    wait_until(lambda: says_that_it_has_ended(mirror))
    for partition in range(PARTITIONS):
        assert seen(target, "A.orders", partition) == seen(target, "orders", partition)


def says_that_it_has_ended(mirror: raylog.Mirror) -> bool:
    try:
        mirror.status()
    except raylog.KafkaError as error:
        return error.message.startswith("the mirror has ended")
    return False  # Ray has not ended the actor yet


def copied_offsets(admin: raylog.AdminClient) -> list[int]:
    """Of the group, in the copy."""
    found = admin.list_consumer_group_offsets("readers").items()
    return [each.offset for tp, each in found if tp.topic == "A.orders" and each is not None]


def test_a_mirror_refuses_what_it_cannot_do(ray_runtime: None) -> None:
    clusters = {"source": "127.0.0.1:1", "target": "127.0.0.1:1", "topics": "t"}
    with pytest.raises(raylog.ConfigError, match="actors=-1"):
        raylog.mirror(**clusters, actors=-1)
    with pytest.raises(raylog.ConfigError, match=r"no\.such\.key"):
        raylog.mirror(**clusters, no_such_key=1)
    with pytest.raises(raylog.ConfigError, match="transforms"):
        raylog.mirror(**clusters, transforms="x")
