"""Checks values of the program before they are queued: one that cannot be encoded would fail its request. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from operator import index
from typing import Any, Final, TypeVar

from raylog.client.group_offsets import OffsetAndMetadata
from raylog.core.config import INT_MAX, LONG_MAX
from raylog.core.errors import ConfigError, ErrorCode, KafkaError
from raylog.core.ids import TopicPartition
from raylog.protocol.codec import STRING_BYTES_MAX

Partition = TopicPartition | tuple[str, int]
SECONDS_MAX: Final = 10**9
SHOWN_CHARACTERS: Final = 100
Function = TypeVar("Function", bound=Callable[..., Any])
T = TypeVar("T")


def shown(value: object) -> str:
    """Its repr for an error, shortened if it is long."""
    try:
        text = repr(value)
    except ValueError:  # a number with too many digits
        text = f"<{type(value).__name__}>"
    return text if len(text) <= SHOWN_CHARACTERS else f"{text[:SHOWN_CHARACTERS]}..."


def checked_seconds(value: Any) -> float:
    """`value`, if it is a number of seconds that a call can wait; one below 0 is allowed. Raises KafkaError."""
    try:
        seconds: float = value + 0.0
        if seconds <= SECONDS_MAX:
            return seconds
    except (TypeError, ValueError, OverflowError):
        pass
    text = f"timeout={shown(value)}: must be a number of seconds, at most {SECONDS_MAX}"
    raise KafkaError(ErrorCode.INVALID_REQUEST, text)


def checked_timeout(value: Any) -> float | None:
    """As `checked_seconds`; None stands for a call that waits as long as it takes. Raises KafkaError."""
    return None if value is None else checked_seconds(value)


def checked_count(max_records: Any, default: int) -> int:
    """How many records a call returns at most; None: the default. Raises KafkaError."""
    return default if max_records is None else checked_number("max_records", max_records)


def checked_function(what: str, value: Function | None) -> Function | None:
    """`value`, if it can be called or is None. Raises ConfigError."""
    if value is None or callable(value):
        return value
    raise ConfigError(f"{what}={shown(value)}: must be a function or None")


def checked_interceptors(given: Any, kind: type[T]) -> list[T]:
    """Raises ConfigError unless all have the methods of this class."""
    try:
        interceptors = list(() if given is None else given)
    except TypeError:
        interceptors = None
    methods = [name for name in vars(kind) if not name.startswith("_")]
    if interceptors is None or any(
        isinstance(each, type) or not all(hasattr(each, name) for name in methods) for each in interceptors
    ):
        raise ConfigError(f"interceptors={shown(given)}: must be a list of objects of the class {kind.__name__}")
    return interceptors


def items_of(what: str, given: Any) -> list[Any]:
    """The elements of a list or another iterable. Raises KafkaError."""
    return list(iterator_of(what, given))


def iterator_of(what: str, given: Any) -> Iterator[Any]:
    """Raises KafkaError."""
    try:
        return iter(given)
    except TypeError:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"{what} must be in a list, not {shown(given)}") from None


def checked_mapping(what: str, given: Any) -> Mapping[Any, Any]:
    """Raises KafkaError."""
    if isinstance(given, Mapping):
        return given
    raise KafkaError(ErrorCode.INVALID_REQUEST, f"{what} must be a mapping such as a dict, not {shown(given)}")


def checked_keys(what: str, given: Any) -> Mapping[str, Any]:
    """A configuration whose keys are text; none for None. Raises ConfigError."""
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        text = f"{what} must be a mapping of Kafka's keys, such as {{'bootstrap.servers': 'host:port'}}"
        raise ConfigError(f"{text}, not {shown(given)}")
    for name in given:
        if not isinstance(name, str):
            raise ConfigError(f"{shown(name)}: the key of a configuration must be text")
    return given


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
            text = f"{shown(name)} cannot be the name of a topic"
            raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, text)


def checked_number(what: str, value: Any, *, most: int = LONG_MAX, code: ErrorCode = ErrorCode.INVALID_REQUEST) -> int:
    """`value`, if it is a whole number from 0 to `most`. Raises KafkaError."""
    number = whole_number(what, value, code=code)
    if not 0 <= number <= most:
        raise KafkaError(code, f"the {what} must be from 0 to {most}, not {shown(number)}")
    return number


def whole_number(what: str, value: Any, *, code: ErrorCode = ErrorCode.INVALID_REQUEST) -> int:
    """Raises KafkaError."""
    try:
        return index(value)
    except TypeError:
        raise KafkaError(code, f"the {what} must be a whole number, not {shown(value)}") from None


def checked_timestamp(value: Any) -> int:
    """Milliseconds since 1970. Raises KafkaError."""
    return checked_number("timestamp", value, code=ErrorCode.INVALID_TIMESTAMP)


def checked_partition(partition: Any) -> TopicPartition:
    """Raises KafkaError."""
    if not isinstance(partition, tuple) or len(partition) != 2:
        text = f"a partition must be a TopicPartition or (topic, number), not {shown(partition)}"
        raise KafkaError(ErrorCode.INVALID_REQUEST, text)
    topic, number = partition
    check_topic_names([topic])
    return TopicPartition(topic, checked_number(f"partition of topic {shown(topic)}", number, most=INT_MAX))


def checked_partitions(partitions: Any) -> list[TopicPartition]:
    """Raises KafkaError."""
    return [checked_partition(partition) for partition in items_of("partitions", partitions)]


def checked_offsets(offsets: Mapping[Any, int | OffsetAndMetadata]) -> dict[TopicPartition, OffsetAndMetadata]:
    """What is to be committed, by partition. Raises KafkaError."""
    checked = {}
    for partition, given in checked_mapping("offsets", offsets).items():
        tp = checked_partition(partition)
        found = given if isinstance(given, OffsetAndMetadata) else OffsetAndMetadata(given)
        metadata = found.metadata or ""
        if not is_text(metadata):
            text = f"{tp}: the metadata of an offset must be text of at most {STRING_BYTES_MAX} bytes"
            raise KafkaError(ErrorCode.OFFSET_METADATA_TOO_LARGE, text)
        if found.leader_epoch is not None:
            whole_number(f"leader epoch of {tp}", found.leader_epoch)
        checked[tp] = found._replace(offset=checked_number(f"offset of {tp}", found.offset), metadata=metadata)
    return checked
