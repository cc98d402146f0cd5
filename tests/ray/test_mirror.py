"""A mirror of actors copies each record once and in order while its actors are killed, added and removed."""

from __future__ import annotations

import os
import random
import signal
from collections.abc import Iterator

import pytest

import raylog
from raylog.cli.mirror import table
from tests.client.served import Target
from tests.mirror.flows import ends, seen
from tests.ray.test_process import until
from tests.support.forms import by_form

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
    """Both ends are one cluster: the copy has another name."""
    target = Target(cluster.bootstrap_servers)
    with raylog.AdminClient(bootstrap_servers=target.plain) as admin:
        for name in ("orders", "A.orders"):
            admin.create_topics(raylog.NewTopic(name, PARTITIONS, 1))
    rng = random.Random(1)
    options = {"source_alias": "A", "target_alias": "B", "replication_factor": 1, "commit_interval_ms": 50}
    with raylog.mirror(source=target.plain, target=target.plain, topics="orders", actors=2, **options) as mirror:
        for kill in range(KILLS):
            with raylog.Producer(bootstrap_servers=target.plain) as producer:
                for number in range(RECORDS):
                    producer.send("orders", b"%d-%d" % (kill, number), partition=number % PARTITIONS)
            until(lambda: any(each.pid for each in mirror.status()))
            os.kill(rng.choice([each.pid for each in mirror.status() if each.pid]), signal.SIGKILL)
            mirror.scale(1 + kill % 3)
        wanted = set(ends(target, "orders", PARTITIONS).items())

        def copied() -> set[tuple[int, int | None]]:
            return {
                (each.partition, each.next_offset)
                for actor in mirror.status()
                for flow in actor.flows
                for each in flow.partitions
            }

        until(lambda: copied() == wanted, lambda: str(mirror.status()))
        assert sum(actor.restarts for actor in mirror.status()) > 0
        assert "A->B  orders" in table(mirror.status())
        with pytest.raises(raylog.ConfigError, match="actors=0"):
            mirror.scale(0)
    for partition in range(PARTITIONS):
        assert seen(target, "A.orders", partition) == seen(target, "orders", partition)


def test_a_mirror_refuses_what_it_cannot_do(ray_runtime: None) -> None:
    clusters = {"source": "127.0.0.1:1", "target": "127.0.0.1:1", "topics": "t"}
    with pytest.raises(raylog.ConfigError, match="actors=-1"):
        raylog.mirror(**clusters, actors=-1)
    with pytest.raises(raylog.ConfigError, match=r"no\.such\.key"):
        raylog.mirror(**clusters, no_such_key=1)
    with pytest.raises(raylog.ConfigError, match="transforms"):
        raylog.mirror(**clusters, transforms="x")
