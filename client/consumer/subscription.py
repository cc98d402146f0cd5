"""What a consumer reads: the topics it has subscribed to, its partitions, and its position in each. Pure."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import count
from typing import Final

from raylog.client.consumer.fetched import FetchedBatches
from raylog.config.consumer import NO_RESET
from raylog.core.errors import ErrorCode, KafkaError
from raylog.core.ids import NO_LEADER_EPOCH, TopicPartition

EARLIEST_TIMESTAMP: Final = -2
LATEST_TIMESTAMP: Final = -1

_moves = count()


@dataclass(slots=True, eq=False)
class PartitionState:
    """One assigned partition."""

    tp: TopicPartition
    position: int | None = None
    """The offset of the next record for the user; None until it is known."""
    epoch: int = NO_LEADER_EPOCH
    """The leader epoch of the record before the position."""
    reset: str | int | None = None
    """Where to go: by a policy of auto.offset.reset, or a timestamp. Without it, it begins at the committed offset."""
    paused: bool = False
    stuck: bool = False
    """It has no position that exists, and waits for the user to seek."""
    announced: bool = True
    """Whether `on_assign` was called for it."""
    pending: bool = False
    """A rebalance callback for it is due or running: nothing is fetched or returned."""
    awaited: bool = False
    """The user waits for its position, which is looked up also for a callback that is running."""
    buffered: deque[FetchedBatches] = field(default_factory=deque)
    moves: int = field(default_factory=lambda: next(_moves))
    """Another number after each change of the position but by reading: older responses are dropped. No two partitions
    have the same, also not one that was given up and one that is assigned again."""
    asked: bool = False
    """A request for records or for an offset is in flight."""
    attempts: int = 0
    due_ms: int = 0
    """Backoff after an error."""
    high_watermark: int | None = None
    last_stable_offset: int | None = None
    log_start_offset: int | None = None
    checked_epoch: int = NO_LEADER_EPOCH
    """The leader epoch in which the leader has last confirmed the position, by answering a fetch."""
    requested_until_ms: int = 0
    """Until then it is fetched even if its leader is on this machine, because its files could not be read."""
    replica_id: int | None = None
    """The follower that the leader has named to read from (KIP-392)."""
    replica_until_ms: int = 0

    @property
    def fetchable(self) -> bool:
        """Whether records may be asked for."""
        return self.returnable and not self.asked and not self.buffered

    @property
    def returnable(self) -> bool:
        """Whether its records may be returned to the user."""
        return self.positioned and not self.paused and not self.pending

    @property
    def positioned(self) -> bool:
        return self.position is not None and self.reset is None and not self.stuck

    def seek(self, offset: int, epoch: int = NO_LEADER_EPOCH) -> None:
        self._move()
        self.position = offset
        self.epoch = epoch
        self.reset = None

    def seek_by(self, reset: str | int) -> None:
        """To where a policy or a timestamp leads, which has to be asked for."""
        self._move()
        self.reset = reset

    def drop_buffered(self) -> None:
        """Fetch again from the position."""
        if self.position is not None:
            self._move()

    def _move(self) -> None:
        self.moves = next(_moves)
        self.buffered.clear()
        self.asked = self.stuck = False
        self.replica_id = None


class Subscription:
    """Partitions come from the user (`assign`) or from the group (`subscribe`), never from both."""

    def __init__(self) -> None:
        self.topics: frozenset[str] = frozenset()
        self.pattern: re.Pattern[str] | None = None
        """The topics are those that match it, as far as they are known."""
        self.regex: str | None = None
        """A regular expression that the coordinator of the group resolves, besides the topics."""
        self.by_group = False
        self.partitions: dict[TopicPartition, PartitionState] = {}
        self.turn = 0
        """Which partition is returned next, so that each gets its turn."""

    def subscribe(
        self, topics: Iterable[str], pattern: re.Pattern[str] | None = None, regex: str | None = None
    ) -> None:
        """Raises KafkaError."""
        if self.partitions and not self.by_group:
            raise _mixed()
        self.topics = frozenset(topics)
        self.pattern = pattern
        self.regex = regex
        self.by_group = True

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """By the user. Raises KafkaError."""
        if self.by_group:
            raise _mixed()
        self.set_partitions(partitions)

    def set_partitions(self, partitions: Iterable[TopicPartition]) -> None:
        """Those that were there already keep their state."""
        self.partitions = {tp: self.partitions.get(tp) or PartitionState(tp) for tp in sorted(set(partitions))}

    def clear(self) -> None:
        self.topics, self.pattern, self.regex, self.by_group = frozenset(), None, None, False
        self.partitions = {}

    def state(self, tp: TopicPartition) -> PartitionState:
        """Raises KafkaError if the partition is not assigned to this consumer."""
        state = self.partitions.get(tp)
        if state is None:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"{tp} is not assigned to this consumer")
        return state


def no_offset(tp: TopicPartition, offset: int | None) -> KafkaError:
    """What auto.offset.reset=none answers."""
    what = "there is no committed offset" if offset is None else f"offset {offset} is not in the log"
    return KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE, f"{tp}: {what}, and auto.offset.reset is {NO_RESET}")


def _mixed() -> KafkaError:
    return KafkaError(
        ErrorCode.INVALID_REQUEST, "a consumer either subscribes to topics or assigns partitions; unsubscribe() first"
    )
