"""Configuration keys as data: one declaration per key gives parsing, checks, description and documentation.

A `ConfigKey` says what a value may be; a `ConfigSchema` is all the keys of one kind of resource (a broker, a topic);
`Configs` is one validated set of values with the source of each. Names, defaults and meanings are Kafka's.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Generic, NamedTuple, TypeVar, cast

from raylog.core.errors import ConfigError

Value = TypeVar("Value")
Check = Callable[[Any], str | None]
"""Returns None for a good value, else the rule it breaks (`must be at least 1`)."""


class ConfigType(IntEnum):
    """The numbers of DescribeConfigs v3."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7


class ConfigSource(IntEnum):
    """Where a value came from; the numbers of DescribeConfigs v1."""

    DYNAMIC_TOPIC_CONFIG = 1
    DYNAMIC_BROKER_CONFIG = 2
    DYNAMIC_DEFAULT_BROKER_CONFIG = 3
    STATIC_BROKER_CONFIG = 4
    DEFAULT_CONFIG = 5


@dataclass(frozen=True, slots=True)
class ConfigKey(Generic[Value]):
    """One key: its Kafka name, type, default, rule and meaning."""

    name: str
    type: ConfigType
    default: Value
    doc: str
    check: Check | None = None
    broker_key: ConfigKey[Value] | None = None
    """For a topic's key: the broker's key that gives the value where the topic sets none."""
    coarser: tuple[tuple[ConfigKey[Any], int], ...] = ()
    """Keys that say the same in larger units, and the factor: they count where this one is not set, in this order."""
    dynamic: bool = False
    """For a broker's key: whether it may be changed while the broker runs."""

    def parse(self, text: str) -> Value:
        """The typed value of `text`. Raises ConfigError that names key, value and rule."""
        try:
            value: Any = _PARSERS[self.type](text.strip())
        except ValueError as error:
            raise ConfigError(f"{self.name}={text!r}: {error}") from None
        if self.check is not None and (rule := self.check(value)) is not None:
            raise ConfigError(f"{self.name}={text!r}: {rule}")
        return cast("Value", value)

    def format(self, value: Value) -> str | None:
        """The value as Kafka writes it in DescribeConfigs; None for no value."""
        if value is None:
            return None
        if isinstance(value, bool):
            return "true" if value else "false"
        return ",".join(value) if isinstance(value, tuple) else str(value)


def at_least(minimum: int) -> Check:
    return lambda value: None if value >= minimum else f"must be at least {minimum}"


def between(minimum: int, maximum: int) -> Check:
    return lambda value: None if minimum <= value <= maximum else f"must be {minimum} to {maximum}"


def one_of(*allowed: str) -> Check:
    return lambda value: None if value in allowed else f"must be one of {', '.join(allowed)}"


class ConfigSchema:
    """All keys of one kind of resource, by name. Keys that Kafka knows and raylog does not are errors, not ignored."""

    def __init__(self, keys: Iterable[ConfigKey[Any]]) -> None:
        self.keys: dict[str, ConfigKey[Any]] = {key.name: key for key in keys}

    def parse(self, texts: Mapping[str, str | None]) -> dict[str, Any]:
        """Typed values by name. Raises ConfigError for an unknown key, a null or a bad value."""
        values: dict[str, Any] = {}
        for name, text in texts.items():
            key = self.keys.get(name)
            if key is None:
                raise ConfigError(f"{name}: unknown, or not served by raylog")
            if text is None:
                raise ConfigError(f"{name}: needs a value")
            values[name] = key.parse(str(text))
        return values


class Layer(NamedTuple):
    """Values that were set in one place."""

    source: ConfigSource
    values: Mapping[str, Any]


class Configs:
    """One validated set of values over a schema: what the first layer sets, else the next; then `below`, the broker's
    for a topic; then the default."""

    def __init__(self, schema: ConfigSchema, layers: Sequence[Layer], *, below: Configs | None = None) -> None:
        self.schema = schema
        self.layers = tuple(layers)
        self.below = below

    def __getitem__(self, key: ConfigKey[Value]) -> Value:
        return self.lookup(key)[0]

    def lookup(self, key: ConfigKey[Value]) -> tuple[Value, ConfigSource]:
        """The value in force and where it comes from."""
        for source, _, value in self.set_for(key):
            return value, source
        return key.default, ConfigSource.DEFAULT_CONFIG

    def set_for(self, key: ConfigKey[Value]) -> Iterator[tuple[ConfigSource, ConfigKey[Any], Value]]:
        """Every place where a value is set, the one in force first: its source, the key it is set by, the value.

        The value of a coarser key is given in the units of `key`; a negative one means the same in all units.
        """
        for layer in self.layers:
            if key.name in layer.values:
                yield layer.source, key, layer.values[key.name]
            for coarser, factor in key.coarser:
                if coarser.name in layer.values:
                    number = layer.values[coarser.name]
                    yield layer.source, coarser, cast("Value", number if number < 0 else number * factor)
        if self.below is not None and key.broker_key is not None:
            yield from self.below.set_for(key.broker_key)


def _parse_bool(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ValueError("must be true or false")
    return text.lower() == "true"


def _integer(bits: int) -> Callable[[str], int]:
    limit = 1 << (bits - 1)

    def parse(text: str) -> int:
        if not re.fullmatch(r"[+-]?[0-9]{1,20}", text):
            raise ValueError("must be a whole number")
        number = int(text)
        if not -limit <= number < limit:
            raise ValueError(f"must fit into {bits} bits")
        return number

    return parse


def _parse_list(text: str) -> tuple[str, ...]:
    return tuple(item.strip() for item in text.split(",") if item.strip())


_PARSERS: dict[ConfigType, Callable[[str], Any]] = {
    ConfigType.BOOLEAN: _parse_bool,
    ConfigType.STRING: str,
    ConfigType.INT: _integer(32),
    ConfigType.SHORT: _integer(16),
    ConfigType.LONG: _integer(64),
    ConfigType.DOUBLE: float,
    ConfigType.LIST: _parse_list,
}
