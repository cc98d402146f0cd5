"""Replication: the broker's keys, and the settings that are made from them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from raylog.core.config import LONG_MAX, ConfigKey, Configs, ConfigType, at_least, one_of

LEADER_SELECTOR: Final = "org.apache.kafka.common.replica.LeaderSelector"
RACK_AWARE_REPLICA_SELECTOR: Final = "org.apache.kafka.common.replica.RackAwareReplicaSelector"

REPLICA_LAG_TIME_MAX_MS: ConfigKey[int] = ConfigKey(
    "replica.lag.time.max.ms",
    ConfigType.LONG,
    30_000,
    "A follower that has not reached its leader's log end offset for this long, in milliseconds, is removed from the"
    " in-sync replicas.",
    at_least(100),
)
REPLICA_FETCH_WAIT_MAX_MS: ConfigKey[int] = ConfigKey(
    "replica.fetch.wait.max.ms",
    ConfigType.INT,
    500,
    "Longest time, in milliseconds, that a leader holds a follower's fetch if it has no new records. At most"
    " replica.lag.time.max.ms.",
    at_least(1),
)
REPLICA_FETCH_MAX_BYTES: ConfigKey[int] = ConfigKey(
    "replica.fetch.max.bytes",
    ConfigType.INT,
    1 << 20,
    "Bytes of one partition that a follower fetches at once. A first batch that is larger is returned whole.",
    at_least(0),
)
REPLICA_FETCH_RESPONSE_MAX_BYTES: ConfigKey[int] = ConfigKey(
    "replica.fetch.response.max.bytes",
    ConfigType.INT,
    10 << 20,
    "Bytes that a follower fetches at once over all partitions. A first batch that is larger is returned whole.",
    at_least(0),
)
REPLICA_SELECTOR_CLASS: ConfigKey[str | None] = ConfigKey(
    "replica.selector.class",
    ConfigType.STRING,
    None,
    "Which replica consumers read from: the leader, which is also the default, or with RackAwareReplicaSelector an"
    " in-sync replica on the consumer's own rack (client.rack). The latter also makes followers learn of a new high"
    " watermark without delay.",
    one_of(LEADER_SELECTOR, RACK_AWARE_REPLICA_SELECTOR),
)
REPLICA_HIGH_WATERMARK_CHECKPOINT_INTERVAL_MS: ConfigKey[int] = ConfigKey(
    "replica.high.watermark.checkpoint.interval.ms",
    ConfigType.LONG,
    5000,
    "How often the broker saves the high watermarks of its partitions to disk, in milliseconds.",
    at_least(1),
)
LEADER_REPLICATION_THROTTLED_RATE: ConfigKey[int] = ConfigKey(
    "leader.replication.throttled.rate",
    ConfigType.LONG,
    LONG_MAX,
    "Bytes per second that the broker, as leader, sends to out-of-sync replicas that are listed in"
    " leader.replication.throttled.replicas of their topic.",
    at_least(0),
    dynamic=True,
)
FOLLOWER_REPLICATION_THROTTLED_RATE: ConfigKey[int] = ConfigKey(
    "follower.replication.throttled.rate",
    ConfigType.LONG,
    LONG_MAX,
    "Bytes per second that the broker fetches for out-of-sync replicas of its own that are listed in"
    " follower.replication.throttled.replicas of their topic.",
    at_least(0),
    dynamic=True,
)
REPLICA_ALTER_LOG_DIRS_IO_MAX_BYTES_PER_SECOND: ConfigKey[int] = ConfigKey(
    "replica.alter.log.dirs.io.max.bytes.per.second",
    ConfigType.LONG,
    LONG_MAX,
    "Bytes per second that the broker copies when it moves replicas between its log directories.",
    at_least(0),
    dynamic=True,
)
UNCLEAN_LEADER_ELECTION_ENABLE: ConfigKey[bool] = ConfigKey(
    "unclean.leader.election.enable",
    ConfigType.BOOLEAN,
    False,
    "Whether a replica that is not in sync can be elected leader if no in-sync replica is alive. Records that it does"
    " not have are lost.",
    dynamic=True,
    cluster_wide=True,
)
MIN_INSYNC_REPLICAS: ConfigKey[int] = ConfigKey(
    "min.insync.replicas",
    ConfigType.INT,
    1,
    "Number of in-sync replicas that must have a record before a produce request with acks=all succeeds; with fewer in"
    " sync, such requests fail with NOT_ENOUGH_REPLICAS. The number of replicas is used if it is lower.",
    at_least(1),
    dynamic=True,
)


@dataclass(frozen=True, slots=True)
class ReplicationSettings:
    lag_ms_max: int
    high_watermark_checkpoint_interval_ms: int
    leader_rate_bytes_per_sec: int
    """For throttled replicas only, as the next one."""
    follower_rate_bytes_per_sec: int
    move_rate_bytes_per_sec: int
    """Of replicas that are moved between log directories."""
    rack_aware: bool
    """Whether consumers are sent to a replica on their own rack."""


def replication_settings(configs: Configs) -> ReplicationSettings:
    return ReplicationSettings(
        lag_ms_max=configs[REPLICA_LAG_TIME_MAX_MS],
        high_watermark_checkpoint_interval_ms=configs[REPLICA_HIGH_WATERMARK_CHECKPOINT_INTERVAL_MS],
        leader_rate_bytes_per_sec=configs[LEADER_REPLICATION_THROTTLED_RATE],
        follower_rate_bytes_per_sec=configs[FOLLOWER_REPLICATION_THROTTLED_RATE],
        move_rate_bytes_per_sec=configs[REPLICA_ALTER_LOG_DIRS_IO_MAX_BYTES_PER_SECOND],
        rack_aware=configs[REPLICA_SELECTOR_CLASS] == RACK_AWARE_REPLICA_SELECTOR,
    )


@dataclass(frozen=True, slots=True)
class FetchLimits:
    """Limits of a follower's fetches."""

    wait_ms_max: int
    partition_bytes_max: int
    response_bytes_max: int
    send_high_watermark: bool
    """Whether the leader responds as soon as it has a new high watermark (KIP-1166): consumers may be waiting here."""


def fetch_limits(configs: Configs) -> FetchLimits:
    return FetchLimits(
        wait_ms_max=configs[REPLICA_FETCH_WAIT_MAX_MS],
        partition_bytes_max=configs[REPLICA_FETCH_MAX_BYTES],
        response_bytes_max=configs[REPLICA_FETCH_RESPONSE_MAX_BYTES],
        send_high_watermark=replication_settings(configs).rack_aware,
    )
