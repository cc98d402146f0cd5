"""The follower's side of incremental fetches (KIP-227): builds the next request and tracks the session.

`fetch_sessions.py` is the leader's side and describes the session protocol.
"""

from __future__ import annotations

from typing import NamedTuple

from raylog.core.errors import ErrorCode
from raylog.protocol.fetch import FetchPartition, FetchResponse
from raylog.replication.fetch_sessions import INITIAL_EPOCH, NO_SESSION_ID, PartitionKey, next_epoch

SESSION_ERRORS = (
    ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
    ErrorCode.INVALID_FETCH_SESSION_EPOCH,
    ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
)
"""The leader does not know the session or its epoch: a new session is needed."""


class SessionRequest(NamedTuple):
    """The partitions of one request: those added or changed, and those forgotten."""

    session_id: int
    session_epoch: int
    named: list[tuple[PartitionKey, FetchPartition]]
    forgotten: list[PartitionKey]


class ReplicaFetchSession:
    """Turns partition changes into requests, one at a time; later changes go into the next request.

    A session lasts until a response refuses it or is lost. After that, or if the leader grants no session, the next
    request lists every partition and requests a new session.
    """

    def __init__(self) -> None:
        self._wanted: dict[PartitionKey, FetchPartition] = {}
        self._changed: dict[PartitionKey, None] = {}
        """Partitions that the next request adds or changes."""
        self._forgotten: dict[PartitionKey, None] = {}
        """Partitions that the next request forgets."""
        self._session_id = NO_SESSION_ID
        self._epoch = INITIAL_EPOCH

    def __len__(self) -> int:
        return len(self._wanted)

    def want(self, key: PartitionKey, wanted: FetchPartition) -> None:
        """Fetch `key` with these parameters. If they changed, the partition moves to the end of the order."""
        if self._wanted.get(key) == wanted:
            return
        self._wanted.pop(key, None)
        self._wanted[key] = wanted
        self._changed[key] = None
        self._forgotten.pop(key, None)

    def forget(self, key: PartitionKey) -> None:
        if self._wanted.pop(key, None) is not None:
            self._changed.pop(key, None)
            self._forgotten[key] = None

    def request(self) -> SessionRequest:
        """The next request. The leader is assumed to have received it."""
        named = [(key, self._wanted[key]) for key in self._changed]
        if self._epoch == INITIAL_EPOCH:
            named, self._forgotten = list(self._wanted.items()), {}
        request = SessionRequest(self._session_id, self._epoch, named, list(self._forgotten))
        self._changed, self._forgotten = {}, {}
        return request

    def answered(self, response: FetchResponse) -> bool:
        """Process the response; whether it has partition results. Partitions it omits are unchanged."""
        if response.error_code != ErrorCode.NONE or response.session_id == NO_SESSION_ID:
            self.reset()
        else:
            self._session_id = response.session_id
            self._epoch = next_epoch(self._epoch)
        return response.error_code == ErrorCode.NONE

    def reset(self) -> None:
        """The response was lost: whether the leader processed the request is unknown."""
        self._session_id, self._epoch = NO_SESSION_ID, INITIAL_EPOCH
