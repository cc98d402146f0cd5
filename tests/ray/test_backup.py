"""A copy of the data directory of a stopped cluster is a backup: a cluster that is started with it has everything."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import raylog
from raylog.core.ids import TopicPartition
from tests.support.environment import WITHOUT_COORDINATORS

pytestmark = pytest.mark.ray
NAME = "backed-up"
COUNT = 200


@pytest.mark.usefixtures("ray_runtime")
def test_a_cluster_starts_with_a_copy_at_another_path(tmp_path: Path) -> None:
    partition = TopicPartition("orders", 0)
    own = {"num.partitions": 1, "offsets.topic.num.partitions": 1}
    with raylog.start(NAME, data_dir=str(tmp_path / "data"), config=own, **WITHOUT_COORDINATORS) as cluster:
        servers = cluster.bootstrap_servers
        with raylog.Producer(bootstrap_servers=servers) as producer:
            for number in range(COUNT):
                producer.send("orders", f"order {number}")
        with raylog.Consumer(bootstrap_servers=servers, group_id="billing") as consumer:
            consumer.assign([partition])
            consumer.commit({partition: 150})
    shutil.copytree(tmp_path / "data", tmp_path / "copy")
    shutil.rmtree(tmp_path / "data")
    with raylog.start(NAME, data_dir=str(tmp_path / "copy"), config=own, **WITHOUT_COORDINATORS) as cluster:
        servers = cluster.bootstrap_servers
        with raylog.Consumer(bootstrap_servers=servers, group_id="billing", auto_offset_reset="earliest") as consumer:
            consumer.assign([partition])
            assert consumer.position(partition) == 150
            consumer.seek(partition, 0)
            found: list[bytes | None] = []
            while len(found) < COUNT:
                found += [record.value for record in consumer.poll(timeout=1.0)]
    assert found == [b"order %d" % number for number in range(COUNT)]
