"""Looks up offsets of partitions by timestamp, for a call of the user that waits for them. Sans-IO."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from functools import partial
from typing import Any, NamedTuple

from raylog.client.backoff import backoff_ms
from raylog.client.consumer.positions import LASTING, list_offsets
from raylog.client.network_client import NetworkClient
from raylog.core.clock import Now
from raylog.core.errors import ErrorCode, KafkaError
from raylog.core.ids import TopicPartition


class OffsetAndTimestamp(NamedTuple):
    """The first record at or after a timestamp; offset -1 if there is none."""

    offset: int
    timestamp_ms: int
    leader_epoch: int


class OffsetLookup:
    """Goes on until all partitions are found, one of them fails for good, or it is too late."""

    def __init__(
        self,
        network: NetworkClient,
        timestamps: Mapping[TopicPartition, int],
        deadline_ms: int,
        *,
        committed: bool,
    ) -> None:
        """Timestamps in milliseconds, or the special ones for the earliest and latest offset."""
        self.done = not timestamps
        self.error: KafkaError | None = None
        self.result: dict[TopicPartition, OffsetAndTimestamp] = {}
        self.topics = frozenset(tp.topic for tp in timestamps)
        self.deadline_ms = deadline_ms
        self.due_ms = 0
        self._network = network
        self._left = dict(timestamps)
        self._asked: set[TopicPartition] = set()
        self._committed = committed
        self._attempts = 0

    def run(self, now: Now) -> None:
        if self.done:
            return
        if now.monotonic_ms >= self.deadline_ms:
            names = ", ".join(str(tp) for tp in self._left)
            late = KafkaError(ErrorCode.REQUEST_TIMED_OUT, f"offsets of {names} were not found in time")
            self.finish(self.error or late)
        elif now.monotonic_ms >= self.due_ms:
            wanted: defaultdict[int, dict[TopicPartition, int]] = defaultdict(dict)
            for tp, timestamp in self._left.items():
                leader = None if tp in self._asked else self._leader(tp)
                if leader is not None:
                    wanted[leader][tp] = timestamp
            for node_id, timestamps in wanted.items():
                self._ask(node_id, timestamps, now)

    def finish(self, error: KafkaError | None) -> None:
        if not self.done:
            self.done = True
            self.error = error

    def _leader(self, tp: TopicPartition) -> int | None:
        metadata = self._network.metadata
        node = metadata.leader(tp)
        if node is not None:
            return node.broker_id
        topic = metadata.topic(tp.topic)
        if topic is not None and topic.error_code in LASTING:
            self.finish(KafkaError(topic.error_code, f"{tp}: {topic.error_code.sentence}"))
        elif topic is not None and topic.usable and tp.partition >= len(topic.partitions):
            text = f"topic {tp.topic!r} has partitions 0 to {len(topic.partitions) - 1}, not {tp.partition}"
            self.finish(KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, text))
        else:
            if topic is not None:
                code = topic.error_code or ErrorCode.LEADER_NOT_AVAILABLE
                self.error = KafkaError(code, f"{tp}: {code.sentence}")
            metadata.expire()
        return None

    def _ask(self, node_id: int, timestamps: Mapping[TopicPartition, int], now: Now) -> None:
        self._asked |= timestamps.keys()
        request = list_offsets(timestamps, committed=self._committed)
        asked = frozenset(timestamps)
        self._network.ask(node_id, request, partial(self._answered, asked), partial(self._failed, asked), now)

    def _answered(self, asked: frozenset[TopicPartition], response: Any, now: Now) -> None:
        self._asked -= asked
        for topic in response.topics:
            for found in topic.partitions:
                tp = TopicPartition(topic.name, found.partition_index)
                if found.error_code is not ErrorCode.NONE:
                    self._refused(KafkaError(found.error_code, f"{tp}: {found.error_code.sentence}"), now)
                elif self._left.pop(tp, None) is not None:
                    self.result[tp] = OffsetAndTimestamp(found.offset, found.timestamp, found.leader_epoch)
        if not self._left:
            self.finish(None)
        elif not asked.isdisjoint(self._left) and now.monotonic_ms >= self.due_ms:
            self._refused(KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, "the response lacks a partition"), now)

    def _failed(self, asked: frozenset[TopicPartition], error: KafkaError, now: Now) -> None:
        self._asked -= asked
        self._refused(error, now)

    def _refused(self, error: KafkaError, now: Now) -> None:
        self._network.metadata.expire()
        self._attempts += 1
        settings = self._network.settings
        pause_ms = backoff_ms(
            self._attempts, settings.retry_backoff_ms, settings.retry_backoff_ms_max, self._network.jitter
        )
        self.due_ms = now.monotonic_ms + pause_ms
        self.error = error
        if not error.code.retriable:
            self.finish(error)
