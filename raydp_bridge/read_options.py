"""The options of a read, under the names of Spark's own Kafka source, so that a job can be ported by changing one line.

    options = ReadOptions.parse({"kafka.bootstrap.servers": "b:9092", "subscribe": "flights"}, streaming=True)

Every option that is invalid, contradicts another one or is unknown raises ConfigError here, before any task starts.
Names are case-insensitive. Pure: brokers are neither resolved nor asked.

Source: Spark's "Structured Streaming + Kafka Integration Guide".
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from raylog.client.given_values import checked_keys, is_text, shown
from raylog.config.admin import ADMIN_CONFIG
from raylog.config.client import is_read_by_client, is_secret_of_client
from raylog.config.consumer import CONSUMER_CONFIG
from raylog.core.config import shown_name
from raylog.core.errors import ConfigError
from raylog.core.ids import TopicPartition
from raylog.core.password import Password
from raylog.protocol.records.arrow import COLUMNS, choose_columns
from raylog.raydp_bridge.arguments import checked_flag, checked_integer, optional_integer
from raylog.raydp_bridge.partition_offsets import (
    EARLIEST,
    LATEST,
    OFFSET_MAX,
    PartitionOffsets,
    checked_offsets,
    listed,
    parse_offsets,
    parse_partitions,
)

MIN_PARTITIONS_MAX: Final = 100_000
MAX_TRIGGER_DELAY_MS: Final = 15 * 60_000
StartingOffsets = Literal["earliest", "latest"] | Mapping[int, int] | Mapping[str, Mapping[int, int]]
EndingOffsets = Literal["latest"] | Mapping[int, int] | Mapping[str, Mapping[int, int]]
_KAFKA: Final = "kafka."
_STRATEGIES: Final = ("subscribe", "subscribePattern", "assign")
_STREAM_ONLY: Final = ("maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay")
_BATCH_ONLY: Final = ("endingOffsets", "endingOffsetsByTimestamp", "endingTimestamp")
_NOT_NEEDED: Final = (
    "groupIdPrefix",
    "kafkaConsumer.pollTimeoutMs",
    "fetchOffset.numRetries",
    "fetchOffset.retryIntervalMs",
)
"""Options that tune the consumer of Spark's own source."""
NAMES: Final = (
    *_STRATEGIES,
    "startingOffsets",
    "startingOffsetsByTimestamp",
    "startingTimestamp",
    "startingOffsetsByTimestampStrategy",
    *_BATCH_ONLY,
    *_STREAM_ONLY,
    *_NOT_NEEDED,
    "failOnDataLoss",
    "minPartitions",
    "includeHeaders",
    "columns",
    "skipMalformed",
)
_REFUSED: Final[Mapping[str, str]] = {
    "group.id": "no consumer group is used; offsets are kept with the checkpoint of the query",
    "auto.offset.reset": "set the source option startingOffsets to 'earliest' or 'latest' to specify where to start",
    "key.deserializer": "keys are read as byte arrays; use DataFrame operations to deserialize them",
    "value.deserializer": "values are read as byte arrays; use DataFrame operations to deserialize them",
    "enable.auto.commit": "no offsets are committed by the reader",
    "interceptor.classes": "the reader calls no interceptors",
}
_DELAY: Final = re.compile(r"(\d{1,12})\s*(us|ms|s|m|min|h|d)?")
_UNIT_MS: Final = {"ms": 1, "s": 1000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}


