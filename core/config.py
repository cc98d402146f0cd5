"""Configuration keys as data: one declaration per key gives parsing, checks, description and documentation.

A `ConfigKey` says what a value may be; a `ConfigSchema` is all the keys of one kind of resource (a broker, a topic);
`Configs` is one validated set of values with the source of each. Names, defaults and meanings are Kafka's.

A key that is declared per listener can be overridden for one listener: `listener.name.<listener>.<key>`, with the
listener's name in lower case, as in Kafka. One that is declared per mechanism can be overridden for one SASL mechanism
of a listener: `listener.name.<listener>.<mechanism>.<key>`.
"""

from __future__ import annotations

import logging
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from difflib import get_close_matches
from enum import IntEnum
from functools import lru_cache
from typing import Any, Final, Generic, NamedTuple, TypeVar, cast

from raylog.core.errors import ConfigError
from raylog.core.password import HIDDEN, Password

log = logging.getLogger("raylog.core.config")
Value = TypeVar("Value")
Check = Callable[[Any], str | None]
"""Returns None for a good value, else the rule it breaks (`must be at least 1`)."""

SHORT_MAX: Final = (1 << 15) - 1
INT_MAX: Final = (1 << 31) - 1
LONG_MAX: Final = (1 << 63) - 1
LISTENER_PREFIX: Final = "listener.name."
SIMILAR: Final = 0.85
"""How similar an unknown key must be to one that exists, from 0 to 1, for an error to name that."""
DIFFERENCE_MAX: Final = 6
"""How many letters it may be longer or shorter: more are less similar."""
SHOWN_CHARACTERS_MAX: Final = 100
"""An error message quotes this much of a name or a value, since clients choose their length."""
TRIMMED: Final = "".join(map(chr, range(ord(" ") + 1)))
"""What Java's String.trim removes around a value, that of a password too."""
_LISTENER_NAME = re.compile(r"[a-z0-9_]+")
_MECHANISM = re.compile(r"(gssapi|plain|scram-sha-256|scram-sha-512|oauthbearer)\.")
_INTEGER = re.compile(r"[+-]?[0-9]+")
_DECIMAL = re.compile(r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?")


class ConfigType(IntEnum):
    """The numbers of DescribeConfigs v3."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    PASSWORD = 9


class ConfigSource(IntEnum):
    """The source of a value; the numbers of DescribeConfigs v1."""

    DYNAMIC_TOPIC_CONFIG = 1
    DYNAMIC_BROKER_CONFIG = 2
    DYNAMIC_DEFAULT_BROKER_CONFIG = 3
    STATIC_BROKER_CONFIG = 4
    DEFAULT_CONFIG = 5
    DYNAMIC_BROKER_LOGGER_CONFIG = 6
    DYNAMIC_CLIENT_METRICS_CONFIG = 7
    DYNAMIC_GROUP_CONFIG = 8


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
    """Keys for the same setting in larger units, each with its factor; used in this order if this key is not set."""
    dynamic: bool = False
    """For a broker's key: whether it can be changed while the broker runs."""
    per_listener: bool = False
    """For a broker's key: whether `listener.name.<listener>.<key>` overrides it for one listener."""
    dynamic_per_listener: bool = False
    """For a broker's key: whether such an override can be changed for one broker while it runs."""
    per_mechanism: bool = False
    """For a broker's key: whether `listener.name.<listener>.<mechanism>.<key>` overrides it for one SASL mechanism."""
    prefixed_only: bool = False
    """For a broker's key: whether it can only be set with such a prefix."""
    cluster_wide: bool = False
    """For a broker's key: whether controllers use it, so that it cannot be set for a single broker."""
    names_elsewhere: tuple[str, ...] = ()
    """Names of the same setting in librdkafka and in Python's clients, for the error that refuses them."""

    def __post_init__(self) -> None:
        if self.type is ConfigType.PASSWORD:
            assert self.default is None, self.name

    @property
    def is_sensitive(self) -> bool:
        """Whether the value must never be shown."""
        return self.type is ConfigType.PASSWORD

    def parse(self, text: str) -> Value:
        """The typed value of `text`. Raises ConfigError that names key, value and rule."""
        if "\0" in text:
            raise self.refused(text, "must not contain NUL characters")
        try:
            value: Any = _PARSERS[self.type](text.strip(TRIMMED))
        except ValueError as error:
            raise self.refused(text, str(error)) from None
        if self.check is not None and (rule := self.check(value)) is not None:
            raise self.refused(text, rule)
        return cast("Value", value)

    def restore(self, text: str) -> Value | None:
        """The value of a text that was valid when it was stored, by a version whose rules may have been others.

        A number outside of the key's bounds is replaced by the nearest one within; None for a text without a value.
        """
        try:
            return self.parse(text)
        except ConfigError as error:
            nearest: Any = None
            if isinstance(self.check, Bounds):
                with suppress(ValueError):
                    nearest = self.check.nearest(_PARSERS[self.type](text.strip(TRIMMED)))
            _warn_of_stored(error.message, nearest)
            return cast("Value | None", nearest)

    def refused(self, text: str, rule: str) -> ConfigError:
        return ConfigError(f"{self.name}={HIDDEN if self.is_sensitive else shown(text)}: {rule}")

    def format(self, value: Value) -> str | None:
        """The value as Kafka writes it in DescribeConfigs; None for no value and for a password."""
        if value is None or self.is_sensitive:
            return None
        if isinstance(value, bool):
            return "true" if value else "false"
        return ",".join(value) if isinstance(value, tuple) else str(value)


@dataclass(frozen=True, slots=True)
class Bounds:
    """The check of a number: the least and the greatest value, both inclusive; None for no limit but the type's."""

    minimum: int
    maximum: int | None = None
    special: int | None = None
    """A value outside with a meaning of its own, such as -1 for no limit."""

    def __str__(self) -> str:
        within = f"at least {self.minimum}" if self.maximum is None else f"between {self.minimum} and {self.maximum}"
        return within if self.special is None else f"{within}, or {self.special}"

    def __call__(self, value: int) -> str | None:
        return None if self.nearest(value) == value else f"must be {self}"

    def nearest(self, value: int) -> int:
        """The permitted value that is closest to `value`."""
        if value == self.special:
            return value
        value = max(value, self.minimum)
        return value if self.maximum is None else min(value, self.maximum)


def at_least(minimum: int, *, special: int | None = None) -> Check:
    return Bounds(minimum, special=special)


def between(minimum: int, maximum: int, *, special: int | None = None) -> Check:
    return Bounds(minimum, maximum, special)


def one_of(*allowed: str) -> Check:
    return lambda value: None if value in allowed else f"must be one of {', '.join(allowed)}"


def some_of(*allowed: str, required: str = "") -> Check:
    def check(names: tuple[str, ...]) -> str | None:
        if not names or len(set(names)) < len(names) or not set(names).issubset(allowed):
            return f"must be a list of {', '.join(allowed)}, each at most once"
        return f"must contain {required}" if required and required not in names else None

    return check


def shown(text: str) -> str:
    """`text` as an error message quotes it: escaped, and shortened if it is long."""
    if len(text) <= SHOWN_CHARACTERS_MAX:
        return repr(text)
    return f"{text[:SHOWN_CHARACTERS_MAX]!r}... ({len(text)} characters)"


def shown_name(name: str) -> str:
    """`name` as an error message shows it: as it is, unless it is odd."""
    return name if name and len(name) <= SHOWN_CHARACTERS_MAX and name.isprintable() else shown(name)


class ConfigSchema:
    """All keys of one kind of resource, by name. A key of Kafka's that raylog does not support is an error."""

    def __init__(self, keys: Iterable[ConfigKey[Any]]) -> None:
        self.keys: dict[str, ConfigKey[Any]] = {}
        for key in keys:
            assert key.name not in self.keys, f"{key.name} is declared twice"
            self.keys[key.name] = key

    def key(self, name: str) -> ConfigKey[Any]:
        """The key of this name, which may be the override of a key for one listener. Raises ConfigError."""
        if not name.startswith(LISTENER_PREFIX):
            return self._known(name, name)
        listener, _, overridden = _prefix_of(name)
        if not _LISTENER_NAME.fullmatch(listener) or not overridden:
            rule = "must be listener.name.<name>.<key>, with the listener's name in lower case"
            raise ConfigError(f"{shown_name(name)}: {rule}")
        known = self._known(overridden, name)
        return replace(known, name=name, coarser=(), dynamic=known.dynamic or known.dynamic_per_listener)

    def parse(self, texts: Mapping[str, str | None]) -> dict[str, Any]:
        """Typed values by name. Raises ConfigError for an unknown key, a null or a bad value."""
        values: dict[str, Any] = {}
        for name, text in texts.items():
            key = self.key(name)
            if text is None:
                raise ConfigError(f"{name}: must not be null")
            text = str(text)
            _check_prefix(key, name, text)
            values[name] = key.parse(text)
        return values

    def restore(self, texts: Mapping[str, str]) -> dict[str, Any]:
        """Typed values of texts from the metadata log, which must not prevent a start; see `ConfigKey.restore`.

        What has no value, and keys that this version does not know, are left out and logged.
        """
        values: dict[str, Any] = {}
        for name, text in texts.items():
            try:
                value = self.key(name).restore(text)
            except ConfigError as error:
                _warn_of_stored(error.message, None)
            else:
                if value is not None:
                    values[name] = value
        return values

    def _known(self, name: str, given: str) -> ConfigKey[Any]:
        key = self.keys.get(name)
        if key is None:
            raise ConfigError(f"{shown_name(given)}: unknown, or not supported by raylog{self._nearest(name)}")
        return key

    def _nearest(self, name: str) -> str:
        """For an error: the key that may be meant, with the same first letter. A request may have many wrong ones, and
        to compare one with all keys takes a millisecond."""
        for key in self.keys.values():
            if name in key.names_elsewhere:
                return f"; it is set by {key.name} here, as in Kafka's Java client"
        alike = [key for key in self.keys if key[:1] == name[:1] and abs(len(key) - len(name)) <= DIFFERENCE_MAX]
        found = get_close_matches(name, alike, n=1, cutoff=SIMILAR)
        return f"; did you mean {found[0]}?" if found else ""


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

    def is_set(self, key: ConfigKey[Any]) -> bool:
        """Whether a value is set somewhere, even if it is the default's."""
        return next(self.set_for(key), None) is not None

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

    def keys(self) -> dict[str, ConfigKey[Any]]:
        """The schema's keys by name, and the overrides for single listeners that are set."""
        overrides = {
            name: self.schema.key(name) for layer in self.layers for name in layer.values if _is_prefixed(name)
        }
        return {**self.schema.keys, **overrides}

    def overrides(self, key: ConfigKey[Value]) -> dict[str, Value]:
        """The values of `key` that are set for single listeners, by the listener's name in lower case."""
        found: dict[str, Value] = {}
        for layer in reversed(self.layers):
            for name, value in layer.values.items():
                listener, mechanism, overridden = _prefix_of(name)
                if listener and not mechanism and overridden == key.name:
                    found[listener] = value
        return found

    def for_listener(self, listener: str, mechanism: str = "") -> Configs:
        """The same values with the overrides for `listener` above them, and above these the ones for `mechanism`.

        Case does not matter.
        """
        of_listener = self._overriding(listener.lower(), "")
        of_mechanism = self._overriding(listener.lower(), mechanism.lower()) if mechanism else []
        return Configs(self.schema, [*of_mechanism, *of_listener, *self.layers], below=self.below)

    def _overriding(self, listener: str, mechanism: str) -> list[Layer]:
        """The values with exactly this prefix, by the names of the keys that they override."""
        return [
            Layer(
                source,
                {
                    _prefix_of(name)[2]: value
                    for name, value in values.items()
                    if _prefix_of(name)[:2] == (listener, mechanism)
                },
            )
            for source, values in self.layers
        ]


@lru_cache(maxsize=1000)
def _warn_of_stored(problem: str, used: int | None) -> None:
    """Once for each value: a broker reads its configuration again at every change. None: as if it were not set."""
    log.warning("stored configuration invalid", extra={"reason": problem, "used": used})


def overriding_listener(name: str) -> str:
    """The listener of `listener.name.<listener>.<key>`; empty for every other name."""
    return _prefix_of(name)[0]


def overriding_mechanism(name: str) -> str:
    """The SASL mechanism of `listener.name.<listener>.<mechanism>.<key>`; empty for every other name."""
    return _prefix_of(name)[1]


def _is_prefixed(name: str) -> bool:
    return name.startswith(LISTENER_PREFIX)


def _prefix_of(name: str) -> tuple[str, str, str]:
    """The listener, the SASL mechanism and the key of a prefixed name; the first two are empty where there is none."""
    if not _is_prefixed(name):
        return "", "", name
    listener, _, rest = name.removeprefix(LISTENER_PREFIX).partition(".")
    match = _MECHANISM.match(rest)
    return (listener, match[1], rest[match.end() :]) if match else (listener, "", rest)


def _check_prefix(key: ConfigKey[Any], name: str, text: str) -> None:
    """Raises ConfigError for a prefix that the key does not permit, or without one that it requires."""
    listener, mechanism, overridden = _prefix_of(name)
    if mechanism and not key.per_mechanism:
        raise key.refused(text, f"{overridden} cannot be set for a single SASL mechanism")
    if listener and not key.per_listener:
        raise key.refused(text, f"{overridden} cannot be set for a single listener")
    if key.prefixed_only and not (mechanism if key.per_mechanism else listener):
        wanted = "<mechanism>." if key.per_mechanism else ""
        raise key.refused(text, f"must be set as listener.name.<name>.{wanted}{overridden}")


def _parse_bool(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ValueError("must be true or false")
    return text.lower() == "true"


def _integer(bits: int) -> Callable[[str], int]:
    limit = 1 << (bits - 1)
    digits_max = len(str(limit))

    def parse(text: str) -> int:
        if not _INTEGER.fullmatch(text):
            raise ValueError("must be a whole number")
        digits = text.lstrip("+-0") or "0"
        number = int(digits) if len(digits) <= digits_max else limit + 1
        signed = -number if text.startswith("-") else number
        if not -limit <= signed < limit:
            raise ValueError(f"must be between {-limit} and {limit - 1}")
        return signed

    return parse


def _parse_double(text: str) -> float:
    number = float(text) if _DECIMAL.fullmatch(text) else math.nan
    if not math.isfinite(number):
        raise ValueError("must be a number")
    return number


def _parse_list(text: str) -> tuple[str, ...]:
    return tuple(item.strip() for item in text.split(",") if item.strip())


_PARSERS: dict[ConfigType, Callable[[str], Any]] = {
    ConfigType.BOOLEAN: _parse_bool,
    ConfigType.STRING: str,
    ConfigType.INT: _integer(32),
    ConfigType.SHORT: _integer(16),
    ConfigType.LONG: _integer(64),
    ConfigType.DOUBLE: _parse_double,
    ConfigType.LIST: _parse_list,
    ConfigType.PASSWORD: Password,
}
