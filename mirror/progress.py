"""How far a flow has copied each partition, as records of a compacted topic of the target. Pure.

Partitions of the source belong to shards, whose number never changes. Each shard has a partition of the progress topic,
and with exactly-once a transactional id: so one producer at a time can write records and progress of the shard.
"""

from __future__ import annotations

import json
import zlib
from dataclasses import dataclass
from typing import Any, Final

from raylog.core.errors import ErrorCode, KafkaError
from raylog.core.ids import TopicPartition

OFFSET_MAX: Final = (1 << 63) - 1
SHARDS_MIN: Final = 4
"""So many actors can share a flow that has begun with fewer."""


def shard_of(tp: TopicPartition, shards: int) -> int:
    """The shard of a source partition, the same at all times and on all machines."""
    return zlib.crc32(f"{tp.topic}-{tp.partition}".encode()) % shards


@dataclass(frozen=True, slots=True)
class FlowId:
    """A flow, by the aliases of its clusters."""

    source: str
    target: str

    def __str__(self) -> str:
        return f"{self.source}->{self.target}"

    @property
    def progress_topic(self) -> str:
        """In the target. Its name ends as those of MirrorMaker's own topics do, so that no flow copies it."""
        return f"raylog-mirror-progress.{self.source}.internal"

    def transactional_id(self, shard: int) -> str:
        return f"raylog-mirror-{self.source}-{self.target}-{shard}"


def encode_progress(flow: FlowId, tp: TopicPartition, next_offset: int) -> tuple[bytes, bytes]:
    """(key, value)."""
    key = {"cluster": flow.source, "topic": tp.topic, "partition": tp.partition}
    return json.dumps(key).encode(), json.dumps({"next_offset": next_offset}).encode()


def decode_progress(flow: FlowId, key: bytes | None, value: bytes | None) -> tuple[TopicPartition, int | None]:
    """(source partition, next offset), None for a partition whose progress was deleted.

    Raises KafkaError, INVALID_RECORD, for a record of something else.
    """
    found = _decoded(key)
    match found:
        case {"cluster": flow.source, "topic": str(topic), "partition": int(partition)} if partition >= 0:
            tp = TopicPartition(topic, partition)
        case _:
            raise _foreign(flow, f"the key {key!r}")
    if value is None:
        return tp, None
    match _decoded(value):
        case {"next_offset": int(next_offset)} if 0 <= next_offset <= OFFSET_MAX:
            return tp, next_offset
    raise _foreign(flow, f"the value {value!r} of {tp}")


def _decoded(data: bytes | None) -> Any:
    try:
        return json.loads(data or b"")
    except (ValueError, RecursionError):
        return None


def _foreign(flow: FlowId, what: str) -> KafkaError:
    text = f"{flow.progress_topic}: {what} is no progress of the flow {flow}; delete such records, or use another alias"
    return KafkaError(ErrorCode.INVALID_RECORD, text)
