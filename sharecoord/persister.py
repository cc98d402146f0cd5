"""Reads and writes the state of share-partitions at their share coordinators, which may be this node.

Each request names one share-partition and is retried until its deadline: repeating one changes nothing.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final
from uuid import UUID

from raylog.core.clock import Now
from raylog.core.errors import ErrorCode, KafkaError
from raylog.core.ids import BrokerId
from raylog.protocol.messages import (
    delete_share_group_state,
    initialize_share_group_state,
    read_share_group_state,
    read_share_group_state_summary,
    write_share_group_state,
)
from raylog.sharecoord import requests
from raylog.sharecoord.records import SharePartitionKey, StateBatch
from raylog.sharecoord.shards import ShareShards
from raylog.sharecoord.states import Write
from raylog.transport.commits import COMMITTED, CommitQueues, CommitSource
from raylog.transport.peer_link import PeerLink

ANSWER_MS_MAX: Final = 5000
"""How long one attempt may take, and how long attempts are repeated."""
BACKOFF_MS: Final = 50
_RETRIED: Final = frozenset(
    {
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,  # the coordinator may not know of a new topic yet
    }
)

OnResult = Callable[[Any, Now], None]
"""Called once with the result of the partition, whose code is NONE, or with a KafkaError."""


TopicIdPartition = tuple[UUID, int]
OnErrors = Callable[[Mapping[TopicIdPartition, KafkaError], Now], None]


@dataclass(slots=True)
class _Attempt:
    key: SharePartitionKey
    request: Any
    on_result: OnResult
    deadline_ms: int


@dataclass(slots=True)
class _Local:
    """Collects the logs that a request to this node depends on."""

    now: Now
    sources: list[CommitSource] = field(default_factory=list)

    def depends_on(self, source: CommitSource) -> None:
        if source not in self.sources:
            self.sources.append(source)


class Persister:
    """The requests of this broker. The node calls `tick` at `next_deadline_ms`."""

    def __init__(
        self,
        broker_id: BrokerId,
        shards: ShareShards,
        *,
        coordinator: Callable[[SharePartitionKey, Now], BrokerId],
        link_to: Callable[[BrokerId], PeerLink],
        commits: CommitQueues,
        clock: Callable[[], Now],
    ) -> None:
        """`coordinator` returns the share coordinator of a share-partition, or raises KafkaError."""
        self._broker_id = broker_id
        self._shards = shards
        self._coordinator = coordinator
        self._link_to = link_to
        self._commits = commits
        self._clock = clock
        self._waiting: list[tuple[int, int, _Attempt]] = []
        self._order = 0

    def initialize(
        self, key: SharePartitionKey, *, state_epoch: int, start_offset: int, on_result: OnResult, now: Now
    ) -> None:
        """Create the state, or set its start offset anew."""
        wanted = initialize_share_group_state.PartitionData(
            partition=key.partition, state_epoch=state_epoch, start_offset=start_offset
        )
        topic = initialize_share_group_state.InitializeStateData(topic_id=key.topic_id, partitions=(wanted,))
        request = initialize_share_group_state.InitializeShareGroupStateRequest(group_id=key.group, topics=(topic,))
        self._begin(key, request, on_result, now)

    def read(self, key: SharePartitionKey, *, leader_epoch: int, on_result: OnResult, now: Now) -> None:
        """Read the state as the leader of this epoch."""
        wanted = read_share_group_state.PartitionData(partition=key.partition, leader_epoch=leader_epoch)
        topic = read_share_group_state.ReadStateData(topic_id=key.topic_id, partitions=(wanted,))
        request = read_share_group_state.ReadShareGroupStateRequest(group_id=key.group, topics=(topic,))
        self._begin(key, request, on_result, now)

    def write(self, write: Write, *, on_result: OnResult, now: Now) -> None:
        """Store what has changed."""
        wanted = write_share_group_state.PartitionData(
            partition=write.key.partition,
            state_epoch=write.state_epoch,
            leader_epoch=write.leader_epoch,
            start_offset=write.start_offset,
            delivery_complete_count=write.delivery_complete_count,
            state_batches=tuple(_batch(each) for each in write.batches),
        )
        topic = write_share_group_state.WriteStateData(topic_id=write.key.topic_id, partitions=(wanted,))
        request = write_share_group_state.WriteShareGroupStateRequest(group_id=write.key.group, topics=(topic,))
        self._begin(write.key, request, on_result, now)

    def delete(self, key: SharePartitionKey, *, on_result: OnResult, now: Now) -> None:
        """Delete the state."""
        wanted = delete_share_group_state.PartitionData(partition=key.partition)
        topic = delete_share_group_state.DeleteStateData(topic_id=key.topic_id, partitions=(wanted,))
        request = delete_share_group_state.DeleteShareGroupStateRequest(group_id=key.group, topics=(topic,))
        self._begin(key, request, on_result, now)

    def summary(self, key: SharePartitionKey, *, on_result: OnResult, now: Now) -> None:
        """Read the start offset."""
        wanted = read_share_group_state_summary.PartitionData(partition=key.partition, leader_epoch=-1)
        topic = read_share_group_state_summary.ReadStateSummaryData(topic_id=key.topic_id, partitions=(wanted,))
        request = read_share_group_state_summary.ReadShareGroupStateSummaryRequest(group_id=key.group, topics=(topic,))
        self._begin(key, request, on_result, now)

    def initialize_all(
        self,
        group: str,
        start_offsets: Mapping[TopicIdPartition, int],
        *,
        state_epoch: int,
        on_results: OnErrors,
        now: Now,
    ) -> None:
        """`initialize` for each partition; `on_results` gets the errors of those that failed."""

        def begin(partition: TopicIdPartition, on_result: OnResult) -> None:
            self.initialize(
                SharePartitionKey(group, *partition),
                state_epoch=state_epoch,
                start_offset=start_offsets[partition],
                on_result=on_result,
                now=now,
            )

        _each(start_offsets, begin, on_results, now)

    def delete_all(self, group: str, partitions: Iterable[TopicIdPartition], on_results: OnErrors, now: Now) -> None:
        """`delete` for each partition; `on_results` gets the errors of those that failed."""

        def begin(partition: TopicIdPartition, on_result: OnResult) -> None:
            self.delete(SharePartitionKey(group, *partition), on_result=on_result, now=now)

        _each(partitions, begin, on_results, now)

    def summaries(
        self,
        group: str,
        partitions: Iterable[TopicIdPartition],
        on_results: Callable[[Mapping[TopicIdPartition, Any], Now], None],
        now: Now,
    ) -> None:
        """`summary` for each partition; `on_results` gets its result or a KafkaError."""
        found: dict[TopicIdPartition, Any] = {}

        def begin(partition: TopicIdPartition, on_result: OnResult) -> None:
            def ended(result: Any, now: Now) -> None:
                found[partition] = result
                on_result(result, now)

            self.summary(SharePartitionKey(group, *partition), on_result=ended, now=now)

        _each(partitions, begin, lambda _, now: on_results(found, now), now)

    # --- time

    def tick(self, now: Now) -> None:
        due = []
        while self._waiting and self._waiting[0][0] <= now.monotonic_ms:
            due.append(heapq.heappop(self._waiting)[2])
        for attempt in due:
            self._try(attempt, now)

    def next_deadline_ms(self) -> int | None:
        return self._waiting[0][0] if self._waiting else None

    # --- attempts

    def _begin(self, key: SharePartitionKey, request: Any, on_result: OnResult, now: Now) -> None:
        self._try(_Attempt(key, request, on_result, now.monotonic_ms + ANSWER_MS_MAX), now)

    def _try(self, attempt: _Attempt, now: Now) -> None:
        try:
            coordinator = self._coordinator(attempt.key, now)
        except KafkaError as error:
            self._failed(attempt, error, now)
            return
        if coordinator == self._broker_id:
            self._serve(attempt, now)
            return

        def answered(response: Any, now: Now) -> None:
            self._answered(attempt, response, now)

        def failed(error: KafkaError, now: Now) -> None:
            self._failed(attempt, error, now)

        self._link_to(coordinator).request(attempt.request, answered, failed, now=now, timeout_ms=ANSWER_MS_MAX)

    def _serve(self, attempt: _Attempt, now: Now) -> None:
        local = _Local(now)
        response = requests.serve(self._shards, local, attempt.request)
        points = [point for source in local.sources if (point := source.commit_point()) is not None]

        def committed(codes: list[ErrorCode]) -> None:
            lost = next((code for code in codes if code not in COMMITTED), None)
            if lost is None:
                self._answered(attempt, response, self._clock())
            else:
                self._failed(attempt, KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE), self._clock())

        if points:
            self._commits.wait(points, deadline_ms=now.monotonic_ms + ANSWER_MS_MAX, done=committed)
        else:
            self._answered(attempt, response, now)

    def _answered(self, attempt: _Attempt, response: Any, now: Now) -> None:
        result = next((one for topic in response.results for one in topic.partitions), None)
        if result is None:
            self._failed(attempt, KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR), now)
        elif result.error_code != ErrorCode.NONE:
            self._failed(attempt, KafkaError(result.error_code, result.error_message), now)
        else:
            attempt.on_result(result, now)

    def _failed(self, attempt: _Attempt, error: KafkaError, now: Now) -> None:
        if error.code not in _RETRIED or now.monotonic_ms >= attempt.deadline_ms:
            attempt.on_result(error, now)
            return
        self._order += 1
        heapq.heappush(self._waiting, (now.monotonic_ms + BACKOFF_MS, self._order, attempt))


def _each(
    partitions: Iterable[TopicIdPartition],
    begin: Callable[[TopicIdPartition, OnResult], None],
    on_results: OnErrors,
    now: Now,
) -> None:
    """Begin a request for each partition; `on_results` is called once all have ended."""
    waiting = set(partitions)
    errors: dict[TopicIdPartition, KafkaError] = {}

    def ended(partition: TopicIdPartition, result: Any, now: Now) -> None:
        waiting.discard(partition)
        if isinstance(result, KafkaError):
            errors[partition] = result
        if not waiting:
            on_results(errors, now)

    if not waiting:
        on_results(errors, now)
    for partition in sorted(waiting):
        begin(partition, partial(ended, partition))


def _batch(batch: StateBatch) -> write_share_group_state.StateBatch:
    first, last, state, count = batch
    return write_share_group_state.StateBatch(
        first_offset=first, last_offset=last, delivery_state=state, delivery_count=count
    )
