"""Listeners as Kafka configures them: where to listen, what to tell clients, which of them is the cluster's own."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace

from raylog.config import broker as config
from raylog.core.config import Configs
from raylog.core.errors import ConfigError
from raylog.transport.endpoints import Endpoint, Listener

_LISTENER = re.compile(r"(?P<name>[A-Za-z0-9_]+)://(?P<host>\[[0-9a-fA-F:.]+\]|[^:/\[\]]*):(?P<port>\d{1,5})")
SERVED_SECURITY_PROTOCOLS = ("PLAINTEXT",)


def plan_listeners(configs: Configs, *, internal_host: str = "127.0.0.1") -> list[Listener]:
    """Every listener to open, the internal one last. Raises ConfigError that names key, value and rule.

    `internal_host` is where the internal one listens when it is not configured.
    """
    bound = _parse(config.LISTENERS.name, configs[config.LISTENERS])
    advertised = _parse(config.ADVERTISED_LISTENERS.name, configs[config.ADVERTISED_LISTENERS])
    if not bound:
        raise ConfigError("listeners='': at least one listener is needed")
    if unknown := sorted(set(advertised) - set(bound)):
        raise ConfigError(f"advertised.listeners: {', '.join(unknown)} is not among listeners")
    _check_security(configs, bound)
    internal_name = configs[config.INTER_BROKER_LISTENER_NAME].upper()
    listeners = [
        Listener(name, endpoint, advertised.get(name), internal=name == internal_name)
        for name, endpoint in bound.items()
    ]
    if all(listener.internal for listener in listeners):
        raise ConfigError(
            f"inter.broker.listener.name={internal_name!r}: is the only listener, so no client could connect;"
            " name another one, or leave the key out"
        )
    if not any(listener.internal for listener in listeners):
        listeners.append(Listener(internal_name, Endpoint(internal_host, 0), None, internal=True))
    return sorted(listeners, key=lambda listener: listener.internal)


def with_ports(listeners: list[Listener], ports: Mapping[str, int]) -> list[Listener]:
    """The same listeners, with a port that was free to choose replaced by the one chosen last time."""
    return [
        replace(listener, bind=Endpoint(listener.bind.host, listener.bind.port or ports.get(listener.name, 0)))
        for listener in listeners
    ]


def _parse(key: str, texts: tuple[str, ...]) -> dict[str, Endpoint]:
    endpoints: dict[str, Endpoint] = {}
    for text in texts:
        match = _LISTENER.fullmatch(text)
        if match is None or int(match["port"]) > 65535:
            raise ConfigError(f"{key}={text!r}: must be NAME://host:port with a port up to 65535")
        name, endpoint = match["name"].upper(), Endpoint(match["host"].strip("[]"), int(match["port"]))
        if name in endpoints:
            raise ConfigError(f"{key}: {name} is named twice")
        if endpoint.port and endpoint in endpoints.values():
            raise ConfigError(f"{key}: {endpoint} is named twice")
        endpoints[name] = endpoint
    return endpoints


def _check_security(configs: Configs, names: Mapping[str, Endpoint]) -> None:
    protocols: dict[str, str] = {}
    for text in configs[config.LISTENER_SECURITY_PROTOCOL_MAP]:
        name, separator, protocol = text.partition(":")
        if not separator:
            raise ConfigError(f"listener.security.protocol.map={text!r}: must be NAME:PROTOCOL")
        protocols[name.strip().upper()] = protocol.strip().upper()
    for name in names:
        protocol = protocols.get(name, name)
        if protocol not in SERVED_SECURITY_PROTOCOLS:
            raise ConfigError(
                f"listeners: {name} has security protocol {protocol}; raylog serves"
                f" {', '.join(SERVED_SECURITY_PROTOCOLS)} so far (see listener.security.protocol.map)"
            )
