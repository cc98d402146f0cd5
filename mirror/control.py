"""(shell) What a flow does besides copying records: topics, configurations, ACLs, heartbeats and groups' offsets.

    with ControlClients(flow) as clients:
        control = FlowControl(flow, clients, now_ms)
        while running:
            next_ms = control.run_due(now_ms)   # does what is due, and says when to call it again

One `FlowControl` for each pair of `MirrorConfig.pairs`, in one thread. What to do is decided in `planning.py`; this
finds out how things are and carries plans out. A task that fails is reported in `status`, and tried again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from raylog.client.admin.admin_client import AdminClient
from raylog.client.admin.configs import ConfigEntry, ConfigResource, ConfigResourceType
from raylog.client.admin.topics import NewTopic
from raylog.core.errors import ErrorCode, KafkaError
from raylog.core.ids import TopicPartition
from raylog.mirror.cluster_reads import (
    Clients,
    Tail,
    commit_group_offsets,
    group_offsets,
    open_offset_syncs,
    partial_results,
    partition_ends,
    read_checkpoints,
    read_offset_syncs,
)
from raylog.mirror.config import FlowConfig
from raylog.mirror.formats import Checkpoint, Heartbeat
from raylog.mirror.named_errors import naming
from raylog.mirror.offset_translation import OffsetSyncStore
from raylog.mirror.planning import (
    Problem,
    internal_topics,
    new_topic,
    plan_acls,
    plan_checkpoints,
    plan_configs,
    plan_topics,
    remote_topics,
    translated,
    wanted_configs,
)
from raylog.mirror.policies import HEARTBEATS
from raylog.mirror.schedule import Schedule
from raylog.mirror.spread import SpreadWindow
from raylog.security.acl import AclBinding, AclFilter, ResourceType

log = logging.getLogger("raylog.mirror")
LATENCY_WINDOW_MS: Final = 600_000
PROBLEMS_KEPT: Final = 100
"""Of each task."""

INTERNAL_TOPICS: Final = "internal topics"
TOPICS: Final = "topics"
CONFIGS: Final = "topic configs"
ACLS: Final = "topic ACLs"
BEAT: Final = "heartbeats"
GROUPS: Final = "groups"
CHECKPOINTS: Final = "checkpoints"
GROUP_OFFSETS: Final = "group offsets"


@dataclass(slots=True)
class TaskStatus:
    """Of one task, for `raylog mirror status`."""

    runs: int = 0
    last_success_ms: int | None = None
    last_error: str | None = None
    """Of the last run; None if that succeeded."""
    last_error_ms: int | None = None
    problems: list[Problem] = field(default_factory=list)
    """What the last run left out, and why."""


class FlowControl:
    """Not thread-safe."""

    def __init__(
        self, flow: FlowConfig, clients: Clients, now_ms: int, *, clock: Callable[[], int] | None = None
    ) -> None:
        """`clock` tells how long a checkpoint took, in milliseconds; without one that is not known."""
        self.flow = flow
        self._clock = clock
        self.latencies: dict[tuple[str, TopicPartition], SpreadWindow] = {}
        """Of the checkpoints of each group and partition of the target."""
        self.remotes: dict[str, str] = {}
        """The topics that are copied, with their names in the target."""
        self.partitions: dict[str, int] = {}
        """Of each of these topics in the source."""
        self.groups: tuple[str, ...] = ()
        """Those whose offsets are translated."""
        self._clients = clients
        self._syncs: tuple[Tail, OffsetSyncStore] | None = None
        self._target_is_ready = False
        """Whether the target has the internal topics: a producer would have the brokers create them, not compacted."""
        self._checkpoints: dict[str, dict[TopicPartition, Checkpoint]] | None = None
        """The last ones, by group; None before they were read."""
        self._tasks: dict[str, Callable[[int], Iterable[Problem]]] = self._tasks_of(flow)
        self.status = {name: TaskStatus() for name in self._tasks}
        self._schedule = Schedule({name: self._interval_of(name) for name in self._tasks}, now_ms)

    def run_due(self, now_ms: int, stopping: Callable[[], bool] = lambda: False) -> int | None:
        """Run the tasks that are due, each once, until `stopping`.

        Returns when to call it again; None if there is nothing more to do.
        """
        for name, task in self._tasks.items():
            if self._schedule.is_due(name, now_ms) and not stopping():
                self._run(name, task, now_ms)
        return self._schedule.next_ms()

    def _run(self, name: str, task: Callable[[int], Iterable[Problem]], now_ms: int) -> None:
        status = self.status[name]
        status.runs += 1
        try:
            status.problems = list(task(now_ms))[:PROBLEMS_KEPT]
        except KafkaError as error:
            status.last_error, status.last_error_ms = str(error), now_ms
            log.warning("mirror task failed", extra={"flow": self.flow.name, "task": name, "reason": str(error)})
            self._schedule.ran(name, now_ms, failed=True)
        else:
            status.last_error, status.last_success_ms = None, now_ms
            self._schedule.ran(name, now_ms, failed=False)

    def _tasks_of(self, flow: FlowConfig) -> dict[str, Callable[[int], Iterable[Problem]]]:
        """In the order in which they run: later ones use what earlier ones have found."""
        tasks: dict[str, Callable[[int], Iterable[Problem]]] = {INTERNAL_TOPICS: self._create_internal_topics}
        if flow.emit_heartbeats_ms is not None:
            tasks[BEAT] = self._beat
        if not flow.enabled:
            return tasks
        tasks[TOPICS] = self._refresh_topics
        if flow.sync_topic_configs_ms is not None:
            tasks[CONFIGS] = self._sync_configs
        if flow.sync_topic_acls_ms is not None:
            tasks[ACLS] = self._sync_acls
        if flow.emit_checkpoints_ms is not None or flow.sync_group_offsets_ms is not None:
            tasks[GROUPS] = self._refresh_groups
            tasks[CHECKPOINTS] = self._translate
        if flow.sync_group_offsets_ms is not None:
            tasks[GROUP_OFFSETS] = self._commit
        return tasks

    def _interval_of(self, name: str) -> int | None:
        flow = self.flow
        intervals = {
            TOPICS: flow.refresh_topics_ms,
            CONFIGS: flow.sync_topic_configs_ms,
            ACLS: flow.sync_topic_acls_ms,
            BEAT: flow.emit_heartbeats_ms,
            GROUPS: flow.refresh_groups_ms,
            CHECKPOINTS: flow.emit_checkpoints_ms or flow.sync_group_offsets_ms,
            GROUP_OFFSETS: flow.sync_group_offsets_ms,
        }
        return intervals.get(name)

    # ---- topics

    def _create_internal_topics(self, _: int) -> Iterable[Problem]:
        """Raises KafkaError if one of them cannot be created."""
        in_source, in_target = internal_topics(self.flow)
        with naming(self.flow.target.alias):
            _create_missing(self._clients.target, in_target)
        self._target_is_ready = True
        with naming(self.flow.source.alias):
            _create_missing(self._clients.source, in_source)
        return ()

    def _refresh_topics(self, _: int) -> Iterable[Problem]:
        source, target = self._clients.source, self._clients.target
        names = [each.name for each in source.list_topics() if self.flow.copies_topic(each.name)]
        described = source.describe_topics(names) if names else {}
        self.remotes, problems = remote_topics(self.flow, described)
        self.partitions = {name: len(described[name].partitions) for name in self.remotes}
        copies = set(self.remotes.values())
        present = [each.name for each in target.list_topics() if each.name in copies]
        found = (
            {name: len(each.partitions) for name, each in target.describe_topics(present).items()} if present else {}
        )
        plan = plan_topics(self.remotes, self.partitions, found)
        if plan.missing:
            entries = _configs(source, plan.missing)
            known = self._known_keys()
            made = [
                new_topic(self.flow, self.remotes[name], count, entries.get(name, {}), known)
                for name, count in plan.missing.items()
            ]
            problems += _create(target, made)
        if plan.growing:
            refused = partial_results(lambda: target.create_partitions(plan.growing))[1]
            problems += [Problem(f"topic {name}", str(error)) for name, error in refused.items()]
        return problems

    def _known_keys(self) -> set[str] | None:
        """The keys of topics that the target has, as one of our topics there shows."""
        _, ours = internal_topics(self.flow)
        found = _configs(self._clients.target, [each.name for each in ours[:1]])
        return {name for entries in found.values() for name in entries} or None

    def _sync_configs(self, _: int) -> Iterable[Problem]:
        problems = []
        found = _configs(self._clients.target, self.remotes.values())
        changes: dict[ConfigResource, Mapping[str, Any]] = {}
        for name, entries in _configs(self._clients.source, self.remotes).items():
            remote = self.remotes[name]
            if remote not in found:
                continue
            changed, unknown = plan_configs(wanted_configs(self.flow, entries), found[remote])
            if changed:
                changes[ConfigResource(ConfigResourceType.TOPIC, remote)] = changed
            if unknown:
                problems.append(Problem(f"topic {remote}", f"the target does not have {', '.join(sorted(unknown))}"))
        if changes:
            refused = partial_results(lambda: self._clients.target.incremental_alter_configs(changes))[1]
            problems += [Problem(f"topic {resource.name}", str(error)) for resource, error in refused.items()]
        return problems

    def _sync_acls(self, _: int) -> Iterable[Problem]:
        source, target = _acls_of_topics(self._clients.source), _acls_of_topics(self._clients.target)
        missing = plan_acls(self.flow, self.remotes, source or (), target or ())
        if missing and target is None:
            return [Problem("ACLs", f"the target has no authorizer: {len(missing)} ACLs are not copied")]
        if missing:
            self._clients.target.create_acls(missing)
        return ()

    # ---- heartbeats and offsets

    def _beat(self, now_ms: int) -> Iterable[Problem]:
        if not self._target_is_ready:
            return [Problem(HEARTBEATS, "not written: the topic is not created yet")]
        heartbeat = Heartbeat(self.flow.source.alias, self.flow.target.alias, now_ms)
        self._clients.write(HEARTBEATS, [heartbeat.encode()], now_ms)
        return ()

    def _refresh_groups(self, _: int) -> Iterable[Problem]:
        listed = self._clients.source.list_consumer_groups()
        self.groups = tuple(each.group_id for each in listed if each.group_id in self.flow.groups)
        if self._checkpoints is not None:
            self._checkpoints = {group: found for group, found in self._checkpoints.items() if group in self.groups}
        self.latencies = {key: window for key, window in self.latencies.items() if key[0] in self.groups}
        return ()

    def _translate(self, now_ms: int) -> Iterable[Problem]:
        """Follow the groups of the source, and write checkpoints for what has changed."""
        began_ms = None if self._clock is None else self._clock()
        committed, problems = group_offsets(self._clients.source, self.groups)
        if self.status[GROUPS].last_success_ms is None or self.status[INTERNAL_TOPICS].last_success_ms is None:
            return problems  # a cluster is out of reach, and reading from it would take long
        syncs, last = self._read_syncs(), self._read_checkpoints()
        candidates = {group: translated(group, self.remotes, offsets, syncs) for group, offsets in committed.items()}
        ends = partition_ends(self._clients.target, (tp for found in candidates.values() for tp in found))
        chosen = []
        for group, found in candidates.items():
            more_recent, refused = plan_checkpoints(found, last.get(group, {}), ends)
            chosen += more_recent
            problems += refused
        if chosen and self.flow.emit_checkpoints_ms is not None:
            self._clients.write(self.flow.checkpoints_topic, [each.encode() for each in chosen], now_ms)
            self._time(chosen, began_ms)
        for each in chosen:
            last.setdefault(each.group, {})[each.tp] = each
        return problems

    def _time(self, written: Iterable[Checkpoint], began_ms: int | None) -> None:
        if self._clock is None or began_ms is None:
            return
        now_ms = self._clock()
        for each in written:
            window = self.latencies.setdefault((each.group, each.tp), SpreadWindow(LATENCY_WINDOW_MS))
            window.add(now_ms - began_ms, 1, now_ms)

    def _commit(self, _: int) -> Iterable[Problem]:
        """Commit translated offsets for the groups of the source that are idle in the target."""
        checkpoints = {group: found for group, found in (self._checkpoints or {}).items() if group in self.groups}
        return commit_group_offsets(self._clients.target, checkpoints)[1]

    def _read_syncs(self) -> OffsetSyncStore:
        """Raises KafkaError; all is read again then."""
        known, self._syncs = self._syncs, None
        tail, store = known or (open_offset_syncs(self.flow, self._clients), OffsetSyncStore())
        read_offset_syncs(tail, store)
        self._syncs = (tail, store)
        return store

    def _read_checkpoints(self) -> dict[str, dict[TopicPartition, Checkpoint]]:
        """Those that were written before this process. Raises KafkaError."""
        if self._checkpoints is None:
            emits = self.flow.emit_checkpoints_ms is not None
            self._checkpoints = read_checkpoints(self.flow, self._clients) if emits else {}
        return self._checkpoints


def _create_missing(admin: AdminClient, topics: Sequence[NewTopic]) -> None:
    """Raises KafkaError."""
    if topics:
        present = {each.name for each in admin.list_topics()}
        for problem in _create(admin, [topic for topic in topics if topic.name not in present]):
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{problem.subject}: not created: {problem.reason}")


def _create(admin: AdminClient, topics: Sequence[NewTopic]) -> list[Problem]:
    """Another worker may create the same topics at the same time."""
    _, refused = partial_results(lambda: admin.create_topics(topics)) if topics else ({}, {})
    return [
        Problem(f"topic {name}", str(error))
        for name, error in refused.items()
        if error.code is not ErrorCode.TOPIC_ALREADY_EXISTS
    ]


def _configs(admin: AdminClient, topics: Iterable[str]) -> dict[str, Mapping[str, ConfigEntry]]:
    """Of those topics that exist."""
    resources = [ConfigResource(ConfigResourceType.TOPIC, name) for name in topics]
    found, _ = partial_results(lambda: admin.describe_configs(resources)) if resources else ({}, {})
    return {resource.name: entries for resource, entries in found.items()}


def _acls_of_topics(admin: AdminClient) -> list[AclBinding] | None:
    """None if the cluster has no authorizer. Raises KafkaError."""
    try:
        return admin.describe_acls(AclFilter(resource_type=ResourceType.TOPIC))
    except KafkaError as error:
        if error.code is ErrorCode.SECURITY_DISABLED:
            return None
        raise
