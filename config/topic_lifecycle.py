"""Creation and deletion of topics: the broker's keys, and the settings that are made from them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from raylog.core.config import ConfigKey, Configs, ConfigType, at_least, between

PARTITIONS_PER_REQUEST_MAX: Final = 10_000
"""Kafka's limit for all topics of one request together: writing more records would hold up the controller."""
REPLICATION_FACTOR_MAX: Final = (1 << 15) - 1
"""It is a 16-bit number in requests."""

AUTO_CREATE_TOPICS_ENABLE: ConfigKey[bool] = ConfigKey(
    "auto.create.topics.enable",
    ConfigType.BOOLEAN,
    True,
    "Whether a Metadata request for a topic that does not exist creates it, if the client asks for that.",
)
DELETE_TOPIC_ENABLE: ConfigKey[bool] = ConfigKey(
    "delete.topic.enable",
    ConfigType.BOOLEAN,
    True,
    "Whether topics can be deleted. If false, DeleteTopics fails with TOPIC_DELETION_DISABLED.",
    cluster_wide=True,
)
MAX_PARTITIONS_PER_CLUSTER: ConfigKey[int] = ConfigKey(
    "max.partitions.per.cluster",
    ConfigType.INT,
    200_000,
    "Largest number of partitions of all topics together. Requests that would exceed it fail with POLICY_VIOLATION."
    " Kafka has no such key.",
    at_least(1000),  # internal topics need a hundred by default
    cluster_wide=True,
)
NUM_PARTITIONS: ConfigKey[int] = ConfigKey(
    "num.partitions",
    ConfigType.INT,
    1,
    "Number of partitions of a topic that is created automatically, or without a number of partitions.",
    between(1, PARTITIONS_PER_REQUEST_MAX),
    cluster_wide=True,
)
DEFAULT_REPLICATION_FACTOR: ConfigKey[int] = ConfigKey(
    "default.replication.factor",
    ConfigType.INT,
    1,
    "Number of replicas of a topic that is created automatically, or without a replication factor.",
    between(1, REPLICATION_FACTOR_MAX),
    cluster_wide=True,
)


@dataclass(frozen=True, slots=True)
class TopicLifecycle:
    auto_create: bool
    deletable: bool
    partitions_max: int
    """Of all topics together."""
    num_partitions: int
    """Of a topic that is created without a number of its own, as the next one."""
    replication_factor: int


def topic_lifecycle(configs: Configs) -> TopicLifecycle:
    return TopicLifecycle(
        auto_create=configs[AUTO_CREATE_TOPICS_ENABLE],
        deletable=configs[DELETE_TOPIC_ENABLE],
        partitions_max=configs[MAX_PARTITIONS_PER_CLUSTER],
        num_partitions=configs[NUM_PARTITIONS],
        replication_factor=configs[DEFAULT_REPLICATION_FACTOR],
    )
