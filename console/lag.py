"""How far groups are behind, and where their offsets go when they are reset. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

from raylog.client.admin.all_groups import GroupOffset
from raylog.client.admin.groups import SHARE, GroupDescription
from raylog.core.errors import ErrorCode, KafkaError
from raylog.core.ids import TopicPartition

SPARK_PREFIX: Final = "spark-"
"""raylog's sources for Spark commit the positions of a query to the group `spark-<query id>`, for display only."""
EARLIEST, LATEST, OFFSET, TIME, SHIFT = "earliest", "latest", "offset", "time", "shift"
WAYS: Final = {name: name for name in (EARLIEST, LATEST, OFFSET, TIME, SHIFT)}

Bounds = Mapping[TopicPartition, tuple[int, int]]
"""The first offset and the end of each partition."""


class Lag(NamedTuple):
    """The lag of a group in one partition; None where something is not known."""

    committed: int | None
    end: int | None
    counted: int | None = None
    """By the broker."""

    @property
    def records(self) -> int | None:
        """Never negative: the end may be from before the commit."""
        if self.counted is not None:
            return self.counted
        if self.committed is None or self.end is None:
            return None
        return max(0, self.end - self.committed)


def lags(
    offsets: Mapping[TopicPartition, GroupOffset],
    ends: Mapping[TopicPartition, int],
    owned: Iterable[TopicPartition] = (),
) -> dict[TopicPartition, Lag]:
    """Of every partition in which the group stands somewhere, and of those that its members own."""
    found = {}
    for tp in sorted({*offsets, *owned}):
        offset, counted = offsets.get(tp) or (None, None)
        found[tp] = Lag(offset, ends.get(tp), counted)
    return found


def total(found: Mapping[TopicPartition, Lag]) -> int:
    return sum(each.records or 0 for each in found.values())


def group_row(group: GroupDescription, found: Mapping[TopicPartition, Lag]) -> dict[str, Any]:
    """A group with its members, and what each partition is behind."""
    owners = {tp: member.member_id for member in group.members for tp in member.partitions}
    if group.type == SHARE:  # its members read the same partitions
        owners = {}
    return {
        "group": group.group_id,
        "state": group.state,
        "type": group.type,
        "protocol": group.protocol,
        "epoch": group.group_epoch,
        "lag": total(found),
        "members": [
            {
                "id": each.member_id,
                "instance_id": each.group_instance_id,
                "client_id": each.client_id,
                "host": each.host,
                "partitions": len(each.partitions),
                "tasks": None if each.tasks is None else {kind: len(tasks) for kind, tasks in each.tasks.items()},
            }
            for each in group.members
        ],
        "partitions": [
            {
                "topic": tp.topic,
                "partition": tp.partition,
                "committed": each.committed,
                "end": each.end,
                "lag": each.records,
                "member": owners.get(tp),
            }
            for tp, each in found.items()
        ],
    }


def new_offsets(
    way: str,
    at: int,
    bounds: Bounds,
    committed: Mapping[TopicPartition, int],
    at_time: Mapping[TopicPartition, int],
) -> dict[TopicPartition, int]:
    """For each partition, within its log. `at` is the offset, or by how much committed ones are shifted.

    Where no record has the time or a later one, it is the end, as for kafka-consumer-groups. Raises KafkaError for a
    partition without an offset that could be shifted.
    """
    found = {}
    for tp, (first, end) in bounds.items():
        if way == EARLIEST:
            offset = first
        elif way == LATEST:
            offset = end
        elif way == OFFSET:
            offset = at
        elif way == TIME:
            offset = at_time.get(tp, end)
        elif tp in committed:
            offset = committed[tp] + at
        else:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"{tp}: has no committed offset to shift")
        found[tp] = min(max(offset, first), end)
    return found
