"""What a worker of a flow shows of it. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from raylog.mirror.shard import PartitionStatus


@dataclass(frozen=True, slots=True)
class ControlStatus:
    """One task of the control of a flow, such as "topics" or "checkpoints"."""

    task: str
    runs: int
    last_success_ms: int | None
    """Wall clock."""
    error: str | None
    """Why the last run failed. It is tried again."""
    problems: tuple[str, ...]
    """What the last run left out, and why."""


@dataclass(frozen=True, slots=True)
class FlowStatus:
    """What a worker of a flow does."""

    flow: str
    shards: tuple[int, ...]
    """Those that it copies."""
    partitions: tuple[PartitionStatus, ...]
    errors: tuple[str, ...]
    """Why the topics of the flow are not known, a shard cannot be opened, or offset syncs are not written."""
    control: tuple[ControlStatus, ...] = ()
    """What the worker does besides copying, if it has the control of the flow."""
