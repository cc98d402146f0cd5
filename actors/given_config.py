"""The configuration that a cluster was started with, and that of each broker derived from it. Pure."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any

from raylog.actors.earlier_versions import set_state
from raylog.config.authentication import LOCAL_PRINCIPAL_MAPPING
from raylog.config.authorization import AUTHORIZER_CLASS_NAME, STANDARD_AUTHORIZER, SUPER_USERS
from raylog.config.membership import NODE_ID
from raylog.config.network import (
    CONTROLLER_LISTENER_NAMES,
    INTER_BROKER_LISTENER_NAME,
    LISTENER_SECURITY_PROTOCOL_MAP,
)
from raylog.config.table import BROKER_CONFIG, hide_passwords
from raylog.core.config import LISTENER_PREFIX
from raylog.core.errors import ConfigError
from raylog.core.password import Password
from raylog.metadata.node_roles import COORDINATOR_IDS, is_coordinator
from raylog.metadata.voters import FIRST_VOTER_ID

LOOPBACK = "127.0.0.1"
ADMINISTRATOR = "admin"
"""The user whom a secure cluster begins with."""
CONTROLLER_LISTENER = "CONTROLLER"
"""The name of the controllers' listener for clients, if a port says where it is."""
PORT_MAX = 65535
ID_KEYS = (NODE_ID.name, "broker.id")
CLUSTER_WIDE = {key.name for key in BROKER_CONFIG.keys.values() if key.cluster_wide}
"""Keys that have no effect for a single broker."""
_PORT = re.compile(r":[0-9]+\s*(?=,|$)")
_SECURITY = re.compile(r"(ssl|sasl)\.|listener\.security\.protocol\.map$")
_ALL_INTERFACES = ("", "0.0.0.0", "[::]")
_FIXED_PORT = re.compile(r"[^,]*?//([^,]*:0*[1-9][0-9]*)\s*(?=,|$)")


@dataclass(frozen=True, slots=True)
class StoredPassword:
    """Stands for a password where Ray would keep it, log it or show it."""

    place: str
    """Where it is among the passwords of the data directory."""


