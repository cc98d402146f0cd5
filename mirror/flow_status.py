"""What a worker of a flow shows of it. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from raylog.mirror.shard import PartitionStatus
from raylog.mirror.spread import Spread


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
class CheckpointLatency:
    """The milliseconds from reading a group's offset in the source to its checkpoint in the target."""

    group: str
    topic: str
    """In the target."""
    partition: int
    spread: Spread
    """Of the last 10 minutes."""


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
    checkpoints: tuple[CheckpointLatency, ...] = ()
    """How long the offsets of groups took, by such a worker."""


def with_passed_on(own: FlowStatus, others: Sequence[FlowStatus]) -> FlowStatus:
    """With what other workers of the same flow copy of the same partitions: the records of third clusters."""
    if not others:
        return own
    found: defaultdict[tuple[str, int], list[PartitionStatus]] = defaultdict(list)
    for flow in (own, *others):
        for each in flow.partitions:
            found[each.topic, each.partition].append(each)
    errors = dict.fromkeys(error for flow in (own, *others) for error in flow.errors)
    return replace(own, partitions=tuple(map(_together, found.values())), errors=tuple(errors))


def _together(each: Sequence[PartitionStatus]) -> PartitionStatus:
    """As far as all of them are; the state and the error of the one that is worst off."""
    worst = max(each, key=lambda one: (_STATES.index(one.state), one.error is not None))
    nexts = [one.next_offset for one in each]
    return replace(
        worst,
        next_offset=None if None in nexts else _least(nexts),
        lag=_most(one.lag for one in each),
        records=sum(one.records for one in each),
        size_bytes=sum(one.size_bytes for one in each),
        records_per_sec=sum(one.records_per_sec for one in each),
        bytes_per_sec=sum(one.bytes_per_sec for one in each),
        last_record_age_ms=_least(one.last_record_age_ms for one in each),
        record_ages=_of_all(one.record_ages for one in each),
        replication_latencies=_of_all(one.replication_latencies for one in each),
        lost=max(one.lost for one in each),
        attempts=max(one.attempts for one in each),
    )


_STATES = ("running", "failing", "blocked")


def _of_all(spreads: Iterable[Spread | None]) -> Spread | None:
    """The last value and the mean are those of the one that is slowest."""
    known = [spread for spread in spreads if spread is not None]
    if not known:
        return None
    slowest = max(known, key=lambda spread: spread.mean)
    return Spread(slowest.last, min(each.least for each in known), max(each.greatest for each in known), slowest.mean)


def _least(values: Iterable[int | None]) -> int | None:
    return min((value for value in values if value is not None), default=None)


def _most(values: Iterable[int | None]) -> int | None:
    return max((value for value in values if value is not None), default=None)
