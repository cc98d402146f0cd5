"""A cluster view contains exactly what a Metadata response contains."""

from __future__ import annotations

from raylog.client.cluster_view import ClusterView
from raylog.core.ids import TopicPartition
from raylog.protocol.messages.metadata import MetadataResponse, MetadataResponsePartition, MetadataResponseTopic


def test_a_partition_without_leader_or_with_a_broker_out_of_sync_is_reported() -> None:
    def partition(
        index: int, leader: int, replicas: tuple[int, ...], isr: tuple[int, ...]
    ) -> MetadataResponsePartition:
        return MetadataResponsePartition(
            partition_index=index, leader_id=leader, replica_nodes=replicas, isr_nodes=isr, offline_replicas=()
        )

    partitions = (
        partition(0, 1, (0, 1), (1, 0)),
        partition(1, 1, (0, 1), (1,)),
        partition(2, -1, (0,), (0,)),
        partition(3, -1, (1,), (1,)),
    )
    view = ClusterView(
        MetadataResponse(brokers=(), controller_id=0, topics=(MetadataResponseTopic(name="t", partitions=partitions),))
    )
    assert view.not_in_sync_on(0) == [TopicPartition("t", 1), TopicPartition("t", 2)]
    assert view.not_in_sync_on(1) == [TopicPartition("t", 3)]
