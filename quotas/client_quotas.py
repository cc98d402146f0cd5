"""The configured quotas of a cluster, and which of them applies to a client.

A quota belongs to an entity: a user, a client id, both, or an IP address, each of which may be the default for those
without a quota of their own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from ipaddress import ip_address
from typing import Final, NamedTuple

USER: Final = "user"
CLIENT_ID: Final = "client-id"
IP: Final = "ip"

PRODUCER_BYTE_RATE: Final = "producer_byte_rate"
CONSUMER_BYTE_RATE: Final = "consumer_byte_rate"
REQUEST_PERCENTAGE: Final = "request_percentage"
CONTROLLER_MUTATION_RATE: Final = "controller_mutation_rate"
CONNECTION_CREATION_RATE: Final = "connection_creation_rate"

DEFAULT: Final = None
"""The name of an entity that stands for all without a quota of their own."""
NAME_CHARACTERS_MAX: Final = 1000
"""No entity has a longer name."""

QuotaEntity = tuple[tuple[str, str | None], ...]
"""Pairs of type and name, ordered by type."""


def entity(parts: Mapping[str, str | None]) -> QuotaEntity:
    """The entity with these names by type."""
    return tuple(sorted(parts.items()))


def shortened(name: str) -> str:
    """What quotas keep of a name that a client has given itself: longer ones are not told apart."""
    return name if len(name) <= NAME_CHARACTERS_MAX else name[: NAME_CHARACTERS_MAX + 1]


class Identity(NamedTuple):
    """The clients that share a quota: all with this user and this client id, as `shortened`; None stands for any."""

    user: str | None
    client_id: str | None


class Limit(NamedTuple):
    """The quota that applies to a client."""

    value: float
    identity: Identity
    """The clients that share it with this one."""
    rule: QuotaEntity
    """The entity for which it is configured."""


@dataclass(slots=True)
class ClientQuotas:
    """All quotas of a cluster: their values by entity and key."""

    entries: dict[QuotaEntity, dict[str, float]] = field(default_factory=dict)
    _by_key: dict[str, dict[QuotaEntity, float]] = field(default_factory=dict)
    _users: dict[str, Counter[str | None]] = field(default_factory=dict)
    """By key, how many entities name each user; None: those that apply to users of any name."""

    def __bool__(self) -> bool:
        return bool(self.entries)

    def copy(self) -> ClientQuotas:
        copy = ClientQuotas()
        for of, values in self.entries.items():
            for key, value in values.items():
                copy.set(of, key, value)
        return copy

    def set(self, of: QuotaEntity, key: str, value: float) -> None:
        if key not in self.entries.get(of, {}):
            self._users.setdefault(key, Counter())[_user_of(of)] += 1
        self.entries.setdefault(of, {})[key] = value
        self._by_key.setdefault(key, {})[of] = value

    def remove(self, of: QuotaEntity, key: str) -> None:
        """Raises KeyError if the entity has no such quota."""
        del self.entries[of][key], self._by_key[key][of]
        if not self.entries[of]:
            del self.entries[of]
        users, user = self._users[key], _user_of(of)
        users[user] -= 1
        if not users[user]:
            del users[user]
        if not self._by_key[key]:
            del self._by_key[key], self._users[key]

    def limits(self, key: str) -> bool:
        """Whether any client has a quota of this key."""
        return key in self._by_key

    def limit(self, key: str, user: str, client_id: str) -> Limit | None:
        """The most specific quota that matches a client; None: it has no quota.

        A quota of the user, with or without a client id, goes before one of the client id alone.
        """
        values = self._by_key.get(key)
        if values is None:
            return None
        user, client_id = shortened(user), shortened(client_id)
        for user_part, client_part in _precedence(user, client_id):
            rule = (*client_part, *user_part)
            value = values.get(rule)
            if value is not None:
                return Limit(value, Identity(user if user_part else None, client_id if client_part else None), rule)
        return None

    def ip_limit(self, address: str) -> Limit | None:
        """The quota of connections from an IP address; None: it has none. Clients without an address have none."""
        values = self._by_key.get(CONNECTION_CREATION_RATE)
        if values is None or not _is_address(address):
            return None
        for name in (address, DEFAULT):
            value = values.get(((IP, name),))
            if value is not None:
                return Limit(value, Identity(address, None), ((IP, name),))
        return None

    def may_limit(self, key: str, user: str) -> bool:
        """Whether a client of this user may have a quota, with whatever client id."""
        users = self._users.get(key, ())
        return user in users or DEFAULT in users


def _user_of(of: QuotaEntity) -> str | None:
    return dict(of).get(USER, DEFAULT)


def _is_address(text: str) -> bool:
    try:
        ip_address(text)
    except ValueError:
        return False
    return True


_Part = tuple[tuple[str, str | None], ...]


def _precedence(user: str, client_id: str) -> Iterator[tuple[_Part, _Part]]:
    """The user and the client id of each entity that matches, the most specific one first."""
    clients: tuple[_Part, ...] = (((CLIENT_ID, client_id),), ((CLIENT_ID, DEFAULT),))
    for users in (((USER, user),), ((USER, DEFAULT),)):
        for client in (*clients, ()):
            yield users, client
    for client in clients:
        yield (), client
