"""All settings of a broker in one value, which is created again when its configuration changes."""

from __future__ import annotations

from dataclasses import dataclass

from raylog.config.compaction import CleanerSettings, cleaner_settings
from raylog.config.consumer_groups import ConsumerGroupSettings, consumer_group_settings
from raylog.config.groups import GroupLimits, OffsetSettings, group_limits, offset_settings
from raylog.config.internal_topics import InternalTopic, offsets_topic, share_state_topic, transaction_topic
from raylog.config.log import LogDirSettings, log_dir_settings
from raylog.config.membership import MembershipSettings, membership_settings
from raylog.config.metrics import MetricsSettings, metrics_settings
from raylog.config.network import ConnectionLimits, ListenerSettings, connection_limits, listener_settings
from raylog.config.quotas import QuotaSettings, quota_settings
from raylog.config.replication import FetchLimits, ReplicationSettings, fetch_limits, replication_settings
from raylog.config.requests import RequestLimits, request_limits
from raylog.config.share_groups import ShareGroupSettings, share_group_settings
from raylog.config.streams_groups import StreamsGroupSettings, streams_group_settings
from raylog.config.topic_lifecycle import TopicLifecycle, topic_lifecycle
from raylog.config.transactions import TransactionSettings, transaction_settings
from raylog.core.config import Configs


@dataclass(frozen=True, slots=True)
class BrokerSettings:
    membership: MembershipSettings
    listeners: ListenerSettings
    connections: ConnectionLimits
    requests: RequestLimits
    metrics: MetricsSettings
    quotas: QuotaSettings
    topics: TopicLifecycle
    replication: ReplicationSettings
    replica_fetch: FetchLimits
    groups: GroupLimits
    consumer_groups: ConsumerGroupSettings
    share_groups: ShareGroupSettings
    streams_groups: StreamsGroupSettings
    offsets: OffsetSettings
    transactions: TransactionSettings
    offsets_topic: InternalTopic
    transaction_topic: InternalTopic
    share_state_topic: InternalTopic
    log_dir: LogDirSettings
    cleaner: CleanerSettings


def broker_settings(configs: Configs) -> BrokerSettings:
    return BrokerSettings(
        membership=membership_settings(configs),
        listeners=listener_settings(configs),
        connections=connection_limits(configs),
        requests=request_limits(configs),
        metrics=metrics_settings(configs),
        quotas=quota_settings(configs),
        topics=topic_lifecycle(configs),
        replication=replication_settings(configs),
        replica_fetch=fetch_limits(configs),
        groups=group_limits(configs),
        consumer_groups=consumer_group_settings(configs),
        share_groups=share_group_settings(configs),
        streams_groups=streams_group_settings(configs),
        offsets=offset_settings(configs),
        transactions=transaction_settings(configs),
        offsets_topic=offsets_topic(configs),
        transaction_topic=transaction_topic(configs),
        share_state_topic=share_state_topic(configs),
        log_dir=log_dir_settings(configs),
        cleaner=cleaner_settings(configs),
    )
