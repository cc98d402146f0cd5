"""Sends unmodified batches over TCP to a cluster in this process."""

from __future__ import annotations

from collections.abc import Iterable

from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from raylog.core.ids import TopicPartition
from tests.support.cluster_thread import RunningCluster
from tests.support.raw_client import RawClient

SECONDS = 20.0


def produce(cluster: RunningCluster, tp: TopicPartition, batches: Iterable[bytearray]) -> None:
    """Produce the batches in order. Creates the topic with one partition if it does not exist."""
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers, "log_level": 3})
    if tp.topic not in admin.list_topics(timeout=SECONDS).topics:
        admin.create_topics([NewTopic(tp.topic, num_partitions=1)])[tp.topic].result(SECONDS)
    with RawClient(cluster.bootstrap_servers, client_id="tests") as client:
        for batch in batches:
            client.produce(tp, batch)
