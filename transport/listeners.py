"""Listeners as Kafka configures them: bind and advertised addresses, and which one is for inter-broker traffic."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace

from raylog.config.network import ADVERTISED_LISTENERS, LISTENERS, ListenerSettings, listener_settings
from raylog.core.config import Configs, shown, shown_name
from raylog.core.errors import ConfigError
from raylog.security.security_protocol import SecurityProtocol
from raylog.transport.endpoints import Endpoint, Listener

_LISTENER = re.compile(r"(?P<name>[A-Za-z0-9_]+)://(?P<host>\[[0-9a-fA-F:.]+\]|[^:/\[\]]*):(?P<port>[0-9]{1,5})")


def plan_listeners(configs: Configs, *, internal_host: str = "127.0.0.1") -> list[Listener]:
    """Every listener of a broker, the inter-broker one last. Raises ConfigError that names key, value and rule.

    `internal_host` is the host of the inter-broker listener if it is not configured.
    """
    settings = listener_settings(configs)
    planned = [each for each in _plan(settings, internal_host) if each.name not in settings.controller_names]
    if all(listener.internal for listener in planned):
        names = ", ".join(sorted({settings.inter_broker_name, *settings.controller_names}))
        raise ConfigError(f"listeners: has none but {names}, which clients of brokers cannot use; add one for them")
    return planned


def plan_controller_listeners(configs: Configs, *, internal_host: str = "127.0.0.1") -> list[Listener]:
    """Every listener of a controller, that for other nodes last: those of controller.listener.names in listeners.

    Raises ConfigError as `plan_listeners`.
    """
    settings = listener_settings(configs)
    return [each for each in _plan(settings, internal_host) if each.internal or each.name in settings.controller_names]


def _plan(settings: ListenerSettings, internal_host: str) -> list[Listener]:
    bound = _parse(LISTENERS.name, settings.listeners)
    advertised = _parse(ADVERTISED_LISTENERS.name, settings.advertised)
    if not bound:
        raise ConfigError("listeners='': must name at least one listener")
    if unknown := sorted(set(advertised) - set(bound)):
        raise ConfigError(f"advertised.listeners: listeners has no {shown_name(', '.join(unknown))}")
    protocols = _security_protocols(settings.security_protocols)
    internal_name = settings.inter_broker_name
    if internal_name in settings.controller_names:
        raise ConfigError(f"controller.listener.names: {internal_name} is for nodes; it must be a listener for clients")
    internal_protocol = _protocol_of(internal_name, {internal_name: SecurityProtocol.PLAINTEXT.value, **protocols})
    if internal_protocol.by_sasl:
        raise ConfigError(
            f"listener.security.protocol.map: {internal_name} authenticates nodes with the cluster's secret; its"
            " protocol must be PLAINTEXT or SSL"
        )
    listeners = [
        Listener(
            name,
            endpoint,
            advertised.get(name),
            internal=name == internal_name,
            security=internal_protocol if name == internal_name else _protocol_of(name, protocols),
        )
        for name, endpoint in bound.items()
    ]
    if not any(listener.internal for listener in listeners):
        listeners.append(Listener(internal_name, Endpoint(internal_host, 0), None, True, internal_protocol))
    return sorted(listeners, key=lambda listener: listener.internal)


def with_last_ports(listeners: Iterable[Listener], ports: Mapping[str, int]) -> list[Listener]:
    """The same listeners; those with port 0 have the port that was bound at the last start as `last_port`.

    A new client listener gets the port of one that no longer exists: the addresses of the broker remain.
    """
    planned = list(listeners)
    names, fixed = {listener.name for listener in planned}, {listener.bind.port for listener in planned}
    left = iter([port for name, port in ports.items() if name not in names and port not in fixed])

    def last_port(listener: Listener) -> int:
        if listener.bind.port:
            return 0
        return ports.get(listener.name, 0) if listener.internal or listener.name in ports else next(left, 0)

    return [replace(listener, last_port=last_port(listener)) for listener in planned]


def hosts_of(listeners: Iterable[Listener]) -> list[str]:
    """The host names and addresses by which others reach these listeners, as far as they are configured."""
    endpoints = [each for listener in listeners for each in (listener.advertised, listener.bind) if each is not None]
    return [endpoint.host for endpoint in endpoints if endpoint.host not in ("", "0.0.0.0", "::")]


def _parse(key: str, texts: tuple[str, ...]) -> dict[str, Endpoint]:
    endpoints: dict[str, Endpoint] = {}
    taken: set[Endpoint] = set()
    for text in texts:
        match = _LISTENER.fullmatch(text)
        if match is None or int(match["port"]) > 65535:
            raise ConfigError(f"{key}={shown(text)}: must be NAME://host:port with a port up to 65535")
        name, endpoint = match["name"].upper(), Endpoint(match["host"].strip("[]"), int(match["port"]))
        if name in endpoints:
            raise ConfigError(f"{key}: lists {shown_name(name)} twice")
        if endpoint.port and endpoint in taken:
            raise ConfigError(f"{key}: lists {shown_name(str(endpoint))} twice")
        endpoints[name] = endpoint
        taken.add(endpoint)
    return endpoints


def _security_protocols(entries: tuple[str, ...]) -> dict[str, str]:
    """The names of the protocols by the names of listeners, all in upper case."""
    protocols: dict[str, str] = {}
    for text in entries:
        name, separator, protocol = text.partition(":")
        if not separator:
            raise ConfigError(f"listener.security.protocol.map={shown(text)}: must be NAME:PROTOCOL")
        protocols[name.strip().upper()] = protocol.strip().upper()
    return protocols


def _protocol_of(name: str, protocols: Mapping[str, str]) -> SecurityProtocol:
    """The protocol of a listener that the map does not contain is its own name."""
    protocol = protocols.get(name, name)
    try:
        return SecurityProtocol(protocol)
    except ValueError:
        known = ", ".join(each.value for each in SecurityProtocol)
        raise ConfigError(
            f"listeners: {shown_name(name)} has security protocol {shown_name(protocol)}, which is none of {known};"
            " set listener.security.protocol.map"
        ) from None
