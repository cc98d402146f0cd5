"""(shell) What the control of a flow reads from its two clusters, and the offsets of groups that it commits there."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol, TypeVar

from raylog.client.admin.admin_client import AdminClient
from raylog.client.admin.partitions import OffsetSpec
from raylog.client.errors import AdminError
from raylog.client.group_offsets import OffsetAndMetadata
from raylog.core.errors import ErrorCode, KafkaError
from raylog.core.ids import TopicPartition
from raylog.mirror.config import FlowConfig
from raylog.mirror.formats import Checkpoint, MirrorRecord, OffsetSync
from raylog.mirror.offset_translation import OffsetSyncStore
from raylog.mirror.planning import Checkpoints, Problem, has_members, plan_group_offsets

log = logging.getLogger("raylog.mirror")
T = TypeVar("T")


class Tail(Protocol):
    """Reads an internal topic from its beginning on."""

    def read(self) -> Sequence[MirrorRecord]:
        """All that is there and was not read before. Raises KafkaError."""

    def close(self) -> None: ...


class Clients(Protocol):
    """What the control of a flow needs of its clusters."""

    @property
    def source(self) -> AdminClient: ...

    @property
    def target(self) -> AdminClient: ...

    def write(self, topic: str, records: Sequence[MirrorRecord], now_ms: int) -> None:
        """To partition 0 of a topic of the target; returns when all are acknowledged. Raises KafkaError."""

    def open_tail(self, topic: str, *, in_source: bool) -> Tail:
        """Raises KafkaError."""


def open_offset_syncs(flow: FlowConfig, clients: Clients) -> Tail:
    """Raises KafkaError."""
    return clients.open_tail(flow.offset_syncs_topic, in_source=flow.offset_syncs_in_source)


def read_offset_syncs(tail: Tail, into: OffsetSyncStore) -> None:
    """Raises KafkaError; the tail is closed then."""
    for record in _read(tail):
        if (sync := _decoded(OffsetSync.decode, record)) is not None:
            into.add(sync)
    into.loaded()


def read_checkpoints(flow: FlowConfig, clients: Clients) -> dict[str, dict[TopicPartition, Checkpoint]]:
    """The last ones of the flow, by group. Raises KafkaError."""
    found: dict[str, dict[TopicPartition, Checkpoint]] = {}
    tail = clients.open_tail(flow.checkpoints_topic, in_source=False)
    for record in _read(tail):
        if (checkpoint := _decoded(Checkpoint.decode, record)) is not None:
            found.setdefault(checkpoint.group, {})[checkpoint.tp] = checkpoint
    tail.close()
    return found


GroupOffsets = dict[str, Mapping[TopicPartition, OffsetAndMetadata | None]]


def group_offsets(admin: AdminClient, groups: Iterable[str]) -> tuple[GroupOffsets, list[Problem]]:
    """Committed, by group. Raises KafkaError if the cluster cannot be reached."""
    found: GroupOffsets = {}
    problems = []
    for group in groups:
        try:
            found[group] = admin.list_consumer_group_offsets(group)
        except KafkaError as error:
            if error.code.retriable:
                raise
            problems.append(Problem(f"group {group}", str(error)))
    return found, problems


def commit_group_offsets(
    admin: AdminClient, checkpoints: Mapping[str, Checkpoints], *, dry_run: bool = False, reports_members: bool = False
) -> tuple[dict[str, Mapping[TopicPartition, OffsetAndMetadata]], list[Problem]]:
    """Commit the offsets of the checkpoints for the groups that are idle in this cluster, and only forward.

    Returns what was committed, or with `dry_run` would be, and the problems. With `reports_members` a group that is not
    idle is one. Raises KafkaError.
    """
    committed: dict[str, Mapping[TopicPartition, OffsetAndMetadata]] = {}
    problems = list[Problem]()
    described, failed = (
        partial_results(lambda: admin.describe_consumer_groups(checkpoints)) if checkpoints else ({}, {})
    )
    ends = partition_ends(admin, (tp for found in checkpoints.values() for tp in found))
    for group, found in checkpoints.items():
        error = failed.get(group)
        if error is not None and error.code is not ErrorCode.GROUP_ID_NOT_FOUND:
            problems.append(Problem(f"group {group}", str(error)))
            continue
        state = None if error is not None else described[group].state
        if reports_members and has_members(state):
            reason = f"has members there (state {state}): its offsets are not moved"
            problems.append(Problem(f"group {group}", reason))
            continue
        try:
            present = admin.list_consumer_group_offsets(group, list(found))
            wanted = plan_group_offsets(found, state, present, ends)
            if wanted and not dry_run:
                admin.alter_consumer_group_offsets(group, wanted)
        except KafkaError as refused:  # a consumer may have joined in between
            problems.append(Problem(f"group {group}", str(refused)))
        else:
            committed[group] = wanted
    return committed, problems


def partition_ends(admin: AdminClient, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
    """Of those that exist. Raises KafkaError."""
    wanted = dict.fromkeys(partitions, OffsetSpec.LATEST)
    found, _ = partial_results(lambda: admin.list_offsets(wanted)) if wanted else ({}, {})
    return {tp: each.offset for tp, each in found.items()}


def partial_results(call: Callable[[], Mapping[Any, T]]) -> tuple[Mapping[Any, T], Mapping[Any, KafkaError]]:
    """The results of an operation and its errors, by item. Raises KafkaError if it failed as a whole."""
    try:
        return call(), {}
    except AdminError as error:
        if not error.errors:
            raise
        return error.results, error.errors


def _read(tail: Tail) -> Sequence[MirrorRecord]:
    """Raises KafkaError; the tail is closed then."""
    try:
        return tail.read()
    except KafkaError:
        tail.close()
        raise


def _decoded(decode: Callable[[bytes, bytes], T], record: MirrorRecord) -> T | None:
    """None for a record that is not MirrorMaker's: it is left out."""
    try:
        return decode(record.key, record.value)
    except KafkaError as error:
        log.warning("record of a mirror left out", extra={"reason": error.message})
        return None
