"""How the clients of a flow reach one of its two clusters, from the keys of mm2.properties."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final, Protocol

from raylog.config.admin import ADMIN_CONFIG
from raylog.config.client import BOOTSTRAP_SERVERS, CLIENT_CONFIG, client_settings, is_secret_of_client
from raylog.config.consumer import AUTO_OFFSET_RESET, CONSUMER_CONFIG, EARLIEST
from raylog.config.producer import PRODUCER_CONFIG
from raylog.core.config import ConfigSchema
from raylog.core.errors import ConfigError
from raylog.core.password import Password
from raylog.mirror.config_keys import FLOW_CONFIG

Properties = Mapping[str, str | Password]
ROLES: Final[Mapping[str, ConfigSchema]] = {
    "consumer": CONSUMER_CONFIG,
    "producer": PRODUCER_CONFIG,
    "admin": ADMIN_CONFIG,
}
_CLIENT: Final = re.compile(r"((source|target)\.)?(consumer|producer|admin)\..+")
_SECURITY: Final = ("security.", "ssl.", "sasl.")


class Entries(Protocol):
    """The file."""

    def under(self, prefix: str) -> dict[str, str]: ...

    def use(self, name: str) -> str | None: ...

    def note(self, key: str, reason: str) -> None: ...


@dataclass(frozen=True, slots=True)
class ClusterEnd:
    """A cluster of a flow, with the properties of each client that the flow uses there. Passwords are never shown."""

    alias: str
    consumer: Properties
    producer: Properties
    admin: Properties

    @property
    def bootstrap_servers(self) -> str:
        return str(self.admin[BOOTSTRAP_SERVERS.name])


def has_client_prefix(name: str) -> bool:
    """Whether a flow's or a cluster's key belongs to one kind of its clients."""
    return _CLIENT.fullmatch(name) is not None


def cluster_end(entries: Entries, flow: str, end: str, alias: str) -> ClusterEnd:
    """`end` is source or target. Raises ConfigError."""
    by_role = {role: _properties(entries, flow, end, alias, role) for role in ROLES}
    if end == "source":
        by_role["consumer"].setdefault(AUTO_OFFSET_RESET.name, EARLIEST)
    return ClusterEnd(alias, by_role["consumer"], by_role["producer"], by_role["admin"])


def _properties(entries: Entries, flow: str, end: str, alias: str, role: str) -> dict[str, str | Password]:
    """Of the clients of one kind; of keys that are set in several places the last one counts, as in MirrorMaker."""
    places = (
        (f"{flow}.{end}.cluster.", False),
        (f"{role}.", True),
        (f"{flow}.{role}.", True),
        ("", False),
        (f"{alias}.", False),
        (f"{alias}.{role}.", True),
        (f"{flow}.{end}.{role}.", True),
    )
    given: dict[str, tuple[str, str]] = {}
    for prefix, takes_all in places:
        for name, text in entries.under(prefix).items():
            if _is_of_flow(flow, f"{prefix}{name}"):
                continue
            if takes_all or name in CLIENT_CONFIG.keys or name.startswith(_SECURITY):
                entries.use(f"{prefix}{name}")
                given[name] = (f"{prefix}{name}", text)
    return _checked(entries, alias, role, given)


def _is_of_flow(flow: str, key: str) -> bool:
    """Whether the key is that of a flow, as admin.timeout.ms and consumer.poll.timeout.ms are, not of its clients."""
    return key.removeprefix(f"{flow}.") in FLOW_CONFIG.keys


def _checked(
    entries: Entries, alias: str, role: str, given: Mapping[str, tuple[str, str]]
) -> dict[str, str | Password]:
    """Without the keys that the client does not have. Raises ConfigError that names the key as in the file."""
    schema, kept = ROLES[role], dict[str, str | Password]()
    for name, (place, text) in given.items():
        if name in schema.keys:
            replace(schema.keys[name], name=place).parse(text)
            kept[name] = Password(text) if is_secret_of_client(name) else text
        elif name.startswith(_SECURITY):
            _check_security(place, name, text)
            entries.note(place, "of the Java client")
        else:
            entries.note(place, f"not a key of raylog's {role}")
    if not kept.get(BOOTSTRAP_SERVERS.name):
        raise ConfigError(f"{alias}.{BOOTSTRAP_SERVERS.name}: must be set")
    try:
        client_settings(kept)
    except ConfigError as error:
        raise ConfigError(f"{alias}: {error.message}") from None
    return kept


def _check_security(place: str, name: str, text: str) -> None:
    """Raises ConfigError for a key of TLS or SASL that raylog does not support, since it may protect something."""
    try:
        client_settings({name: text})
    except ConfigError as error:
        raise ConfigError(f"{place}: {error.message}") from None
