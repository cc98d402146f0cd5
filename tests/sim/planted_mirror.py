"""Planted mistakes of mirrors that the simulator must find, as in planted.py."""

from __future__ import annotations

from itertools import count
from typing import Any

from raylog.core.ids import TopicPartition
from raylog.mirror import shard_worker
from raylog.mirror.offset_translation import OffsetSyncEmitter, OffsetSyncStore
from raylog.mirror.progress import FlowId
from raylog.mirror.shard import Shard
from tests.sim.planting import Planted, Replacement

_OTHER = "the copy has other records"


def _progress_ignored() -> list[Replacement]:
    def progress_read(self: Shard, progress: Any) -> None:
        self._progress = {}

    return [(Shard, "progress_read", progress_read)]


def _start_not_committed() -> list[Replacement]:
    right = Shard.positioned

    def positioned(self: Shard, tp: TopicPartition, offset: int) -> None:
        due_ms = self._commit_due_ms
        right(self, tp, offset)
        if self.partitions[tp].held:
            self.partitions[tp].held, self._commit_due_ms = False, due_ms

    return [(Shard, "positioned", positioned)]


def _not_fenced() -> list[Replacement]:
    numbers = count()

    def transactional_id(self: FlowId, shard: int) -> str:
        return f"{self}-{shard}-{next(numbers)}"

    return [(FlowId, "transactional_id", transactional_id)]


def _aborted_copied() -> list[Replacement]:
    right = shard_worker._consumer_config

    def consumer_config(flow: Any, settings: Any) -> dict[str, Any]:
        return {**right(flow, settings), "isolation.level": "read_uncommitted"}

    return [(shard_worker, "_consumer_config", consumer_config)]


def _synced_too_far() -> list[Replacement]:
    right = OffsetSyncEmitter.observe

    def observe(self: OffsetSyncEmitter, tp: TopicPartition, upstream: int, downstream: int, count: int = 1) -> Any:
        return right(self, tp, upstream, downstream + 1, count)

    return [(OffsetSyncEmitter, "observe", observe)]


def _translated_by_difference() -> list[Replacement]:
    def translate(self: OffsetSyncStore, tp: TopicPartition, upstream_offset: int) -> int | None:
        for sync in reversed(self._syncs.get(tp, ())):
            if sync.upstream_offset <= upstream_offset:
                return sync.downstream_offset + upstream_offset - sync.upstream_offset
        return None

    return [(OffsetSyncStore, "translate", translate)]


def _end_not_synced() -> list[Replacement]:
    return [(Shard, "take_found", lambda self: [])]


FAULTS = {
    fault.name: fault
    for fault in (
        Planted("progress-ignored", "A worker begins at the source's beginning.", _progress_ignored, 3, _OTHER),
        Planted(
            "end-not-synced",
            "The offset syncs of a killed worker are not written by its successor.",
            _end_not_synced,
            1,
            "no offset sync of the end",
        ),
        Planted(
            "synced-too-far", "Offset syncs describe the next record.", _synced_too_far, 0, "describes another record"
        ),
        Planted(
            "start-not-committed",
            "What auto.offset.reset led to is committed with the first records only.",
            _start_not_committed,
            7,
            "records are not copied",
        ),
        Planted("not-fenced", "Each worker has a transactional id of its own.", _not_fenced, 8, _OTHER),
        Planted("aborted-copied", "Exactly-once flows read what is not committed.", _aborted_copied, 1, _OTHER),
        Planted(
            "translated-by-difference",
            "A group's offset is translated by its distance from the sync.",
            _translated_by_difference,
            1,
            "behind its record",
        ),
    )
}
