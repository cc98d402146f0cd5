"""(shell) Where a sink writes, and the producers of its tasks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

from raylog.client.bootstrap import resolve
from raylog.client.client_config import ClientConfig, checked_properties
from raylog.client.cluster_view import parse_servers
from raylog.client.given_config import given_config
from raylog.client.given_values import checked_keys, is_text, shown
from raylog.client.producer.producer import Producer
from raylog.config.client import BOOTSTRAP_SERVERS
from raylog.config.producer import (
    BATCH_SIZE,
    ENABLE_IDEMPOTENCE,
    MAX_BLOCK_MS,
    PRODUCER_CONFIG,
    TRANSACTIONAL_ID,
    producer_settings,
)
from raylog.core.errors import ConfigError
from raylog.core.password import Password

_DEFAULTS: Final = {BATCH_SIZE.name: "1000000"}
"""Rows come many at a time: batches need not be small to be sent soon."""
CLOSE_SECONDS: Final = 10.0
"""How long a task that has failed waits for the abort of its transaction. Its next attempt aborts it otherwise."""

TOPIC_WAIT_MS: Final = 10_000
"""How long a write waits at its start for a topic that the brokers do not know, or are creating."""


@dataclass(frozen=True, slots=True)
class SinkTarget:
    """Sent to the tasks. Passwords are never shown."""

    topic: str | None
    """None: the rows name it."""
    brokers: ClientConfig
    producer_config: Mapping[str, str | Password]

    @classmethod
    def of(
        cls,
        topic: str | None,
        *,
        bootstrap_servers: str | None,
        client_config: Mapping[str, Any] | None,
        producer_config: Mapping[str, Any] | None,
        exactly_once: bool = False,
    ) -> SinkTarget:
        """`producer_config` has Kafka's keys of a producer, with dots or underscores. Raises ConfigError, with
        `exactly_once` also for what a transaction does not permit."""
        if topic is not None and not (is_text(topic) and topic):
            raise ConfigError(f"topic={shown(topic)}: must be the name of a topic")
        keys = checked_keys("producer_config", producer_config)
        given = {name.replace("_", "."): value for name, value in keys.items()}
        brokers = ClientConfig.of(bootstrap_servers, client_config)
        _check_servers(given.get(BOOTSTRAP_SERVERS.name), brokers.bootstrap_servers)
        defaults = _DEFAULTS | ({ENABLE_IDEMPOTENCE.name: "true"} if exactly_once else {})
        merged = {**defaults, **brokers.keys_of(PRODUCER_CONFIG), **checked_properties(given)}
        if TRANSACTIONAL_ID.name in merged:
            raise ConfigError(f"{TRANSACTIONAL_ID.name}: is chosen by the sink")
        target = cls(topic, brokers, merged)
        config = target._config("any" if exactly_once else None)
        producer_settings(given_config(PRODUCER_CONFIG, config, {}).configs)
        return target

    def _config(self, transactional_id: str | None) -> dict[str, Any]:
        own = {} if transactional_id is None else {TRANSACTIONAL_ID.name: transactional_id}
        return {**self.producer_config, "bootstrap.servers": self.brokers.bootstrap_servers, **own}

    def require_topic(self) -> None:
        """In the driver, since each attempt of each task would wait for the topic. Brokers may create it.

        Raises KafkaError, after max.block.ms if that is given, otherwise after TOPIC_WAIT_MS.
        """
        if self.topic is not None:
            with Producer({MAX_BLOCK_MS.name: TOPIC_WAIT_MS, **self._config(None)}) as producer:
                producer.partitions_for(self.topic)

    @contextmanager
    def producer(self, transactional_id: str | None = None) -> Iterator[Producer]:
        """Closed at the end; after an error without waiting for long, and with its transaction aborted."""
        producer = Producer(self._config(transactional_id))
        try:
            yield producer
        except BaseException:
            producer.close(CLOSE_SECONDS)
            raise
        producer.close()


def _check_servers(given: Any, servers: str) -> None:
    """Raises ConfigError for a producer's bootstrap.servers that have no address of `servers`, which are used."""
    if given and (not isinstance(given, str) or _addresses(resolve(given).servers).isdisjoint(_addresses(servers))):
        rule = f"names other brokers than {shown(servers)}"
        raise ConfigError(f"{BOOTSTRAP_SERVERS.name}={shown(given)} in producer_config: {rule}")


def _addresses(servers: str) -> set[tuple[str, int]]:
    """Raises ConfigError."""
    return {(host.lower(), port) for host, port in parse_servers(servers)}
