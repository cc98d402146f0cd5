"""Holds a coordinator's answers back until what they tell of is committed: all replicas in sync have it.

The machines of groups and of transactions replay at the moment of decision, so each answer, also to a mere question,
may tell of records that were written just now. Where the leadership is lost before they are committed nobody knows what
becomes of them: the client is hung up on, finds the new coordinator and asks there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

from raylog.transport.node import Handler
from raylog.transport.request import ANSWERED_LATER, AnsweredLater

if TYPE_CHECKING:
    from raylog.broker.broker import Broker
    from raylog.replication.partition import Uncommitted
    from raylog.transport.request import RequestContext

_UncommittedOf: TypeAlias = "Callable[[Broker], Sequence[Uncommitted]]"

COMMIT_MS_MAX = 5000
"""Kafka's offsets.commit.timeout.ms."""


def when_committed(handle: Handler) -> Handler:
    """The handler of a request for the coordinator of a group, with its answers held back."""
    return _when_committed(handle, lambda broker: broker.groups.uncommitted())


def when_certain(handle: Handler) -> Handler:
    """The same for the coordinator of transactions."""
    return _when_committed(handle, lambda broker: broker.transactions.uncommitted())


def _when_committed(handle: Handler, uncommitted: _UncommittedOf) -> Handler:
    def handle_and_wait(broker: Broker, context: RequestContext, request: Any) -> Any:
        answer = handle(broker, replace(context, reply=partial(_reply, broker, context, uncommitted)), request)
        if isinstance(answer, AnsweredLater) or not uncommitted(broker):
            return answer
        _reply(broker, context, uncommitted, answer)
        return ANSWERED_LATER

    return handle_and_wait


def _reply(broker: Broker, context: RequestContext, uncommitted_of: _UncommittedOf, answer: Any) -> None:
    uncommitted = uncommitted_of(broker)
    if not uncommitted:
        context.reply(answer)
        return

    def hang_up() -> None:
        context.connection.close("its coordinator has lost the leadership before the answer was certain")
        broker.touch(context.connection)

    deadline_ms = broker.ticked_ms + COMMIT_MS_MAX
    waiting = _HeldBack(uncommitted, partial(context.reply, answer), hang_up, deadline_ms)
    broker.delayed.park(waiting, [one.topic_partition for one in uncommitted])


class _HeldBack:
    """An answer, and the ends of the logs that it waits for."""

    def __init__(
        self,
        uncommitted: Sequence[Uncommitted],
        send: Callable[[], None],
        hang_up: Callable[[], None],
        deadline_ms: int,
    ) -> None:
        self._uncommitted = uncommitted
        self._send = send
        self._hang_up = hang_up
        self.deadline_ms = deadline_ms

    def try_complete(self, grown_bytes: int) -> bool:
        if any(one.is_in_doubt() for one in self._uncommitted):
            self._hang_up()
        elif all(one.is_committed() for one in self._uncommitted):
            self._send()
        else:
            return False
        return True

    def complete(self) -> None:
        self._hang_up()
