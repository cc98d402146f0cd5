"""The pytest plugin gives stock clients a cluster and fresh topics, and ends every fault with its test."""

from __future__ import annotations

from importlib.metadata import entry_points

import pytest

pytest_plugins = ["pytester"]

TESTS = """
import asyncio, socket, time

import aiokafka, kafka, pytest
from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka.admin import AdminClient

TOPICS = []


def connected(servers):
    host, _, port = servers.rpartition(":")
    with socket.create_connection((host, int(port)), 30):
        return True


def test_confluent(raylog_cluster, raylog_topic):
    TOPICS.append(raylog_topic)
    producer = Producer({"bootstrap.servers": raylog_cluster.bootstrap_servers})
    producer.produce(raylog_topic, b"one")
    assert producer.flush(30) == 0
    consumer = Consumer(
        {"bootstrap.servers": raylog_cluster.bootstrap_servers, "group.id": "g", "auto.offset.reset": "earliest"}
    )
    consumer.subscribe([raylog_topic])
    assert consumer.poll(30).value() == b"one"
    consumer.close()


def test_kafka_python(raylog_cluster, raylog_topic):
    TOPICS.append(raylog_topic)
    producer = kafka.KafkaProducer(bootstrap_servers=raylog_cluster.bootstrap_servers)
    assert producer.send(raylog_topic, b"two").get(30).offset == 0  # no test before has written to this topic
    producer.close()


def test_aiokafka(raylog_cluster, raylog_topic):
    async def send():
        async with aiokafka.AIOKafkaProducer(bootstrap_servers=raylog_cluster.bootstrap_servers) as producer:
            return await producer.send_and_wait(raylog_topic, b"three")

    TOPICS.append(raylog_topic)
    assert asyncio.run(send()).offset == 0


def test_topics_are_fresh_and_deleted(raylog_cluster):
    assert len(set(TOPICS)) == 3
    found = AdminClient({"bootstrap.servers": raylog_cluster.bootstrap_servers}).list_topics(timeout=30).topics
    assert not set(TOPICS) & set(found)


def test_a_test_may_delete_its_topic(raylog_cluster, raylog_topic):
    client = AdminClient({"bootstrap.servers": raylog_cluster.bootstrap_servers})
    client.delete_topics([raylog_topic])[raylog_topic].result()


def test_kill(raylog_faults, raylog_topic):
    producer = Producer({"bootstrap.servers": raylog_faults.bootstrap_servers})
    offsets = []
    producer.produce(raylog_topic, b"1", callback=lambda _, message: offsets.append(message.offset()))
    assert producer.flush(30) == 0
    raylog_faults.kill(0)
    producer.produce(raylog_topic, b"2", callback=lambda _, message: offsets.append(message.offset()))
    assert producer.flush(0.2) == 1
    raylog_faults.start(0)
    assert producer.flush(60) == 0
    assert offsets == [0, 1]


def test_pause(raylog_faults):
    client = AdminClient({"bootstrap.servers": raylog_faults.bootstrap_servers})
    raylog_faults.pause(0)
    assert connected(raylog_faults.bootstrap_servers)
    with pytest.raises(KafkaException):
        client.list_topics(timeout=0.3)
    raylog_faults.resume(0)
    client.list_topics(timeout=30)


def test_slow(raylog_faults):
    client = AdminClient({"bootstrap.servers": raylog_faults.bootstrap_servers})
    client.list_topics(timeout=30)
    raylog_faults.slow(0, seconds=0.25)
    began = time.monotonic()
    client.list_topics(timeout=30)
    assert time.monotonic() - began >= 0.5  # the request and the response


def test_refuse(raylog_faults):
    raylog_faults.refuse(0)
    with pytest.raises(ConnectionRefusedError):
        connected(raylog_faults.bootstrap_servers)


def test_faults_have_ended(raylog_cluster):
    client = AdminClient({"bootstrap.servers": raylog_cluster.bootstrap_servers})
    assert list(client.list_topics(timeout=30).brokers) == [0]
"""


def test_it_is_installed_with_raylog() -> None:
    (found,) = entry_points(group="pytest11", name="raylog")
    assert found.value == "pytest_raylog"


def test_clients_topics_and_faults(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(TESTS)
    pytester.runpytest_subprocess("-q").assert_outcomes(passed=10)


@pytest.mark.parametrize(
    ("setting", "error"),
    [
        ("raylog_brokers = none", "*raylog_brokers='none': must be a number from 1 to 100*"),
        ("raylog_config = num.partitions", "*raylog_config: 'num.partitions': must be key=value*"),
        ("raylog_config = no.such.key=1", "*no.such.key: unknown, or not supported by raylog*"),
    ],
)
def test_a_wrong_setting_is_an_error(pytester: pytest.Pytester, setting: str, error: str) -> None:
    pytester.makeini(f"[pytest]\n{setting}\n")
    pytester.makepyfile("def test_it(raylog_cluster): pass")
    result = pytester.runpytest_subprocess("-q")
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines([error])


def test_raylog_is_not_imported_where_it_is_not_used(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("import sys\n\ndef test_it(): assert 'raylog' not in sys.modules")
    pytester.runpytest_subprocess("-q").assert_outcomes(passed=1)