@dataclass(frozen=True, slots=True)
class GivenConfig:
    """The same for all nodes, including those that are added later."""

    texts: Mapping[str, Any] = field(default_factory=dict)
    """Kafka's broker configuration for all brokers; passwords are `Password` objects."""
    port: int | None = None
    """The port of the first broker; the others listen on those that follow. 0 and None stand for any free port."""
    first_broker_id: int = 0
    of_single: Mapping[int, Mapping[str, Any]] = field(default_factory=dict)
    """What overrides `texts` for single brokers, by their ids."""
    secure: bool = False
    """Whether clients must log in over TLS by default, and the authorizer is on."""
    controller_port: int | None = None
    """Where the first controller listens for clients, the others on the ports that follow; 0: on any free ones. None:
    on the listeners in `texts` that controller.listener.names contains."""

    __setstate__ = set_state

    def of_broker(self, broker_id: int, address: str = LOOPBACK) -> dict[str, Any]:
        """Raises ConfigError."""
        protocol = "SASL_SSL" if self.secure else "PLAINTEXT"
        texts = {"listeners": f"{protocol}://{address}:0", **self._common()}
        if self.port is not None:
            if "listeners" in self.texts:
                raise ConfigError("port and config['listeners'] exclude each other: set only one of them")
            place = broker_id - self.first_broker_id
            if not 0 <= self.port <= PORT_MAX - place:
                highest = f"{PORT_MAX - place}, since broker {broker_id} listens on port + {place}"
                raise ConfigError(f"port={self.port}: must be between 0 and {highest if place else PORT_MAX}")
            texts["listeners"] = f"{protocol}://{address}:{self.port + place if self.port else 0}"
        return {**texts, **self._own(broker_id)}

    def of_coordinator(self, node_id: int, address: str = LOOPBACK) -> dict[str, Any]:
        """That of brokers, but for their ports and addresses: without a configuration of its own it has free ports.

        Raises ConfigError.
        """
        protocol = "SASL_SSL" if self.secure else "PLAINTEXT"
        listeners = self._listeners_of_brokers(address) or f"{protocol}://{address}:0"
        texts = {"listeners": listeners, **self._common()}
        texts["listeners"] = _PORT.sub(":0", str(texts["listeners"]))
        texts.pop("advertised.listeners", None)
        return {**texts, **self._own(node_id)}

    def _listeners_of_brokers(self, address: str) -> str:
        """Those that are set for single brokers: a client finds a coordinator by the name of its own listener.

        Without those whose security is set for single brokers too, such as their certificates.
        """
        found: dict[str, str] = {}
        for node_id, own in sorted(self.of_single.items()):
            if is_coordinator(node_id) or any(_SECURITY.match(key) for key in own):
                continue
            for entry in str(own.get("listeners", "")).split(","):
                name, _, bound = entry.strip().partition("://")
                prefix = f"{LISTENER_PREFIX}{name.lower()}."
                if name and not any(key.startswith(prefix) for key in own):
                    host, _, port = bound.rpartition(":")
                    if address != LOOPBACK and host not in _ALL_INTERFACES:
                        host = f"[{address}]" if ":" in address else address  # that of the broker is on another host
                    found.setdefault(name.upper(), f"{name}://{host}:{port}")
        return ",".join(found.values())

    def _own(self, node_id: int) -> Mapping[str, Any]:
        """What is set for one node, without what has no effect there: an earlier version let it be set.

        Raises ConfigError.
        """
        own = self.of_single.get(node_id, {})
        for key in ID_KEYS:
            if key in own:
                raise not_for_one(key)
        return {key: value for key, value in own.items() if key not in CLUSTER_WIDE}

    def of_controller(self, number: int = 0, address: str = LOOPBACK) -> dict[str, Any]:
        """What is set for single brokers does not apply to controllers, nor do keys of listeners that others have.

        Raises ConfigError.
        """
        texts = {"listeners": f"PLAINTEXT://{address}:0", **self._common()}
        if self.controller_port is not None:
            texts |= self._own_listener(number, address)
        names = {entry.partition(":")[0].strip().lower() for entry in str(texts["listeners"]).split(",")}
        names.add(INTER_BROKER_LISTENER_NAME.default.lower())

        def applies(key: str) -> bool:
            listener = key.removeprefix(LISTENER_PREFIX).partition(".")[0]
            return not key.startswith(LISTENER_PREFIX) or listener.lower() in names

        return {key: value for key, value in texts.items() if applies(key)}

    def _own_listener(self, number: int, address: str) -> dict[str, str]:
        """The configuration of a controller's listener for clients, which has the security of those of brokers."""
        port = self.controller_port
        assert port is not None
        if CONTROLLER_LISTENER_NAMES.name in self.texts:
            rule = "exclude each other: set only one of them"
            raise ConfigError(f"controller_port and config[{CONTROLLER_LISTENER_NAMES.name!r}] {rule}")
        if not 0 <= port <= PORT_MAX - number:
            raise ConfigError(f"controller_port={port}: must be between 0 and {PORT_MAX - number}")
        protocol = "SASL_SSL" if self.secure else "PLAINTEXT"
        given = self.texts.get(LISTENER_SECURITY_PROTOCOL_MAP.name)
        protocols = LISTENER_SECURITY_PROTOCOL_MAP.default if given is None else (str(given),)
        return {
            "listeners": f"{CONTROLLER_LISTENER}://{address}:{port + number if port else 0}",
            CONTROLLER_LISTENER_NAMES.name: CONTROLLER_LISTENER,
            LISTENER_SECURITY_PROTOCOL_MAP.name: ",".join((*protocols, f"{CONTROLLER_LISTENER}:{protocol}")),
        }

    def given_first_id(self) -> int | None:
        """node.id, which is the id of the first broker; None if it is not set. Raises ConfigError."""
        given = [key for key in ID_KEYS if key in self.texts]
        if not given:
            return None
        if len(given) > 1:
            raise ConfigError("broker.id and node.id are the same key: set only one of them")
        text = str(self.texts[given[0]])
        first = NODE_ID.parse(text)
        if first >= FIRST_VOTER_ID:
            raise NODE_ID.refused(text, f"must be below {FIRST_VOTER_ID}, the id of the first controller")
        return first

    def check_ids(self, broker_ids: Collection[int]) -> None:
        """Raises ConfigError if a single broker that is configured does not exist. There may be no such coordinator."""
        for broker_id in self.of_single:
            if broker_id not in broker_ids and broker_id not in COORDINATOR_IDS:
                known = ", ".join(map(str, broker_ids))
                raise ConfigError(f"broker_config: there is no broker {broker_id!r}; the cluster has {known}")

    @property
    def advertises(self) -> bool:
        """Whether clients reach brokers by addresses that are configured, so that others may not be reachable."""
        return any("advertised.listeners" in texts for texts in (self.texts, *self.of_single.values()))

    def check_addresses(self, broker_ids: Collection[int]) -> None:
        """Raises ConfigError if several of these brokers would have the same address."""
        for key in ("listeners", "advertised.listeners"):
            text = ",".join(self._entries(key, of_controllers=False))
            sharing = [broker_id for broker_id in broker_ids if key not in self.of_single.get(broker_id, {})]
            if len(sharing) > 1 and _FIXED_PORT.search(text):
                rule = "several brokers cannot share a port; use port 0, the argument `port`, or `broker_config`"
                raise ConfigError(f"{key}={text!r}: {rule}")
        advertised: dict[str, int] = {}
        for broker_id in sorted(self.of_single):
            text = str(self.of_single[broker_id].get("advertised.listeners", ""))
            for address in _FIXED_PORT.findall(text):
                other = advertised.setdefault(address, broker_id)
                if other != broker_id:
                    rule = f"broker {other} advertises {address} too; clients could not tell them apart"
                    raise ConfigError(f"broker {broker_id}: advertised.listeners={text!r}: {rule}")

    def check_controller_addresses(self, count: int) -> None:
        """Raises ConfigError if several controllers would have the same address."""
        text = ",".join(self._entries("listeners", of_controllers=True))
        if count > 1 and _FIXED_PORT.search(text):
            rule = "several controllers cannot share a port; use port 0 or the argument `controller_port`"
            raise ConfigError(f"listeners={text!r}: {rule}")

    def _entries(self, key: str, *, of_controllers: bool) -> list[str]:
        """The listeners that controllers open, or those that brokers open."""
        names = str(self.texts.get(CONTROLLER_LISTENER_NAMES.name, "")).upper().split(",")
        own = {name.strip() for name in names}
        entries = [entry.strip() for entry in str(self.texts.get(key, "")).split(",")]
        return [each for each in entries if (each.partition(":")[0].upper() in own) is of_controllers]

    def without_passwords(self, in_use: Mapping[str, str] | None = None) -> tuple[GivenConfig, dict[str, str]]:
        """The same with a `StoredPassword` in place of each password, and the passwords by their places.

        `in_use` are passwords of another configuration by their places, which other passwords do not take.
        """
        passwords: dict[str, str] = {}
        taken = in_use or {}

        def stored(owner: str, texts: Mapping[str, Any]) -> dict[str, Any]:
            kept = dict(texts)
            for key, value in texts.items():
                if isinstance(value, Password):
                    place = _free_place(f"{owner}:{key}", value.reveal(), taken)
                    kept[key] = StoredPassword(place)
                    passwords[place] = value.reveal()
            return kept

        of_single = {broker_id: stored(f"broker-{broker_id}", texts) for broker_id, texts in self.of_single.items()}
        return replace(self, texts=stored("all", self.texts), of_single=of_single), passwords

    def with_passwords(self, passwords: Mapping[str, str]) -> GivenConfig:
        """The reverse of `without_passwords`. Raises ConfigError."""
        of_single = {broker_id: with_passwords(texts, passwords) for broker_id, texts in self.of_single.items()}
        return replace(self, texts=with_passwords(self.texts, passwords), of_single=of_single)

    @property
    def has_own_keys(self) -> bool:
        """Whether it names the certificates of brokers, which a secure cluster otherwise makes."""
        given = [*self.texts, *(key for texts in self.of_single.values() for key in texts)]
        return any("ssl.keystore." in key for key in given)

    def _common(self) -> dict[str, Any]:
        texts = {key: value for key, value in self.texts.items() if key not in ID_KEYS}
        if not self.secure:
            return texts
        super_users = str(texts.get(SUPER_USERS.name, "")).strip(" ;")
        administrator = f"User:{ADMINISTRATOR}"
        if administrator not in super_users.split(";"):
            super_users = f"{super_users};{administrator}".strip(";")
        secure = {
            AUTHORIZER_CLASS_NAME.name: STANDARD_AUTHORIZER,
            # Only the owner of the data directory and root can connect there, who can read client.properties too.
            LOCAL_PRINCIPAL_MAPPING.name: f"*:{ADMINISTRATOR}",
        }
        return {**secure, **texts, SUPER_USERS.name: super_users}


