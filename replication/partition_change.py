"""What may change in a partition, as keys of the requests that wait for it."""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

from raylog.core.ids import TopicPartition


class Change(Enum):
    APPENDED = "appended"
    """The log has grown, or begins elsewhere: what followers wait for."""
    COMMITTED = "committed"
    """The high watermark has moved: what consumers wait for."""
    STABLE = "stable"
    """The last stable offset has moved: what consumers with read_committed wait for."""

    @staticmethod
    def readable(*, committed: bool) -> Change:
        """What lets a consumer read more; `committed` selects isolation level read_committed."""
        return Change.STABLE if committed else Change.COMMITTED


class PartitionChange(NamedTuple):
    """Key of a request that waits for a change in one partition."""

    topic_partition: TopicPartition
    change: Change


class SessionChange(NamedTuple):
    """Key of a Fetch that waits for a change in any partition of its session."""

    session_id: int
    change: Change
