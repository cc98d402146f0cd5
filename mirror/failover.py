"""(shell) Moves consumer groups from the source of a flow to its target, and back, and says what is lost by that.

A failover commits the translated offsets of idle groups in the target: at once and once, where the control of a flow
does it every minute. It works without the source; then the checkpoints in the target are what is known. A failback
translates the offsets that the groups have reached in the copies back to the topics of the source. Both only move
offsets forward, and never beyond what the syncs tell. They copy no records, and move no producers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from raylog.client.admin.async_admin_client import AsyncAdminClient
from raylog.client.group_offsets import OffsetAndMetadata
from raylog.core.errors import ErrorCode, KafkaError
from raylog.core.ids import TopicPartition
from raylog.mirror.cluster_reads import (
    Clients,
    commit_group_offsets,
    group_offsets,
    open_offset_syncs,
    partition_ends,
    read_checkpoints,
    read_offset_syncs,
)
from raylog.mirror.config import FlowConfig
from raylog.mirror.formats import Checkpoint
from raylog.mirror.named_errors import naming
from raylog.mirror.offset_translation import OffsetSyncStore
from raylog.mirror.planning import Problem, plan_checkpoints, remote_topics, translated
from raylog.mirror.progress import FlowId
from raylog.mirror.progress_topic import partition_count, read_progress

NOT_KNOWN: Final = "no translation is known: the group begins where auto.offset.reset leads"


@dataclass(frozen=True, slots=True)
class Uncopied:
    """The end of a partition of the source."""

    topic: str
    partition: int
    copied: int
    """Up to this offset, exclusive."""
    source_end: int | None
    """None if the source does not respond."""

    @property
    def missing(self) -> int | None:
        """Offsets that are not copied: records, markers of transactions, and what was aborted."""
        return None if self.source_end is None else max(0, self.source_end - self.copied)


@dataclass(frozen=True, slots=True)
class Move:
    """A group's offset that is committed where the group goes."""

    group: str
    topic: str
    partition: int
    offset: int


@dataclass(slots=True)
class Report:
    uncopied: list[Uncopied] = field(default_factory=list)
    """How far each partition is copied to where the groups go. What is missing there is lost to them, for the time."""
    moves: list[Move] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)


def fail_over(flow: FlowConfig, clients: Clients, *, dry_run: bool) -> Report:
    """Move the groups to the target. Raises KafkaError if the target does not respond."""
    report = Report()
    checkpoints = _existing(flow, clients)
    progress = asyncio.run(_read_all_progress(flow))
    ends: Mapping[TopicPartition, int] = {}
    try:
        _add_latest(flow, clients, checkpoints, report)
        ends = partition_ends(clients.source, progress)
    except KafkaError as error:
        reason = f"{error}: what it has not copied yet is lost, and is not known"
        report.problems.append(Problem(f"the source {flow.source.alias}", reason))
    report.uncopied = _uncopied(progress, ends)
    chosen = {group: found for group, found in checkpoints.items() if group in flow.groups}
    _commit(report, commit_group_offsets(clients.target, chosen, dry_run=dry_run, reports_members=True))
    return report


def fail_back(flow: FlowConfig, reverse: FlowConfig | None, clients: Clients, *, dry_run: bool) -> Report:
    """Move the groups that were moved to the target back to the source. `reverse` is the flow from there to it.

    Raises KafkaError if one of the clusters does not respond.
    """
    report = Report()
    syncs = OffsetSyncStore()
    tail = open_offset_syncs(flow, clients)
    read_offset_syncs(tail, syncs)
    tail.close()
    remotes, _ = remote_topics(flow, [each.name for each in clients.source.list_topics()])
    origins = {remote: topic for topic, remote in remotes.items()}
    groups = [each.group_id for each in clients.target.list_consumer_groups() if each.group_id in flow.groups]
    reached, report.problems = group_offsets(clients.target, groups)
    if reverse is None:
        reason = f"there is no flow from it to {flow.source.alias}: what was produced there stays there"
        report.problems.append(Problem(flow.target.alias, reason))
    else:
        progress = asyncio.run(_read_all_progress(reverse))
        report.uncopied = _uncopied(progress, partition_ends(clients.target, progress))
    back = {group: _back(group, origins, offsets, syncs, report) for group, offsets in reached.items()}
    chosen = {group: found for group, found in back.items() if found}
    _commit(report, commit_group_offsets(clients.source, chosen, dry_run=dry_run, reports_members=True))
    return report


