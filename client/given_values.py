"""Checks values of the program before they are queued: one that cannot be encoded would fail its request. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from operator import index
from typing import Any

from raylog.client.group_offsets import OffsetAndMetadata
from raylog.core.config import INT_MAX, LONG_MAX
from raylog.core.errors import ErrorCode, KafkaError
from raylog.core.ids import TopicPartition
from raylog.protocol.codec import STRING_BYTES_MAX

Partition = TopicPartition | tuple[str, int]


def is_text(value: object) -> bool:
    """Whether it fits a STRING field. Brokers decide which names are valid."""
    if not isinstance(value, str):
        return False
    try:
        return len(value.encode()) <= STRING_BYTES_MAX
    except UnicodeEncodeError:
        return False


def check_topic_names(names: Iterable[object]) -> None:
    """Raises KafkaError."""
    for name in names:
        if not is_text(name):
            text = f"{str(name)[:100]!r} cannot be the name of a topic"
            raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, text)


def checked_number(what: str, value: Any, *, most: int = LONG_MAX, code: ErrorCode = ErrorCode.INVALID_REQUEST) -> int:
    """`value`, if it is a whole number from 0 to `most`. Raises KafkaError."""
    number = whole_number(what, value, code=code)
    if not 0 <= number <= most:
        raise KafkaError(code, f"the {what} must be from 0 to {most}, not {number}")
    return number


def whole_number(what: str, value: Any, *, code: ErrorCode = ErrorCode.INVALID_REQUEST) -> int:
    """Raises KafkaError."""
    try:
        return index(value)
    except TypeError:
        raise KafkaError(code, f"the {what} must be a whole number, not {value!r}") from None


def checked_timestamp(value: Any) -> int:
    """Milliseconds since 1970. Raises KafkaError."""
    return checked_number("timestamp", value, code=ErrorCode.INVALID_TIMESTAMP)


def checked_partition(partition: Any) -> TopicPartition:
    """Raises KafkaError."""
    if not isinstance(partition, tuple) or len(partition) != 2:
        text = f"a partition must be a TopicPartition or (topic, number), not {str(partition)[:100]!r}"
        raise KafkaError(ErrorCode.INVALID_REQUEST, text)
    topic, number = partition
    check_topic_names([topic])
    return TopicPartition(topic, checked_number(f"partition of topic {topic!r}", number, most=INT_MAX))


def checked_offsets(offsets: Mapping[Any, int | OffsetAndMetadata]) -> dict[TopicPartition, OffsetAndMetadata]:
    """What is to be committed, by partition. Raises KafkaError."""
    checked = {}
    for partition, given in offsets.items():
        tp = checked_partition(partition)
        found = given if isinstance(given, OffsetAndMetadata) else OffsetAndMetadata(given)
        metadata = found.metadata or ""
        if not is_text(metadata):
            text = f"{tp}: the metadata of an offset must be text of at most {STRING_BYTES_MAX} bytes"
            raise KafkaError(ErrorCode.OFFSET_METADATA_TOO_LARGE, text)
        checked[tp] = found._replace(offset=checked_number(f"offset of {tp}", found.offset), metadata=metadata)
    return checked
