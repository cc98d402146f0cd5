"""Stock clients read a compacted topic: the same table, with the offsets that are left."""

from __future__ import annotations

import time

import pytest
from confluent_kafka import KafkaError, Message, Producer
from confluent_kafka.admin import AdminClient, ConfigResource  # type: ignore[attr-defined]

from raylog.core.ids import TopicPartition
from raylog.transport.system_time import now
from tests.compat.clients import CLIENTS
from tests.compat.confluent import Confluent
from tests.compat.row import Client, Row
from tests.compat.topics import create_topic
from tests.support.cluster_thread import RunningCluster
from tests.support.hang import HANG_SECONDS

pytestmark = pytest.mark.compat

KEYS = 100
ROWS = [Row(0, number, b"%d" % (number % KEYS), b"%d " % number * 150) for number in range(5000)]
"""About 3.5 MB."""
TABLE = {row.key: row.value for row in ROWS}


@pytest.fixture(scope="module")
def topic(cluster: RunningCluster) -> str:
    """A topic of which most has been compacted, on every replica."""
    configs = {"cleanup.policy": "compact", "segment.bytes": str(1 << 20)}
    create_topic(cluster.bootstrap_servers, "table", partitions=1, configs=configs)
    Confluent(cluster.bootstrap_servers).produce("table", 0, ROWS, "none")
    tp = TopicPartition("table", 0)
    brokers = [broker for broker in cluster.brokers if tp in broker.partitions]

    def is_compacted() -> bool:
        for broker in brokers:
            broker.log_cleaner.begin(now())
        return all(broker.partitions[tp].log.cleaned_upto > len(ROWS) * 3 / 5 for broker in brokers)

    deadline = time.monotonic() + HANG_SECONDS
    while not cluster.do(is_compacted):
        assert time.monotonic() < deadline
        time.sleep(0.1)
    return "table"


@pytest.mark.parametrize("client_class", CLIENTS)
def test_a_client_reads_the_table(topic: str, bootstrap_servers: str, client_class: type[Client]) -> None:
    rows = client_class(bootstrap_servers).consume(topic, 1)
    assert KEYS <= len(rows) < len(ROWS) / 2
    assert {row.key: row.value for row in rows} == TABLE
    assert [row.offset for row in rows] == sorted({row.offset for row in rows})
    assert all((row.key, row.value) == (ROWS[row.offset].key, ROWS[row.offset].value) for row in rows)


def test_a_topic_may_have_an_empty_cleanup_policy(bootstrap_servers: str) -> None:
    create_topic(bootstrap_servers, "kept", partitions=1, configs={"cleanup.policy": ""})
    resource = ConfigResource(ConfigResource.Type.TOPIC, "kept")
    admin = AdminClient({"bootstrap.servers": bootstrap_servers})
    found = admin.describe_configs([resource])[resource].result(HANG_SECONDS)
    assert found["cleanup.policy"].value == ""


def test_a_record_without_a_key_is_refused(topic: str, bootstrap_servers: str) -> None:
    codes: list[int] = []

    def delivered(error: KafkaError | None, message: Message) -> None:
        codes.append(KafkaError.NO_ERROR if error is None else error.code())

    producer = Producer({"bootstrap.servers": bootstrap_servers})
    producer.produce(topic, b"no key", on_delivery=delivered)
    assert producer.flush(HANG_SECONDS) == 0
    assert codes == [KafkaError.INVALID_RECORD]
