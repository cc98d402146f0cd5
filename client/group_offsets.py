"""What a consumer tells a transactional producer, so that offsets are committed with the transaction (KIP-447)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from raylog.core.ids import TopicPartition


class GroupMetadata(NamedTuple):
    """A member of a consumer group. With the group id alone the coordinator cannot fence a former member."""

    group_id: str
    generation_id: int = -1
    member_id: str = ""
    group_instance_id: str | None = None


class OffsetAndMetadata(NamedTuple):
    """A position to be committed: the offset of the next record to be read."""

    offset: int
    metadata: str = ""
    leader_epoch: int | None = None
    """That of the record before, if it is known."""


Offsets = Mapping[TopicPartition, int | OffsetAndMetadata]
"""The positions of partitions; a number is an offset without metadata."""
