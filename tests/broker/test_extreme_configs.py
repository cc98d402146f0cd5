"""Every configuration that is accepted gives brokers that work: the least and the greatest value of each number."""

from __future__ import annotations

from typing import Any

import pytest

from raylog.config.table import BROKER_CONFIG
from raylog.config.topic_lifecycle import PARTITIONS_PER_REQUEST_MAX
from raylog.core.config import INT_MAX, Bounds, ConfigKey, ConfigType
from raylog.core.errors import ErrorCode
from raylog.core.ids import TopicPartition
from raylog.protocol.messages.find_coordinator import FindCoordinatorRequest
from raylog.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from tests.support.direct_cluster import DirectCluster
from tests.support.direct_quorum import DirectQuorum

pytestmark = pytest.mark.slow

BITS = {ConfigType.SHORT: 16, ConfigType.INT: 32, ConfigType.LONG: 64}
SMALL_TOPICS = {"offsets.topic.num.partitions": 1, "offsets.topic.replication.factor": 2}


def least_and_greatest(key: ConfigKey[Any]) -> tuple[int, int]:
    limit = 1 << (BITS[key.type] - 1)
    bounds = key.check if isinstance(key.check, Bounds) else Bounds(-limit)
    return bounds.nearest(-limit), bounds.nearest(limit - 1)


CONTRADICTORY = {
    ("broker.heartbeat.interval.ms", INT_MAX),
    ("broker.session.timeout.ms", 100),
    ("connection.failed.authentication.delay.ms", INT_MAX),
    ("group.consumer.heartbeat.interval.ms", 1),
    ("group.consumer.heartbeat.interval.ms", INT_MAX),
    ("group.consumer.max.heartbeat.interval.ms", 1),
    ("group.consumer.max.session.timeout.ms", 1),
    ("group.consumer.min.heartbeat.interval.ms", INT_MAX),
    ("group.consumer.min.session.timeout.ms", INT_MAX),
    ("group.consumer.session.timeout.ms", 1),
    ("group.consumer.session.timeout.ms", INT_MAX),
    ("group.max.session.timeout.ms", 1),
    ("group.share.heartbeat.interval.ms", 1),
    ("group.share.heartbeat.interval.ms", INT_MAX),
    ("group.share.max.heartbeat.interval.ms", 1),
    ("group.share.max.session.timeout.ms", 1),
    ("group.share.min.heartbeat.interval.ms", INT_MAX),
    ("group.share.min.session.timeout.ms", INT_MAX),
    ("group.share.record.lock.duration.ms", 1000),
    ("group.share.record.lock.duration.ms", 3_600_000),
    ("group.share.session.timeout.ms", 1),
    ("group.share.session.timeout.ms", INT_MAX),
    ("group.streams.heartbeat.interval.ms", 1),
    ("group.streams.heartbeat.interval.ms", INT_MAX),
    ("group.streams.max.heartbeat.interval.ms", 1),
    ("group.streams.max.session.timeout.ms", 1),
    ("group.streams.min.heartbeat.interval.ms", INT_MAX),
    ("group.streams.min.session.timeout.ms", INT_MAX),
    ("group.streams.num.standby.replicas", INT_MAX),
    ("group.streams.session.timeout.ms", 1),
    ("group.streams.session.timeout.ms", INT_MAX),
    ("group.min.session.timeout.ms", INT_MAX),
    ("replica.fetch.wait.max.ms", INT_MAX),
    ("replica.lag.time.max.ms", 100),
}
"""Refused beside the defaults of other keys, see tests/config/test_cross_checks.py."""
EXTREMES = [
    (key.name, value)
    for key in BROKER_CONFIG.keys.values()
    if key.type in BITS and key.name != "node.id"
    for value in least_and_greatest(key)
    if value != PARTITIONS_PER_REQUEST_MAX and (key.name, value) not in CONTRADICTORY  # the former takes a while
]


@pytest.mark.parametrize(("key", "value"), EXTREMES)
def test_brokers_replicate_and_keep_offsets(key: str, value: int) -> None:
    cluster = DirectCluster(2, {**SMALL_TOPICS, key: value})
    cluster.create_topic("t", on=[[0, 1]])
    first, second = cluster.brokers
    for _ in range(3):
        assert first.produce([b"x" * 500], acks=1).error_code == ErrorCode.NONE
    cluster.pass_time(2000)
    assert [each.broker.partitions[TopicPartition("t", 0)].high_watermark for each in (first, second)] == [3, 3]
    find = FindCoordinatorRequest(coordinator_keys=("g",))
    first.call(find)  # creates the topic
    cluster.pass_time(1000)
    coordinator = cluster.brokers[first.call(find).coordinators[0].node_id]
    part = OffsetCommitRequestPartition(partition_index=0, committed_offset=3, committed_metadata="")
    topics = (OffsetCommitRequestTopic(name="t", partitions=(part,)),)
    commit = OffsetCommitRequest(group_id="g", generation_id_or_member_epoch=-1, topics=topics)
    sent = coordinator.send(commit, version=9)
    cluster.pass_time(1000)
    assert coordinator.answer(sent).topics[0].partitions[0].error_code == ErrorCode.NONE


@pytest.mark.parametrize(("key", "value"), [each for each in EXTREMES if each[0].startswith("controller.quorum.")])
def test_controllers_elect_a_leader(key: str, value: int) -> None:
    quorum = DirectQuorum({key: str(value)})
    for number in range(3):
        quorum.start(number)
    quorum.pass_time(3000)
    assert sum(controller is not None and controller.is_active for controller in quorum.controllers) == 1
