"""The calls of the user's on_assign, on_revoke and on_lost that are due, one after another. Pure.

poll() takes them and calls them in the user's thread. Before partitions are revoked, their offsets are committed if
enable.auto.commit says so. Nothing is fetched or returned of a partition whose callback is due.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum

from raylog.client.consumer.subscription import Subscription
from raylog.core.clock import Now
from raylog.core.ids import TopicPartition


class CallbackKind(Enum):
    """What has happened to partitions."""

    ASSIGNED = "assigned"
    REVOKED = "revoked"
    LOST = "lost"
    """Another member may have them already: nothing can be committed for them."""


@dataclass(slots=True)
class RebalanceCallback:
    """A call of the user's on_assign, on_revoke or on_lost."""

    kind: CallbackKind
    partitions: Sequence[TopicPartition]
    committing: bool = False
    """Whether their offsets are being committed; the callback is due afterwards."""
    begun: bool = False


class RebalanceCallbacks:
    """The callbacks that a rebalance of one consumer has yet to make."""

    def __init__(self, subscription: Subscription) -> None:
        self.commit: Callable[[Sequence[TopicPartition], Now], bool] = lambda _, __: True
        """Commits the positions of partitions if that is wanted. Called until it says that it is done."""
        self.running: RebalanceCallback | None = None
        """The callback that the user is in."""
        self._subscription = subscription
        self._queue: deque[RebalanceCallback] = deque()

    @property
    def done(self) -> bool:
        """Whether none is due or running."""
        return not self._queue and self.running is None

    def give_up(self, partitions: Sequence[TopicPartition], kind: CallbackKind) -> None:
        for tp in partitions:
            self._subscription.partitions[tp].pending = True
        self._queue.append(RebalanceCallback(kind, partitions))

    def gain(self, partitions: Sequence[TopicPartition]) -> None:
        """Partitions in addition to those that this consumer has."""
        self._subscription.set_partitions((*self._subscription.partitions, *partitions))
        for tp in partitions:
            state = self._subscription.partitions[tp]
            state.pending, state.announced = True, False
        self._queue.append(RebalanceCallback(CallbackKind.ASSIGNED, partitions))

    def prepare(self, now: Now, *, is_member: bool) -> None:
        """Commit the offsets for the next callback, if it needs that. What has no member any more is lost."""
        if not self._queue:
            return
        callback = self._queue[0]
        if not callback.begun:
            callback.begun = True
            if callback.kind is CallbackKind.REVOKED and not is_member:
                callback.kind = CallbackKind.LOST
            callback.committing = callback.kind is CallbackKind.REVOKED
        if callback.committing and self.commit(callback.partitions, now):
            callback.committing = False

    def next(self) -> RebalanceCallback | None:
        """The callback to call now. `finished` follows."""
        if self.running is None and self._queue and self._queue[0].begun and not self._queue[0].committing:
            self.running = self._queue.popleft()
            if self.running.kind is CallbackKind.ASSIGNED:
                for tp in self.running.partitions:
                    self._subscription.partitions[tp].announced = True
            return self.running
        return None

    def finished(self) -> None:
        callback, self.running = self.running, None
        assert callback is not None
        owned = self._subscription.partitions
        if callback.kind is CallbackKind.ASSIGNED:
            for tp in callback.partitions:
                if tp in owned:  # the callback may have unsubscribed
                    owned[tp].pending = False
        else:
            self._subscription.set_partitions(owned.keys() - set(callback.partitions))

    def clear(self) -> None:
        """Forget those that are due."""
        self._queue.clear()
