"""Fetches the records of a consumer's partitions, from leaders or the replicas they name. Sans-IO.

Each broker is asked for all partitions that it serves and of which nothing is buffered, one request at a time. Each
fetch names the leader epoch of the record before its offset: a leader whose log has another one there says where they
diverge (KIP-595), and the consumer goes back to that offset if it is before its position.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any, Final
from uuid import UUID

from raylog.client.consumer.fetched import FetchedBatches
from raylog.client.consumer.positions import Positions
from raylog.client.consumer.subscription import PartitionState, Subscription
from raylog.client.network_client import NetworkClient
from raylog.config.consumer import NO_RESET, ConsumerSettings
from raylog.core.clock import Now
from raylog.core.errors import ErrorCode, KafkaError
from raylog.core.ids import NO_BROKER_ID, NO_LEADER_EPOCH, ZERO_TOPIC_ID, TopicPartition
from raylog.protocol.fetch import FetchPartition, FetchRequest, FetchTopic
from raylog.protocol.records.isolation import READ_COMMITTED, READ_UNCOMMITTED, Aborted
from raylog.protocol.registry import FETCH
from raylog.protocol.schema import Message
from raylog.transport.peer_link import VersionFor

log = logging.getLogger("raylog.client")
TOPICS_BY_ID_SINCE: Final = 13
RAISED: Final = (ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.CORRUPT_MESSAGE, ErrorCode.UNKNOWN_SERVER_ERROR)
"""Errors of a partition that poll() raises. After all others the metadata is asked for again."""


class Fetcher:
    """A service of the network."""

    def __init__(
        self, network: NetworkClient, subscription: Subscription, settings: ConsumerSettings, positions: Positions
    ) -> None:
        self._network = network
        self._subscription = subscription
        self._settings = settings
        self._positions = positions
        self.local_nodes: set[int] = set()
        """The brokers on this machine, whose files the consumer reads."""
        self._busy: set[int] = set()
        """The brokers with a request in flight."""
        self._ran_ms = 0

    def run(self, now: Now) -> None:
        self._ran_ms = now.monotonic_ms
        wanted: defaultdict[int, list[PartitionState]] = defaultdict(list)
        for state in self._subscription.partitions.values():
            if state.fetchable and now.monotonic_ms >= state.due_ms and not self.is_local(state, now):
                node_id = self._node_for(state, now)
                if node_id is not None and node_id not in self._busy:
                    wanted[node_id].append(state)
        for node_id, states in wanted.items():
            self._ask(node_id, states, now)

    def next_deadline_ms(self) -> int | None:
        waiting = (each.due_ms for each in self._subscription.partitions.values() if each.fetchable)
        return min((ms for ms in waiting if ms > self._ran_ms), default=None)

    def is_local(self, state: PartitionState, now: Now) -> bool:
        """Whether its records are read from files."""
        leader = self._network.metadata.leader(state.tp)
        return (
            leader is not None
            and leader.broker_id in self.local_nodes
            and state.checked_epoch == self._leader_epoch(state.tp)
            and now.monotonic_ms >= state.requested_until_ms
        )

    def _node_for(self, state: PartitionState, now: Now) -> int | None:
        replica_id, metadata = state.replica_id, self._network.metadata
        is_known = replica_id in metadata.nodes and state.tp.topic in metadata.topics
        if is_known and now.monotonic_ms < state.replica_until_ms:
            return replica_id
        state.replica_id = None
        return self._positions.leader(state)

    # --- requests

    def _ask(self, node_id: int, states: list[PartitionState], now: Now) -> None:
        turn = self._subscription.turn % len(states)
        ordered = states[turn:] + states[:turn]  # a response that is full shows other partitions the next time
        self._busy.add(node_id)
        epochs = {state.tp: self._leader_epoch(state.tp) for state in ordered}
        asked = {}
        for state in ordered:
            state.asked = True
            asked[state.tp] = state.moves
        topic_ids = {tp.topic: self._network.metadata.topics[tp.topic].topic_id for tp in asked}
        self._network.ask(
            node_id,
            partial(self._request, tuple(ordered), topic_ids),
            partial(self._answered, node_id, asked, epochs, {topic_id: name for name, topic_id in topic_ids.items()}),
            partial(self._failed, node_id, asked),
            now,
            timeout_ms=self._settings.network.request_timeout_ms + self._settings.fetch_wait_ms,
        )

    def _request(
        self, states: Iterable[PartitionState], topic_ids: Mapping[str, UUID], version_for: VersionFor
    ) -> Message:
        by_id = version_for(FETCH) >= TOPICS_BY_ID_SINCE
        by_topic: dict[str, list[FetchPartition]] = {}
        for state in states:
            by_topic.setdefault(state.tp.topic, []).append(self._partition(state))
        topics = []
        for topic, partitions in by_topic.items():
            name, topic_id = ("", topic_ids[topic]) if by_id else (topic, ZERO_TOPIC_ID)
            topics.append(FetchTopic(name=name, topic_id=topic_id, partitions=partitions))
        settings = self._settings
        return FetchRequest(
            max_wait_ms=settings.fetch_wait_ms,
            min_bytes=settings.fetch_bytes_min,
            max_bytes=settings.fetch_bytes_max,
            isolation_level=READ_COMMITTED if settings.committed else READ_UNCOMMITTED,
            topics=topics,
            rack_id=settings.rack,
        )

    def _partition(self, state: PartitionState) -> FetchPartition:
        return FetchPartition(
            partition=state.tp.partition,
            current_leader_epoch=self._leader_epoch(state.tp),
            fetch_offset=_position(state),
            last_fetched_epoch=state.epoch,
            partition_max_bytes=self._settings.partition_bytes_max,
        )

    def _leader_epoch(self, tp: TopicPartition) -> int:
        topic = self._network.metadata.topic(tp.topic)
        if topic is None or tp.partition >= len(topic.partitions):
            return NO_LEADER_EPOCH
        return topic.partitions[tp.partition].leader_epoch

    # --- responses

    def _answered(
        self,
        node_id: int,
        asked: Mapping[TopicPartition, int],
        epochs: Mapping[TopicPartition, int],
        names: Mapping[UUID, str],
        response: Any,
        now: Now,
    ) -> None:
        if response.error_code is not ErrorCode.NONE:
            error = KafkaError(response.error_code, response.error_code.sentence)
            self._failed(node_id, asked, error, now)
            return
        self._busy.discard(node_id)
        self._subscription.turn += 1
        for topic in response.responses:
            name = topic.name or names.get(topic.topic_id, "")
            for result in topic.partitions:
                state = self._asked_state(TopicPartition(name, result.partition_index), asked)
                if state is not None:
                    self._answered_partition(state, result, topic.topic_id, epochs[state.tp], now)
        for tp in asked:  # those that the response lacks, because it was full
            self._asked_state(tp, asked)

    def _failed(self, node_id: int, asked: Mapping[TopicPartition, int], error: KafkaError, now: Now) -> None:
        self._busy.discard(node_id)
        for tp in asked:
            state = self._asked_state(tp, asked)
            if state is not None:
                self._refused(state, error, now)

    def _asked_state(self, tp: TopicPartition, asked: Mapping[TopicPartition, int]) -> PartitionState | None:
        """The partition, if it is still waiting for this response."""
        state = self._subscription.partitions.get(tp)
        if state is None or state.moves != asked.get(tp) or not state.asked:
            return None
        state.asked = False
        return state

    def _answered_partition(self, state: PartitionState, result: Any, topic_id: UUID, epoch: int, now: Now) -> None:
        code = result.error_code
        if code is ErrorCode.OFFSET_OUT_OF_RANGE and state.replica_id is None:
            self._positions.reset(state, state.position)
        elif code is not ErrorCode.NONE:
            self._refused(state, KafkaError(code, f"{state.tp}: {code.sentence}"), now)
        elif result.diverging_epoch.end_offset >= 0:
            self._truncated(state, result.diverging_epoch)
        else:
            state.attempts = 0
            state.checked_epoch = epoch
            state.high_watermark = result.high_watermark
            state.last_stable_offset = result.last_stable_offset
            state.log_start_offset = result.log_start_offset
            if result.preferred_read_replica != NO_BROKER_ID:
                state.replica_id = result.preferred_read_replica
                state.replica_until_ms = now.monotonic_ms + self._settings.network.metadata_age_ms_max
            self._buffer(state, result, topic_id, now)

    def _buffer(self, state: PartitionState, result: Any, topic_id: UUID, now: Now) -> None:
        records = b"".join(result.records or ())
        if not records:
            return
        aborted = [Aborted(each.producer_id, each.first_offset) for each in result.aborted_transactions or ()]
        position = _position(state)
        try:
            fetched = FetchedBatches(state.tp, records, position, aborted, check_crcs=self._settings.check_crcs)
            if fetched.next_offset <= position:
                raise KafkaError(ErrorCode.CORRUPT_MESSAGE, "the response has no complete batch from there on")
        except KafkaError as error:  # a batch of another format, or garbage
            self._positions.raise_error(KafkaError(error.code, f"{state.tp}, offset {position}: {error.message}"))
            self._positions.delay(state, now)
        else:
            fetched.topic_id = topic_id
            state.buffered.append(fetched)

    def _truncated(self, state: PartitionState, diverging: Any) -> None:
        """The leader's last epoch that is not newer than that of the position ends at another offset.

        If it ends before the position, the log was truncated, and what was read behind that end is gone.
        """
        if diverging.end_offset >= _position(state):
            state.seek(_position(state), diverging.epoch)
            return
        where = f"{state.tp}: the log was truncated to offset {diverging.end_offset} before position {state.position}"
        if self._settings.reset == NO_RESET:
            state.stuck = True
            self._positions.raise_error(KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE, where))
            return
        log.warning("log truncated", extra={"tp": str(state.tp), "offset": diverging.end_offset})
        start = self._positions.on_truncated(state.tp, diverging.end_offset)
        state.seek(start, diverging.epoch if start == diverging.end_offset else NO_LEADER_EPOCH)

    def _refused(self, state: PartitionState, error: KafkaError, now: Now) -> None:
        state.replica_id = None
        self._positions.delay(state, now)
        if error.code in RAISED:
            self._positions.raise_error(error)
        else:
            self._network.metadata.expire()


def _position(state: PartitionState) -> int:
    assert state.position is not None  # only such partitions are fetched
    return state.position
