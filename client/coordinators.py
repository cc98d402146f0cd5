"""Which broker coordinates a group or a transactional id. Sans-IO.

All keys wanted in one turn go out in one request if the broker takes several (KIP-699, version 4). Retriable errors are
retried with growing pauses (KIP-580); all others are raised at the next `node_id`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from functools import partial
from typing import Any, Final

from raylog.client.backoff import backoff_ms
from raylog.client.network_client import NetworkClient
from raylog.core.clock import Now
from raylog.core.errors import ErrorCode, KafkaError, ProtocolViolation
from raylog.protocol import codec
from raylog.protocol.messages.find_coordinator import FindCoordinatorRequest
from raylog.protocol.registry import FIND_COORDINATOR
from raylog.protocol.schema import Message
from raylog.transport.peer_link import VersionFor

BATCHES_SINCE: Final = 4
_KEY_VERSION: Final = 2
"""The last version whose encoding limits the length of a key to that of Kafka's strings."""
MOVED: Final = (
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NETWORK_EXCEPTION,
    ErrorCode.REQUEST_TIMED_OUT,
)
"""Errors of a request to a coordinator after which another broker may be the coordinator."""


class KeyType(IntEnum):
    """What a key names."""

    GROUP = 0
    TRANSACTION = 1


@dataclass(slots=True)
class _Lookup:
    node_id: int | None = None
    failure: KafkaError | None = None
    """An error that does not pass, until it is raised."""
    wanted: bool = False
    asked: bool = False
    attempts: int = 0
    """Failed ones since the coordinator was last found."""
    due_ms: int = 0


class Coordinators:
    """A service of the network, to be run after its users: they name keys, and it asks for those that are unknown."""

    def __init__(self, network: NetworkClient) -> None:
        self._network = network
        self._lookups: dict[tuple[KeyType, str], _Lookup] = {}

    def node_id(self, key_type: KeyType, key: str) -> int | None:
        """The coordinator's broker id, which is in the metadata; None while it is not known, and looked for.

        Raises a KafkaError that does not pass, such as GROUP_AUTHORIZATION_FAILED, once; the next call asks again.
        INVALID_REQUEST is raised for a key that no request can name.
        """
        lookup = self._lookups.get((key_type, key))
        if lookup is None:
            _check(key)
            lookup = self._lookups[key_type, key] = _Lookup()
        if lookup.failure is not None:
            error, lookup.failure = lookup.failure, None
            raise error
        if lookup.node_id is None:
            lookup.wanted = True
        elif lookup.node_id not in self._network.metadata.nodes:
            self._network.metadata.expire()  # a broker that has started since; if it is gone, another coordinator is
            lookup.node_id = None
            lookup.wanted = True
        return lookup.node_id

    def refused(self, key_type: KeyType, key: str, code: ErrorCode) -> None:
        """A request to the coordinator has failed with this error: if it is one of `MOVED`, look for it again.

        The caller pauses before it sends the request again.
        """
        if code in MOVED:
            self._lookups.setdefault((key_type, key), _Lookup()).node_id = None

    @property
    def waits(self) -> bool:
        """Whether a coordinator is to be asked for."""
        return any(map(self._waits, self._lookups.values()))

    # --- as a service

    def run(self, now: Now) -> None:
        if not self._may_ask:
            return
        for key_type in KeyType:
            keys = [
                key
                for (kind, key), lookup in self._lookups.items()
                if kind is key_type and self._waits(lookup) and now.monotonic_ms >= lookup.due_ms
            ]
            if keys:
                self._ask(key_type, keys, now)

    def next_deadline_ms(self) -> int | None:
        if not self._may_ask:
            return None
        return min((lookup.due_ms for lookup in self._lookups.values() if self._waits(lookup)), default=None)

    @property
    def _may_ask(self) -> bool:
        """Before the first metadata a coordinator could not be reached; if there is none, the request shows why."""
        return bool(self._network.metadata.nodes) or self._network.metadata.failure is not None

    @staticmethod
    def _waits(lookup: _Lookup) -> bool:
        return lookup.wanted and not lookup.asked

    def _ask(self, key_type: KeyType, keys: Sequence[str], now: Now) -> None:
        asked = {key: self._lookups[key_type, key] for key in keys}
        for lookup in asked.values():
            lookup.asked = True

        def request(version_for: VersionFor) -> Message:
            if version_for(FIND_COORDINATOR) >= BATCHES_SINCE:
                return FindCoordinatorRequest(key_type=key_type, coordinator_keys=tuple(asked))
            for key in keys[1:]:  # they go out with the next run
                asked.pop(key).asked = False
            return FindCoordinatorRequest(key_type=key_type, key=keys[0])

        self._network.ask_any(request, partial(self._answered, asked), partial(self._failed, asked), now)

    def _answered(self, asked: dict[str, _Lookup], response: Any, now: Now) -> None:
        if not response.coordinators:  # before version 4
            (lookup,) = asked.values()
            self._found(lookup, response, now)
            return
        left = dict(asked)
        for found in response.coordinators:
            if found.key in left:
                self._found(left.pop(found.key), found, now)
        self._failed(left, KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "the response lacks the key"), now)

    def _found(self, lookup: _Lookup, found: Any, now: Now) -> None:
        if found.error_code is not ErrorCode.NONE:
            error = KafkaError(found.error_code, found.error_message or found.error_code.sentence)
            self._end(lookup, error, now)
        elif found.node_id not in self._network.metadata.nodes:
            self._network.metadata.expire()
            text = f"the coordinator, broker {found.node_id}, is not in the metadata yet"
            self._end(lookup, KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, text), now)
        else:
            lookup.node_id = found.node_id
            lookup.asked = lookup.wanted = False
            lookup.attempts = 0

    def _failed(self, asked: dict[str, _Lookup], error: KafkaError, now: Now) -> None:
        for lookup in asked.values():
            self._end(lookup, error, now)

    def _end(self, lookup: _Lookup, error: KafkaError, now: Now) -> None:
        settings = self._network.settings
        lookup.asked = False
        lookup.attempts += 1
        pause_ms = backoff_ms(
            lookup.attempts, settings.retry_backoff_ms, settings.retry_backoff_ms_max, self._network.jitter
        )
        lookup.due_ms = now.monotonic_ms + pause_ms
        if not error.code.retriable:
            lookup.wanted = False
            lookup.failure = error


def _check(key: str) -> None:
    """Raises KafkaError. An error of the request would be that of all its keys."""
    try:
        codec.encode_buffers(FindCoordinatorRequest(key=key), _KEY_VERSION)
    except (ValueError, ProtocolViolation) as error:
        raise KafkaError(ErrorCode.INVALID_REQUEST, str(error)) from None
