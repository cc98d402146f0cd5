"""The metrics of a MirrorMaker actor: what it copies, how far it is, and what is wrong. Pure.

Names that begin with `kafka_` are those that jmx_exporter gives to MirrorMaker 2's own, whose label `topic` is the name
in the target.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final, NamedTuple

from raylog.core.metrics import Kind, Metric, Sample, exposition
from raylog.mirror.config import ARROW
from raylog.mirror.flow_status import FlowStatus
from raylog.mirror.shard import PartitionStatus
from raylog.mirror.spread import Spread

PARTITION: Final = ("source", "target", "topic", "partition", "actor")
ERROR_CHARACTERS_MAX: Final = 200
_PICKS: Final[tuple[tuple[str, str, Callable[[Spread], float]], ...]] = (
    ("", "The last of", lambda spread: spread.last),
    ("_min", "The least, in the last 30 seconds, of", lambda spread: spread.least),
    ("_max", "The greatest, in the last 30 seconds, of", lambda spread: spread.greatest),
    ("_avg", "The mean, in the last 30 seconds, of", lambda spread: spread.mean),
)


class Mirrored(NamedTuple):
    """What an actor shows at a scrape."""

    actor: int
    flows: Sequence[FlowStatus]


def scrape(actor: int, flows: Sequence[FlowStatus]) -> Iterator[str]:
    """In Prometheus' text format, in short pieces."""
    return exposition(MIRROR_METRICS, Mirrored(actor, flows))


def _of_partitions(
    name: str, kind: Kind, doc: str, value: Callable[[PartitionStatus], float | None]
) -> Metric[Mirrored]:
    """Without those whose value is not known."""

    def read(mirrored: Mirrored) -> Iterator[Sample | None]:
        for labels, partition in _partitions(mirrored):
            shown = value(partition)
            yield None if shown is None else Sample(labels, shown)

    return Metric(name, kind, PARTITION, doc, read)


def _spreads(name: str, doc: str, value: Callable[[PartitionStatus], Spread | None]) -> Iterator[Metric[Mirrored]]:
    """The last value, and those of the last 30 seconds."""
    for suffix, of, pick in _PICKS:
        yield _of_partitions(f"{name}{suffix}", Kind.GAUGE, f"{of} {doc}", _picked(value, pick))


def _picked(
    value: Callable[[PartitionStatus], Spread | None], pick: Callable[[Spread], float]
) -> Callable[[PartitionStatus], float | None]:
    return lambda each: None if (spread := value(each)) is None else pick(spread)


def _checkpoints(pick: Callable[[Spread], float]) -> Callable[[Mirrored], Iterator[Sample | None]]:
    def read(mirrored: Mirrored) -> Iterator[Sample | None]:
        for flow in mirrored.flows:
            source, _, target = flow.flow.partition(ARROW)
            for each in flow.checkpoints:
                yield Sample((source, target, each.group, each.topic, str(each.partition)), pick(each.spread))

    return read


def _partitions(mirrored: Mirrored) -> Iterator[tuple[tuple[str, ...], PartitionStatus]]:
    for flow in mirrored.flows:
        source, _, target = flow.flow.partition(ARROW)
        for each in flow.partitions:
            yield (source, target, each.target_topic, str(each.partition), str(mirrored.actor)), each


def _states(mirrored: Mirrored) -> Iterator[Sample | None]:
    for labels, partition in _partitions(mirrored):
        yield Sample((*labels, partition.state), 1)


def _errors(mirrored: Mirrored) -> Iterator[Sample | None]:
    for labels, partition in _partitions(mirrored):
        yield None if partition.error is None else Sample((*labels, partition.error[:ERROR_CHARACTERS_MAX]), 1)
    for flow in mirrored.flows:
        source, _, target = flow.flow.partition(ARROW)
        tasks = [f"{each.task}: {each.error}" for each in flow.control if each.error is not None]
        for error in dict.fromkeys(text[:ERROR_CHARACTERS_MAX] for text in (*flow.errors, *tasks)):
            yield Sample((source, target, "", "", str(mirrored.actor), error), 1)


