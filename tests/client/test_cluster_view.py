"""What is known of a cluster is what Metadata has told, and no more."""

from __future__ import annotations

from raylog.client.cluster_view import ClusterView
from raylog.core.ids import TopicPartition
from raylog.protocol.messages.metadata import MetadataResponse, MetadataResponsePartition, MetadataResponseTopic


def test_a_broker_is_waited_for_where_it_is_not_in_sync_or_nobody_leads() -> None:
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
