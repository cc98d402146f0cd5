"""Spark's own Kafka source, ours and a stock consumer show the same rows of the same topic."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from confluent_kafka import TopicPartition as StockPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

import raylog
from raylog.core.ids import Offset, TopicPartition
from raylog.logstore.checkpoint import CLEANER_OFFSET_FILE, decode_offsets
from raylog.protocol.records.compression import Codec
from raylog.protocol.records.isolation import IsolationLevel
from raylog.raydp_bridge.source import read_topic
from tests.spark_kafka.conftest import options
from tests.support.hang import wait_until
from tests.support.odd_topics import (
    PARTITIONS,
    by_stock_consumer,
    interleave_transactions,
    oddities,
    rows_of,
    write_oddities,
)
from tests.support.raw_client import RawClient
from tests.support.secure_cluster import SecureCluster

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark_kafka
TOPICS = {"odd": {}, "odd-append-time": {"message.timestamp.type": "LogAppendTime"}, "odd-compacted": {}}
DELETED_UPTO = 5
"""Inside a batch, that of the transaction that is committed: the beginning of the log is not that of a batch."""
ODDITIES = len(Codec) * (len(oddities(0)) + 1) + 14
LENGTHS: dict[IsolationLevel, int] = {"read_committed": 1 + ODDITIES, "read_uncommitted": 1 + 2 + ODDITIES + 8}
"""Records of a partition that are visible: of ended transactions, of none, and of open ones."""


@pytest.fixture(scope="module")
def servers(secure: SecureCluster) -> str:
    """Of a broker with the topics, each with transactions that have ended, oddities, and transactions that are open."""
    servers = secure.login("PLAINTEXT").servers
    admin = AdminClient({"bootstrap.servers": servers, "log_level": 4})
    wanted = [NewTopic(name, PARTITIONS, config={"retention.ms": "-1", **more}) for name, more in TOPICS.items()]
    for created in admin.create_topics(wanted).values():
        created.result(30)
    with RawClient(servers, client_id="writer") as client:
        for topic in TOPICS:
            interleave_transactions(servers, topic, ended=True)
            for partition in range(PARTITIONS):
                write_oddities(client, TopicPartition(topic, partition))
            interleave_transactions(servers, topic, ended=False)
    ends = [StockPartition(topic, partition, DELETED_UPTO) for topic in TOPICS for partition in range(PARTITIONS)]
    for deleted in admin.delete_records(ends).values():
        deleted.result(30)
    compact(secure, servers, "odd-compacted")
    return servers


def compact(secure: SecureCluster, servers: str, topic: str) -> None:
    """Compact what is before the active segments: not from the start, since it has records without keys."""
    with raylog.AdminClient(bootstrap_servers=servers) as admin:
        wanted = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.0001"}
        admin.incremental_alter_configs({raylog.ConfigResource(raylog.ConfigResourceType.TOPIC, topic): wanted})
    actives = {
        TopicPartition(topic, partition): max(
            int(path.stem) for path in secure.running.partition_path(topic, partition).glob("*.log")
        )
        for partition in range(PARTITIONS)
    }

    assert min(actives.values()) > 0

    def cleaned() -> dict[TopicPartition, Offset]:
        path = secure.running.log_path / CLEANER_OFFSET_FILE
        return dict(decode_offsets(path.read_bytes())) if path.exists() else {}

    wait_until(lambda: all(cleaned().get(tp, -1) == end for tp, end in actives.items()), lambda: f"{cleaned()}")


@pytest.mark.parametrize("level", LENGTHS)
@pytest.mark.parametrize("topic", TOPICS)
def test_all_sources_show_the_same_rows(
    spark_kafka: SparkSession, secure: SecureCluster, servers: str, topic: str, level: IsolationLevel
) -> None:
    expected = sorted(by_stock_consumer(servers, topic, level), key=str)
    if topic == "odd-compacted":
        assert len(expected) < PARTITIONS * LENGTHS[level] / 2
    else:
        assert len(expected) == PARTITIONS * LENGTHS[level]
    ours = read_topic(spark_kafka, topic, bootstrap_servers=servers, isolation_level=level, min_partitions=5)
    assert sorted(rows_of(ours), key=str) == expected

    given = {
        **options(secure, "PLAINTEXT"),
        "subscribe": topic,
        "startingOffsets": "earliest",
        "includeHeaders": "true",
        "kafka.isolation.level": level,
    }
    sparks = spark_kafka.read.format("kafka").options(**given, minPartitions=5).load()
    assert sorted(rows_of(sparks), key=str) == expected

    name = f"{topic}_{level}".replace("-", "_")
    stream = spark_kafka.readStream.format("kafka").options(**given, maxOffsetsPerTrigger=30).load()
    query = stream.writeStream.format("memory").queryName(name).trigger(availableNow=True).start()
    query.awaitTermination()
    assert len([each for each in query.recentProgress if each["numInputRows"]]) > 1
    assert sorted(rows_of(spark_kafka.table(name)), key=str) == expected
