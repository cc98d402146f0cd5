"""(shell) Deletes values of a store whose records do not exist any more: expired, compacted away, or aborted.

First the store is listed, then the topic is read to its end. So a value is deleted only if it was written before the
grace period, and its record was neither in the log at that time, nor in a transaction that is still open.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from raylog.client.chunks.references import ValueStore, reference_of, superfluous
from raylog.client.consumer.consumer import Consumer
from raylog.core.errors import ErrorCode, KafkaError
from raylog.core.ids import TopicPartition

GRACE_MS: Final = 86_400_000
PROGRESS_SECONDS: Final = 60.0
"""A partition that gives nothing for this long cannot be read: nothing is deleted then."""


READING: Final = {
    "allow.auto.create.topics": "false",  # a topic that has to be created has no record of any value
    "auto.offset.reset": "earliest",
    "enable.auto.commit": "false",
    "group.id": "",
    "large.message.enabled": "false",
}


class Sweep(NamedTuple):
    """What was done."""

    kept: int
    """Values that have a record, or are younger than the grace period."""
    deleted: list[str]


def sweep_values(
    config: Mapping[str, Any],
    store: ValueStore,
    topic: str,
    *,
    grace_ms: int = GRACE_MS,
    dry_run: bool = False,
    wall_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
) -> Sweep:
    """`config` has the consumer's keys that lead to the cluster. `grace_ms` must be longer than any producer may take
    from the beginning of send() to the acknowledgement, or until its transaction is known. With `dry_run` nothing is
    deleted. Raises KafkaError, also if there is no such topic, and has deleted nothing then.
    """
    before_ms = wall_ms() - grace_ms
    stored = list(store.values_of(topic))
    if not any(value.written_ms < before_ms for value in stored):
        return Sweep(len(stored), [])
    deleted = superfluous(stored, _referenced(config, topic), before_ms=before_ms)
    for name in () if dry_run else deleted:
        store.delete(name)
    return Sweep(len(stored) - len(deleted), deleted)


def _referenced(config: Mapping[str, Any], topic: str) -> set[str]:
    """The names in all records that are committed, or whose transactions may still be."""
    names: set[str] = set()
    starts: dict[TopicPartition, int] = {}
    for level in ("read_committed", "read_uncommitted"):
        with Consumer({**config, **READING, "isolation.level": level}) as consumer:
            partitions = [TopicPartition(topic, number) for number in consumer.partitions_for_topic(topic)]
            consumer.assign(partitions)
            ends = consumer.end_offsets(partitions)
            for tp in partitions:
                if tp in starts:
                    consumer.seek(tp, starts[tp])
                else:
                    consumer.seek_to_beginning(tp)
            _read(consumer, ends, names)
            starts = ends
    return names


def _read(consumer: Consumer, ends: Mapping[TopicPartition, int], names: set[str]) -> None:
    """Up to these offsets. Raises KafkaError."""
    before: dict[TopicPartition, int] = {}
    deadline = time.monotonic() + PROGRESS_SECONDS
    while left := {tp: at for tp, end in ends.items() if (at := consumer.position(tp)) < end}:
        if left != before:
            before, deadline = left, time.monotonic() + PROGRESS_SECONDS
        elif time.monotonic() > deadline:
            what = f"{next(iter(left))} could not be read to its end: nothing came for {PROGRESS_SECONDS} s"
            raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, f"{what}; no value was deleted")
        for record in consumer.poll(0.2):
            reference = reference_of(record.headers)
            if reference is not None:
                names.add(reference.name)
