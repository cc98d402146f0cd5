"""Groups of the consumer protocol (KIP-848): the broker's keys, and the settings that are made from them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from raylog.config.groups import CONSUMER, GROUP_COORDINATOR_REBALANCE_PROTOCOLS
from raylog.core.config import INT_MAX, ConfigKey, Configs, ConfigType, at_least, one_of, some_of

DISABLED: Final = "disabled"
UPGRADE: Final = "upgrade"
DOWNGRADE: Final = "downgrade"
BIDIRECTIONAL: Final = "bidirectional"
ASSIGNED_AT_ONCE_MAX: Final = 25
"""Members of a group whose assignment takes less time than a heartbeat."""
REBALANCE_HEARTBEAT_MS_PER_MEMBER: Final = 4
"""At most so often, whatever the size of the group: 250 heartbeats in a second."""
ASSIGNOR_NAMES: Final = ("uniform", "range")

GROUP_CONSUMER_SESSION_TIMEOUT_MS: ConfigKey[int] = ConfigKey(
    "group.consumer.session.timeout.ms",
    ConfigType.INT,
    45_000,
    "Session timeout of the members of consumer groups, in milliseconds. A member without a heartbeat for this long is"
    " removed.",
    at_least(1),
)
GROUP_CONSUMER_MIN_SESSION_TIMEOUT_MS: ConfigKey[int] = ConfigKey(
    "group.consumer.min.session.timeout.ms",
    ConfigType.INT,
    45_000,
    "Least value of group.consumer.session.timeout.ms, in milliseconds.",
    at_least(1),
)
GROUP_CONSUMER_MAX_SESSION_TIMEOUT_MS: ConfigKey[int] = ConfigKey(
    "group.consumer.max.session.timeout.ms",
    ConfigType.INT,
    60_000,
    "Greatest value of group.consumer.session.timeout.ms, in milliseconds.",
    at_least(1),
)
GROUP_CONSUMER_HEARTBEAT_INTERVAL_MS: ConfigKey[int] = ConfigKey(
    "group.consumer.heartbeat.interval.ms",
    ConfigType.INT,
    5000,
    "How often the members of consumer groups send heartbeats, in milliseconds. It must be at most"
    " group.consumer.session.timeout.ms.",
    at_least(1),
)
GROUP_CONSUMER_MIN_HEARTBEAT_INTERVAL_MS: ConfigKey[int] = ConfigKey(
    "group.consumer.min.heartbeat.interval.ms",
    ConfigType.INT,
    5000,
    "Least value of group.consumer.heartbeat.interval.ms, in milliseconds.",
    at_least(1),
)
GROUP_CONSUMER_MAX_HEARTBEAT_INTERVAL_MS: ConfigKey[int] = ConfigKey(
    "group.consumer.max.heartbeat.interval.ms",
    ConfigType.INT,
    15_000,
    "Greatest value of group.consumer.heartbeat.interval.ms, in milliseconds.",
    at_least(1),
)
GROUP_CONSUMER_MAX_SIZE: ConfigKey[int] = ConfigKey(
    "group.consumer.max.size",
    ConfigType.INT,
    INT_MAX,
    "Largest number of members in a consumer group. Further members are rejected with GROUP_MAX_SIZE_REACHED.",
    at_least(1),
)
GROUP_CONSUMER_ASSIGNORS: ConfigKey[tuple[str, ...]] = ConfigKey(
    "group.consumer.assignors",
    ConfigType.LIST,
    ASSIGNOR_NAMES,
    "The assignors that members of consumer groups may choose: uniform and range. The first one is used by groups whose"
    " members choose none. Classes are not supported.",
    some_of(*ASSIGNOR_NAMES),
)
GROUP_CONSUMER_REGEX_REFRESH_INTERVAL_MS: ConfigKey[int] = ConfigKey(
    "group.consumer.regex.refresh.interval.ms",
    ConfigType.INT,
    600_000,
    "How often the topics of a regular expression are looked up again because permissions may have changed, in"
    " milliseconds. A new or deleted topic is found within 10 seconds.",
    at_least(10_000),
)
GROUP_CONSUMER_ASSIGNMENT_INTERVAL_MS: ConfigKey[int] = ConfigKey(
    "group.consumer.assignment.interval.ms",
    ConfigType.INT,
    1000,
    "Longest time between two computations of a consumer group's assignment while members join and leave, in"
    f" milliseconds. A group of up to {ASSIGNED_AT_ONCE_MAX} members gets a new assignment with each change, a larger"
    " one after a millisecond for each of its members, at most after this time. 0 computes it with each change.",
    at_least(0),
)
GROUP_CONSUMER_REBALANCE_HEARTBEAT_INTERVAL_MS: ConfigKey[int] = ConfigKey(
    "group.consumer.rebalance.heartbeat.interval.ms",
    ConfigType.INT,
    500,
    "How often members of consumer groups send heartbeats after a new assignment, in milliseconds, for as long as"
    " group.consumer.heartbeat.interval.ms: a partition that one member has revoked waits for the next heartbeat of its"
    f" new owner. In large groups {REBALANCE_HEARTBEAT_MS_PER_MEMBER} ms for each member, if that is longer. 0, or"
    " more than the usual interval: no sooner than usual, as in Kafka.",
    at_least(0),
)
GROUP_CONSUMER_MIGRATION_POLICY: ConfigKey[str] = ConfigKey(
    "group.consumer.migration.policy",
    ConfigType.STRING,
    BIDIRECTIONAL,
    "Whether groups with members change their protocol: upgrade, from classic to consumer once a member joins by the"
    " consumer protocol; downgrade, back to classic once the last such member has left; bidirectional, or disabled."
    " A group without members changes it in any case.",
    one_of(DISABLED, UPGRADE, DOWNGRADE, BIDIRECTIONAL),
)


@dataclass(frozen=True, slots=True)
class ConsumerGroupSettings:
    """Settings of groups of the consumer protocol."""

    enabled: bool
    session_timeout_ms: int
    heartbeat_interval_ms: int
    members_max: int
    """In one group."""
    assignors: tuple[str, ...]
    """Those that members may choose; the first is the default."""
    regex_refresh_interval_ms: int
    migration: str = DISABLED
    """DISABLED, UPGRADE, DOWNGRADE or BIDIRECTIONAL."""
    mixed: bool = True
    """Whether members of the classic protocol may join a group of the consumer protocol."""
    assignment_interval_ms: int = 0
    """Longest time between two computations of the assignment of a large group."""
    assigned_at_once_max: int = ASSIGNED_AT_ONCE_MAX
    """A group with more members is a large one."""
    rebalance_heartbeat_interval_ms: int = 0
    """After a new assignment; 0: as always."""

    @property
    def upgrades(self) -> bool:
        return self.migration in (UPGRADE, BIDIRECTIONAL)

    @property
    def downgrades(self) -> bool:
        return self.migration in (DOWNGRADE, BIDIRECTIONAL)


def consumer_group_settings(configs: Configs) -> ConsumerGroupSettings:
    return ConsumerGroupSettings(
        enabled=CONSUMER in configs[GROUP_COORDINATOR_REBALANCE_PROTOCOLS],
        session_timeout_ms=configs[GROUP_CONSUMER_SESSION_TIMEOUT_MS],
        heartbeat_interval_ms=configs[GROUP_CONSUMER_HEARTBEAT_INTERVAL_MS],
        members_max=configs[GROUP_CONSUMER_MAX_SIZE],
        assignors=configs[GROUP_CONSUMER_ASSIGNORS],
        regex_refresh_interval_ms=configs[GROUP_CONSUMER_REGEX_REFRESH_INTERVAL_MS],
        assignment_interval_ms=configs[GROUP_CONSUMER_ASSIGNMENT_INTERVAL_MS],
        rebalance_heartbeat_interval_ms=configs[GROUP_CONSUMER_REBALANCE_HEARTBEAT_INTERVAL_MS],
        migration=configs[GROUP_CONSUMER_MIGRATION_POLICY],
    )
