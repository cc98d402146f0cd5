"""Finds where a consumer begins to read each of its partitions: at the committed offset, or where a policy, a timestamp
or a seek leads. Sans-IO."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, Final

from raylog.client.backoff import backoff_ms
from raylog.client.consumer.coordinator_requests import CoordinatorRequests
from raylog.client.consumer.offset_requests import OffsetFetch
from raylog.client.consumer.subscription import (
    EARLIEST_TIMESTAMP,
    LATEST_TIMESTAMP,
    PartitionState,
    Subscription,
    no_offset,
)
from raylog.client.group_offsets import OffsetAndMetadata
from raylog.client.network_client import NetworkClient
from raylog.config.consumer import EARLIEST, LATEST, NO_RESET, ConsumerSettings, duration_ms
from raylog.core.clock import Now
from raylog.core.errors import ErrorCode, KafkaError
from raylog.core.ids import NO_BROKER_ID, NO_LEADER_EPOCH, NO_OFFSET, TopicPartition, by_topic
from raylog.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from raylog.protocol.records.isolation import READ_COMMITTED, READ_UNCOMMITTED

LASTING: Final = (ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.INVALID_TOPIC_EXCEPTION)


def list_offsets(timestamps: Mapping[TopicPartition, int], *, committed: bool) -> ListOffsetsRequest:
    topics = []
    for topic, numbers in by_topic(timestamps):
        partitions = tuple(
            ListOffsetsPartition(partition_index=number, timestamp=timestamps[TopicPartition(topic, number)])
            for number in numbers
        )
        topics.append(ListOffsetsTopic(name=topic, partitions=partitions))
    level = READ_COMMITTED if committed else READ_UNCOMMITTED
    return ListOffsetsRequest(replica_id=NO_BROKER_ID, isolation_level=level, topics=tuple(topics))


class Positions:
    """A service of the network."""

    def __init__(
        self,
        network: NetworkClient,
        subscription: Subscription,
        settings: ConsumerSettings,
        requests: CoordinatorRequests | None,
        on_error: Callable[[KafkaError], None],
    ) -> None:
        """`requests` go to the group's coordinator; None: there is no group."""
        self._network = network
        self._subscription = subscription
        self._settings = settings
        self._requests = requests
        self.raise_error = on_error
        self.on_begin: Callable[[TopicPartition, OffsetAndMetadata], None] = lambda tp, committed: None
        """Called for a partition that is read from its committed offset on."""
        self.on_truncated: Callable[[TopicPartition, int], int] = lambda tp, end_offset: end_offset
        """Called for a partition whose log was truncated to this offset, for where to go on reading."""
        self._committed: OffsetFetch | None = None
        self._moves: dict[TopicPartition, int] = {}
        """Of the partitions whose committed offsets are asked for."""
        self._ran_ms = 0

    def run(self, now: Now) -> None:
        self._ran_ms = now.monotonic_ms
        states = [state for state in self._subscription.partitions.values() if not state.pending or state.awaited]
        self._begin_at_committed(states, now)
        wanted: defaultdict[int, dict[TopicPartition, int]] = defaultdict(dict)
        for state in states:
            if state.reset is not None and not state.asked and now.monotonic_ms >= state.due_ms:
                leader = self.leader(state)
                if leader is not None:
                    wanted[leader][state.tp] = self._timestamp(state.reset, now)
        for node_id, timestamps in wanted.items():
            self._ask(node_id, timestamps, now)

    def next_deadline_ms(self) -> int | None:
        waiting = [each.due_ms for each in self._subscription.partitions.values() if each.reset is not None]
        return min((ms for ms in waiting if ms > self._ran_ms), default=None)

    def leader(self, state: PartitionState) -> int | None:
        """The leader's broker id, which is in the metadata; None while it is not known, and asked for."""
        metadata = self._network.metadata
        node = metadata.leader(state.tp)
        if node is not None:
            return node.broker_id
        known = metadata.topic(state.tp.topic)
        if known is not None and known.error_code in LASTING:
            self.raise_error(KafkaError(known.error_code, f"{state.tp}: {known.error_code.sentence}"))
        metadata.expire()
        return None

    def reset(self, state: PartitionState, offset: int | None = None) -> None:
        """There is no position, or `offset` does not exist: go where auto.offset.reset leads."""
        if self._settings.reset == NO_RESET:
            state.stuck = True
            self.raise_error(no_offset(state.tp, offset))
        else:
            state.seek_by(self._settings.reset)

    def delay(self, state: PartitionState, now: Now) -> None:
        """Pause after a failure."""
        settings = self._settings.network
        state.attempts += 1
        pause_ms = backoff_ms(
            state.attempts, settings.retry_backoff_ms, settings.retry_backoff_ms_max, self._network.jitter
        )
        state.due_ms = now.monotonic_ms + pause_ms

    # --- committed offsets

    def _begin_at_committed(self, states: Iterable[PartitionState], now: Now) -> None:
        new = [state for state in states if state.position is None and state.reset is None and not state.stuck]
        if self._requests is None:
            for state in new:
                self.reset(state)
            return
        fetch = self._committed
        if fetch is not None and fetch.done:
            self._committed = None
            if fetch.error is not None:
                if not fetch.error.code.retriable:
                    self.raise_error(fetch.error)
                return
            for state in new:
                if self._moves.get(state.tp) == state.moves:
                    self._begin(state, fetch)
            new = [state for state in new if state.position is None and state.reset is None and not state.stuck]
        if new and self._committed is None:
            deadline_ms = now.monotonic_ms + self._settings.api_timeout_ms
            self._moves = {state.tp: state.moves for state in new}
            self._committed = OffsetFetch(self._network.metadata, self._settings.group_id, self._moves, deadline_ms)
            self._requests.add(self._committed)
            self._requests.run(now)

    def _begin(self, state: PartitionState, fetch: OffsetFetch) -> None:
        committed = fetch.result.get(state.tp)
        if committed is None:
            self.reset(state)
        else:
            self.on_begin(state.tp, committed)
            state.seek(committed.offset, NO_LEADER_EPOCH if committed.leader_epoch is None else committed.leader_epoch)

    # --- offsets by timestamp

    def _timestamp(self, reset: str | int, now: Now) -> int:
        if isinstance(reset, int):
            return reset
        if reset in (EARLIEST, LATEST):
            return EARLIEST_TIMESTAMP if reset == EARLIEST else LATEST_TIMESTAMP
        return max(0, now.wall_ms - (duration_ms(reset) or 0))

    def _ask(self, node_id: int, timestamps: Mapping[TopicPartition, int], now: Now) -> None:
        moves = {}
        for tp in timestamps:
            state = self._subscription.partitions[tp]
            state.asked = True
            moves[tp] = state.moves
        request = list_offsets(timestamps, committed=self._settings.committed)
        self._network.ask(node_id, request, partial(self._answered, moves), partial(self._failed, moves), now)

    def _answered(self, moves: Mapping[TopicPartition, int], response: Any, now: Now) -> None:
        for topic in response.topics:
            for found in topic.partitions:
                state = self._asked_state(TopicPartition(topic.name, found.partition_index), moves)
                if state is None:
                    continue
                if found.error_code is not ErrorCode.NONE:
                    text = f"{state.tp}: {found.error_code.sentence}"
                    self._refused(state, KafkaError(found.error_code, text), now)
                elif found.offset == NO_OFFSET:  # no record is so young: go behind the last one
                    state.seek_by(LATEST)
                else:
                    state.attempts = 0
                    state.seek(found.offset, found.leader_epoch)
        self._failed(moves, KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, "the response lacks the partition"), now)

    def _failed(self, moves: Mapping[TopicPartition, int], error: KafkaError, now: Now) -> None:
        for tp in moves:
            state = self._asked_state(tp, moves)
            if state is not None:
                self._refused(state, error, now)

    def _asked_state(self, tp: TopicPartition, moves: Mapping[TopicPartition, int]) -> PartitionState | None:
        """The partition, if it is still waiting for this response."""
        state = self._subscription.partitions.get(tp)
        if state is None or state.moves != moves.get(tp) or not state.asked:
            return None
        state.asked = False
        return state

    def _refused(self, state: PartitionState, error: KafkaError, now: Now) -> None:
        self._network.metadata.expire()
        self.delay(state, now)
        if not error.code.retriable:
            self.raise_error(error)
