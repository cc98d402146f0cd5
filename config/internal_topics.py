"""The internal topics of coordinators: the broker's keys, and the settings that are made from them."""

from __future__ import annotations

from dataclasses import dataclass

from raylog.config.log import SEGMENT_BYTES_MIN
from raylog.config.replication import MIN_INSYNC_REPLICAS
from raylog.config.share_groups import (
    SHARE_STATE_TOPIC_MIN_ISR,
    SHARE_STATE_TOPIC_NUM_PARTITIONS,
    SHARE_STATE_TOPIC_REPLICATION_FACTOR,
    SHARE_STATE_TOPIC_SEGMENT_BYTES,
)
from raylog.config.topic_lifecycle import PARTITIONS_PER_REQUEST_MAX
from raylog.core.config import ConfigKey, Configs, ConfigType, at_least, between

OFFSETS_TOPIC_NUM_PARTITIONS: ConfigKey[int] = ConfigKey(
    "offsets.topic.num.partitions",
    ConfigType.INT,
    50,
    "Number of partitions of __consumer_offsets. Used when the topic is created; it must not change afterwards.",
    between(1, PARTITIONS_PER_REQUEST_MAX),
)
OFFSETS_TOPIC_REPLICATION_FACTOR: ConfigKey[int] = ConfigKey(
    "offsets.topic.replication.factor",
    ConfigType.SHORT,
    3,
    "Replication factor of __consumer_offsets, or the number of brokers that are alive when the topic is created if"
    " that is lower.",
    at_least(1),
)
OFFSETS_TOPIC_SEGMENT_BYTES: ConfigKey[int] = ConfigKey(
    "offsets.topic.segment.bytes",
    ConfigType.INT,
    104_857_600,
    "Segment size of __consumer_offsets, in bytes. Used when the topic is created.",
    at_least(SEGMENT_BYTES_MIN),
)
TRANSACTION_LOG_NUM_PARTITIONS: ConfigKey[int] = ConfigKey(
    "transaction.state.log.num.partitions",
    ConfigType.INT,
    50,
    "Number of partitions of __transaction_state. Used when the topic is created; it must not change afterwards.",
    between(1, PARTITIONS_PER_REQUEST_MAX),
)
TRANSACTION_LOG_REPLICATION_FACTOR: ConfigKey[int] = ConfigKey(
    "transaction.state.log.replication.factor",
    ConfigType.SHORT,
    3,
    "Replication factor of __transaction_state, or the number of brokers that are alive when the topic is created if"
    " that is lower.",
    at_least(1),
)
TRANSACTION_LOG_MIN_ISR: ConfigKey[int] = ConfigKey(
    "transaction.state.log.min.isr",
    ConfigType.INT,
    2,
    "min.insync.replicas of __transaction_state. Used when the topic is created.",
    at_least(1),
)
TRANSACTION_LOG_SEGMENT_BYTES: ConfigKey[int] = ConfigKey(
    "transaction.state.log.segment.bytes",
    ConfigType.INT,
    104_857_600,
    "Segment size of __transaction_state, in bytes. Used when the topic is created.",
    at_least(SEGMENT_BYTES_MIN),
)


@dataclass(frozen=True, slots=True)
class InternalTopic:
    """How an internal topic is created."""

    num_partitions: int
    replication_factor: int
    min_insync_replicas: int
    segment_bytes: int
    is_compacted: bool = True
    """Else every record is kept until its coordinator deletes it."""


def offsets_topic(configs: Configs) -> InternalTopic:
    return InternalTopic(
        num_partitions=configs[OFFSETS_TOPIC_NUM_PARTITIONS],
        replication_factor=configs[OFFSETS_TOPIC_REPLICATION_FACTOR],
        min_insync_replicas=configs[MIN_INSYNC_REPLICAS],
        segment_bytes=configs[OFFSETS_TOPIC_SEGMENT_BYTES],
    )


def transaction_topic(configs: Configs) -> InternalTopic:
    return InternalTopic(
        num_partitions=configs[TRANSACTION_LOG_NUM_PARTITIONS],
        replication_factor=configs[TRANSACTION_LOG_REPLICATION_FACTOR],
        min_insync_replicas=configs[TRANSACTION_LOG_MIN_ISR],
        segment_bytes=configs[TRANSACTION_LOG_SEGMENT_BYTES],
    )


def share_state_topic(configs: Configs) -> InternalTopic:
    return InternalTopic(
        num_partitions=configs[SHARE_STATE_TOPIC_NUM_PARTITIONS],
        replication_factor=configs[SHARE_STATE_TOPIC_REPLICATION_FACTOR],
        min_insync_replicas=configs[SHARE_STATE_TOPIC_MIN_ISR],
        segment_bytes=configs[SHARE_STATE_TOPIC_SEGMENT_BYTES],
        is_compacted=False,
    )
