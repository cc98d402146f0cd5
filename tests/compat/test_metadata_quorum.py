"""kafka-python, the only stock client that requests it, describes the quorum of the metadata log."""

from __future__ import annotations

import time

import pytest
from kafka import KafkaAdminClient

from tests.support.cluster_thread import CONTROLLER_ID, RunningCluster

pytestmark = pytest.mark.compat


def test_the_leader_and_the_observers_are_returned(bootstrap_servers: str, cluster: RunningCluster) -> None:
    client = KafkaAdminClient(bootstrap_servers=bootstrap_servers)
    before_ms = time.time_ns() // 1_000_000
    try:
        seen = client.describe_metadata_quorum()
    finally:
        client.close()
    (topic,) = seen["topics"]
    (partition,) = topic["partitions"]
    assert (topic["topic_name"], partition["partition_index"], partition["error"]) == ("__cluster_metadata", 0, None)
    assert partition["leader_id"] == CONTROLLER_ID
    (voter,) = partition["current_voters"]
    assert (voter["replica_id"], voter["log_end_offset"]) == (CONTROLLER_ID, partition["high_watermark"])
    assert voter["last_fetch_timestamp"] >= before_ms
    assert [each["replica_id"] for each in partition["observers"]] == sorted(cluster.servers)
    for each in partition["observers"]:
        assert 0 < each["log_end_offset"] <= partition["high_watermark"]
        assert each["last_fetch_timestamp"] >= each["last_caught_up_timestamp"] > 0
    (node,) = seen["nodes"]
    assert node["node_id"] == CONTROLLER_ID
    (listener,) = node["listeners"]
    assert listener["host"] == "127.0.0.1"
    assert listener["port"] > 0
