"""MirrorMaker 2's mm2.properties, read into one `FlowConfig` for each flow of records between two clusters.

The file names clusters by aliases, says how each is reached (`<alias>.bootstrap.servers`, `<alias>.security.protocol`),
and which flows there are (`<source>-><target>.enabled`). A flow's key stands behind `<source>-><target>.`, or at the
top of the file for all flows. What has no counterpart in raylog is kept as a note; what would change the copied
records, such as a transformation in Java, is an error.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from importlib import import_module
from typing import Any, Final, NamedTuple

from raylog.config.properties import parse_properties
from raylog.core.config import Configs, ConfigSource, Layer, shown, shown_name
from raylog.core.errors import ConfigError
from raylog.mirror import config_keys as keys
from raylog.mirror.cluster_ends import ClusterEnd, cluster_end, has_client_prefix
from raylog.mirror.loops import by_origin, ways_of_others
from raylog.mirror.policies import IdentityPolicy, NameFilter, RenamingPolicy, ReplicationPolicy
from raylog.mirror.renaming import Rename

CLUSTERS: Final = "clusters"
CLUSTERS_MAX: Final = 50
ARROW: Final = "->"
_ALIAS: Final = re.compile(r"[a-zA-Z0-9._-]{1,100}")
_FUNCTION: Final = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*")
_PACKAGE: Final = "org.apache.kafka.connect."
_CLASSES: Final = {
    "topic.filter.class": f"{_PACKAGE}mirror.DefaultTopicFilter",
    "group.filter.class": f"{_PACKAGE}mirror.DefaultGroupFilter",
    "config.property.filter.class": f"{_PACKAGE}mirror.DefaultConfigPropertyFilter",
    "forwarding.admin.class": "org.apache.kafka.clients.admin.ForwardingAdmin",
    "key.converter": f"{_PACKAGE}converters.ByteArrayConverter",
    "value.converter": f"{_PACKAGE}converters.ByteArrayConverter",
    "header.converter": f"{_PACKAGE}converters.ByteArrayConverter",
}
"""The one Java class that each of these keys may name: what it does is built in."""
_REFUSED: Final = {
    "transforms": "copied records are not transformed",
    "predicates": "copied records are not transformed",
    "config.providers": "write the values into the file",
}
_RENAMED: Final = {
    "topics.blacklist": "topics.exclude",
    "groups.blacklist": "groups.exclude",
    "config.properties.blacklist": "config.properties.exclude",
}
_MERGED: Final = "in a loop of flows with equal names a topic has the records of each cluster in another order"
_OF_WORKERS: Final = re.compile(
    r"(offset|config|status)\.storage\..+|offset\.flush\..+|rest\..+|listeners(\..+)?|admin\.listeners.*|access\.control\..+"
    r"|dedicated\.mode\..+|plugin\..+|group\.id|client\.id|(session|rebalance|worker|task)\..+|heartbeat\.interval\.ms"
    r"|metric\.reporters|metrics\..+|name|connector\.(class|plugin\.version)|errors\..+|config\.action\.reload"
    r"|(key|value|header)\.converter\..+|tasks\.max\.enforce|topic\.creation\..+|(source|target)\.cluster\.alias"
    r"|add\.source\.alias\.to\.metrics|use\.incremental\.alter\.configs|connector\.client\.config\.override\.policy"
)


class Note(NamedTuple):
    """A key of the file without effect, and why."""

    key: str
    reason: str

    def __str__(self) -> str:
        return f"{shown_name(self.key)}: {self.reason}"


@dataclass(frozen=True, slots=True)
class FlowConfig:
    """What is copied from one cluster to another, and how. An interval of None: never."""

    source: ClusterEnd
    target: ClusterEnd
    enabled: bool
    """False: the flow copies nothing, and only writes heartbeats to its target, as MirrorMaker does for the reverse of
    each flow."""
    policy: ReplicationPolicy
    topics: NameFilter
    groups: NameFilter
    excluded_configs: NameFilter
    """Contains the keys of topics that are not copied."""
    defaults_of_source: bool
    replication_factor: int
    offset_syncs_replication_factor: int
    checkpoints_replication_factor: int
    heartbeats_replication_factor: int
    offset_syncs_in_source: bool
    offset_lag_max: int
    tasks_max: int
    exactly_once: bool
    consumer_poll_timeout_ms: int
    admin_timeout_ms: int
    refresh_topics_ms: int | None
    refresh_groups_ms: int | None
    sync_topic_configs_ms: int | None
    sync_topic_acls_ms: int | None
    sync_group_offsets_ms: int | None
    emit_heartbeats_ms: int | None
    emit_checkpoints_ms: int | None
    emit_offset_syncs: bool
    copy_heartbeats: bool
    by_origin: bool = False
    """Whether the records of each cluster are copied by producers of their own, since they could come back or twice."""
    others: tuple[tuple[ClusterEnd, bool], ...] = ()
    """Of such a flow, the other clusters of the loop, and whether it passes on their records."""

    @property
    def name(self) -> str:
        return f"{self.source.alias}{ARROW}{self.target.alias}"

    def copies_topic(self, topic: str) -> bool:
        """Whether a topic of the source is copied: chosen, not internal, and not from the target."""
        chosen = topic in self.topics or (self.copy_heartbeats and self.policy.is_heartbeats(topic))
        return chosen and not self.policy.is_internal(topic) and not self.policy.is_cycle(topic, self.target.alias)

    @property
    def keeps_names(self) -> bool:
        """Whether the names of copies do not tell where they come from."""
        return not self.policy.names_source

    def remote_topic(self, topic: str) -> str:
        """The name in the target of a topic of the source. Raises ConfigError."""
        return self.policy.remote_topic(self.source.alias, topic)

    @property
    def offset_syncs_topic(self) -> str:
        """In the source or the target, as `offset_syncs_in_source` says."""
        other = self.target if self.offset_syncs_in_source else self.source
        return self.policy.offset_syncs_topic(other.alias)

    @property
    def checkpoints_topic(self) -> str:
        """In the target."""
        return self.policy.checkpoints_topic(self.source.alias)


@dataclass(frozen=True, slots=True)
class MirrorConfig:
    """A whole file."""

    clusters: tuple[str, ...]
    pairs: tuple[FlowConfig, ...]
    """The flows that copy, and those that only write heartbeats."""
    notes: tuple[Note, ...]
    """The keys without effect."""

    @property
    def flows(self) -> tuple[FlowConfig, ...]:
        """Those that copy."""
        return tuple(pair for pair in self.pairs if pair.enabled)


def parse_mirror_config(text: str, *, rename: Rename | None = None) -> MirrorConfig:
    """The content of mm2.properties. Raises ConfigError."""
    return mirror_config(parse_properties(text), rename=rename)


def mirror_config(properties: Mapping[str, str], *, rename: Rename | None = None) -> MirrorConfig:
    """The entries of mm2.properties. `rename` names remote topics in place of replication.policy.class.

    Raises ConfigError that names the key, its value and the rule.
    """
    aliases = _aliases(properties)
    sections = _Sections(dict(properties), aliases)
    sections.check()
    pairs = [
        pair
        for source in aliases
        for target in aliases
        if source != target and (pair := _flow(sections, source, target, rename)) is not None
    ]
    pairs = _told_by_origin(pairs, sections)
    if not any(pair.enabled for pair in pairs):
        sections.note(CLUSTERS, "no flow is enabled: set <source>-><target>.enabled=true")
    sections.note_unused()
    return MirrorConfig(aliases, tuple(pairs), tuple(sections.notes))


def _told_by_origin(pairs: list[FlowConfig], sections: _Sections) -> list[FlowConfig]:
    """With what flows need to know of each other whose names do not tell the source. Raises ConfigError."""
    keeping = {(pair.source.alias, pair.target.alias): pair for pair in pairs if pair.enabled and pair.keeps_names}
    ends = {pair.source.alias: pair.source for pair in keeping.values()}
    chosen = by_origin(keeping)
    for edge, flow in keeping.items():
        if edge not in chosen:
            continue
        if flow.sync_group_offsets_ms is not None:
            raise ConfigError(f"{flow.name}.{keys.SYNC_GROUP_OFFSETS.name}=true: must be false: {_MERGED}")
        sections.note(f"{flow.name}.{keys.EMIT_CHECKPOINTS.name}", f"false, and no offset syncs: {_MERGED}")
        sections.note(f"{flow.name}.{keys.SYNC_TOPIC_CONFIGS.name}", "false: flows of a loop would undo changes")
    return [
        replace(
            pair,
            by_origin=True,
            others=tuple((ends[alias], passes) for alias, passes in ways_of_others(keeping, edge).items()),
            emit_offset_syncs=False,
            emit_checkpoints_ms=None,
            sync_topic_configs_ms=None,
        )
        if (edge := (pair.source.alias, pair.target.alias)) in chosen
        else pair
        for pair in pairs
    ]


class _Sections:
    """The entries by what they belong to, with the ones that were used."""

    def __init__(self, entries: dict[str, str], aliases: tuple[str, ...]) -> None:
        self.entries = entries
        self.aliases = aliases
        self.notes: list[Note] = []
        self._noted: set[str] = set()
        self._used = {CLUSTERS}

    def note(self, key: str, reason: str) -> None:
        if key not in self._noted:
            self._noted.add(key)
            self.notes.append(Note(key, reason))

    def under(self, prefix: str) -> dict[str, str]:
        """The entries behind a prefix, without it. They are not counted as used."""
        return {name.removeprefix(prefix): text for name, text in self.entries.items() if name.startswith(prefix)}

    def use(self, name: str) -> str | None:
        """The text of an entry, which counts as used."""
        self._used.add(name)
        return self.entries.get(name)

    def pairs(self) -> Iterator[tuple[str, str]]:
        return ((source, target) for source in self.aliases for target in self.aliases if source != target)

    def check(self) -> None:
        """Raises ConfigError for what cannot be read as MirrorMaker reads it."""
        prefixes = tuple(f"{source}{ARROW}{target}." for source, target in self.pairs())
        for name, text in self.entries.items():
            if ARROW in name and not name.startswith(prefixes):
                raise ConfigError(f"{shown_name(name)}: must begin with <source>-><target>., two of `{CLUSTERS}`")
            _check_classes(name, self.bare(name), text)

    def bare(self, name: str) -> str:
        """The name without the flow or the cluster in front."""
        if ARROW in name:
            source, _, rest = name.partition(ARROW)
            target = max((a for a in self.aliases if rest.startswith(f"{a}.")), key=len, default="")
            return name.removeprefix(f"{source}{ARROW}{target}.")
        alias = max((a for a in self.aliases if name.startswith(f"{a}.")), key=len, default=None)
        return name if alias is None else name.removeprefix(f"{alias}.")

    def note_unused(self) -> None:
        for name in self.entries:
            if name in self._used:
                continue
            bare = self.bare(name)
            if bare in _RENAMED:
                self.note(name, f"no longer a key of MirrorMaker: use {_RENAMED[bare]}")
            elif bare in _CLASSES:
                pass
            elif _OF_WORKERS.fullmatch(bare):
                self.note(name, "of Connect's workers and connectors, which raylog does not have")
            elif bare in keys.FLOW_CONFIG.keys:
                self.note(name, "not used here: write it at the top, or behind <source>-><target>.")
            else:
                self.note(name, "unknown")


def _aliases(properties: Mapping[str, str]) -> tuple[str, ...]:
    """Raises ConfigError."""
    aliases = tuple(part.strip() for part in properties.get(CLUSTERS, "").split(",") if part.strip())
    if not aliases:
        raise ConfigError(f"{CLUSTERS}: must be set to the aliases of the clusters, such as {CLUSTERS}=east, west")
    if len(aliases) > CLUSTERS_MAX:
        raise ConfigError(f"{CLUSTERS}: has {len(aliases)} aliases: must be at most {CLUSTERS_MAX}")
    for alias in aliases:
        if not _ALIAS.fullmatch(alias):
            raise ConfigError(f"{CLUSTERS}={shown(alias)}: must be 1 to 100 characters of a-z, A-Z, 0-9, '.', '_', '-'")
        if aliases.count(alias) > 1:
            raise ConfigError(f"{CLUSTERS}={shown(alias)}: must be named once")
    return aliases


def _check_classes(name: str, bare: str, text: str) -> None:
    """Raises ConfigError for Java classes of others and for what would change records."""
    if bare in _REFUSED and text.strip():
        raise ConfigError(f"{shown_name(name)}={shown(text)}: not supported: {_REFUSED[bare]}")
    known = _CLASSES.get(bare)
    if known is not None and text.strip() not in (known, known.rpartition(".")[2]):
        raise ConfigError(f"{shown_name(name)}={shown(text)}: unknown Java class: must be {known}")
    is_class = has_client_prefix(bare) and bare.endswith((".class", ".classes"))
    if is_class and text.strip() and not bare.endswith(".partitioner.class"):
        raise ConfigError(f"{shown_name(name)}={shown(text)}: unknown Java class: remove the key")


def _flow(sections: _Sections, source: str, target: str, rename: Rename | None) -> FlowConfig | None:
    """None for two clusters between which nothing is done. Raises ConfigError."""
    configs = _flow_configs(sections, source, target)
    every = _interval(configs)
    heartbeats_ms = every(keys.EMIT_HEARTBEATS, keys.EMIT_HEARTBEATS_SECONDS)
    enabled = configs[keys.ENABLED]
    if not enabled and heartbeats_ms is None:
        return None
    name = f"{source}{ARROW}{target}"
    if not configs[keys.EMIT_OFFSET_SYNCS] and (configs[keys.EMIT_CHECKPOINTS] or configs[keys.SYNC_GROUP_OFFSETS]):
        rule = "must be true if emit.checkpoints.enabled or sync.group.offsets.enabled is"
        raise ConfigError(f"{name}.{keys.EMIT_OFFSET_SYNCS.name}=false: {rule}")
    if configs[keys.EXACTLY_ONCE_SOURCE_SUPPORT] == "preparing":
        sections.note(f"{name}.{keys.EXACTLY_ONCE_SOURCE_SUPPORT.name}", "preparing is the same as disabled")
    return FlowConfig(
        source=cluster_end(sections, name, "source", source),
        target=cluster_end(sections, name, "target", target),
        enabled=enabled,
        policy=_policy(configs, source, target, rename),
        topics=_filter(configs, keys.TOPICS, keys.TOPICS_EXCLUDE),
        groups=_filter(configs, keys.GROUPS, keys.GROUPS_EXCLUDE),
        excluded_configs=_filter(configs, keys.CONFIG_PROPERTIES_EXCLUDE, None),
        defaults_of_source=configs[keys.USE_DEFAULTS_FROM] == "source",
        replication_factor=configs[keys.REPLICATION_FACTOR],
        offset_syncs_replication_factor=configs[keys.OFFSET_SYNCS_TOPIC_REPLICATION_FACTOR],
        checkpoints_replication_factor=configs[keys.CHECKPOINTS_TOPIC_REPLICATION_FACTOR],
        heartbeats_replication_factor=configs[keys.HEARTBEATS_TOPIC_REPLICATION_FACTOR],
        offset_syncs_in_source=configs[keys.OFFSET_SYNCS_TOPIC_LOCATION] == "source",
        offset_lag_max=configs[keys.OFFSET_LAG_MAX],
        tasks_max=configs[keys.TASKS_MAX],
        exactly_once=configs[keys.EXACTLY_ONCE_SOURCE_SUPPORT] == "enabled",
        consumer_poll_timeout_ms=configs[keys.CONSUMER_POLL_TIMEOUT_MS],
        admin_timeout_ms=configs[keys.ADMIN_TIMEOUT_MS],
        refresh_topics_ms=every(keys.REFRESH_TOPICS, keys.REFRESH_TOPICS_SECONDS),
        refresh_groups_ms=every(keys.REFRESH_GROUPS, keys.REFRESH_GROUPS_SECONDS),
        sync_topic_configs_ms=every(keys.SYNC_TOPIC_CONFIGS, keys.SYNC_TOPIC_CONFIGS_SECONDS),
        sync_topic_acls_ms=every(keys.SYNC_TOPIC_ACLS, keys.SYNC_TOPIC_ACLS_SECONDS),
        sync_group_offsets_ms=every(keys.SYNC_GROUP_OFFSETS, keys.SYNC_GROUP_OFFSETS_SECONDS),
        emit_heartbeats_ms=heartbeats_ms,
        emit_checkpoints_ms=every(keys.EMIT_CHECKPOINTS, keys.EMIT_CHECKPOINTS_SECONDS),
        emit_offset_syncs=configs[keys.EMIT_OFFSET_SYNCS],
        copy_heartbeats=configs[keys.HEARTBEATS_REPLICATION],
    )


def _flow_configs(sections: _Sections, source: str, target: str) -> Configs:
    """The flow's own values, then for exactly.once.source.support the target's, then those of all flows."""
    values: dict[str, Any] = {}
    for key in keys.FLOW_KEYS:
        places = [f"{source}{ARROW}{target}.{key.name}"]
        if key is keys.EXACTLY_ONCE_SOURCE_SUPPORT:
            places.append(f"{target}.{key.name}")
        if key is not keys.ENABLED:
            places.append(key.name)
        for name in reversed(places):
            text = sections.use(name)
            if text is not None:
                values[key.name] = replace(key, name=name).parse(text)
    return Configs(keys.FLOW_CONFIG, [Layer(ConfigSource.STATIC_BROKER_CONFIG, values)])


def _interval(configs: Configs) -> Any:
    """Milliseconds of the key of seconds, or None where the key before it is false."""
    return lambda enabled, seconds: 1000 * configs[seconds] if configs[enabled] else None


def _filter(configs: Configs, include: Any, exclude: Any) -> NameFilter:
    """Raises ConfigError."""
    try:
        return NameFilter.of(configs[include], () if exclude is None else configs[exclude])
    except ConfigError as error:
        names = include.name if exclude is None else f"{include.name}, {exclude.name}"
        raise ConfigError(f"{names}: {error.message}") from None


def _policy(configs: Configs, source: str, target: str, rename: Rename | None) -> ReplicationPolicy:
    """Raises ConfigError."""
    separator = configs[keys.REPLICATION_POLICY_SEPARATOR]
    internal = separator if configs[keys.INTERNAL_TOPIC_SEPARATOR_ENABLED] else "."
    name = configs[keys.REPLICATION_POLICY_CLASS]
    if rename is not None:
        return RenamingPolicy(separator, internal, rename)
    if name in (keys.IDENTITY_POLICY, keys.IDENTITY_POLICY.rpartition(".")[2]):
        return IdentityPolicy(separator, internal, source)
    if _FUNCTION.fullmatch(name):
        return RenamingPolicy(separator, internal, _function(name))
    if name not in (keys.DEFAULT_POLICY, keys.DEFAULT_POLICY.rpartition(".")[2]):
        rule = f"must be {keys.DEFAULT_POLICY}, {keys.IDENTITY_POLICY} or <module>:<function> of Python"
        raise keys.REPLICATION_POLICY_CLASS.refused(name, f"unknown Java class: {rule}")
    for alias in (source, target):
        if separator in alias:
            rule = f"must not contain replication.policy.separator, {shown(separator)}: cycles are found by the names"
            raise ConfigError(f"{CLUSTERS}={shown(alias)}: {rule}")
    return ReplicationPolicy(separator, internal)


def _function(name: str) -> Rename:
    """Raises ConfigError."""
    module, _, attribute = name.partition(":")
    try:
        found = getattr(import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        raise keys.REPLICATION_POLICY_CLASS.refused(name, f"cannot be imported: {error}") from None
    if not callable(found):
        raise keys.REPLICATION_POLICY_CLASS.refused(name, "must be a function")
    return found  # type: ignore[no-any-return]
