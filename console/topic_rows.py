"""Topics and partitions as rows of the page, and the summary of all of them. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, NamedTuple

from raylog.client.admin.cluster import LogDirDescription
from raylog.client.admin.partitions import PartitionReassignment
from raylog.client.admin.topics import PartitionDescription, TopicDescription
from raylog.core.ids import TopicPartition


class Health(NamedTuple):
    """Counts of partitions: without a leader, and with fewer in-sync replicas than replicas."""

    offline: int
    under_replicated: int


ORDERS: Final[Mapping[str, Callable[[TopicDescription], Any]]] = {
    "partitions": lambda topic: len(topic.partitions),
    "replicas": lambda topic: _factor(topic),
    "health": lambda topic: health(topic.partitions),
}
"""Beside their names."""


def health(partitions: Iterable[PartitionDescription]) -> Health:
    offline = under = 0
    for each in partitions:
        offline += each.leader is None
        under += len(each.isr) < len(each.replicas)
    return Health(offline, under)


def topic_row(topic: TopicDescription) -> dict[str, Any]:
    offline, under_replicated = health(topic.partitions)
    return {
        "name": topic.name,
        "internal": topic.is_internal,
        "partitions": len(topic.partitions),
        "replicas": _factor(topic),
        "offline": offline,
        "under_replicated": under_replicated,
    }


def partition_row(each: PartitionDescription) -> dict[str, Any]:
    return {
        "partition": each.partition,
        "leader": each.leader,
        "leader_epoch": each.leader_epoch,
        "replicas": list(each.replicas),
        "isr": list(each.isr),
        "offline_replicas": list(each.offline_replicas),
        "preferred": bool(each.replicas) and each.leader == each.replicas[0],
    }


def summary(topics: Mapping[str, TopicDescription]) -> dict[str, Any]:
    """Of all topics that the identity may see, with the load of each broker."""
    partitions = [each for topic in topics.values() for each in topic.partitions]
    offline, under_replicated = health(partitions)
    leaders = Counter(each.leader for each in partitions if each.leader is not None)
    replicas = Counter(broker for each in partitions for broker in each.replicas)
    in_sync = Counter(broker for each in partitions for broker in each.isr)
    return {
        "topics": len(topics),
        "internal_topics": sum(topic.is_internal for topic in topics.values()),
        "partitions": len(partitions),
        "offline": offline,
        "under_replicated": under_replicated,
        "not_preferred": sum(each.leader != each.replicas[0] for each in partitions if each.replicas),
        "by_broker": {
            str(broker): {"leaders": leaders[broker], "replicas": count, "in_sync": in_sync[broker]}
            for broker, count in sorted(replicas.items())
        },
    }


def replica_sizes(
    dirs: Mapping[int, Mapping[str, LogDirDescription]],
) -> dict[TopicPartition, dict[int, int]]:
    """The size in bytes of each replica, by broker; a future replica is no replica yet."""
    sizes: dict[TopicPartition, dict[int, int]] = {}
    for broker, by_path in dirs.items():
        for found in by_path.values():
            for (tp, is_future), replica in found.replicas.items():
                if not is_future:
                    sizes.setdefault(tp, {})[broker] = replica.size_bytes
    return sizes


def leader_sizes(
    topics: Iterable[TopicDescription], sizes: Mapping[TopicPartition, Mapping[int, int]]
) -> dict[TopicPartition, int]:
    """Of the partitions whose leader has told it."""
    found = {}
    for topic in topics:
        for each in topic.partitions:
            tp = TopicPartition(topic.name, each.partition)
            size = sizes.get(tp, {}).get(-1 if each.leader is None else each.leader)
            if size is not None:
                found[tp] = size
    return found


def reassignment_row(
    tp: TopicPartition,
    moving: PartitionReassignment,
    topic: TopicDescription | None,
    sizes: Mapping[int, int],
) -> dict[str, Any]:
    """`progress` is the share of the leader's log that each new replica has; None where a size is not known."""
    described = (
        None if topic is None else next((each for each in topic.partitions if each.partition == tp.partition), None)
    )
    leader_size = sizes.get(-1 if described is None or described.leader is None else described.leader)
    progress: dict[str, float | None] = {}
    for broker in moving.adding_replicas:
        size = sizes.get(broker)
        if described is not None and broker in described.isr:
            progress[str(broker)] = 1.0
        elif size is None or leader_size is None:
            progress[str(broker)] = None
        else:
            progress[str(broker)] = min(1.0, size / leader_size) if leader_size else 0.0
    return {
        "topic": tp.topic,
        "partition": tp.partition,
        "replicas": list(moving.replicas),
        "adding": list(moving.adding_replicas),
        "removing": list(moving.removing_replicas),
        "progress": progress,
        "size_bytes": leader_size,
    }


def led(topics: Iterable[TopicDescription]) -> list[TopicPartition]:
    """The partitions that have a leader, and so offsets."""
    return [
        TopicPartition(topic.name, each.partition)
        for topic in topics
        for each in topic.partitions
        if each.leader is not None
    ]


def _factor(topic: TopicDescription) -> int:
    return max((len(each.replicas) for each in topic.partitions), default=0)
