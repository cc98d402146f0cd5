"""Client metrics: which metrics clients push to brokers, how often, and which clients (KIP-714).

A resource of the type CLIENT_METRICS is a subscription: it has a name and these keys. A client gets the metrics of all
subscriptions that match it, at the shortest of their intervals.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from raylog.core.config import ConfigKey, Configs, ConfigSchema, ConfigSource, ConfigType, Layer, between, shown
from raylog.core.errors import KafkaError
from raylog.core.regular_expressions import compiled

ALL_METRICS: Final = "*"
DEFAULT_INTERVAL_MS: Final = 300_000
SUBSCRIPTIONS_MAX: Final = 100
"""In a cluster: each client is compared with all of them."""
PREFIXES_MAX: Final = 100
TEXT_CHARACTERS_MAX: Final = 500
"""Of a name, a prefix or a pattern."""
MATCH_KEYS: Final = (
    "client_instance_id",
    "client_id",
    "client_software_name",
    "client_software_version",
    "client_source_address",
)


def _check_metrics(items: tuple[str, ...]) -> str | None:
    if len(items) > PREFIXES_MAX or any(len(item) > TEXT_CHARACTERS_MAX for item in items):
        return f"must have at most {PREFIXES_MAX} items of at most {TEXT_CHARACTERS_MAX} characters"
    return None


def _check_match(items: tuple[str, ...]) -> str | None:
    named = set()
    for item in items:
        name, equals, pattern = item.partition("=")
        if not equals or name not in MATCH_KEYS:
            return f"{shown(item)} must be <key>=<regular expression> with one of the keys {', '.join(MATCH_KEYS)}"
        if name in named:
            return f"{name} is contained twice"
        if len(pattern) > TEXT_CHARACTERS_MAX:
            return f"the regular expression of {name} must have at most {TEXT_CHARACTERS_MAX} characters"
        named.add(name)
        try:
            compiled(pattern)
        except KafkaError as error:
            return error.message
    return None


METRICS: ConfigKey[tuple[str, ...]] = ConfigKey(
    "metrics",
    ConfigType.LIST,
    (),
    "Prefixes of the names of the metrics that clients push, such as org.apache.kafka.producer. *: all metrics. Empty:"
    " none.",
    _check_metrics,
    dynamic=True,
)
INTERVAL_MS: ConfigKey[int] = ConfigKey(
    "interval.ms",
    ConfigType.INT,
    DEFAULT_INTERVAL_MS,
    "How often clients push, in milliseconds.",
    between(100, 3_600_000),
    dynamic=True,
)
MATCH: ConfigKey[tuple[str, ...]] = ConfigKey(
    "match",
    ConfigType.LIST,
    (),
    "Which clients push: <key>=<regular expression> in the syntax of RE2, which must match the whole value of"
    f" {', '.join(MATCH_KEYS)}. All items must match. Empty: all clients.",
    _check_match,
    dynamic=True,
)
CLIENT_METRICS_CONFIG: Final = ConfigSchema((METRICS, INTERVAL_MS, MATCH))


def client_metrics_configs(stored: Mapping[str, str]) -> Configs:
    """The configuration of a subscription. The texts are those of the metadata log."""
    layer = Layer(ConfigSource.DYNAMIC_CLIENT_METRICS_CONFIG, CLIENT_METRICS_CONFIG.restore(stored))
    return Configs(CLIENT_METRICS_CONFIG, [layer])


@dataclass(frozen=True, slots=True)
class Subscription:
    metrics: tuple[str, ...]
    interval_ms: int
    _match: tuple[tuple[str, Any], ...]
    """(key, compiled pattern)"""

    def matches(self, client: Mapping[str, str]) -> bool:
        """Whether a client with these values of MATCH_KEYS pushes metrics."""
        return all(pattern.fullmatch(client[key]) is not None for key, pattern in self._match)


def subscription_of(configs: Configs) -> Subscription:
    pairs = (item.partition("=") for item in configs[MATCH])
    return Subscription(
        configs[METRICS], configs[INTERVAL_MS], tuple((name, compiled(pattern)) for name, _, pattern in pairs)
    )
