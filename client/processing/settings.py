"""What a pool of `raylog.process` is to do. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final

from raylog.config.groups import CONSUMER
from raylog.core.errors import ConfigError

AT_LEAST_ONCE: Final = "at_least_once"
EXACTLY_ONCE: Final = "exactly_once"
CONCURRENCY_MAX: Final = 1_000
RETRIES_MAX: Final = 1_000_000
MILLISECONDS_MAX: Final = 24 * 3600 * 1000
OWN_KEYS: Final = frozenset(
    {"bootstrap.servers", "group.id", "group.instance.id", "enable.auto.commit", "transactional.id"}
)
"""Keys of clients that are decided here."""
NOT_READ: Final = frozenset({"large.message.enabled"})
"""A pool commits the offsets of records; those of chunks are other ones."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessSettings:
    """Checked on creation; raises ConfigError."""

    topics: tuple[str, ...]
    bootstrap_servers: str
    group_id: str
    concurrency: int = 1
    output: str | None = None
    delivery: str = AT_LEAST_ONCE
    dead_letter_topic: str | None = None
    retries: int = 3
    """How often a record that fails is worked on again."""
    retry_backoff_ms: int = 100
    """The first pause before that; it doubles."""
    retry_backoff_max_ms: int = 10_000
    commit_interval_ms: int = 1_000
    """The longest time between commits while there is work; without, what is done is committed at once."""
    client_config: Mapping[str, Any] = field(default_factory=dict)
    """Kafka's keys of a client for the consumer and the producer: logins and TLS."""
    consumer_config: Mapping[str, Any] = field(default_factory=dict)
    producer_config: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.topics or "" in self.topics:
            raise ConfigError(
                f"topic={list(self.topics)!r}: must be the name of a topic, a pattern, or a list of names"
            )
        for name in ("bootstrap_servers", "group_id"):
            if not isinstance(getattr(self, name), str) or not getattr(self, name):
                raise ConfigError(f"{name}={getattr(self, name)!r}: must be set")
        for name in ("output", "dead_letter_topic"):
            if getattr(self, name) is not None and (
                not isinstance(getattr(self, name), str) or not getattr(self, name)
            ):
                raise ConfigError(f"{name}={getattr(self, name)!r}: must be the name of a topic, or None")
        for name in ("output", "dead_letter_topic"):
            if self._reads(getattr(self, name)):
                raise ConfigError(f"{name}={getattr(self, name)!r}: is one of the topics that are read")
        if self.delivery not in (AT_LEAST_ONCE, EXACTLY_ONCE):
            raise ConfigError(f"delivery={self.delivery!r}: must be {AT_LEAST_ONCE!r} or {EXACTLY_ONCE!r}")
        self._check_number("concurrency", 1, CONCURRENCY_MAX)
        self._check_number("retries", 0, RETRIES_MAX)
        for name in ("retry_backoff_ms", "retry_backoff_max_ms", "commit_interval_ms"):
            self._check_number(name, 0, MILLISECONDS_MAX)
        for name in ("client_config", "consumer_config", "producer_config"):
            not_here = OWN_KEYS if name == "producer_config" else OWN_KEYS | NOT_READ
            refused = not_here & {key.replace("_", ".") for key in getattr(self, name)}
            if refused:
                raise ConfigError(f"{name}: {', '.join(sorted(refused))} cannot be set for a pool of raylog.process")

    @property
    def exactly_once(self) -> bool:
        return self.delivery == EXACTLY_ONCE

    @property
    def named_topics(self) -> Sequence[str]:
        """Those that must exist."""
        others = [topic for topic in (self.output, self.dead_letter_topic) if topic is not None]
        return [*(topic for topic in self.topics if not topic.startswith("^")), *others]

    def _reads(self, topic: str | None) -> bool:
        if topic is None or topic in self.topics:
            return topic is not None
        config = {key.replace("_", "."): value for key, value in self.consumer_config.items()}
        matches = re.fullmatch if config.get("group.protocol") == CONSUMER else re.match
        for pattern in self.topics:
            with suppress(re.error):  # the consumer refuses it
                if pattern.startswith("^") and matches(pattern, topic):
                    return True
        return False

    def _check_number(self, name: str, least: int, greatest: int) -> None:
        value = getattr(self, name)
        if type(value) is not int or not least <= value <= greatest:
            raise ConfigError(f"{name}={value!r}: must be a whole number between {least} and {greatest}")
