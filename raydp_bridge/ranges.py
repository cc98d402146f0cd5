"""(shell) The common part of Spark tasks and Ray Data tasks: planning, and reading the rows of one range.

The driver makes the plan once. A task that is retried reads the same offsets.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Final, Protocol, TypeVar

import pyarrow as pa

from raylog.client import range_reader
from raylog.client.client_config import ClientConfig
from raylog.client.partition_reader import log_malformed
from raylog.core.errors import ErrorCode, KafkaError
from raylog.core.ids import TopicPartition
from raylog.logstore.local_log import Chunk
from raylog.protocol.records.arrow import read_arrow
from raylog.raydp_bridge.offset_ranges import Bounds, OffsetRange, Resolved, plan_ranges, resolve
from raylog.raydp_bridge.partition_offsets import EARLIEST, LATEST
from raylog.raydp_bridge.read_options import Position, ReadOptions, Subscription

log = logging.getLogger("raylog.spark")
T = TypeVar("T")
LOST_CODES = (ErrorCode.OFFSET_OUT_OF_RANGE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID)
"""Errors of a read whose records no longer exist."""
LOSS_CHECKS: Final = 3
LOSS_CHECK_SECONDS: Final = 1.0
"""A loss is skipped only if this many checks at this interval find it: a new leader may know less for a moment."""


class TopicReader(Protocol):
    """Reads topics; the default is the module `raylog.client.range_reader`.

    It is sent to the tasks, so it must be picklable (a module is, by its name).
    """

    def partition_counts(self, brokers: ClientConfig, topics: Sequence[str] | None) -> Mapping[str, int]:
        """The number of partitions of each of these topics that exists, or of all that are not internal."""

    def offsets_at(
        self, brokers: ClientConfig, timestamps: Mapping[TopicPartition, int]
    ) -> Mapping[TopicPartition, int]:
        """The offset of the first record of each partition at or after its timestamp, -1 for none; EARLIEST and LATEST
        stand for the ends of what may be read. Raises KafkaError if a partition does not exist."""

    def fetch_batches(
        self, brokers: ClientConfig, topic: str, partition: int, *, start_offset: int, end_offset: int
    ) -> Iterator[Chunk]:
        """Complete batches of [start_offset, end_offset) in order, a few megabytes at a time.

        Callers ignore records before the `start` of a chunk, which the first batch may contain, those from `end_offset`
        on, and those of its `aborted` transactions. A chunk is valid until the next one is requested. The reader finds
        the leader, also after it changes. It ends at `end_offset`, even if no record has the last offsets. Raises
        KafkaError if a record of the range was deleted, with one of LOST_CODES.
        """


def brokers_of(options: ReadOptions) -> ClientConfig:
    """Raises ConfigError, and KafkaError if the brokers of a named cluster do not respond."""
    return ClientConfig.of(None, options.properties)


def bounds_of(
    subscription: Subscription, brokers: ClientConfig, reader: TopicReader = range_reader, *, all_exist: bool = True
) -> Bounds:
    """Of the subscribed partitions. Raises KafkaError for a topic or partition that does not exist, if `all_exist`."""
    counts = reader.partition_counts(brokers, subscription.names)
    partitions = subscription.select(counts)
    if all_exist:
        missing = [topic for topic in subscription.topics if topic not in counts]
        missing += [str(tp) for tp in subscription.partitions if tp not in partitions]
        if missing:
            names = ", ".join(missing)
            raise KafkaError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{names}: does not exist; create it before the read"
            )
    ordered = sorted(partitions)
    earliest = reader.offsets_at(brokers, dict.fromkeys(ordered, EARLIEST))
    return Bounds(earliest, reader.offsets_at(brokers, dict.fromkeys(ordered, LATEST)))


def offsets_of(
    position: Position, bounds: Bounds, brokers: ClientConfig, reader: TopicReader = range_reader
) -> Resolved:
    """The offsets that a position stands for now. Raises ConfigError and KafkaError."""
    times = position.of(bounds.latest) if position.by_time else {}
    return resolve(position, bounds, reader.offsets_at(brokers, times) if times else {})


def report_losses(losses: Sequence[str], *, fail: bool) -> None:
    """Log what could not be read; with `fail`, which is the option failOnDataLoss, raise KafkaError instead."""
    if losses and fail:
        raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE, _with_advice("; ".join(losses)))
    for loss in losses:
        log.warning("data lost", extra={"reason": loss})


def after_loss_checks(
    find: Callable[[], tuple[T, Sequence[str]]], *, fail: bool, pause: Callable[[float], object] = time.sleep
) -> T:
    """What `find` returns, beside what was lost, once no loss is found or the loss has lasted; reports the loss.

    With `fail` the first one raises KafkaError, since nothing is skipped then.
    """
    checks_left = LOSS_CHECKS
    while True:
        checks_left -= 1
        found, losses = find()
        if not losses or fail or not checks_left:
            report_losses(losses, fail=fail)
            return found
        pause(LOSS_CHECK_SECONDS)


def _with_advice(loss: str) -> str:
    return (
        f"{loss}. Some data may have been missed: it was deleted by retention, or the topic was deleted. To read "
        "what is left, set the source option failOnDataLoss to 'false'"
    )


def plan_read(options: ReadOptions, brokers: ClientConfig, reader: TopicReader = range_reader) -> list[OffsetRange]:
    """The ranges of a batch query, one per task. Raises ConfigError for invalid options, and KafkaError if a topic does
    not exist or records of the range were deleted."""
    for warning in options.warnings:
        log.warning("option ignored", extra={"reason": warning})
    bounds = bounds_of(options.subscription, brokers, reader)
    starts = offsets_of(options.starting, bounds, brokers, reader)
    ends = offsets_of(options.ending, bounds, brokers, reader)
    report_losses(starts.losses + ends.losses, fail=options.fail_on_data_loss)
    return plan_ranges(starts.offsets, ends.offsets, min_partitions=options.min_partitions, key=options.ending.key)


def read_range(
    each: OffsetRange,
    brokers: ClientConfig,
    columns: Sequence[str],
    reader: TopicReader = range_reader,
    *,
    skip_malformed: bool = False,
    fail_on_data_loss: bool = True,
) -> Iterator[pa.RecordBatch]:
    """The rows of one range with these columns, in batches of a few megabytes.

    Records that retention deletes meanwhile are an error (KafkaError), or are left out with a warning.
    """
    position = each.start_offset
    on_malformed = partial(log_malformed, each.tp) if skip_malformed else None
    while position < each.end_offset:
        chunks = reader.fetch_batches(
            brokers, each.topic, each.partition, start_offset=position, end_offset=each.end_offset
        )
        try:
            for chunk in chunks:
                position = chunk.next_offset
                yield from read_arrow(
                    chunk.records,
                    topic=each.topic,
                    partition=each.partition,
                    columns=columns,
                    from_offset=chunk.start,
                    end_offset=each.end_offset,
                    on_malformed=on_malformed,
                    aborted=chunk.aborted,
                )
            return
        except KafkaError as error:
            if error.code not in LOST_CODES:
                raise
            if fail_on_data_loss:
                raise KafkaError(error.code, _with_advice(error.message)) from error
            position = _after_loss(each, position, brokers, reader)


def _after_loss(each: OffsetRange, position: int, brokers: ClientConfig, reader: TopicReader) -> int:
    """Where the range goes on after records from `position` on could not be read: the earliest offset, or its end."""
    try:
        earliest = reader.offsets_at(brokers, {each.tp: EARLIEST})[each.tp]
    except KafkaError as error:
        if error.code not in LOST_CODES:
            raise
        earliest = each.end_offset
    resumed = earliest if position < earliest < each.end_offset else each.end_offset
    report_losses([f"{each.tp}: offsets {position} to {resumed - 1} no longer exist"], fail=False)
    return resumed
