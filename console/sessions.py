"""The sessions of the console: who has logged in, until when. Pure: tokens and the time are arguments."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

T = TypeVar("T")
SESSIONS_MAX: Final = 100
IDLE_MS_MAX: Final = 30 * 60_000
LIFETIME_MS_MAX: Final = 12 * 3_600_000


@dataclass(slots=True)
class Session(Generic[T]):
    """`token` is in the cookie, which no script can read; `csrf` is what the page sends with every change."""

    token: str
    csrf: str
    visitor: T
    opened_ms: int
    used_ms: int


class Sessions(Generic[T]):
    """At most `count_max` at a time, each until it is idle for too long or too old. Times are monotonic.

    At the limit a new session ends the one that has been idle for the longest time.
    """

    def __init__(
        self,
        *,
        count_max: int = SESSIONS_MAX,
        idle_ms_max: int = IDLE_MS_MAX,
        lifetime_ms_max: int = LIFETIME_MS_MAX,
    ) -> None:
        self._count_max = count_max
        self._idle_ms_max = idle_ms_max
        self._lifetime_ms_max = lifetime_ms_max
        self._by_token: OrderedDict[str, Session[T]] = OrderedDict()
        """Those used last at the end."""

    def __len__(self) -> int:
        return len(self._by_token)

    def open(self, token: str, csrf: str, visitor: T, now_ms: int) -> list[Session[T]]:
        """Add a session. Returns those that have ended for it; the caller closes what they have."""
        ended = self.expire(now_ms)
        while len(self._by_token) >= self._count_max:
            ended.append(self._by_token.popitem(last=False)[1])
        self._by_token[token] = Session(token, csrf, visitor, now_ms, now_ms)
        return ended

    def find(self, token: str, now_ms: int) -> Session[T] | None:
        """The session of this token, which counts as used now; None if there is none, or it has expired."""
        session = self._by_token.get(token)
        if session is None or self._has_expired(session, now_ms):
            return None
        session.used_ms = now_ms
        self._by_token.move_to_end(token)
        return session

    def end(self, token: str) -> Session[T] | None:
        """Forget the session, and return it."""
        return self._by_token.pop(token, None)

    def expire(self, now_ms: int) -> list[Session[T]]:
        """Forget the sessions that have expired, and return them."""
        expired = [each for each in self._by_token.values() if self._has_expired(each, now_ms)]
        for each in expired:
            del self._by_token[each.token]
        return expired

    def end_all(self) -> list[Session[T]]:
        ended = list(self._by_token.values())
        self._by_token.clear()
        return ended

    def _has_expired(self, session: Session[T], now_ms: int) -> bool:
        return now_ms - session.used_ms >= self._idle_ms_max or now_ms - session.opened_ms >= self._lifetime_ms_max
