"""(shell) The brokers that the arguments of a read or a write name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from raylog.client.bootstrap import resolve
from raylog.client.client_config import ClientConfig
from raylog.client.given_values import checked_keys, shown
from raylog.config.client import BOOTSTRAP_SERVERS
from raylog.core.errors import ConfigError


def given_brokers(
    bootstrap_servers: str | None,
    client_config: Mapping[str, Any] | None,
    *,
    isolation_level: str | None = None,
    producer_config: Mapping[str, Any] | None = None,
) -> ClientConfig:
    """As `ClientConfig.of`, if all that name brokers name those of one cluster: they have an address in common.

    The configuration of a login has the addresses of the time when it was written; brokers may have been added since.
    Raises ConfigError, and KafkaError if the brokers of a named cluster do not respond.
    """
    client = checked_keys("client_config", client_config)
    brokers = ClientConfig.of(bootstrap_servers, client, isolation_level=isolation_level)
    for argument, config in (("client_config", client), ("producer_config", producer_config or {})):
        other = config.get(BOOTSTRAP_SERVERS.name)
        if other not in (None, "") and _addresses(other).isdisjoint(_addresses(brokers.bootstrap_servers)):
            servers = shown(brokers.bootstrap_servers)
            raise ConfigError(
                f"{BOOTSTRAP_SERVERS.name}={shown(other)} in {argument}: names other brokers than {servers}"
            )
    return brokers


def _addresses(servers: Any) -> set[str]:
    return {each.strip() for each in resolve(servers).servers.split(",")} if isinstance(servers, str) else set()
