"""The plan of a batch in the committed offsets of a consumer group, so that it is read again after a crash. Pure.

Before a batch is read, its plan is committed: each of its partitions has the offset at which the batch starts and, as
metadata, the number of the batch and the offset at which it ends: {"batch":7,"end":1234}. When the batch is done, the
end becomes the offset and the metadata is {"batch":7}, the last batch that is done. All partitions are committed in one
transaction, so a group has a whole plan or none. Kafka's tools show the lag of such a group as of any other, and may
reset its offsets: a partition with other metadata is at the committed offset, and belongs to no plan.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from raylog.client.group_offsets import OffsetAndMetadata
from raylog.core.errors import ConfigError, ErrorCode, KafkaError
from raylog.core.ids import TopicPartition
from raylog.raydp_bridge.admission import admit
from raylog.raydp_bridge.offset_ranges import Bounds, Resolved, continue_from
from raylog.raydp_bridge.partition_offsets import PartitionOffsets
from raylog.raydp_bridge.read_options import Limits

BATCH_ID_MAX = (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class BatchPlan:
    """The offsets of one batch: those of `starts` and `ends`, which contain the same partitions."""

    batch_id: int
    starts: PartitionOffsets
    ends: PartitionOffsets

    @property
    def is_empty(self) -> bool:
        return all(end <= self.starts[tp] for tp, end in self.ends.items())

    def announced(self, stored: Mapping[TopicPartition, OffsetAndMetadata]) -> dict[TopicPartition, OffsetAndMetadata]:
        """The offsets to commit before the batch is read, of all its partitions.

        Those without records in this batch too: a group that starts at the latest offset must find the same one after a
        restart, and an offset of a group without members expires offsets.retention.minutes after its own last commit.
        """
        offsets = {}
        for tp, start in self.starts.items():
            if self.ends[tp] > start:
                offsets[tp] = OffsetAndMetadata(start, _text(self.batch_id, self.ends[tp]))
            elif tp in stored and stored[tp].offset == start:
                offsets[tp] = stored[tp]
            else:
                offsets[tp] = OffsetAndMetadata(start, _text(self.batch_id - 1))
        return offsets

    def done(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """The offsets to commit after the batch."""
        text = _text(self.batch_id)
        return {tp: OffsetAndMetadata(end, text) for tp, end in self.ends.items() if end > self.starts[tp]}


@dataclass(frozen=True, slots=True)
class GroupProgress:
    """What the committed offsets of a group say."""

    positions: dict[TopicPartition, int] = field(default_factory=dict)
    next_batch_id: int = 0
    pending: BatchPlan | None = None
    """The batch that was announced and is not done."""

    @classmethod
    def read(cls, stored: Mapping[TopicPartition, OffsetAndMetadata]) -> GroupProgress:
        positions = {tp: each.offset for tp, each in stored.items()}
        ends: dict[TopicPartition, int] = {}
        done, announced = -1, -1
        for tp, each in stored.items():
            batch_id, end = _parse(each.metadata)
            if end is not None and end > each.offset:
                ends[tp] = end
                announced = max(announced, batch_id)
            else:
                done = max(done, batch_id)
        if not ends:
            return cls(positions, done + 1)
        starts = {tp: positions[tp] for tp in ends}
        return cls(positions, announced + 1, BatchPlan(announced, starts, ends))

    def positions_in(self, topics: Collection[str]) -> dict[TopicPartition, int]:
        """Positions in other topics belong to an earlier use of the group."""
        return {tp: offset for tp, offset in self.positions.items() if tp.topic in topics}

    def require_pending_in(self, topics: Collection[str], group_id: str) -> None:
        """Raises ConfigError if the pending batch has records of topics other than the subscribed `topics`."""
        pending = set() if self.pending is None else {tp.topic for tp in self.pending.starts}
        if not pending <= set(topics):
            raise ConfigError(
                f"group {group_id} has a batch of topics {', '.join(sorted(pending))} that is not committed, and the "
                f"stream reads topics {', '.join(sorted(topics))}: commit it with a stream of its topics, or use "
                "another group"
            )


def next_plan(
    progress: GroupProgress,
    first: Resolved,
    bounds: Bounds,
    limits: Limits,
    *,
    topics: Collection[str],
    gone: Collection[TopicPartition] = (),
) -> tuple[BatchPlan, list[str]]:
    """What follows the last batch that is done, which may be empty, and what the group has lost.

    `first` is where a group without offsets of the subscribed `topics` starts. A partition that no longer exists is a
    loss, unless it is one of `gone`, which were reported before: if it exists again it is a new one. Raises KafkaError
    for a topic that does not exist and of which the group has no offsets.
    """
    positions = progress.positions_in(topics)
    missing = set(topics) - {tp.topic for tp in bounds.latest} - {tp.topic for tp in positions}
    if missing:
        names = ", ".join(sorted(missing))
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{names}: does not exist; create it before the read")
    if positions:
        reached = continue_from({tp: offset for tp, offset in positions.items() if tp not in gone}, bounds)
    else:
        reached = first
    starts = reached.offsets
    ends = admit(starts, {tp: max(bounds.latest[tp], starts[tp]) for tp in starts}, limits, waited_ms=0)
    return BatchPlan(progress.next_batch_id, starts, ends), list(reached.losses)


def _text(batch_id: int, end: int | None = None) -> str:
    if batch_id < 0:
        return ""
    fields = {"batch": batch_id} if end is None else {"batch": batch_id, "end": end}
    return json.dumps(fields, separators=(",", ":"))


def _parse(metadata: str) -> tuple[int, int | None]:
    """The number of the batch, -1 if there is none, and its end. Metadata of other programs says neither."""
    try:
        fields = json.loads(metadata)
    except (ValueError, RecursionError):
        return -1, None
    if not isinstance(fields, dict) or not _is_count(fields.get("batch")):
        return -1, None
    end = fields.get("end")
    return fields["batch"], end if _is_count(end) else None


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= BATCH_ID_MAX