def _successes(mirrored: Mirrored) -> Iterator[Sample | None]:
    for flow in mirrored.flows:
        source, _, target = flow.flow.partition(ARROW)
        for each in flow.control:
            if each.last_success_ms is not None:
                yield Sample((source, target, each.task), each.last_success_ms / 1000)


def _shards(mirrored: Mirrored) -> Iterator[Sample | None]:
    for flow in mirrored.flows:
        source, _, target = flow.flow.partition(ARROW)
        yield Sample((source, target, str(mirrored.actor)), len(flow.shards))


_MM2: Final = "kafka_connect_mirror_mirrorsourceconnector"
MIRROR_METRICS: Final[tuple[Metric[Mirrored], ...]] = (
    _of_partitions(
        f"{_MM2}_record_count",
        Kind.COUNTER,
        "Records copied since the actor has the partition.",
        lambda each: each.records,
    ),
    _of_partitions(
        f"{_MM2}_record_rate",
        Kind.GAUGE,
        "Records per second, the mean of the last 30 seconds.",
        lambda each: each.records_per_sec,
    ),
    _of_partitions(
        f"{_MM2}_byte_count",
        Kind.COUNTER,
        "Bytes of the copied batches, compressed as they are.",
        lambda each: each.size_bytes,
    ),
    _of_partitions(
        f"{_MM2}_byte_rate",
        Kind.GAUGE,
        "Bytes per second, the mean of the last 30 seconds.",
        lambda each: each.bytes_per_sec,
    ),
    *_spreads(
        f"{_MM2}_record_age_ms",
        "the milliseconds from a batch's newest timestamp to its being read.",
        lambda each: each.record_ages,
    ),
    *_spreads(
        f"{_MM2}_replication_latency_ms",
        "the milliseconds from a batch's newest timestamp to its commit in the target.",
        lambda each: each.replication_latencies,
    ),
    _of_partitions(
        "raylog_mirror_last_record_age_seconds",
        Kind.GAUGE,
        "Seconds since the timestamp of the last copied record.",
        lambda each: None if each.last_record_age_ms is None else each.last_record_age_ms / 1000,
    ),
    _of_partitions(
        "raylog_mirror_lag",
        Kind.GAUGE,
        "Offsets of the source partition that are not copied.",
        lambda each: each.lag,
    ),
    _of_partitions(
        "raylog_mirror_lost_offsets",
        Kind.COUNTER,
        "Offsets that the source had deleted before they were copied.",
        lambda each: each.lost,
    ),
    Metric(
        "raylog_mirror_partition_state",
        Kind.GAUGE,
        (*PARTITION, "state"),
        "Always 1; the state is running, failing (tried again after a pause) or blocked (no place in the target).",
        _states,
    ),
    Metric(
        "raylog_mirror_error_info",
        Kind.GAUGE,
        (*PARTITION, "error"),
        "Always 1; the last error of a partition until it goes on, and without a topic those of the flow.",
        _errors,
    ),
    Metric(
        "raylog_mirror_task_last_success_timestamp_seconds",
        Kind.GAUGE,
        ("source", "target", "task"),
        "When a task of the control, such as topics or checkpoints, has last succeeded, by the first actor.",
        _successes,
    ),
    *(
        Metric(
            f"kafka_connect_mirror_mirrorcheckpointconnector_checkpoint_latency_ms{suffix}",
            Kind.GAUGE,
            ("source", "target", "group", "topic", "partition"),
            f"{of} the milliseconds from reading a group's offset to its checkpoint.".replace("30 sec", "600 sec"),
            _checkpoints(pick),
        )
        for suffix, of, pick in _PICKS
    ),
    Metric("raylog_mirror_shards", Kind.GAUGE, ("source", "target", "actor"), "Shards that the actor copies.", _shards),
)
