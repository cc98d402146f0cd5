"""Partitions without leaders and replicas behind are counted, and a reassignment shows how far it is."""

from __future__ import annotations

from uuid import UUID

from raylog.client.admin.cluster import LogDirDescription, ReplicaInfo
from raylog.client.admin.partitions import PartitionReassignment
from raylog.client.admin.topics import PartitionDescription, TopicDescription
from raylog.console.topic_rows import leader_sizes, led, reassignment_row, replica_sizes, summary, topic_row
from raylog.core.ids import TopicPartition

A0, A1, A2 = (TopicPartition("a", number) for number in range(3))
TOPIC = TopicDescription(
    "a",
    UUID(int=7),
    False,
    (
        PartitionDescription(0, 1, 5, (1, 2, 3), (1, 2, 3), ()),
        PartitionDescription(1, 3, 5, (2, 3), (3,), (2,)),
        PartitionDescription(2, None, 5, (2,), (), (2,)),
    ),
    None,
)


def dir_of(**sizes: int) -> LogDirDescription:
    replicas = {
        (TopicPartition("a", int(name[1])), name.endswith("f")): ReplicaInfo(size, 0, name.endswith("f"))
        for name, size in sizes.items()
    }
    return LogDirDescription(None, replicas, -1, -1)


def test_health_of_a_topic() -> None:
    assert topic_row(TOPIC) == {
        "name": "a",
        "internal": False,
        "partitions": 3,
        "replicas": 3,
        "offline": 1,
        "under_replicated": 2,
    }
    assert led([TOPIC]) == [A0, A1]


def test_the_summary_counts_the_load_of_brokers() -> None:
    found = summary({"a": TOPIC, "__i": TopicDescription("__i", UUID(int=8), True, (), None)})
    assert (found["topics"], found["internal_topics"], found["partitions"]) == (2, 1, 3)
    assert (found["offline"], found["under_replicated"], found["not_preferred"]) == (1, 2, 2)
    assert found["by_broker"] == {
        "1": {"leaders": 1, "replicas": 1, "in_sync": 1},
        "2": {"leaders": 0, "replicas": 3, "in_sync": 1},
        "3": {"leaders": 1, "replicas": 2, "in_sync": 2},
    }


def test_sizes_of_replicas_and_leaders() -> None:
    sizes = replica_sizes({1: {"/x": dir_of(a0=10)}, 2: {"/x": dir_of(a0=9), "/y": dir_of(a1=5, a0f=3)}, 3: {}})
    assert sizes == {A0: {1: 10, 2: 9}, A1: {2: 5}}
    assert leader_sizes([TOPIC], sizes) == {A0: 10}


def test_the_progress_of_a_reassignment() -> None:
    moving = PartitionReassignment((1, 2, 3, 4, 5), (3, 4, 5), (2,))
    row = reassignment_row(A0, moving, TOPIC, {1: 100, 3: 7, 4: 25})
    assert row["progress"] == {"3": 1.0, "4": 0.25, "5": None}  # 3 is in sync already
    assert (row["adding"], row["removing"], row["size_bytes"]) == ([3, 4, 5], [2], 100)
    assert reassignment_row(A0, moving, None, {})["progress"] == {"3": None, "4": None, "5": None}
    assert reassignment_row(A0, moving, TOPIC, {1: 0, 4: 0})["progress"]["4"] == 0.0
