"""Out-of-sync replicas are throttled on both sides (KIP-73); in-sync replicas are not."""

from __future__ import annotations

from typing import Any

import pytest

from raylog.core.errors import ErrorCode
from raylog.core.ids import TopicPartition
from raylog.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from tests.support.direct_cluster import DirectCluster, DirectMember

TP = TopicPartition("t", 0)
LEADER_REPLICAS, LEADER_RATE = "leader.replication.throttled.replicas", "leader.replication.throttled.rate"
FOLLOWER_REPLICAS, FOLLOWER_RATE = "follower.replication.throttled.replicas", "follower.replication.throttled.rate"
BATCH_BYTES = 10_000
BATCHES = 60
RATE = 100_000
"""Six seconds for all of it."""
TOPIC, BROKER = 2, 4


def set_configs(member: DirectMember, kind: int, name: str, configs: dict[str, str | None]) -> ErrorCode:
    """None deletes."""
    entries = tuple(
        AlterableConfig(name=key, config_operation=1 if value is None else 0, value=value)
        for key, value in configs.items()
    )
    resource = AlterConfigsResource(resource_type=kind, resource_name=name, configs=entries)
    [answer] = member.call(IncrementalAlterConfigsRequest(resources=(resource,))).responses
    code: ErrorCode = answer.error_code
    return code


@pytest.fixture
def cluster() -> DirectCluster:
    """Broker 1 is away, and broker 0 has written 600 kB since, in batches of which one fetch takes few."""
    config: dict[str, Any] = {"replica.fetch.max.bytes": "30000", "replica.lag.time.max.ms": "1000"}
    cluster = DirectCluster(2, config)
    cluster.create_topic("t", on=[[0, 1]])
    first, second = cluster.brokers
    second.stop()
    cluster.pass_time(100)
    for _ in range(BATCHES):
        assert first.produce([bytes(BATCH_BYTES)]).error_code == ErrorCode.NONE
    return cluster


def copied(cluster: DirectCluster) -> int:
    return cluster.brokers[1].broker.partitions[TP].log.log_end_offset


def in_sync(cluster: DirectCluster) -> bool:
    return 1 in cluster.active.image.topics["t"].partitions[0].isr


def throttled(cluster: DirectCluster, *, replicas: str, rate: str, listed: str, broker: str = "") -> None:
    first = cluster.brokers[0]
    assert set_configs(first, TOPIC, "t", {replicas: listed}) == ErrorCode.NONE
    assert set_configs(first, BROKER, broker, {rate: str(RATE)}) == ErrorCode.NONE


@pytest.mark.parametrize(
    ("replicas", "rate", "listed", "broker"),
    [
        (LEADER_REPLICAS, LEADER_RATE, "*", ""),
        (LEADER_REPLICAS, LEADER_RATE, "0:0", "0"),
        (FOLLOWER_REPLICAS, FOLLOWER_RATE, "*", ""),
        (FOLLOWER_REPLICAS, FOLLOWER_RATE, "1:0,0:1", "1"),
    ],
)
def test_an_out_of_sync_replica_is_throttled(
    cluster: DirectCluster, replicas: str, rate: str, listed: str, broker: str
) -> None:
    throttled(cluster, replicas=replicas, rate=rate, listed=listed, broker=broker)
    cluster.brokers[1].start()
    for second in range(1, 5):
        cluster.pass_time(1000)
        upto_now = copied(cluster) * BATCH_BYTES
        assert (second - 1) * RATE <= upto_now <= (second + 1) * RATE + 40_000, f"after {second} s"
    assert not in_sync(cluster)
    cluster.pass_time(4000)
    assert in_sync(cluster)


@pytest.mark.parametrize(
    ("replicas", "rate", "listed", "broker"),
    [
        (LEADER_REPLICAS, LEADER_RATE, "0:1,1:0", ""),
        (LEADER_REPLICAS, LEADER_RATE, "*", "1"),
        (FOLLOWER_REPLICAS, FOLLOWER_RATE, "0:0", ""),
        (FOLLOWER_REPLICAS, FOLLOWER_RATE, "*", "0"),
        (FOLLOWER_REPLICAS, LEADER_RATE, "*", ""),
    ],
)
def test_a_replica_that_is_not_listed_is_not_throttled(
    cluster: DirectCluster, replicas: str, rate: str, listed: str, broker: str
) -> None:
    throttled(cluster, replicas=replicas, rate=rate, listed=listed, broker=broker)
    cluster.brokers[1].start()
    cluster.pass_time(300)
    assert in_sync(cluster)


@pytest.mark.parametrize(("replicas", "rate"), [(LEADER_REPLICAS, LEADER_RATE), (FOLLOWER_REPLICAS, FOLLOWER_RATE)])
def test_an_in_sync_replica_is_not_throttled(cluster: DirectCluster, replicas: str, rate: str) -> None:
    first, second = cluster.brokers
    second.start()
    cluster.pass_time(300)
    assert in_sync(cluster)
    throttled(cluster, replicas=replicas, rate=rate, listed="*")
    assert set_configs(first, BROKER, "", {rate: "0"}) == ErrorCode.NONE
    for _ in range(BATCHES):
        assert first.produce([bytes(BATCH_BYTES)]).error_code == ErrorCode.NONE
    assert copied(cluster) == 2 * BATCHES


@pytest.mark.parametrize(("replicas", "rate"), [(LEADER_REPLICAS, LEADER_RATE), (FOLLOWER_REPLICAS, FOLLOWER_RATE)])
@pytest.mark.parametrize("lift", ["rate", "replicas"])
def test_removing_the_throttle_takes_effect_at_once(
    cluster: DirectCluster, replicas: str, rate: str, lift: str
) -> None:
    first, second = cluster.brokers
    throttled(cluster, replicas=replicas, rate=rate, listed="*")
    assert set_configs(first, BROKER, "", {rate: "0"}) == ErrorCode.NONE
    second.start()
    cluster.pass_time(10_000)
    assert copied(cluster) == 0
    change: tuple[int, str, dict[str, str | None]] = (
        (BROKER, "", {rate: None}) if lift == "rate" else (TOPIC, "t", {replicas: None})
    )
    assert set_configs(first, *change) == ErrorCode.NONE
    cluster.pass_time(1500)
    assert in_sync(cluster)


@pytest.mark.parametrize("listed", ["0", "a:b", "*,0:1", "0:1:2", "-1:0", "0:1 1:0"])
def test_an_invalid_list_is_refused(cluster: DirectCluster, listed: str) -> None:
    for key in (LEADER_REPLICAS, FOLLOWER_REPLICAS):
        assert set_configs(cluster.brokers[0], TOPIC, "t", {key: listed}) == ErrorCode.INVALID_CONFIG
    for key in (LEADER_RATE, FOLLOWER_RATE):
        assert set_configs(cluster.brokers[0], BROKER, "", {key: "-1"}) == ErrorCode.INVALID_CONFIG
