"""How far a flow has copied each partition, as records of a compacted topic of the target. Pure.

Partitions of the source belong to shards, whose number never changes. Each shard has a partition of the progress topic,
and with exactly-once a transactional id: so one producer at a time can write records and progress of the shard.
"""

from __future__ import annotations

import json
import zlib
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, NamedTuple
from uuid import UUID

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
    origin: str | None = None
    """Of the records, if the flow passes on those of a third cluster: the id of that cluster."""

    def __str__(self) -> str:
        return f"{self.source}->{self.target}"

    @property
    def progress_topic(self) -> str:
        """In the target. Its name ends as those of MirrorMaker's own topics do, so that no flow copies it."""
        return f"raylog-mirror-progress.{self._of_source('.')}.internal"

    def transactional_id(self, shard: int) -> str:
        return f"raylog-mirror-{self._of_source('-')}-{self.target}-{shard}"

    def _of_source(self, separator: str) -> str:
        return self.source if self.origin is None else f"{self.source}{separator}{self.origin}"


class Progress(NamedTuple):
    """The source is copied up to this offset, exclusive."""

    next_offset: int
    topic_id: UUID | None = None
    """Of the topic of the source; a topic that is created again has another one. None if it is not known."""
    last_copied: tuple[int, int] | None = None
    """(offset in the source, offset in the target) of the last record whose place in both is known."""


def encode_progress(flow: FlowId, tp: TopicPartition, progress: Progress) -> tuple[bytes, bytes]:
    """(key, value)."""
    key = {"cluster": flow.source, "topic": tp.topic, "partition": tp.partition}
    value: dict[str, Any] = {"next_offset": progress.next_offset}
    if progress.topic_id is not None:
        value["topic_id"] = str(progress.topic_id)
    if progress.last_copied is not None:
        value["last_copied"] = progress.last_copied
    return json.dumps(key).encode(), json.dumps(value).encode()


def decode_progress(flow: FlowId, key: bytes | None, value: bytes | None) -> tuple[TopicPartition, Progress | None]:
    """(source partition, progress), None for a partition whose progress was deleted.

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
        case {"next_offset": int(next_offset), **rest} if _is_offset(next_offset):
            with suppress(ValueError):
                return tp, Progress(next_offset, _topic_id(rest.get("topic_id")), _last_copied(rest.get("last_copied")))
    raise _foreign(flow, f"the value {value!r} of {tp}")


def _is_offset(number: int) -> bool:
    return 0 <= number <= OFFSET_MAX


def _topic_id(value: Any) -> UUID | None:
    """Raises ValueError."""
    return None if value is None else UUID(str(value))


def _last_copied(value: Any) -> tuple[int, int] | None:
    """Raises ValueError."""
    match value:
        case None:
            return None
        case [int(source), int(target)] if _is_offset(source) and _is_offset(target):
            return source, target
    raise ValueError(value)


def _decoded(data: bytes | None) -> Any:
    try:
        return json.loads(data or b"")
    except (ValueError, RecursionError):
        return None


def _foreign(flow: FlowId, what: str) -> KafkaError:
    text = f"{flow.progress_topic}: {what} is no progress of the flow {flow}; delete such records, or use another alias"
    return KafkaError(ErrorCode.INVALID_RECORD, text)
