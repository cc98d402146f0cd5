"""Share groups (KIP-932): the broker's keys, and the settings that are made from them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from raylog.config.consumer import LATEST
from raylog.config.log import SEGMENT_BYTES_MIN
from raylog.config.topic_lifecycle import PARTITIONS_PER_REQUEST_MAX
from raylog.core.config import ConfigKey, Configs, ConfigType, at_least, between

HOUR_MS: Final = 3_600_000

GROUP_SHARE_PARTITION_MAX_RECORD_LOCKS: ConfigKey[int] = ConfigKey(
    "group.share.partition.max.record.locks",
    ConfigType.INT,
    2000,
    "Largest number of records of a partition that are in flight in a share group: from the first one that is not"
    " done to the last one that was acquired.",
    between(100, 10_000),
)
GROUP_SHARE_DELIVERY_COUNT_LIMIT: ConfigKey[int] = ConfigKey(
    "group.share.delivery.count.limit",
    ConfigType.INT,
    5,
    "How often a record is delivered to members of a share group. One that is not acknowledged then is archived.",
    between(2, 10),
)
GROUP_SHARE_RECORD_LOCK_DURATION_MS: ConfigKey[int] = ConfigKey(
    "group.share.record.lock.duration.ms",
    ConfigType.INT,
    30_000,
    "How long a member of a share group has to acknowledge a record, in milliseconds. The record is then available to"
    " other members.",
    between(1000, HOUR_MS),
)
GROUP_SHARE_MIN_RECORD_LOCK_DURATION_MS: ConfigKey[int] = ConfigKey(
    "group.share.min.record.lock.duration.ms",
    ConfigType.INT,
    15_000,
    "Least value of group.share.record.lock.duration.ms, in milliseconds.",
    between(1000, 30_000),
)
GROUP_SHARE_MAX_RECORD_LOCK_DURATION_MS: ConfigKey[int] = ConfigKey(
    "group.share.max.record.lock.duration.ms",
    ConfigType.INT,
    60_000,
    "Greatest value of group.share.record.lock.duration.ms, in milliseconds.",
    between(30_000, HOUR_MS),
)
GROUP_SHARE_MAX_SHARE_SESSIONS: ConfigKey[int] = ConfigKey(
    "group.share.max.share.sessions",
    ConfigType.INT,
    2000,
    "Largest number of share sessions of a broker: one for each member that fetches from it. Further ones are refused"
    " with SHARE_SESSION_LIMIT_REACHED.",
    at_least(1),
)
GROUP_SHARE_MAX_SIZE: ConfigKey[int] = ConfigKey(
    "group.share.max.size",
    ConfigType.INT,
    200,
    "Largest number of members in a share group. Further members are rejected with GROUP_MAX_SIZE_REACHED.",
    between(1, 1000),
)
GROUP_SHARE_SESSION_TIMEOUT_MS: ConfigKey[int] = ConfigKey(
    "group.share.session.timeout.ms",
    ConfigType.INT,
    45_000,
    "Session timeout of the members of share groups, in milliseconds. A member without a heartbeat for this long is"
    " removed.",
    at_least(1),
)
GROUP_SHARE_MIN_SESSION_TIMEOUT_MS: ConfigKey[int] = ConfigKey(
    "group.share.min.session.timeout.ms",
    ConfigType.INT,
    45_000,
    "Least value of group.share.session.timeout.ms, in milliseconds.",
    at_least(1),
)
GROUP_SHARE_MAX_SESSION_TIMEOUT_MS: ConfigKey[int] = ConfigKey(
    "group.share.max.session.timeout.ms",
    ConfigType.INT,
    60_000,
    "Greatest value of group.share.session.timeout.ms, in milliseconds.",
    at_least(1),
)
GROUP_SHARE_HEARTBEAT_INTERVAL_MS: ConfigKey[int] = ConfigKey(
    "group.share.heartbeat.interval.ms",
    ConfigType.INT,
    5000,
    "How often the members of share groups send heartbeats, in milliseconds. It must be at most"
    " group.share.session.timeout.ms.",
    at_least(1),
)
GROUP_SHARE_MIN_HEARTBEAT_INTERVAL_MS: ConfigKey[int] = ConfigKey(
    "group.share.min.heartbeat.interval.ms",
    ConfigType.INT,
    5000,
    "Least value of group.share.heartbeat.interval.ms, in milliseconds.",
    at_least(1),
)
GROUP_SHARE_MAX_HEARTBEAT_INTERVAL_MS: ConfigKey[int] = ConfigKey(
    "group.share.max.heartbeat.interval.ms",
    ConfigType.INT,
    15_000,
    "Greatest value of group.share.heartbeat.interval.ms, in milliseconds.",
    at_least(1),
)
SHARE_STATE_TOPIC_NUM_PARTITIONS: ConfigKey[int] = ConfigKey(
    "share.coordinator.state.topic.num.partitions",
    ConfigType.INT,
    50,
    "Number of partitions of __share_group_state. Used when the topic is created; it must not change afterwards.",
    between(1, PARTITIONS_PER_REQUEST_MAX),
)
SHARE_STATE_TOPIC_REPLICATION_FACTOR: ConfigKey[int] = ConfigKey(
    "share.coordinator.state.topic.replication.factor",
    ConfigType.SHORT,
    3,
    "Replication factor of __share_group_state, or the number of brokers that are alive when the topic is created if"
    " that is lower.",
    at_least(1),
)
SHARE_STATE_TOPIC_MIN_ISR: ConfigKey[int] = ConfigKey(
    "share.coordinator.state.topic.min.isr",
    ConfigType.SHORT,
    2,
    "min.insync.replicas of __share_group_state. Used when the topic is created.",
    at_least(1),
)
SHARE_STATE_TOPIC_SEGMENT_BYTES: ConfigKey[int] = ConfigKey(
    "share.coordinator.state.topic.segment.bytes",
    ConfigType.INT,
    104_857_600,
    "Segment size of __share_group_state, in bytes. Used when the topic is created.",
    at_least(SEGMENT_BYTES_MIN),
)
SHARE_STATE_TOPIC_PRUNE_INTERVAL_MS: ConfigKey[int] = ConfigKey(
    "share.coordinator.state.topic.prune.interval.ms",
    ConfigType.INT,
    300_000,
    "How often records of __share_group_state that later snapshots have made redundant are deleted, in milliseconds."
    " Share-partitions whose last snapshot is the oldest one get another then.",
    at_least(1),
)
SHARE_UPDATES_PER_SNAPSHOT: ConfigKey[int] = ConfigKey(
    "share.coordinator.snapshot.update.records.per.snapshot",
    ConfigType.INT,
    500,
    "Number of updates of the state of a share-partition between two snapshots in __share_group_state.",
    between(0, 500),
)


@dataclass(frozen=True, slots=True)
class ShareGroupSettings:
    """Settings of share groups in the broker's configuration."""

    session_timeout_ms: int
    heartbeat_interval_ms: int
    members_max: int
    """In one group."""
    sessions_max: int
    """On this broker."""
    lock_duration_ms: int
    delivery_count_max: int
    in_flight_max: int
    """In one share-partition."""
    auto_offset_reset: str
    """EARLIEST, LATEST or a duration."""
    read_committed: bool
    updates_max: int
    """Between two snapshots."""
    prune_interval_ms: int


def share_group_settings(configs: Configs) -> ShareGroupSettings:
    return ShareGroupSettings(
        session_timeout_ms=configs[GROUP_SHARE_SESSION_TIMEOUT_MS],
        heartbeat_interval_ms=configs[GROUP_SHARE_HEARTBEAT_INTERVAL_MS],
        members_max=configs[GROUP_SHARE_MAX_SIZE],
        sessions_max=configs[GROUP_SHARE_MAX_SHARE_SESSIONS],
        lock_duration_ms=configs[GROUP_SHARE_RECORD_LOCK_DURATION_MS],
        delivery_count_max=configs[GROUP_SHARE_DELIVERY_COUNT_LIMIT],
        in_flight_max=configs[GROUP_SHARE_PARTITION_MAX_RECORD_LOCKS],
        auto_offset_reset=LATEST,
        read_committed=False,
        updates_max=configs[SHARE_UPDATES_PER_SNAPSHOT],
        prune_interval_ms=configs[SHARE_STATE_TOPIC_PRUNE_INTERVAL_MS],
    )
