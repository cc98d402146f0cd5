"""Which shard copies which partitions, and where to. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from uuid import UUID

from raylog.core.ids import TopicPartition
from raylog.mirror.config import FlowConfig
from raylog.mirror.planning import remote_topics
from raylog.mirror.progress import shard_of
from raylog.mirror.shard import NO_TOPIC_IDS


@dataclass(slots=True)
class Plan:
    """The partitions of a shard."""

    targets: dict[TopicPartition, TopicPartition] = field(default_factory=dict)
    """Where each partition of the source is copied to."""
    blocked: dict[TopicPartition, str] = field(default_factory=dict)
    """Those that the target has no place for, and why."""
    topic_ids: dict[str, UUID] = field(default_factory=dict)
    """Of the topics of the source, as far as they are known."""


def plan_shards(
    flow: FlowConfig,
    shards: int,
    source: Mapping[str, int],
    target: Mapping[str, int],
    topic_ids: Mapping[str, UUID] = NO_TOPIC_IDS,
) -> tuple[dict[int, Plan], list[str]]:
    """(the plans of the shards that have partitions, the topics that cannot be copied and why).

    `source` and `target` are the partition counts of the topics, `topic_ids` those of the source.
    """
    plans: defaultdict[int, Plan] = defaultdict(Plan)
    remotes, problems = remote_topics(flow, source)
    for topic, remote in remotes.items():
        for partition in range(source[topic]):
            tp = TopicPartition(topic, partition)
            plan = plans[shard_of(tp, shards)]
            plan.targets[tp] = TopicPartition(remote, partition)
            if topic in topic_ids:
                plan.topic_ids[topic] = topic_ids[topic]
            reason = _missing(remote, partition, target.get(remote))
            if reason is not None:
                plan.blocked[tp] = reason
    return dict(plans), list(map(str, problems))


def _missing(remote: str, partition: int, partition_count: int | None) -> str | None:
    """Why the target has no place for a partition; None if it has."""
    if partition_count is None:
        return f"the target has no topic {remote!r}"
    if partition >= partition_count:
        return f"topic {remote!r} of the target has only {partition_count} partitions"
    return None
