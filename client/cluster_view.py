"""A cluster as a client sees it: brokers, topics and partition leaders, from one Metadata response. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass

from raylog.core.errors import ConfigError, ErrorCode, KafkaError
from raylog.core.ids import NO_BROKER_ID, TopicPartition
from raylog.protocol.messages.metadata import MetadataResponse, MetadataResponseTopic

_SERVER = re.compile(r"(?P<host>\[[0-9a-fA-F:.]+\]|[^:\[\]/]+):(?P<port>\d{1,5})")


def parse_servers(bootstrap_servers: str) -> list[tuple[str, int]]:
    """`host:port,host:port` as pairs. Raises ConfigError."""
    servers = []
    for text in bootstrap_servers.split(","):
        match = _SERVER.fullmatch(text.strip())
        if match is None or not 0 < int(match["port"]) <= 65535:
            raise ConfigError(
                f"bootstrap.servers={bootstrap_servers!r}: must be host:port[,host:port...] or ray://<cluster>"
            )
        servers.append((match["host"].strip("[]"), int(match["port"])))
    return servers


@dataclass(frozen=True, slots=True)
class Node:
    """A broker in a Metadata response."""

    cluster_id: str
    broker_id: int
    host: str
    port: int


@dataclass(frozen=True, slots=True)
class ClusterView:
    """Look-ups in one Metadata response. It is replaced as a whole, never changed."""

    metadata: MetadataResponse

    def broker(self, broker_id: int) -> Node:
        """The broker with this id. Raises KafkaError(LEADER_NOT_AVAILABLE)."""
        for broker in self.metadata.brokers:
            if broker.node_id == broker_id:
                return Node(self.metadata.cluster_id or "", broker_id, broker.host, broker.port)
        raise KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, f"broker {broker_id} is not alive")

    def not_in_sync_on(self, broker_id: int) -> list[TopicPartition]:
        """The partitions of which the broker has a replica that is not in sync, or that have no leader."""
        return [
            TopicPartition(topic.name or "", partition.partition_index)
            for topic in self.metadata.topics
            for partition in topic.partitions
            if broker_id in partition.replica_nodes
            and (broker_id not in partition.isr_nodes or partition.leader_id == NO_BROKER_ID)
        ]

    def topic(self, name: str) -> MetadataResponseTopic:
        """The topic. Raises KafkaError with the code that the broker returned for it."""
        for topic in self.metadata.topics:
            if topic.name == name:
                if topic.error_code != ErrorCode.NONE:
                    raise KafkaError(topic.error_code, f"topic {name!r}: {topic.error_code.sentence}")
                return topic
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {name!r} does not exist")

    def leader(self, tp: TopicPartition) -> Node:
        """The leader of the partition. Raises KafkaError."""
        for partition in self.topic(tp.topic).partitions:
            if partition.partition_index == tp.partition:
                if partition.error_code != ErrorCode.NONE:
                    raise KafkaError(partition.error_code, f"{tp}: {partition.error_code.sentence}")
                return self.broker(partition.leader_id)
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"partition {tp} does not exist")

    def partition_count(self, topic: str) -> int:
        return len(self.topic(topic).partitions)
