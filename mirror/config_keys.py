"""The keys of MirrorMaker 2's mm2.properties that a flow uses, with the defaults of Kafka 4.1."""

from __future__ import annotations

from typing import Any, Final

from raylog.core.config import ConfigKey, ConfigSchema, ConfigType, at_least, between, one_of

DEFAULT_POLICY: Final = "org.apache.kafka.connect.mirror.DefaultReplicationPolicy"
IDENTITY_POLICY: Final = "org.apache.kafka.connect.mirror.IdentityReplicationPolicy"
SECONDS_MAX: Final = 10_000_000_000
"""Of an interval: 300 years."""
ACTORS_MAX: Final = 1_000
REPLICATION_FACTOR_MAX: Final = (1 << 15) - 1
BROKER_DEFAULT: Final = -1


def _flag(name: str, default: bool, doc: str) -> ConfigKey[bool]:
    return ConfigKey(name, ConfigType.BOOLEAN, default, doc)


def _seconds(name: str, default: int, doc: str) -> ConfigKey[int]:
    return ConfigKey(f"{name}.interval.seconds", ConfigType.LONG, default, doc, between(1, SECONDS_MAX))


def _patterns(name: str, default: tuple[str, ...], doc: str) -> ConfigKey[tuple[str, ...]]:
    return ConfigKey(name, ConfigType.LIST, default, doc)


def _replicas(name: str, default: int, doc: str) -> ConfigKey[int]:
    check = between(1, REPLICATION_FACTOR_MAX, special=BROKER_DEFAULT)
    return ConfigKey(name, ConfigType.INT, default, f"{doc}; -1: the default of the brokers.", check)


ENABLED = _flag("enabled", False, "Whether records are copied from the source to the target.")
TOPICS = _patterns("topics", (".*",), "Topics to copy: names and regular expressions.")
TOPICS_EXCLUDE = _patterns(
    "topics.exclude",
    (r"mm2.*\.internal", r".*\.replica", "__.*"),
    "Topics that are not copied, even if `topics` matches: names and regular expressions.",
)
GROUPS = _patterns("groups", (".*",), "Consumer groups whose offsets are translated: names and regular expressions.")
GROUPS_EXCLUDE = _patterns(
    "groups.exclude",
    ("console-consumer-.*", "connect-.*", "__.*"),
    "Groups whose offsets are not translated, even if `groups` matches: names and regular expressions.",
)
CONFIG_PROPERTIES_EXCLUDE = _patterns(
    "config.properties.exclude",
    (
        r"follower\.replication\.throttled\.replicas",
        r"leader\.replication\.throttled\.replicas",
        r"message\.timestamp\.difference\.max\.ms",
        r"message\.timestamp\.type",
        r"unclean\.leader\.election\.enable",
        r"min\.insync\.replicas",
    ),
    "Keys of topics that are not copied: names and regular expressions.",
)
USE_DEFAULTS_FROM: ConfigKey[str] = ConfigKey(
    "use.defaults.from",
    ConfigType.STRING,
    "target",
    "For keys that a source topic does not set itself: target leaves them to the target's defaults, source sets the"
    " value in force in the source.",
    one_of("source", "target"),
)
REPLICATION_POLICY_CLASS: ConfigKey[str] = ConfigKey(
    "replication.policy.class",
    ConfigType.STRING,
    DEFAULT_POLICY,
    "How remote topics are named: DefaultReplicationPolicy (<source>.<topic>), IdentityReplicationPolicy (the same"
    " name), or <module>:<function> of a Python function that is called with the source's alias and the topic.",
)
REPLICATION_POLICY_SEPARATOR: ConfigKey[str] = ConfigKey(
    "replication.policy.separator",
    ConfigType.STRING,
    ".",
    "Between the alias of the source and the topic in the name of a remote topic.",
    lambda text: None if text and all(c.isascii() and (c.isalnum() or c in "._-") for c in text) else _SEPARATOR_RULE,
)
_SEPARATOR_RULE: Final = "must be characters that a topic's name may have: a-z, A-Z, 0-9, '.', '_' and '-'"
INTERNAL_TOPIC_SEPARATOR_ENABLED = _flag(
    "replication.policy.internal.topic.separator.enabled",
    True,
    "Whether the names of MirrorMaker's internal topics use replication.policy.separator; else a dot.",
)
REPLICATION_FACTOR = _replicas("replication.factor", 2, "Replication factor of new remote topics")
OFFSET_SYNCS_TOPIC_REPLICATION_FACTOR = _replicas(
    "offset-syncs.topic.replication.factor", 3, "Replication factor of the topic of offset syncs"
)
CHECKPOINTS_TOPIC_REPLICATION_FACTOR = _replicas(
    "checkpoints.topic.replication.factor", 3, "Replication factor of the topic of checkpoints"
)
HEARTBEATS_TOPIC_REPLICATION_FACTOR = _replicas(
    "heartbeats.topic.replication.factor", 3, "Replication factor of the topic of heartbeats"
)
OFFSET_SYNCS_TOPIC_LOCATION: ConfigKey[str] = ConfigKey(
    "offset-syncs.topic.location",
    ConfigType.STRING,
    "source",
    "The cluster in which the topic of offset syncs is.",
    one_of("source", "target"),
)
OFFSET_LAG_MAX: ConfigKey[int] = ConfigKey(
    "offset.lag.max",
    ConfigType.LONG,
    100,
    "How many records of a partition are copied at most between two offset syncs.",
    at_least(0),
)
TASKS_MAX: ConfigKey[int] = ConfigKey(
    "tasks.max", ConfigType.INT, 1, "How many mirror actors share a flow's partitions.", between(1, ACTORS_MAX)
)
EXACTLY_ONCE_SOURCE_SUPPORT: ConfigKey[str] = ConfigKey(
    "exactly.once.source.support",
    ConfigType.STRING,
    "disabled",
    "enabled: records and progress are written in one transaction. disabled: at least once. preparing: as disabled,"
    " since there is no cluster of workers to be prepared.",
    one_of("disabled", "preparing", "enabled"),
)
CONSUMER_POLL_TIMEOUT_MS: ConfigKey[int] = ConfigKey(
    "consumer.poll.timeout.ms", ConfigType.LONG, 1_000, "Longest wait for records of the source.", at_least(0)
)
ADMIN_TIMEOUT_MS: ConfigKey[int] = ConfigKey(
    "admin.timeout.ms", ConfigType.LONG, 60_000, "Longest time of a task such as finding new topics.", at_least(1)
)
REFRESH_TOPICS = _flag("refresh.topics.enabled", True, "Whether new topics and partitions are looked for.")
REFRESH_TOPICS_SECONDS = _seconds("refresh.topics", 600, "How often, in seconds.")
REFRESH_GROUPS = _flag("refresh.groups.enabled", True, "Whether new consumer groups are looked for.")
REFRESH_GROUPS_SECONDS = _seconds("refresh.groups", 600, "How often, in seconds.")
SYNC_TOPIC_CONFIGS = _flag("sync.topic.configs.enabled", True, "Whether configurations of topics are copied.")
SYNC_TOPIC_CONFIGS_SECONDS = _seconds("sync.topic.configs", 600, "How often, in seconds.")
SYNC_TOPIC_ACLS = _flag("sync.topic.acls.enabled", True, "Whether ACLs of topics are copied.")
SYNC_TOPIC_ACLS_SECONDS = _seconds("sync.topic.acls", 600, "How often, in seconds.")
SYNC_GROUP_OFFSETS = _flag(
    "sync.group.offsets.enabled",
    False,
    "Whether translated offsets are committed for groups that are idle in the target.",
)
SYNC_GROUP_OFFSETS_SECONDS = _seconds("sync.group.offsets", 60, "How often, in seconds.")
EMIT_HEARTBEATS = _flag(
    "emit.heartbeats.enabled", True, "Whether heartbeats are written to the target, even of a flow that is not enabled."
)
EMIT_HEARTBEATS_SECONDS = _seconds("emit.heartbeats", 1, "How often, in seconds.")
EMIT_CHECKPOINTS = _flag("emit.checkpoints.enabled", True, "Whether checkpoints are written to the target.")
EMIT_CHECKPOINTS_SECONDS = _seconds("emit.checkpoints", 60, "How often, in seconds.")
EMIT_OFFSET_SYNCS = _flag(
    "emit.offset-syncs.enabled", True, "Whether offset syncs are written. Without them no offset is translated."
)
HEARTBEATS_REPLICATION = _flag(
    "heartbeats.replication.enabled", True, "Whether topics of heartbeats are copied even if `topics` does not match."
)

