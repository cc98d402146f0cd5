"""Controllers: the keys of their quorum, metadata log and leader elections, and the settings made from them."""

from __future__ import annotations

from dataclasses import dataclass

from raylog.config.delegation_tokens import DelegationTokenSettings, delegation_token_settings
from raylog.config.membership import BROKER_SESSION_TIMEOUT_MS
from raylog.config.quotas import QuotaSettings, controller_quota_settings
from raylog.config.requests import RAYLOG_SLOW_REQUEST_MS
from raylog.config.topic_lifecycle import TopicLifecycle, topic_lifecycle
from raylog.core.config import ConfigKey, Configs, ConfigType, at_least

CONTROLLER_QUORUM_ELECTION_TIMEOUT_MS: ConfigKey[int] = ConfigKey(
    "controller.quorum.election.timeout.ms",
    ConfigType.INT,
    1000,
    "A controller that does not win an election within this time, in milliseconds, ends its candidacy and tries again.",
    at_least(50),
    cluster_wide=True,
)
CONTROLLER_QUORUM_FETCH_TIMEOUT_MS: ConfigKey[int] = ConfigKey(
    "controller.quorum.fetch.timeout.ms",
    ConfigType.INT,
    2000,
    "A controller that has not fetched from the active one for this long, in milliseconds, starts an election. The"
    " active controller resigns if a majority has not fetched from it for 1.5 times as long.",
    at_least(50),
    cluster_wide=True,
)
CONTROLLER_QUORUM_ELECTION_BACKOFF_MAX_MS: ConfigKey[int] = ConfigKey(
    "controller.quorum.election.backoff.max.ms",
    ConfigType.INT,
    1000,
    "Longest time, in milliseconds, that a controller waits after a lost election before it starts another.",
    at_least(1),
    cluster_wide=True,
)
METADATA_LOG_MAX_RECORD_BYTES_BETWEEN_SNAPSHOTS: ConfigKey[int] = ConfigKey(
    "metadata.log.max.record.bytes.between.snapshots",
    ConfigType.LONG,
    20 << 20,
    "A controller writes a snapshot of the metadata when its log has grown by this many bytes since the last one."
    " The log is kept from the last snapshot but one.",
    at_least(1),
    cluster_wide=True,
)
AUTO_LEADER_REBALANCE_ENABLE: ConfigKey[bool] = ConfigKey(
    "auto.leader.rebalance.enable",
    ConfigType.BOOLEAN,
    True,
    "Whether the controller makes the preferred replica of a partition, the first in its list, leader again.",
    cluster_wide=True,
)
LEADER_IMBALANCE_CHECK_INTERVAL_SECONDS: ConfigKey[int] = ConfigKey(
    "leader.imbalance.check.interval.seconds",
    ConfigType.LONG,
    300,
    "How often the controller checks leader imbalance, in seconds.",
    at_least(1),
    cluster_wide=True,
)
LEADER_IMBALANCE_PER_BROKER_PERCENTAGE: ConfigKey[int] = ConfigKey(
    "leader.imbalance.per.broker.percentage",
    ConfigType.INT,
    10,
    "Share, in percent, of a broker's preferred partitions that other brokers may lead. If more do, the controller"
    " elects the preferred leaders of all of them.",
    at_least(0),
    cluster_wide=True,
)


@dataclass(frozen=True, slots=True)
class QuorumTimeouts:
    """Timeouts of the quorum, in milliseconds."""

    election_timeout_ms: int = 1000
    fetch_timeout_ms: int = 2000
    election_backoff_ms_max: int = 1000


def quorum_timeouts(configs: Configs) -> QuorumTimeouts:
    return QuorumTimeouts(
        election_timeout_ms=configs[CONTROLLER_QUORUM_ELECTION_TIMEOUT_MS],
        fetch_timeout_ms=configs[CONTROLLER_QUORUM_FETCH_TIMEOUT_MS],
        election_backoff_ms_max=configs[CONTROLLER_QUORUM_ELECTION_BACKOFF_MAX_MS],
    )


@dataclass(frozen=True, slots=True)
class ControllerSettings:
    quorum: QuorumTimeouts
    topics: TopicLifecycle
    mutation_quota: QuotaSettings
    delegation_tokens: DelegationTokenSettings
    broker_session_timeout_ms: int
    snapshot_interval_bytes: int
    leader_rebalance: bool
    imbalance_check_interval_ms: int
    imbalance_percent_max: int
    slow_request_ms: int
    """Requests that take this long are logged; -1: none."""


def controller_settings(configs: Configs) -> ControllerSettings:
    return ControllerSettings(
        quorum=quorum_timeouts(configs),
        topics=topic_lifecycle(configs),
        mutation_quota=controller_quota_settings(configs),
        delegation_tokens=delegation_token_settings(configs),
        broker_session_timeout_ms=configs[BROKER_SESSION_TIMEOUT_MS],
        snapshot_interval_bytes=configs[METADATA_LOG_MAX_RECORD_BYTES_BETWEEN_SNAPSHOTS],
        leader_rebalance=configs[AUTO_LEADER_REBALANCE_ENABLE],
        imbalance_check_interval_ms=configs[LEADER_IMBALANCE_CHECK_INTERVAL_SECONDS] * 1000,
        imbalance_percent_max=configs[LEADER_IMBALANCE_PER_BROKER_PERCENTAGE],
        slow_request_ms=configs[RAYLOG_SLOW_REQUEST_MS],
    )
