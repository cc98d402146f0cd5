"""What the handlers of a broker may use of it: a handler sees these services and nothing else of the broker."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Protocol
from uuid import UUID

from raylog.broker.client_telemetry import ClientTelemetry
from raylog.broker.isr_changes import IsrChanges
from raylog.broker.latest_offsets import LatestOffsets
from raylog.broker.lifecycle import BrokerLifecycle
from raylog.broker.metadata_follower import MetadataFollower
from raylog.broker.partitions import PartitionTable
from raylog.broker.producer_ids import ProducerIds
from raylog.broker.share.sessions import SessionKey, ShareSessions
from raylog.broker.share.share_partition import ShareLimits
from raylog.broker.share.share_partitions import SharePartitions
from raylog.broker.streams_topics import StreamsTopics
from raylog.broker.topic_creation import Requester
from raylog.broker.traffic import BrokerTraffic
from raylog.config.consumer_groups import ConsumerGroupSettings
from raylog.config.settings import BrokerSettings
from raylog.config.streams_groups import StreamsGroupSettings
from raylog.core.clock import Now
from raylog.core.config import Configs
from raylog.core.ids import BrokerId, TopicPartition
from raylog.groupcoord.shards import GroupShards
from raylog.logstore.disk import Disk
from raylog.metadata.image import MetadataImage, TopicImage
from raylog.replication.fetch_sessions import FetchSessions
from raylog.replication.partition import Partition
from raylog.replication.throttle import ReplicationThrottle
from raylog.security.authorization import Authorization
from raylog.security.delegation_tokens import TokenKey
from raylog.sharecoord.persister import Persister
from raylog.sharecoord.shards import ShareShards
from raylog.transport.commits import CommitQueues
from raylog.transport.node import Job, NodeIdentity
from raylog.transport.throttling import RequestQuotas
from raylog.txncoord.shards import TransactionShards
from raylog.txncoord.verification import Verification


class BrokerServices(Protocol):
    """Implemented by `Broker`."""

    identity: NodeIdentity
    now: Now
    """The time of the current event."""
    authorization: Authorization
    configs: Configs

    @property
    def configs_in_force(self) -> Configs: ...

    settings: BrokerSettings

    lifecycle: BrokerLifecycle
    follower: MetadataFollower
    peers_lost_ms: dict[BrokerId, int]
    """When a connection to each broker was lost last (monotonic)."""

    disk: Disk
    table: PartitionTable
    partitions: dict[TopicPartition, Partition]
    isr_changes: IsrChanges
    fetch_sessions: FetchSessions
    leader_throttle: ReplicationThrottle
    traffic: BrokerTraffic
    telemetry: ClientTelemetry
    new_id: Callable[[], UUID]
    quotas: RequestQuotas | None
    request_quotas: RequestQuotas
    unsent_bytes: int
    """Responses that were handed to the sockets and that peers have not read."""
    commits: CommitQueues

    groups: GroupShards
    streams_topics: StreamsTopics
    share_states: ShareShards
    share_partitions: SharePartitions
    share_sessions: ShareSessions
    persister: Persister
    latest_offsets: LatestOffsets
    transactions: TransactionShards
    verification: Verification
    token_key: TokenKey | None
    """For the secrets of delegation tokens; None if they are disabled."""
    producer_ids: ProducerIds

    @property
    def image(self) -> MetadataImage: ...

    @property
    def supports_transactions_2(self) -> bool: ...

    def topic_configs(self, topic: TopicImage) -> Configs: ...

    def consumer_group_settings(self, group_id: str) -> ConsumerGroupSettings: ...

    def streams_group_settings(self, group_id: str) -> StreamsGroupSettings: ...

    def configs_after(self, changes: Mapping[str, str | None], *, replace: bool) -> Configs: ...

    def alive_on(
        self, listener_name: str, *, also_fenced: bool = False
    ) -> Iterator[tuple[BrokerId, str, int, str | None]]: ...

    def controller_on(self, listener_name: str) -> BrokerId: ...

    def share_limits(self, group_id: str) -> ShareLimits: ...

    def share_read_committed(self, group_id: str) -> bool: ...

    def end_share_session(self, key: SessionKey, now: Now, *, orderly: bool) -> None: ...

    def partition(self, tp: TopicPartition) -> Partition: ...

    def replica(self, tp: TopicPartition) -> Partition: ...

    def partition_appended(self, tp: TopicPartition, grown_bytes: int) -> None: ...

    def partition_committed(self, tp: TopicPartition) -> None: ...

    def partition_changed(self, tp: TopicPartition) -> None: ...

    def coordinator_of(self, topic: str, key: str) -> tuple[TopicPartition, BrokerId]: ...

    def find_coordinator(self, topic: str, key: str, now: Now) -> tuple[TopicPartition, BrokerId]: ...

    def partition_of_group(self, group_id: str, now: Now) -> TopicPartition: ...

    def request_topic(self, topic: str, now: Now, *, requester: Requester | None = None) -> None: ...

    def add_job(self, job: Job) -> None: ...
