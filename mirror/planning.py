"""What a flow changes in its target so that it follows the source: decided from what is found in both clusters.

The rules are MirrorMaker 2's. Nothing is ever removed from the target: topics, partitions and ACLs that are gone from
the source stay. Only keys of topics that the source does not set any more are set back to the target's defaults.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from raylog.client.admin.configs import ConfigEntry
from raylog.client.admin.topics import NewTopic
from raylog.client.group_offsets import OffsetAndMetadata
from raylog.core.config import ConfigSource
from raylog.core.errors import ConfigError
from raylog.core.ids import TopicPartition
from raylog.mirror.config import FlowConfig
from raylog.mirror.formats import PARTITIONS, TOPIC_CONFIGS, Checkpoint
from raylog.mirror.offset_translation import OffsetSyncStore
from raylog.mirror.policies import HEARTBEATS
from raylog.security.acl import WILDCARD, AclBinding, Operation, PatternType, Permission, ResourceType

EMPTY: Final = "Empty"
"""The state of a group without members."""
_DEFAULTS: Final = (ConfigSource.DEFAULT_CONFIG, ConfigSource.STATIC_BROKER_CONFIG)


class Problem(NamedTuple):
    """What a flow cannot do, and why; all else goes on."""

    subject: str
    reason: str

    def __str__(self) -> str:
        return f"{self.subject}: {self.reason}"


def internal_topics(flow: FlowConfig) -> tuple[list[NewTopic], list[NewTopic]]:
    """MirrorMaker's topics that the flow needs in its source and in its target, as MirrorMaker creates them."""
    in_source, in_target = list[NewTopic](), list[NewTopic]()
    if flow.emit_heartbeats_ms is not None:
        in_target.append(_internal(HEARTBEATS, flow.heartbeats_replication_factor))
    if flow.enabled and flow.emit_checkpoints_ms is not None:
        in_target.append(_internal(flow.checkpoints_topic, flow.checkpoints_replication_factor))
    if flow.enabled and flow.emit_offset_syncs:
        where = in_source if flow.offset_syncs_in_source else in_target
        where.append(_internal(flow.offset_syncs_topic, flow.offset_syncs_replication_factor))
    return in_source, in_target


def _internal(name: str, replication_factor: int) -> NewTopic:
    return NewTopic(name, PARTITIONS, replication_factor, configs=TOPIC_CONFIGS)


def remote_topics(flow: FlowConfig, topics: Iterable[str]) -> tuple[dict[str, str], list[Problem]]:
    """The names in the target of those topics of the source that are copied, by their names in the source.

    A topic whose name is not possible, or is that of another topic's copy, is not copied.
    """
    remotes: dict[str, str] = {}
    taken: dict[str, str] = {}
    problems = []
    for topic in sorted(topics):
        if not flow.copies_topic(topic):
            continue
        try:
            remote = flow.remote_topic(topic)
        except ConfigError as error:
            problems.append(Problem(f"topic {topic}", error.message))
            continue
        if remote in taken:
            problems.append(Problem(f"topic {topic}", f"not copied: {remote} is already the copy of {taken[remote]}"))
            continue
        taken[remote] = topic
        remotes[topic] = remote
    return remotes, problems


@dataclass(frozen=True, slots=True)
class TopicPlan:
    """Remote topics that are missing or have too few partitions."""

    missing: dict[str, int]
    """Topics of the source whose copies do not exist, with their partitions."""
    growing: dict[str, int]
    """Remote topics, with the partitions that they shall have."""


def plan_topics(remotes: Mapping[str, str], source: Mapping[str, int], target: Mapping[str, int]) -> TopicPlan:
    """`source` and `target` are the topics found there, with their numbers of partitions."""
    found = {topic: target.get(remote) for topic, remote in remotes.items()}
    return TopicPlan(
        {topic: source[topic] for topic, partitions in found.items() if partitions is None},
        {
            remotes[topic]: source[topic]
            for topic, partitions in found.items()
            if partitions is not None and partitions < source[topic]
        },
    )


def new_topic(
    flow: FlowConfig, remote: str, partitions: int, entries: Mapping[str, ConfigEntry], known: Collection[str] | None
) -> NewTopic:
    """A remote topic with the configuration of its source. `known` are the keys that the target has, if known."""
    wanted = wanted_configs(flow, entries)
    configs = {name: value for name, value in wanted.items() if value is not None and (known is None or name in known)}
    return NewTopic(remote, partitions, flow.replication_factor, configs=configs)


def wanted_configs(flow: FlowConfig, entries: Mapping[str, ConfigEntry]) -> dict[str, str | None]:
    """The values that a remote topic shall have; None for the target's default. Excluded keys are left out.

    Values in the files of the source's brokers count as defaults; those that brokers were given at run time do not.
    """
    return {
        name: None if entry.source in _DEFAULTS and not flow.defaults_of_source else entry.value
        for name, entry in entries.items()
        if not entry.is_read_only
        and not entry.is_sensitive
        and entry.value is not None
        and name not in flow.excluded_configs
    }


