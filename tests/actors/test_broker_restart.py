"""A restarted broker is waited for until all its replicas are in sync and have leaders."""

from __future__ import annotations

from uuid import UUID

from raylog.actors.broker_restart import not_in_sync_on
from raylog.client.admin.topics import PartitionDescription, TopicDescription
from raylog.core.ids import TopicPartition


def test_a_partition_without_leader_or_with_a_broker_out_of_sync_is_reported() -> None:
    partitions = (
        PartitionDescription(0, 1, 0, (0, 1), (1, 0), ()),
        PartitionDescription(1, 1, 0, (0, 1), (1,), ()),
        PartitionDescription(2, None, 0, (0,), (0,), ()),
        PartitionDescription(3, None, 0, (1,), (1,), ()),
    )
    topics = [TopicDescription("t", UUID(int=1), False, partitions, None)]
    assert not_in_sync_on(0, topics) == [TopicPartition("t", 1), TopicPartition("t", 2)]
    assert not_in_sync_on(1, topics) == [TopicPartition("t", 3)]
