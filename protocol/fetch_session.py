"""The fetcher's side of incremental fetches (KIP-227): builds the next request and tracks the session. Pure.

Followers and consumers have one for each connection to a broker. `replication/fetch_sessions.py` is the broker's side
and describes the session protocol. As in Kafka's FetchSessionHandler, a request after a failure asks for a new session
and names the old one, which the broker then removes.
"""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from itertools import groupby
from typing import Final, NamedTuple
from uuid import UUID

from raylog.core.errors import ErrorCode
from raylog.protocol.fetch import FetchPartition, FetchResponse, FetchTopic, ForgottenTopic

NO_SESSION_ID: Final = 0
INITIAL_EPOCH: Final = 0
FINAL_EPOCH: Final = -1
SESSION_ID_LIMIT: Final = 1 << 31
"""Ids and epochs are below it."""
SESSION_ERRORS: Final = (
    ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
    ErrorCode.INVALID_FETCH_SESSION_EPOCH,
    ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
)
"""The broker does not know the session or its epoch: a new session is needed."""


class PartitionKey(NamedTuple):
    """A partition as a request names it: by name up to v12, by topic id since v13.

    On the broker's side, and for a follower, the field that is not used is empty.
    """

    topic: str
    topic_id: UUID
    partition: int


class SessionRequest(NamedTuple):
    """The partitions of one request: those added or changed, and those forgotten."""

    session_id: int
    session_epoch: int
    named: list[tuple[PartitionKey, FetchPartition]]
    forgotten: list[PartitionKey]

    def topics(self) -> list[FetchTopic]:
        """In the order of the partitions: a topic may appear several times."""
        return [
            FetchTopic(name=name, topic_id=topic_id, partitions=[wanted for _, wanted in entries])
            for (name, topic_id), entries in groupby(self.named, key=lambda entry: entry[0][:2])
        ]

    def forgotten_topics(self) -> list[ForgottenTopic]:
        return [
            ForgottenTopic(name=name, topic_id=topic_id, partitions=[key.partition for key in keys])
            for (name, topic_id), keys in groupby(self.forgotten, key=lambda key: key[:2])
        ]


class FetchSession:
    """Turns partition changes into requests, one at a time; later changes go into the next request.

    A session lasts until a response refuses it or is lost. After that, or if the broker grants no session, the next
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
        self._by_id = True

    def __len__(self) -> int:
        return len(self._wanted)

    @property
    def is_open(self) -> bool:
        """Whether the broker has granted a session, so that the next request is incremental."""
        return self._epoch != INITIAL_EPOCH

    def wanted(self, key: PartitionKey) -> FetchPartition | None:
        return self._wanted.get(key)

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

    def keep_only(self, keys: AbstractSet[PartitionKey]) -> None:
        """Forget all but `keys`, each of which is wanted."""
        if len(keys) != len(self._wanted):
            for key in [key for key in self._wanted if key not in keys]:
                self.forget(key)

    def request(self, *, by_id: bool = True) -> SessionRequest:
        """The next request, which names topics `by_id` or by name. The broker is assumed to have received it."""
        if by_id != self._by_id:
            self.reset()
            self._by_id = by_id
        if not self.is_open:
            named, forgotten = list(self._wanted.items()), []
        else:
            named, forgotten = [(key, self._wanted[key]) for key in self._changed], list(self._forgotten)
            if forgotten and not by_id:  # a topic that was created anew has the same name
                names = {(key.topic, key.partition) for key in self._wanted}
                forgotten = [key for key in forgotten if (key.topic, key.partition) not in names]
        self._changed, self._forgotten = {}, {}
        return SessionRequest(self._session_id, self._epoch, named, forgotten)

    def answered(self, response: FetchResponse) -> bool:
        """Process the response; whether it has partition results. Partitions it omits are unchanged."""
        code = response.error_code
        if code == ErrorCode.NONE and response.session_id != NO_SESSION_ID:
            self._session_id = response.session_id
            self._epoch = next_epoch(self._epoch)
            return True
        self.reset()
        if code in (ErrorCode.NONE, ErrorCode.FETCH_SESSION_ID_NOT_FOUND):
            self._session_id = NO_SESSION_ID
        return code == ErrorCode.NONE

    def reset(self) -> None:
        """The response was lost: whether the broker processed the request is unknown."""
        self._epoch = INITIAL_EPOCH

    def close(self) -> SessionRequest | None:
        """The request that has the broker remove the session; None if it has none."""
        session_id = self._session_id
        self._session_id, self._epoch = NO_SESSION_ID, INITIAL_EPOCH
        return None if session_id == NO_SESSION_ID else SessionRequest(session_id, FINAL_EPOCH, [], [])


def next_epoch(epoch: int) -> int:
    """The epoch of the request that follows the one with `epoch`."""
    return epoch % (SESSION_ID_LIMIT - 1) + 1
