"""Share sessions (KIP-932): the partitions that a member of a share group fetches from this broker.

A session is identified by group and member. Epoch 0 begins one with all partitions, each later request carries the next
epoch and what has changed, and epoch -1 ends it. It also ends with the connection.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass, field
from typing import Final, NamedTuple
from uuid import UUID

from raylog.core.errors import ErrorCode, KafkaError

INITIAL_EPOCH: Final = 0
FINAL_EPOCH: Final = -1
EPOCH_MAX: Final = (1 << 31) - 1
PARTITIONS_MAX: Final = 10_000
"""The largest number of partitions in one session: no assignor gives a member of a group more from one broker."""

TopicIdPartition = tuple[UUID, int]


class SessionKey(NamedTuple):
    """One member of one group."""

    group: str
    member_id: str


@dataclass(slots=True)
class ShareSession:
    """The partitions of the member, in the order in which they are read next."""

    key: SessionKey
    connection: Hashable
    epoch: int = INITIAL_EPOCH
    """Of the last request."""
    partitions: dict[TopicIdPartition, None] = field(default_factory=dict)
    ended: bool = False

    def read_first(self, partition: TopicIdPartition) -> None:
        """Begin the next read after this partition, so that each has its turn."""
        keys = list(self.partitions)
        after = keys.index(partition) + 1
        self.partitions = dict.fromkeys((*keys[after:], *keys[:after]))


class ShareSessions:
    """All share sessions of a broker."""

    def __init__(self, *, sessions_max: Callable[[], int]) -> None:
        self._sessions: dict[SessionKey, ShareSession] = {}
        self._by_connection: dict[Hashable, set[SessionKey]] = {}
        self._by_group: dict[str, set[SessionKey]] = {}
        self._sessions_max = sessions_max

    def __len__(self) -> int:
        return len(self._sessions)

    def has_group(self, group: str) -> bool:
        """Whether a member of the group has a session here."""
        return group in self._by_group

    def fetched(
        self,
        key: SessionKey,
        epoch: int,
        connection: Hashable,
        *,
        added: Iterable[TopicIdPartition],
        forgotten: Iterable[TopicIdPartition],
    ) -> ShareSession:
        """The session of a ShareFetch. Raises KafkaError as `acknowledged`, SHARE_SESSION_LIMIT_REACHED, or
        INVALID_REQUEST for too many partitions."""
        if epoch != INITIAL_EPOCH:
            session = self._next(key, epoch)
        else:
            if key not in self._sessions and len(self._sessions) >= self._sessions_max():
                raise KafkaError(ErrorCode.SHARE_SESSION_LIMIT_REACHED)
            self._remove(key)
            session = self._sessions[key] = ShareSession(key, connection)
            self._by_connection.setdefault(connection, set()).add(key)
            self._by_group.setdefault(key.group, set()).add(key)
        if not session.ended:
            session.partitions |= dict.fromkeys(added)
            for partition in forgotten:
                session.partitions.pop(partition, None)
            if len(session.partitions) > PARTITIONS_MAX:
                self._remove(key)
                raise KafkaError(ErrorCode.INVALID_REQUEST, f"More than {PARTITIONS_MAX} partitions in a session.")
        return session

    def acknowledged(self, key: SessionKey, epoch: int) -> ShareSession:
        """The session of a ShareAcknowledge, which cannot begin one.

        Raises KafkaError: SHARE_SESSION_NOT_FOUND or INVALID_SHARE_SESSION_EPOCH.
        """
        if epoch == INITIAL_EPOCH:
            raise KafkaError(ErrorCode.INVALID_SHARE_SESSION_EPOCH)
        return self._next(key, epoch)

    def connection_closed(self, connection: Hashable) -> list[SessionKey]:
        """The sessions that have ended with the connection."""
        keys = sorted(self._by_connection.get(connection, ()))
        for key in keys:
            self._remove(key)
        return keys

    def _next(self, key: SessionKey, epoch: int) -> ShareSession:
        session = self._sessions.get(key)
        if session is None:
            raise KafkaError(ErrorCode.SHARE_SESSION_NOT_FOUND)
        if epoch == FINAL_EPOCH:
            session.ended = True
            self._remove(key)
            return session
        if epoch != (1 if session.epoch == EPOCH_MAX else session.epoch + 1):
            raise KafkaError(ErrorCode.INVALID_SHARE_SESSION_EPOCH)
        session.epoch = epoch
        return session

    def _remove(self, key: SessionKey) -> None:
        session = self._sessions.pop(key, None)
        if session is None:
            return
        for index, name in ((self._by_connection, session.connection), (self._by_group, key.group)):
            keys = index[name]  # type: ignore[index]
            keys.discard(key)
            if not keys:
                del index[name]  # type: ignore[arg-type]
