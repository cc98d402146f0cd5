"""Carries partitions from the log directories of one stopped cluster into those of another, raylog's or Kafka's.

A broker takes a partition directory only when its cluster's metadata knows the topic id in it. So the topics must exist
on the receiving side: their partitions are replaced, and keep the receiver's topic ids. How a log is made fit for
another cluster is told in partition_copy.py, what a crash may leave in stopped_log_dir.py.

`plan_transfer` decides from names alone; `transfer` copies everything, and only then replaces anything.
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
"""They speak of their own cluster: of its topic ids, producer ids and members."""


class Step(NamedTuple):
    """One partition to be carried: from this log directory into these, of which there is one for each replica."""

    topic_partition: TopicPartition
    source: str
    targets: tuple[str, ...]


def plan_transfer(
    sources: Mapping[str, Collection[TopicPartition]],
    targets: Mapping[str, Collection[TopicPartition]],
    *,
    topics: Collection[str] | None,
) -> list[Step]:
    """What to carry; both sides are given as log directory -> partitions in it. `topics` None: all but internal ones.

    Raises INVALID_REQUEST when there is nothing to carry, when a topic is internal or not in the sources, when two
    sources have the same partition, and when no target has it.
    """
    found: dict[TopicPartition, str] = {}
    for source, partitions in sources.items():
        for tp in partitions:
            if tp.topic in INTERNAL_TOPICS or (topics is not None and tp.topic not in topics):
                continue
            if tp in found:
                raise _refusal(f"{tp} is both in {found[tp]} and in {source}: name one of its replicas only")
            found[tp] = source
    for topic in sorted(topics or ()):
        if topic in INTERNAL_TOPICS:
            raise _refusal(f"topic {topic} is internal: it speaks of its own cluster and cannot be carried")
        if all(tp.topic != topic for tp in found):
            raise _refusal(f"topic {topic} is not in {_listed(sources)}")
    if not found:
        raise _refusal(f"{_listed(sources)}: no topic is there to carry")
    steps = []
    for tp, source in sorted(found.items()):
        holders = tuple(path for path, partitions in targets.items() if tp in partitions)
        if not holders:
            count = sum(1 for other in found if other.topic == tp.topic)
            raise _refusal(
                f"{tp} of {source} is not in {_listed(targets)}: start the receiving cluster, create topic {tp.topic} "
                f"with {count} partition(s), stop it, and begin again"
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
    """What was carried, in order. Locks every directory; both sides must be stopped, and cleanly.

    A partition that holds records is replaced only with `force`. When this raises, before the first partition is
    replaced, everything is as it was: KafkaError as `plan_transfer`, `StoppedLogDir.open` and `copy_log` do; OSError.
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
                    raise _refusal(f"{where} holds records: they would be lost; --force replaces them")
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
