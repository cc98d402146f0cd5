"""A topic with its own `compression.type` stores batches of stock clients in that codec, and all clients read them."""

from __future__ import annotations

import pytest

from tests.compat.clients import CLIENTS
from tests.compat.kafka_python import KafkaPython
from tests.compat.row import Client, Row
from tests.compat.stored import stored_batches
from tests.compat.topics import create_topic
from tests.support.cluster_thread import RunningCluster

pytestmark = pytest.mark.compat

ROWS = [Row(0, number, b"%d" % number, b"flight %d of many, " % number * 60) for number in range(200)]
STORED_AS = {"uncompressed": "none", "gzip": "gzip", "snappy": "snappy", "lz4": "lz4", "zstd": "zstd"}


@pytest.mark.parametrize("client_class", CLIENTS)
def test_gzip_is_recompressed_to_the_codec_of_the_topic(
    bootstrap_servers: str, cluster: RunningCluster, client_class: type[Client]
) -> None:
    client = client_class(bootstrap_servers)
    for wanted, stored in STORED_AS.items():
        topic = f"stored-{wanted}-{client.name}"
        create_topic(bootstrap_servers, topic, partitions=1, configs={"compression.type": wanted})
        assert client.produce(topic, 0, ROWS, "gzip") == [row.offset for row in ROWS]
        assert {batch.codec for batch in stored_batches(cluster, topic, 0)} == {stored}
        read = [(row.offset, row.key, row.value) for row in client.consume(topic, 1)]
        assert read == [(row.offset, row.key, row.value) for row in ROWS]


@pytest.mark.parametrize("client_class", CLIENTS)
def test_uncompressed_batches_are_compressed(
    bootstrap_servers: str, cluster: RunningCluster, client_class: type[Client]
) -> None:
    client = client_class(bootstrap_servers)
    topic = f"dense-{client.name}"
    configs = {"compression.type": "zstd", "compression.zstd.level": "9"}
    create_topic(bootstrap_servers, topic, partitions=1, configs=configs)
    client.produce(topic, 0, ROWS, "none")
    batches = list(stored_batches(cluster, topic, 0))
    assert {batch.codec for batch in batches} == {"zstd"}
    assert sum(batch.header.size_bytes for batch in batches) < sum(len(row.value or b"") for row in ROWS) / 2
    assert [row.value for row in client.consume(topic, 1)] == [row.value for row in ROWS]


def test_a_client_with_old_requests_reads_zstd(bootstrap_servers: str) -> None:
    """Since Kafka 4, it is up to the client whether it can decompress what a topic contains."""
    create_topic(bootstrap_servers, "too-new", partitions=1, configs={"compression.type": "zstd"})
    client = KafkaPython(bootstrap_servers)
    client.produce("too-new", 0, ROWS, "gzip")
    assert len(client.consume("too-new", 1, api_version=(1, 0))) == len(ROWS)
    assert len(client.consume("too-new", 1)) == len(ROWS)
