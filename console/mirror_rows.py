"""Flows of mirrors, from the records of their internal topics. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from raylog.client.consumer.fetched import ConsumerRecord
from raylog.core.errors import KafkaError
from raylog.core.ids import TopicPartition
from raylog.mirror.formats import Heartbeat
from raylog.mirror.progress import FlowId, decode_progress


def heartbeats_in(records: Iterable[ConsumerRecord]) -> dict[tuple[str, str], int]:
    """When each flow, from a source to a target, was last alive; records of something else are left out."""
    found: dict[tuple[str, str], int] = {}
    for record in records:
        try:
            beat = Heartbeat.decode(record.key, record.value)
        except KafkaError:
            continue
        found[beat.source, beat.target] = max(found.get((beat.source, beat.target), 0), beat.timestamp_ms)
    return found


def progress_in(source: str, records: Iterable[ConsumerRecord]) -> dict[TopicPartition, tuple[int, int]]:
    """For each partition of the source: the offset up to which it is copied, and when that was written."""
    flow = FlowId(source, "")
    found: dict[TopicPartition, tuple[int, int]] = {}
    for record in records:
        try:
            tp, progress = decode_progress(flow, record.key, record.value)
        except KafkaError:
            continue
        if progress is None:
            found.pop(tp, None)
        else:
            found[tp] = progress.next_offset, record.timestamp_ms
    return found


def flow_rows(
    copied: Mapping[str, Mapping[TopicPartition, tuple[int, int]]],
    beats: Mapping[tuple[str, str], int],
    now_ms: int,
) -> list[dict[str, Any]]:
    """One for each source; `age_ms` is the time since the flow was last seen, None if it never was."""
    rows = []
    for source in sorted(copied.keys() | {source for source, _ in beats}):
        partitions = copied.get(source, {})
        targets = sorted(target for flow, target in beats if flow == source)
        seen = [beats[source, target] for target in targets] + [written_ms for _, written_ms in partitions.values()]
        rows.append(
            {
                "source": source,
                "targets": targets,
                "by_raylog": source in copied,
                "age_ms": max(0, now_ms - max(seen)) if seen else None,
                "partitions": [
                    {"topic": tp.topic, "partition": tp.partition, "copied": offset, "age_ms": max(0, now_ms - written)}
                    for tp, (offset, written) in sorted(partitions.items())
                ],
            }
        )
    return rows