FLOW_KEYS: Final[tuple[ConfigKey[Any], ...]] = (
    ENABLED,
    TOPICS,
    TOPICS_EXCLUDE,
    GROUPS,
    GROUPS_EXCLUDE,
    CONFIG_PROPERTIES_EXCLUDE,
    USE_DEFAULTS_FROM,
    REPLICATION_POLICY_CLASS,
    REPLICATION_POLICY_SEPARATOR,
    INTERNAL_TOPIC_SEPARATOR_ENABLED,
    REPLICATION_FACTOR,
    OFFSET_SYNCS_TOPIC_REPLICATION_FACTOR,
    CHECKPOINTS_TOPIC_REPLICATION_FACTOR,
    HEARTBEATS_TOPIC_REPLICATION_FACTOR,
    OFFSET_SYNCS_TOPIC_LOCATION,
    OFFSET_LAG_MAX,
    TASKS_MAX,
    EXACTLY_ONCE_SOURCE_SUPPORT,
    CONSUMER_POLL_TIMEOUT_MS,
    ADMIN_TIMEOUT_MS,
    REFRESH_TOPICS,
    REFRESH_TOPICS_SECONDS,
    REFRESH_GROUPS,
    REFRESH_GROUPS_SECONDS,
    SYNC_TOPIC_CONFIGS,
    SYNC_TOPIC_CONFIGS_SECONDS,
    SYNC_TOPIC_ACLS,
    SYNC_TOPIC_ACLS_SECONDS,
    SYNC_GROUP_OFFSETS,
    SYNC_GROUP_OFFSETS_SECONDS,
    EMIT_HEARTBEATS,
    EMIT_HEARTBEATS_SECONDS,
    EMIT_CHECKPOINTS,
    EMIT_CHECKPOINTS_SECONDS,
    EMIT_OFFSET_SYNCS,
    HEARTBEATS_REPLICATION,
)
FLOW_CONFIG: Final = ConfigSchema(FLOW_KEYS)
"""Each may stand at the top of the file, for all flows, or behind `<source>-><target>.`, for one."""
