"""Copies partitions between the log directories of two stopped clusters, of raylog or Kafka.

A broker accepts a partition directory only if its cluster's metadata has the topic id in it. The topics must therefore
exist in the target cluster; their partitions are replaced, and keep the target's topic ids. partition_copy.py describes
how a log is converted, stopped_log_dir.py the state after a crash.

`plan_transfer` uses only names; `transfer` copies all partitions before it replaces the first.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import ExitStack
from typing import NamedTuple
from uuid import UUID

from raylog.core.errors import ErrorCode, KafkaError
from raylog.core.ids import TopicPartition
from raylog.logstore.disk import Disk
from raylog.logstore.partition_copy import CopiedLog
from raylog.logstore.stopped_log_dir import Fresh, StoppedLogDir

INTERNAL_TOPICS = frozenset({"__cluster_metadata", "__consumer_offsets", "__share_group_state", "__transaction_state"})
"""Internal topics, which refer to topic ids, producer ids and members of their own cluster."""


class Step(NamedTuple):
    """One partition to copy from a log directory to others, one for each replica."""

    topic_partition: TopicPartition
    source: str
    targets: tuple[str, ...]


def plan_transfer(
    sources: Mapping[str, Collection[TopicPartition]],
    targets: Mapping[str, Collection[TopicPartition]],
    *,
    topics: Collection[str] | None,
) -> list[Step]:
    """The partitions to copy. Sources and targets are given as log directory -> partitions. `topics` None means all
    topics except internal ones.

    Raises INVALID_REQUEST if there is nothing to copy, a topic is internal or not in the sources, two sources have the
    same partition, or no target has it.
    """
    found: dict[TopicPartition, str] = {}
    for source, partitions in sources.items():
        for tp in partitions:
            if tp.topic in INTERNAL_TOPICS or (topics is not None and tp.topic not in topics):
                continue
            if tp in found:
                raise _refusal(f"{tp} is both in {found[tp]} and in {source}: specify only one of its replicas")
            found[tp] = source
    for topic in sorted(topics or ()):
        if topic in INTERNAL_TOPICS:
            raise _refusal(f"topic {topic} is internal and cannot be copied to another cluster")
        if all(tp.topic != topic for tp in found):
            raise _refusal(f"topic {topic} is not in {_listed(sources)}")
    if not found:
        raise _refusal(f"{_listed(sources)}: contains no topic to copy")
    steps = []
    for tp, source in sorted(found.items()):
        holders = tuple(path for path, partitions in targets.items() if tp in partitions)
        if not holders:
            count = sum(1 for other in found if other.topic == tp.topic)
            raise _refusal(
                f"{tp} of {source} is not in {_listed(targets)}: start the target cluster, create topic {tp.topic} "
                f"with {count} partition(s), stop it, and try again"
            )
        steps.append(Step(tp, source, holders))
    return steps


def transfer(
    disk: Disk,
    sources: Sequence[str],
    targets: Sequence[str],
    *,
    topics: Collection[str] | None,
    force: bool,
    new_id: Callable[[], UUID],
    now_ms: int,
) -> list[tuple[Step, CopiedLog]]:
    """Copy the partitions and return what was copied, in order. Locks all directories; both clusters must be stopped.

    A partition with records is replaced only with `force`. If it raises before the first partition is replaced, nothing
    has changed: KafkaError like `plan_transfer`, `StoppedLogDir.open` and `copy_log`, and OSError.
    """
    with ExitStack() as stack:
        opened = [stack.enter_context(StoppedLogDir.open(disk, path)) for path in (*sources, *targets)]
        giving = {log_dir.path: log_dir for log_dir in opened[: len(sources)]}
        taking = {log_dir.path: log_dir for log_dir in opened[len(sources) :]}
        steps = plan_transfer(
            {path: log_dir.partitions() for path, log_dir in giving.items()},
            {path: log_dir.partitions() for path, log_dir in taking.items()},
            topics=topics,
        )
        for step in steps:
            for path in step.targets:
                if not force and taking[path].holds_records(step.topic_partition):
                    where = taking[path].path_of(step.topic_partition)
                    raise _refusal(f"{where} contains records, which would be lost; use --force to replace them")
        copies: dict[str, list[Fresh]] = {path: [] for path in taking}
        carried = []
        try:
            for step in steps:
                for path in step.targets:
                    fresh = taking[path].take_copy(
                        step.topic_partition, giving[step.source], new_id=new_id, now_ms=now_ms
                    )
                    copies[path].append(fresh)
                carried.append((step, copies[step.targets[0]][-1].log))
        except (OSError, KafkaError):
            for path, made in copies.items():
                for fresh in made:
                    taking[path].discard(fresh)
            raise
        for path, made in copies.items():
            if made:
                taking[path].replace(made)
        return carried


def _listed(paths: Collection[str]) -> str:
    return ", ".join(paths)


def _refusal(what: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, what)