def _uncopied(progress: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]) -> list[Uncopied]:
    return [Uncopied(*tp, copied, ends.get(tp)) for tp, copied in sorted(progress.items())]


def _existing(flow: FlowConfig, clients: Clients) -> dict[str, dict[TopicPartition, Checkpoint]]:
    """Raises KafkaError."""
    if flow.checkpoints_topic not in {each.name for each in clients.target.list_topics()}:
        return {}
    return read_checkpoints(flow, clients)


def _add_latest(
    flow: FlowConfig, clients: Clients, checkpoints: dict[str, dict[TopicPartition, Checkpoint]], report: Report
) -> None:
    """What the source tells beyond the checkpoints. Raises KafkaError."""
    remotes, _ = remote_topics(flow, [each.name for each in clients.source.list_topics()])
    groups = [each.group_id for each in clients.source.list_consumer_groups() if each.group_id in flow.groups]
    committed, problems = group_offsets(clients.source, groups)
    report.problems += problems
    syncs = OffsetSyncStore()
    tail = open_offset_syncs(flow, clients)
    read_offset_syncs(tail, syncs)
    tail.close()
    for group, offsets in committed.items():
        found = translated(group, remotes, offsets, syncs)
        known = checkpoints.setdefault(group, {})
        chosen, refused = plan_checkpoints(found, known, partition_ends(clients.target, found))
        known |= {each.tp: each for each in chosen}
        report.problems += refused
        for tp, offset in offsets.items():
            remote = remotes.get(tp.topic)
            if offset is not None and remote is not None and TopicPartition(remote, tp.partition) not in known:
                report.problems.append(Problem(f"group {group}, {tp}", NOT_KNOWN))


def _back(
    group: str,
    origins: Mapping[str, str],
    reached: Mapping[TopicPartition, OffsetAndMetadata | None],
    syncs: OffsetSyncStore,
    report: Report,
) -> dict[TopicPartition, Checkpoint]:
    """The group's offsets in the source, by partition there."""
    found = {}
    for tp, offset in reached.items():
        topic = origins.get(tp.topic)
        if offset is None or topic is None:
            continue
        origin = TopicPartition(topic, tp.partition)
        there = syncs.translate_back(origin, offset.offset)
        if there is None:
            reason = "no translation is known: the group goes on at the offset that it has in the source"
            report.problems.append(Problem(f"group {group}, {origin}", reason))
        else:
            found[origin] = Checkpoint(group, origin, offset.offset, there, offset.metadata)
    return found


def _commit(
    report: Report, done: tuple[Mapping[str, Mapping[TopicPartition, OffsetAndMetadata]], list[Problem]]
) -> None:
    moved, problems = done
    report.moves = [
        Move(group, *tp, offset.offset) for group in sorted(moved) for tp, offset in sorted(moved[group].items())
    ]
    report.problems += problems


async def _read_all_progress(flow: FlowConfig) -> dict[TopicPartition, int]:
    """Of all shards. Raises KafkaError, UNKNOWN_TOPIC_OR_PARTITION for a flow that has copied nothing."""
    flow_id = FlowId(flow.source.alias, flow.target.alias)
    with naming(flow.target.alias):
        async with AsyncAdminClient(flow.target.admin) as admin:
            shards = await partition_count(admin, flow_id.progress_topic)
            if shards is None:
                text = f"{flow_id.progress_topic}: not in the target: the flow {flow.name} has copied nothing"
                raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, text)
            found = [await read_progress(admin, flow.target.consumer, flow_id, number) for number in range(shards)]
    return {tp: each.next_offset for progress in found for tp, each in progress.items()}