def plan_configs(
    wanted: Mapping[str, str | None], found: Mapping[str, ConfigEntry]
) -> tuple[dict[str, str | None], list[str]]:
    """The keys of a remote topic to set, or to set back (None); and those wanted ones that the target does not have."""
    changes: dict[str, str | None] = {}
    unknown = []
    for name, value in wanted.items():
        entry = found.get(name)
        if entry is None:
            unknown += [name] if value is not None else []
        elif entry.is_own if value is None else entry.value != value:
            changes[name] = value
    return changes, unknown


def plan_acls(
    flow: FlowConfig, remotes: Mapping[str, str], source: Iterable[AclBinding], target: Collection[AclBinding]
) -> list[AclBinding]:
    """The entries to add for remote topics: those of the source's topics by name, but not the right to write.

    ALLOW WRITE is left out, and ALLOW ALL becomes ALLOW READ, since only the mirror writes to remote topics.
    """
    found = set(target)
    wanted = dict.fromkeys(
        _of_remote(binding, remotes[binding.resource_name])
        for binding in source
        if binding.resource_type is ResourceType.TOPIC
        and binding.pattern_type is PatternType.LITERAL
        and binding.resource_name != WILDCARD
        and binding.resource_name in remotes
        and (binding.permission, binding.operation) != (Permission.ALLOW, Operation.WRITE)
    )
    return [binding for binding in wanted if binding not in found]


def _of_remote(binding: AclBinding, remote: str) -> AclBinding:
    allows_all = (binding.permission, binding.operation) == (Permission.ALLOW, Operation.ALL)
    return replace(binding, resource_name=remote, operation=Operation.READ if allows_all else binding.operation)


Checkpoints = Mapping[TopicPartition, Checkpoint]
"""Of one group, by partition of the target."""


def translated(
    group: str,
    remotes: Mapping[str, str],
    committed: Mapping[TopicPartition, OffsetAndMetadata | None],
    syncs: OffsetSyncStore,
) -> dict[TopicPartition, Checkpoint]:
    """A group's offsets in the target, by partition there, as far as they are known."""
    found: dict[TopicPartition, Checkpoint] = {}
    for tp, offset in committed.items():
        if offset is None or offset.offset < 0 or tp.topic not in remotes:
            continue
        downstream = syncs.translate(tp, offset.offset)
        if downstream is not None:
            remote = TopicPartition(remotes[tp.topic], tp.partition)
            found[remote] = Checkpoint(group, remote, offset.offset, downstream, offset.metadata)
    return found


def plan_checkpoints(
    candidates: Checkpoints, last: Checkpoints, ends: Mapping[TopicPartition, int]
) -> tuple[list[Checkpoint], list[Problem]]:
    """The checkpoints to write: where the group moved on in the target, or went back in the source.

    An offset beyond the end of the remote partition is not written: the topic was created again, and the offset belongs
    to the one before. Nor is one of a partition without a known end.
    """
    chosen, problems = [], []
    for tp, checkpoint in candidates.items():
        end = ends.get(tp)
        if end is None or checkpoint.downstream_offset > end:
            reason = f"offset {checkpoint.downstream_offset} is not within the copied records (end {end}): not used"
            problems.append(Problem(f"group {checkpoint.group}, {tp}", reason))
        elif _is_more_recent(checkpoint, last.get(tp)):
            chosen.append(checkpoint)
    return chosen, problems


def _is_more_recent(checkpoint: Checkpoint, last: Checkpoint | None) -> bool:
    if last is None or checkpoint.upstream_offset < last.upstream_offset:
        return True
    return checkpoint.downstream_offset > last.downstream_offset


def has_members(state: str | None) -> bool:
    """Of a group in this state; None if it does not exist."""
    return state not in (None, EMPTY)


def plan_group_offsets(
    checkpoints: Checkpoints,
    state: str | None,
    committed: Mapping[TopicPartition, OffsetAndMetadata | None],
    ends: Mapping[TopicPartition, int],
) -> dict[TopicPartition, OffsetAndMetadata]:
    """The offsets to commit for a group of the target: only while it has no members, and only forward.

    `state` is that of the group in the target, None if it does not exist there.
    """
    if has_members(state):
        return {}
    wanted = {}
    for tp, checkpoint in checkpoints.items():
        present = committed.get(tp)
        is_ahead = present is None or present.offset < checkpoint.downstream_offset
        if is_ahead and checkpoint.downstream_offset <= ends.get(tp, -1):
            wanted[tp] = OffsetAndMetadata(checkpoint.downstream_offset, checkpoint.metadata)
    return wanted