@dataclass(frozen=True, slots=True)
class Subscription:
    """The topics, the pattern of topics or the partitions to read; exactly one of the three."""

    topics: tuple[str, ...] = ()
    pattern: str = ""
    partitions: tuple[TopicPartition, ...] = ()

    @property
    def names(self) -> tuple[str, ...] | None:
        """The topics it can refer to; None for a pattern."""
        return None if self.pattern else self.topics or tuple(sorted({tp.topic for tp in self.partitions}))

    def select(self, partition_counts: Mapping[str, int]) -> frozenset[TopicPartition]:
        """The partitions to read, of topics with so many partitions."""
        existing = {
            TopicPartition(topic, number)
            for topic, count in partition_counts.items()
            if not self.pattern or re.fullmatch(self.pattern, topic)
            for number in range(count)
        }
        topics = frozenset(self.topics)
        wanted = self.partitions or [tp for tp in existing if self.pattern or tp.topic in topics]
        return frozenset(existing.intersection(wanted))

    def __str__(self) -> str:
        if self.pattern:
            return f"subscribePattern={self.pattern}"
        return f"subscribe={','.join(self.topics)}" if self.topics else f"assign={listed(self.partitions)}"


@dataclass(frozen=True, slots=True)
class Position:
    """Where a read starts or ends."""

    key: str
    """The option that it was given by, for errors."""
    value: int | PartitionOffsets
    """Of all partitions, or of each: EARLIEST, LATEST or an offset, or a timestamp in milliseconds."""
    by_time: bool = False
    or_latest: bool = False
    """Whether a partition without a record at or after the timestamp has its latest offset; else it is an error."""

    @property
    def values(self) -> Collection[int]:
        return (self.value,) if isinstance(self.value, int) else self.value.values()

    @property
    def may_be_latest(self) -> bool:
        """Whether the latest offset is meant for some partition."""
        if self.by_time:
            return self.or_latest
        return LATEST in ([self.value] if isinstance(self.value, int) else self.value.values())

    def of(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The value for each of these partitions. Raises ConfigError if others are given, or not all of them."""
        if isinstance(self.value, int):
            return dict.fromkeys(partitions, self.value)
        wanted = set(partitions)
        missing, unknown = wanted - self.value.keys(), self.value.keys() - wanted
        if missing:
            default = "" if self.by_time else "; use -2 for earliest and -1 for latest"
            raise ConfigError(f"{self.key}: must contain all partitions; {listed(missing)} are missing{default}")
        if unknown:
            raise ConfigError(f"{self.key}: contains {listed(unknown)}, which do not exist or are not read")
        return dict(self.value)


@dataclass(frozen=True, slots=True)
class Limits:
    """How many offsets a batch of a stream contains (see `admission.admit`)."""

    max_offsets: int | None = None
    min_offsets: int | None = None
    max_delay_ms: int = MAX_TRIGGER_DELAY_MS


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """What is read, and how."""

    subscription: Subscription
    starting: Position
    ending: Position = Position("endingOffsets", LATEST)
    properties: Mapping[str, str | Password] = field(default_factory=dict)
    """Of the client, without the prefix `kafka.`."""
    columns: tuple[str, ...] = tuple(COLUMNS)
    fail_on_data_loss: bool = True
    min_partitions: int | None = None
    limits: Limits = Limits()
    skip_malformed: bool = False
    warnings: tuple[str, ...] = ()
    """Options that have no effect, to be logged."""

    @classmethod
    def of(
        cls,
        topic: str | Sequence[str],
        *,
        starting_offsets: StartingOffsets,
        ending_offsets: EndingOffsets,
        columns: Sequence[str] | None,
        min_partitions: int | None,
        skip_malformed: bool,
        fail_on_data_loss: bool = True,
        starting_timestamp_ms: int | None = None,
        ending_timestamp_ms: int | None = None,
        streaming: bool = False,
    ) -> ReadOptions:
        """Given in Python. A timestamp goes before the offsets; a partition without a record at or after it is read
        from, or to, its latest offset. Raises ConfigError."""
        subscription = subscribed(topic)
        starting = _position("starting_offsets", starting_offsets, subscription.topics)
        ending = _position("ending_offsets", ending_offsets, subscription.topics)
        if starting_timestamp_ms is not None:
            starting = _timestamp("starting_timestamp_ms", starting_timestamp_ms)
        if ending_timestamp_ms is not None:
            ending = _timestamp("ending_timestamp_ms", ending_timestamp_ms)
        check_positions(starting, ending, streaming=streaming)
        return cls(
            subscription,
            starting,
            ending,
            columns=choose_columns(columns),
            min_partitions=optional_integer("min_partitions", min_partitions, 1, MIN_PARTITIONS_MAX),
            skip_malformed=checked_flag("skip_malformed", skip_malformed),
            fail_on_data_loss=checked_flag("fail_on_data_loss", fail_on_data_loss),
        )

    @classmethod
    def parse(cls, options: Mapping[str, Any], *, streaming: bool) -> ReadOptions:
        """The options of a streaming or a batch query. Raises ConfigError."""
        texts = _Texts(options)
        subscription = _subscription(texts)
        if streaming:
            for name in _BATCH_ONLY:
                if texts.get(name) is not None:
                    raise ConfigError(f"{name}: an ending offset or timestamp is not valid in streaming queries")
        starting = _starting(texts, streaming=streaming)
        ending = _ending(texts)
        check_positions(starting, ending, streaming=streaming)
        limits = Limits(
            texts.count("maxOffsetsPerTrigger"),
            texts.count("minOffsetsPerTrigger"),
            _delay_ms(texts.get("maxTriggerDelay")),
        )
        if (
            limits.max_offsets is not None
            and limits.min_offsets is not None
            and limits.min_offsets > limits.max_offsets
        ):
            raise ConfigError(
                f"minOffsetsPerTrigger={limits.min_offsets}: is higher than maxOffsetsPerTrigger={limits.max_offsets}"
            )
        return cls(
            subscription,
            starting,
            ending,
            _properties(texts.kafka),
            _columns(texts),
            texts.flag("failOnDataLoss", default=True),
            optional_integer("minPartitions", texts.count("minPartitions"), 1, MIN_PARTITIONS_MAX),
            limits,
            texts.flag("skipMalformed", default=False),
            _warnings(texts, streaming=streaming),
        )


def check_positions(starting: Position, ending: Position, *, streaming: bool) -> None:
    """Raises ConfigError for a start or an end that can never be right."""
    if not streaming and not starting.by_time and LATEST in starting.values:
        raise ConfigError(f"{starting.key}: a starting offset cannot be latest in batch queries")
    if not ending.by_time and EARLIEST in ending.values:
        raise ConfigError(f"{ending.key}: an ending offset cannot be earliest in batch queries")
    if starting.by_time != ending.by_time:
        return
    if isinstance(starting.value, Mapping) and isinstance(ending.value, Mapping):
        if unmatched := starting.value.keys() ^ ending.value.keys():
            raise ConfigError(
                f"{ending.key}: must contain the partitions of {starting.key}; not so {listed(unmatched)}"
            )
        for tp, start in starting.value.items():
            _check_order(f"{ending.key}: {tp}", start, ending.value[tp])
    elif isinstance(starting.value, int) and isinstance(ending.value, int):
        _check_order(ending.key, starting.value, ending.value)


def _check_order(where: str, start: int, end: int) -> None:
    if start > end >= 0:
        raise ConfigError(f"{where}: the end {end} is before the start {start}")


def subscribed(topics: Any) -> Subscription:
    """The subscription to one topic, given by its name, or to several. Raises ConfigError."""
    names = [topics] if isinstance(topics, str) else list(topics) if isinstance(topics, Iterable) else []
    if not names or not all(is_text(name) and name for name in names):
        raise ConfigError(f"topic={shown(topics)}: must be the name of a topic, or a list of such names")
    return Subscription(topics=tuple(dict.fromkeys(names)))


def _timestamp(key: str, timestamp_ms: Any) -> Position:
    return Position(key, checked_integer(key, timestamp_ms, 0, OFFSET_MAX), by_time=True, or_latest=True)


def _position(key: str, asked: Any, topics: Sequence[str]) -> Position:
    """A position given in Python: "earliest", "latest", offsets by partition if there is one topic, or by topic and
    partition. Raises ConfigError."""
    if not isinstance(asked, Mapping):
        named = {"earliest": EARLIEST, "latest": LATEST}.get(asked) if isinstance(asked, str) else None
        if named is None:
            raise ConfigError(f"{key}={shown(asked)}: must be 'earliest', 'latest' or an offset for each partition")
        return Position(key, named)
    nested: Mapping[Any, Any] = asked
    if not any(isinstance(each, Mapping) for each in asked.values()):
        if len(topics) != 1:
            raise ConfigError(f"{key}: must have the offsets by topic and partition, since several topics are read")
        nested = {topics[0]: asked}
    if not all(isinstance(each, Mapping) for each in nested.values()):
        raise ConfigError(f"{key}={shown(asked)}: must map topics to partitions and these to offsets")
    return Position(key, checked_offsets(key, [(str(topic), each.items()) for topic, each in nested.items()]))


class _Texts:
    """Options by name in whatever case, as texts."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        self._texts: dict[str, str] = {}
        self.kafka: dict[str, str | Password] = {}
        known = {name.lower() for name in NAMES}
        for name, value in checked_keys("the options", options).items():
            lowered = name.lower()
            kept: dict[str, Any] = self._texts
            if lowered.startswith(_KAFKA):
                kept, lowered = self.kafka, lowered.removeprefix(_KAFKA)
            elif lowered not in known:
                raise ConfigError(f"{shown(name)}: is not an option of this source; it has {', '.join(NAMES)}, kafka.*")
            if lowered in kept:
                raise ConfigError(f"{shown(name)}: is given twice; names are case-insensitive")
            if not isinstance(value, (str, int, float, Password)):
                raise ConfigError(f"{shown(name)}: must be a text, a number or a boolean")
            if isinstance(value, Password):
                kept[lowered] = value if kept is self.kafka else value.reveal()
            else:
                kept[lowered] = str(value).lower() if isinstance(value, bool) else str(value)

    def get(self, name: str) -> str | None:
        return self._texts.get(name.lower())

    def flag(self, name: str, *, default: bool) -> bool:
        text = self.get(name)
        if text is None:
            return default
        if text.strip().lower() not in ("true", "false"):
            raise ConfigError(f"{name}={shown(text)}: must be true or false")
        return text.strip().lower() == "true"

    def count(self, name: str) -> int | None:
        text = self.get(name)
        return None if text is None else _whole(name, text, 1)


def _whole(name: str, text: str, least: int) -> int:
    digits = text.strip()
    if digits.isascii() and digits.isdigit() and len(digits) < 20 and least <= int(digits) <= OFFSET_MAX:
        return int(digits)
    raise ConfigError(f"{name}={shown(text)}: must be an integer between {least} and {OFFSET_MAX}")


def _subscription(texts: _Texts) -> Subscription:
    given = [name for name in _STRATEGIES if texts.get(name) is not None]
    if len(given) != 1:
        amount = "one" if not given else "only one"
        raise ConfigError(
            f"{amount} of the options {', '.join(_STRATEGIES)} must be specified; given: {given or 'none'}"
        )
    name, text = given[0], texts.get(given[0]) or ""
    if name == "assign":
        return Subscription(partitions=parse_partitions(name, text))
    if name == "subscribe":
        topics = [topic.strip() for topic in text.split(",") if topic.strip()]
        if not topics:
            raise ConfigError(f"subscribe={shown(text)}: no topics to subscribe to")
        return subscribed(topics)
    pattern = text.strip()
    if not pattern:
        raise ConfigError("subscribePattern: the pattern is empty")
    try:
        re.compile(pattern)
    except (re.error, RecursionError, OverflowError) as error:
        raise ConfigError(f"subscribePattern={shown(pattern)}: is not a regular expression: {error}") from None
    return Subscription(pattern=pattern)


def _starting(texts: _Texts, *, streaming: bool) -> Position:
    given = texts.get("startingOffsetsByTimestampStrategy")
    text = "error" if given is None else given.strip().lower()
    if text not in ("error", "latest"):
        raise ConfigError(f"startingOffsetsByTimestampStrategy={shown(text)}: must be error or latest")
    found = _by_time(texts, "startingTimestamp", "startingOffsetsByTimestamp", or_latest=text == "latest")
    return found or _by_offset(texts, "startingOffsets", "latest" if streaming else "earliest")


def _ending(texts: _Texts) -> Position:
    found = _by_time(texts, "endingTimestamp", "endingOffsetsByTimestamp", or_latest=True)
    return found or _by_offset(texts, "endingOffsets", "latest")


def _by_time(texts: _Texts, everywhere: str, each: str, *, or_latest: bool) -> Position | None:
    """As in Spark, the timestamp for all partitions precedes those of each, and both precede offsets."""
    if (text := texts.get(everywhere)) is not None:
        return Position(everywhere, _whole(everywhere, text, 0), by_time=True, or_latest=or_latest)
    if (text := texts.get(each)) is not None:
        return Position(each, parse_offsets(each, text, least=0), by_time=True, or_latest=or_latest)
    return None


def _by_offset(texts: _Texts, name: str, default: Literal["earliest", "latest"]) -> Position:
    given = texts.get(name)
    text = default if given is None else given.strip()
    named = {"earliest": EARLIEST, "latest": LATEST}.get(text.lower())
    return Position(name, parse_offsets(name, text) if named is None else named)


def _delay_ms(text: str | None) -> int:
    """A duration as Spark writes it: 15m, 30s, 500ms; without a unit in milliseconds."""
    if text is None:
        return MAX_TRIGGER_DELAY_MS
    match = _DELAY.fullmatch(text.strip().lower())
    if match is None:
        raise ConfigError(f"maxTriggerDelay={shown(text)}: must be a time such as 15m, 30s or 500ms")
    number, unit = int(match[1]), match[2] or "ms"
    return number // 1000 if unit == "us" else number * _UNIT_MS[unit]


def _columns(texts: _Texts) -> tuple[str, ...]:
    headers = texts.flag("includeHeaders", default=False)
    text = texts.get("columns")
    if text is None:
        return tuple(name for name in COLUMNS if headers or name != "headers")
    columns = choose_columns([name.strip() for name in text.split(",") if name.strip()])
    if texts.get("includeHeaders") is not None and headers != ("headers" in columns):
        raise ConfigError(f"includeHeaders={str(headers).lower()}: contradicts columns={shown(text)}")
    return columns


def _warnings(texts: _Texts, *, streaming: bool) -> tuple[str, ...]:
    """Of the client's properties those of the connection are read, and those of the admin client."""
    ignored = [f"{name} is ignored" for name in _NOT_NEEDED if texts.get(name) is not None]
    if not streaming:
        ignored += [f"{name} is ignored in batch queries" for name in _STREAM_ONLY if texts.get(name) is not None]
    ignored += [
        f"{shown_name(_KAFKA + name)} is ignored"
        for name in sorted(texts.kafka)
        if not is_read_by_client(name) and name not in ADMIN_CONFIG.keys
    ]
    return tuple(ignored)


def _properties(kafka: Mapping[str, str | Password]) -> dict[str, str | Password]:
    """The options kafka.* as properties of the client, with passwords that are never shown."""
    for name, instead in _REFUSED.items():
        if name in kafka:
            raise ConfigError(f"Kafka option '{name}' is not supported: {instead}")
    if not kafka.get("bootstrap.servers"):
        raise ConfigError("kafka.bootstrap.servers: must be specified")
    for name, value in kafka.items():
        for schema in (CONSUMER_CONFIG, ADMIN_CONFIG):
            if name in schema.keys:
                schema.parse({name: value.reveal() if isinstance(value, Password) else value})
    return {
        name: Password(value) if isinstance(value, str) and is_secret_of_client(name) else value
        for name, value in kafka.items()
    }
