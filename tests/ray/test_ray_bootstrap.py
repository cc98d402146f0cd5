"""Clients find a cluster by its name in Ray, and reach brokers by their actors where no network path leads to them."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from typing import Any

import pytest

import raylog
from tests.compat.topics import create_topic
from tests.ray.closed_cluster import ClosedCluster, login
from tests.support.environment import WITHOUT_COORDINATORS
from tests.support.forms import by_form

pytestmark = [pytest.mark.ray, pytest.mark.usefixtures("ray_runtime")]

NAME = "named"
LARGE = b"x" * 300_000


@pytest.fixture(scope="module")
def cluster(ray_runtime: None) -> Iterator[raylog.Cluster]:
    with raylog.start(
        NAME, brokers=2, config={"group.initial.rebalance.delay.ms": 0}, **WITHOUT_COORDINATORS
    ) as cluster:
        create_topic(cluster.bootstrap_servers, "t", partitions=2)
        yield cluster


@pytest.fixture(scope="module")
def closed(closed_cluster: ClosedCluster) -> str:
    create_topic(closed_cluster.plain, "t", partitions=1)
    return closed_cluster.servers


def send_and_read(servers: str, value: bytes, **settings: Any) -> list[bytes]:
    """What any process of the same Ray can do."""
    with raylog.Producer(bootstrap_servers=servers, **settings) as producer:
        sent = producer.send("t", value, partition=0).result()
    with raylog.Consumer(bootstrap_servers=servers, group_id="readers", **settings) as consumer:
        consumer.assign([("t", 0)])
        consumer.seek(("t", 0), sent.offset)
        [record] = consumer.poll(60, max_records=1)
        return [record.value]


def use_the_copy(cluster: raylog.Cluster) -> tuple[list[int], list[bytes]]:
    with cluster:  # does not stop it
        return cluster.broker_ids, send_and_read(cluster.bootstrap_servers, b"by a copy")


class Sender:
    """An asynchronous actor."""

    def __init__(self, servers: str) -> None:
        self._servers = servers

    async def send(self, count: int) -> list[int]:
        async with raylog.AsyncProducer(bootstrap_servers=self._servers) as producer:
            sent = [await (await producer.send("t", b"from an actor", partition=1)) for _ in range(count)]
        async with raylog.AsyncConsumer(bootstrap_servers=self._servers) as consumer:
            consumer.assign([("t", 1)])
            consumer.seek(("t", 1), sent[0].offset)
            offsets, found = [each.offset for each in sent], set[int]()
            while not found.issuperset(offsets):
                found.update(record.offset for record in await consumer.poll(60))
        return offsets


def remote(what: Any, **options: Any) -> Any:
    import ray

    return ray.remote(num_cpus=0, **options)(what)


class TestByName:
    def test_from_the_driver_and_a_task(self, cluster: raylog.Cluster) -> None:
        import ray

        assert send_and_read(f"ray://{NAME}", b"driver") == [b"driver"]
        assert ray.get(remote(send_and_read).remote(f"ray://{NAME}", LARGE)) == [LARGE]
        with raylog.AdminClient(bootstrap_servers=f"ray://{NAME}") as admin:
            assert "t" in [topic.name for topic in admin.list_topics()]
        with raylog.read_table("t", bootstrap_servers=f"ray://{NAME}") as table:
            assert len(table) == 0

    def test_an_asynchronous_actor_sends_and_reads(self, cluster: raylog.Cluster) -> None:
        import ray

        sender = remote(Sender).remote(f"ray://{NAME}")
        offsets = ray.get([sender.send.remote(20), sender.send.remote(20)])  # side by side on its loop
        assert sorted(offsets[0] + offsets[1]) == list(range(40))
        ray.kill(sender)

    def test_a_cluster_can_be_passed_to_a_task_which_does_not_stop_it(self, cluster: raylog.Cluster) -> None:
        import ray

        assert ray.get(remote(use_the_copy).remote(cluster)) == ([0, 1], [b"by a copy"])
        copy = pickle.loads(pickle.dumps(cluster))
        assert (copy.name, copy.bootstrap_servers) == (NAME, cluster.bootstrap_servers)
        assert use_the_copy(copy)[0] == [0, 1]
        assert {each.state for each in cluster.status()} == {"running"}

    def test_a_name_that_does_not_exist(self, cluster: raylog.Cluster) -> None:
        expected = rf"bootstrap.servers='ray://nope': no cluster with this name .*; running clusters: .*\b{NAME}\b"
        with pytest.raises(raylog.ConfigError, match=expected):
            raylog.Consumer(bootstrap_servers="ray://nope")


class TestByActor:
    """The addresses of the broker lead nowhere."""

    def test_requests_go_to_the_actor(self, closed: str) -> None:
        for number in range(by_form(2, long=200)):
            value = b"%d" % number + LARGE
            assert send_and_read(closed, value, **login("bob")) == [value]

    def test_the_session_has_the_identity_that_logged_in(self, closed: str) -> None:
        with (
            raylog.Producer(bootstrap_servers=closed, **login("alice"), max_block_ms=30_000) as producer,
            pytest.raises(raylog.KafkaError) as refused,
        ):
            producer.send("t", b"x").result(60)
        assert refused.value.code is raylog.ErrorCode.TOPIC_AUTHORIZATION_FAILED

    def test_a_wrong_password_opens_nothing(self, closed: str) -> None:
        with (
            raylog.Producer(bootstrap_servers=closed, **login("bob", "wrong"), max_block_ms=30_000) as producer,
            pytest.raises(raylog.KafkaError) as refused,
        ):
            producer.send("t", b"x").result(60)
        assert refused.value.code is raylog.ErrorCode.SASL_AUTHENTICATION_FAILED