@dataclass(frozen=True, slots=True)
class NewConfig:
    """What a cluster is started with, or what is to change while it runs: then None stands for what it has."""

    config: Mapping[str, Any] | None = None
    """Passwords in it are `Password` objects."""
    broker_config: Mapping[int, Mapping[str, Any]] | None = None
    secure: bool | None = None
    users: Mapping[str, Password] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        config: Mapping[str, Any] | None,
        broker_config: Mapping[int, Mapping[str, Any]] | None,
        secure: bool | None,
        users: Mapping[str, str] | None,
    ) -> NewConfig:
        """From the arguments of `raylog.start` and `Cluster.rolling_restart`."""
        return cls(
            None if config is None else hide_passwords(config),
            None if broker_config is None else {each: hide_passwords(own) for each, own in broker_config.items()},
            secure,
            {user: Password(password) for user, password in (users or {}).items()},
        )

    def applied_to(self, given: GivenConfig) -> GivenConfig:
        """For a cluster that runs with `given`. Its ports remain, unless `config` contains listeners."""
        changed = given if self.secure is None else replace(given, secure=self.secure)
        if self.config is None and self.broker_config is None:
            return changed
        texts = self.config or {}
        port = None if "listeners" in texts else given.port
        return replace(changed, texts=texts, port=port, of_single=self.broker_config or {})


def with_passwords(texts: Mapping[str, Any], passwords: Mapping[str, str]) -> dict[str, Any]:
    """`texts` with the passwords that `StoredPassword` stands for. Raises ConfigError if one is missing."""
    found = dict(texts)
    for key, value in texts.items():
        if isinstance(value, StoredPassword):
            if value.place not in passwords:
                raise ConfigError(f"{key}: its value is missing from the passwords in the data directory")
            found[key] = Password(passwords[value.place])
    return found


def _free_place(wanted: str, password: str, taken: Mapping[str, str]) -> str:
    """The place, or a variant of it if it is taken by another password."""
    variants = (wanted if number == 1 else f"{wanted}#{number}" for number in count(1))
    return next(place for place in variants if taken.get(place, password) == password)


def not_for_one(key: str) -> ConfigError:
    return ConfigError(f"{key} cannot be set for a single broker; set it for all of them")
