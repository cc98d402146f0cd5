"""Offsets and partitions of several topics, as the JSON of Spark's Kafka source: {"flights":{"0":23,"1":-1}}. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from numbers import Integral
from typing import Any, Final

from raylog.client.given_values import shown
from raylog.core.errors import ConfigError
from raylog.core.ids import TopicPartition

EARLIEST: Final = -2
LATEST: Final = -1
OFFSET_MAX: Final = (1 << 63) - 1
PARTITION_MAX: Final = (1 << 31) - 1

PartitionOffsets = Mapping[TopicPartition, int]


def parse_offsets(key: str, text: str, *, least: int = EARLIEST) -> dict[TopicPartition, int]:
    """The offsets, or timestamps, of partitions in JSON; -2 stands for earliest and -1 for latest.

    `key` is the option that contains the text, for errors. Raises ConfigError.
    """
    example = '{"topicA":{"0":23,"1":-1},"topicB":{"0":-2}}'
    topics = []
    for topic, partitions in _topics(key, text, example):
        if not isinstance(partitions, _Pairs):
            raise _unexpected(key, text, example)
        topics.append((topic, partitions.pairs))
    return checked_offsets(key, topics, least=least)


def checked_offsets(
    key: str, topics: Iterable[tuple[str, Iterable[tuple[Any, Any]]]], *, least: int = EARLIEST
) -> dict[TopicPartition, int]:
    """The offsets of the partitions of topics. Raises ConfigError that names `key`."""
    offsets: dict[TopicPartition, int] = {}
    for topic, partitions in topics:
        for partition, offset in partitions:
            tp = TopicPartition(topic, _partition(key, topic, partition))
            if not is_integer(offset) or not least <= offset <= OFFSET_MAX:
                raise ConfigError(f"{key}: {tp}: {shown(offset)} must be an integer between {least} and {OFFSET_MAX}")
            if tp in offsets:
                raise ConfigError(f"{key}: contains {tp} twice")
            offsets[tp] = int(offset)
    return offsets


def print_offsets(offsets: PartitionOffsets) -> str:
    """The offsets as JSON, in the order of topics and partitions."""
    topics: dict[str, dict[str, int]] = {}
    for tp in sorted(offsets):
        topics.setdefault(tp.topic, {})[str(tp.partition)] = offsets[tp]
    return json.dumps(topics, separators=(",", ":"), ensure_ascii=False)


def parse_partitions(key: str, text: str) -> tuple[TopicPartition, ...]:
    """The partitions in JSON such as {"topicA":[0,1],"topicB":[2]}, in order. Raises ConfigError."""
    example = '{"topicA":[0,1],"topicB":[0,1]}'
    found = []
    for topic, partitions in _topics(key, text, example):
        if not isinstance(partitions, list):
            raise _unexpected(key, text, example)
        found += [TopicPartition(topic, _partition(key, topic, partition)) for partition in partitions]
    if not found:
        raise ConfigError(f"{key}={shown(text)}: must contain a partition, as in {example}")
    if len(set(found)) < len(found):
        raise ConfigError(f"{key}={shown(text)}: contains a partition twice")
    return tuple(sorted(found))


def listed(partitions: Iterable[TopicPartition]) -> str:
    """The names of partitions in order, for messages; only the first ones of many."""
    names = [str(tp) for tp in sorted(partitions)]
    more = f" and {len(names) - 10} more" if len(names) > 10 else ""
    return ", ".join(names[:10]) + more


class _Pairs:
    """An object of JSON as it was written: a name that occurs twice is an error here, and is not in a dictionary."""

    def __init__(self, pairs: list[tuple[str, Any]]) -> None:
        self.pairs = pairs


def _topics(key: str, text: str, example: str) -> Iterator[tuple[str, Any]]:
    try:
        parsed = json.loads(text, object_pairs_hook=_Pairs)
    except (ValueError, RecursionError):  # integers of more than 4,300 digits are a ValueError too
        raise _unexpected(key, text, example) from None
    if not isinstance(parsed, _Pairs):
        raise _unexpected(key, text, example)
    seen = set()
    for topic, partitions in parsed.pairs:
        if not topic:
            raise _unexpected(key, text, example)
        if topic in seen:
            raise ConfigError(f"{key}: contains the topic {shown(topic)} twice")
        seen.add(topic)
        yield topic, partitions


def is_integer(value: object) -> bool:
    """Whether it is an integer of Python or of numpy."""
    return isinstance(value, Integral) and not isinstance(value, bool)


def _partition(key: str, topic: str, partition: object) -> int:
    number: Any = partition
    if isinstance(partition, str) and partition.isascii() and partition.isdigit() and len(partition) < 11:
        number = int(partition)
    if not is_integer(number) or not 0 <= number <= PARTITION_MAX:
        raise ConfigError(f"{key}: {shown(topic)} contains {shown(partition)}, which is not the number of a partition")
    return int(number)


def _unexpected(key: str, text: str, example: str) -> ConfigError:
    return ConfigError(f"{key}={shown(text)}: must be JSON such as {example}")
