"""A consumer reads from the replica on its rack that the leader names, or from the leader if that one is gone."""

from __future__ import annotations

import time
from pathlib import Path

from raylog.client.consumer.consumer import Consumer
from raylog.client.producer.producer import Producer
from raylog.config.replication import RACK_AWARE_REPLICA_SELECTOR
from raylog.core.ids import TopicPartition
from tests.support import administration as admin
from tests.support.cluster_thread import cluster_thread
from tests.support.hang import HANG_SECONDS
from tests.support.raw_client import RawClient

TP = TopicPartition("topic", 0)
RACKS = ("a", "b")


def test_records_come_from_the_replica_on_the_same_rack(tmp_path: Path) -> None:
    config = {"replica.selector.class": RACK_AWARE_REPLICA_SELECTOR}
    with (
        cluster_thread(config, tmp_path, brokers=2, racks=RACKS) as running,
        RawClient(running.bootstrap_servers, client_id="t") as client,
    ):
        admin.create_topic(client, TP.topic, num_partitions=1, replication_factor=2, configs={})
        leader = client.leader(TP).broker_id
        follower = 1 - leader
        with (
            Producer(bootstrap_servers=running.bootstrap_servers, linger_ms=0) as producer,
            Consumer(
                bootstrap_servers=running.bootstrap_servers,
                client_rack=RACKS[follower],
                auto_offset_reset="earliest",
                mapped=False,
            ) as consumer,
        ):
            consumer.assign([TP])
            state = consumer._core.subscription.state(TP)
            deadline = time.monotonic() + HANG_SECONDS
            while state.replica_id is None:
                consumer.poll(0.1)
                assert time.monotonic() < deadline
            assert state.replica_id == follower
            for number in range(20):
                producer.send(TP.topic, b"%d" % number).result(HANG_SECONDS)
                (record,) = consumer.poll(HANG_SECONDS)
                assert (record.offset, record.value) == (number, b"%d" % number)
                assert state.replica_id == follower
            state.replica_id = 77  # one that is not there
            producer.send(TP.topic, b"last").result(HANG_SECONDS)
            assert [each.value for each in consumer.poll(HANG_SECONDS)] == [b"last"]
