"""Batches that are open, and the quick way of a record into them. Pure.

A plain record for a topic whose batches are known is appended by `OpenBatches.append`; all others, and the first of a
batch, by `ProducerCore.try_append`. `QuickSend` is the whole of that for the commonest records, from `send` to what it
returns, in C, if there was a compiler when raylog was installed or if it came as a wheel.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TypeVar

from raylog.client.producer.accumulator import ProducerBatch, RecordAccumulator
from raylog.client.producer.delivery import RECORD_OVERHEAD_BYTES, OnDelivery, header_bytes_max
from raylog.client.producer.partitioners import StickyTopic
from raylog.protocol.records.builder import BatchBuilder
from raylog.protocol.records.record_encoding import murmur2

D = TypeVar("D")

compiled: Any = None
"""Has `QuickSend`; None without a compiler."""
with suppress(ImportError):
    compiled = importlib.import_module("raylog.client.producer._appending")


@dataclass(slots=True)
class OpenTopic:
    """The batches of a topic that may take more records."""

    sticky: StickyTopic
    partition_count: int
    hashes_keys: bool
    batches: list[ProducerBatch | None]
    """By partition; the last place stands for none."""


class OpenBatches:
    """The last batch of each partition, to which records are added quickly until it is almost full."""

    def __init__(self, accumulator: RecordAccumulator, bytes_max: int) -> None:
        """A batch is left before it has `bytes_max` bytes."""
        self._accumulator = accumulator
        self._bytes_max = bytes_max
        self._topics: dict[str, OpenTopic] = {}

    def keep(self, batch: ProducerBatch, sticky: StickyTopic, partition_count: int, *, hashes_keys: bool) -> None:
        """The batch takes more records, in place of the former one of its partition."""
        topic = batch.tp.topic
        found = self._topics.get(topic)
        if found is None or found.partition_count != partition_count:
            if sticky.current >= partition_count:  # the topic was created again, with fewer partitions
                sticky.current = -1
            found = self._topics[topic] = OpenTopic(
                sticky, partition_count, hashes_keys, [None] * (partition_count + 1)
            )
        found.batches[batch.tp.partition] = batch

    def close(self) -> None:
        """None of them takes more records."""
        self._topics.clear()

    def append(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None,
        stamp: int,
        headers: Sequence[tuple[str, bytes | None]] = (),
        on_delivery: OnDelivery | None = None,
    ) -> ProducerBatch | None:
        """The batch that the record, which names no partition, is in now; None if none is open that has room for it."""
        try:
            found = self._topics.get(topic)
        except TypeError:  # no topic, as the sender will say
            return None
        if found is None:
            return None
        size = RECORD_OVERHEAD_BYTES
        if value is not None:
            size += len(value)
        if headers:
            size += header_bytes_max(headers)
        sticky = found.sticky
        if key is None:
            batch = found.batches[sticky.current]
        elif found.hashes_keys:
            size += len(key)
            batch = found.batches[(murmur2(key) & 0x7FFFFFFF) % found.partition_count]
        else:
            return None
        if batch is None or batch.closed:
            return None
        accumulator = self._accumulator
        batch_bytes, used_bytes = batch.size_bytes + size, accumulator.used_bytes + size
        if batch_bytes >= self._bytes_max or used_bytes > accumulator.buffer_bytes:
            return None
        batch.builder.append(key, value, stamp, headers)
        batch.size_bytes, accumulator.used_bytes = batch_bytes, used_bytes
        if on_delivery is not None:
            batch.callbacks.append((batch.builder.count - 1, stamp, on_delivery))
        if key is None:
            sticky.current_bytes += size
        return batch

    def quick_send(
        self, delivery: type[D], ends: object, clock: Callable[[], int], lock: object | None = None
    ) -> Callable[[str, Any, Any, OnDelivery | None], D | None]:
        """A function `send(topic, value, key, on_delivery)` that appends a record with the time of `clock`, in ns.

        It returns a `delivery` with these `ends`; None where `append` would, for keys and values that are not bytes,
        and always without a compiler. `lock`, a reentrant one, is held while a record is appended.
        """
        if compiled is None:
            return lambda topic, value, key, on_delivery: None
        classes = (OpenTopic, StickyTopic, ProducerBatch, BatchBuilder, RecordAccumulator, delivery)
        send: Callable[[str, Any, Any, OnDelivery | None], D | None] = compiled.QuickSend(
            classes, self._topics, self._accumulator, self._bytes_max, ends, clock, lock
        )
        return send
