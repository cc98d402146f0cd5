"""kafka-python, the only stock client that requests it, describes the producers of partitions."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from kafka import KafkaAdminClient, TopicPartition
from kafka.errors import NotLeaderForPartitionError, UnknownTopicOrPartitionError

from tests.compat.confluent import Confluent
from tests.compat.row import Row
from tests.compat.stored import stored_batches
from tests.compat.topics import create_topic
from tests.support.cluster_thread import RunningCluster

pytestmark = pytest.mark.compat


@pytest.fixture
def admin(bootstrap_servers: str) -> Iterator[Any]:
    client = KafkaAdminClient(bootstrap_servers=bootstrap_servers)
    yield client
    client.close()


def test_the_producers_of_every_partition(admin: Any, bootstrap_servers: str, cluster: RunningCluster) -> None:
    create_topic(bootstrap_servers, "written", partitions=3)
    for partition in (0, 2):
        rows = [Row(partition, number, None, b"%d" % number) for number in range(3)]
        Confluent(bootstrap_servers).produce("written", partition, rows, "none", **{"enable.idempotence": True})
    partitions = [TopicPartition("written", number) for number in range(3)]
    found = admin.describe_producers(partitions)
    assert [len(found[each].active_producers) for each in partitions] == [1, 0, 1]
    for each in (partitions[0], partitions[2]):
        newest = list(stored_batches(cluster, "written", each.partition))[-1].header
        (producer,) = found[each].active_producers
        assert (producer.producer_id, producer.producer_epoch) == (newest.producer_id, newest.producer_epoch)
        assert (producer.last_sequence, producer.last_timestamp) == (2, newest.max_timestamp)
        assert producer.current_transaction_start_offset == -1


def test_a_broker_without_the_partition_returns_an_error(admin: Any, bootstrap_servers: str) -> None:
    create_topic(bootstrap_servers, "elsewhere", partitions=3)
    (topic,) = admin.describe_topics(["elsewhere"])
    leader = topic["partitions"][0]["leader_id"]
    with pytest.raises(NotLeaderForPartitionError):
        admin.describe_producers([TopicPartition("elsewhere", 0)], broker_id=(leader + 1) % 3)
    with pytest.raises(UnknownTopicOrPartitionError):
        admin.describe_producers([TopicPartition("elsewhere", 7)], broker_id=leader)
