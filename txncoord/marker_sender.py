"""Sends transaction markers to partition leaders until each has appended them (WriteTxnMarkers).

A leader may get a marker twice: the second one has no effect. If a leader knows a newer epoch of the producer or of the
coordinator it returns an error; then another coordinator has taken over and this one stops sending the marker.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from itertools import groupby

from raylog.core.clock import Now
from raylog.core.errors import ErrorCode, KafkaError
from raylog.core.ids import NO_BROKER_ID, BrokerId, LeaderEpoch, TopicPartition, by_topic
from raylog.metadata.image import MetadataImage
from raylog.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from raylog.transport.peer_link import PeerLink
from raylog.txncoord.records import TransactionState, TransactionUpdated

ANSWER_MS_MAX = 10_000
"""Request timeout, after which the connection is closed. A leader waits half of it for its followers."""
BACKOFF_MS = 50
"""Backoff for a partition after an error or without a reachable leader: it may get another leader soon."""
MARKERS_MAX = 1000
"""Largest number of partitions in one request."""

_DECIDED_BY_OTHERS = (ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.TRANSACTION_COORDINATOR_FENCED)

OnDone = Callable[[TransactionUpdated, Now], None]


@dataclass(slots=True)
class _Ending:
    """One decision whose markers are being written; partitions in `waiting` have no request in flight."""

    decided: TransactionUpdated
    coordinator_epoch: LeaderEpoch
    on_done: OnDone
    waiting: set[TopicPartition]
    asked: set[TopicPartition] = field(default_factory=set)

    @property
    def producer_id(self) -> int:
        return self.decided.producer.producer_id


class MarkerSender:
    """The markers of all decisions of this broker. Each leader gets one request at a time, with all waiting markers."""

    def __init__(
        self,
        image: Callable[[], MetadataImage],
        link_to: Callable[[BrokerId], PeerLink],
    ) -> None:
        """`link_to` returns the link to a broker, which may be this one."""
        self.retry_ms: int | None = None
        """The time of the next `tick` (monotonic); None if there is nothing to retry."""
        self._image = image
        self._link_to = link_to
        self._busy: set[BrokerId] = set()
        self._endings: dict[int, _Ending] = {}
        """By producer id: a producer has one transaction at a time."""

    def send(self, decided: TransactionUpdated, coordinator_epoch: LeaderEpoch, on_done: OnDone) -> None:
        """Write the markers, beginning with the next `tick`. `on_done` is called once, when all existing partitions
        have theirs."""
        self._endings[decided.producer.producer_id] = _Ending(
            decided, coordinator_epoch, on_done, set(decided.partitions)
        )
        self.retry_ms = 0

    def forget(self, decided: TransactionUpdated) -> None:
        """Stop sending the markers of a decision: another coordinator completes it."""
        ending = self._endings.get(decided.producer.producer_id)
        if ending is not None and ending.decided == decided:
            del self._endings[decided.producer.producer_id]

    def tick(self, now: Now) -> None:
        if self.retry_ms is not None and now.monotonic_ms >= self.retry_ms:
            self.go_on(now)

    def go_on(self, now: Now) -> None:
        """Send waiting markers to the leaders that can be reached. Also called when a link becomes ready."""
        self.retry_ms = None
        wanted: dict[BrokerId, list[tuple[_Ending, TopicPartition]]] = {}
        for ending in list(self._endings.values()):
            for tp in sorted(ending.waiting):
                shown = self._image().partition(tp)
                if shown is None:  # the partition was deleted
                    ending.waiting.discard(tp)
                elif shown.leader == NO_BROKER_ID:
                    self._retry(now)
                else:
                    wanted.setdefault(shown.leader, []).append((ending, tp))
            self._end_if_told(ending, now)
        for leader, markers in wanted.items():
            link = self._link_to(leader)
            if not link.ready:
                self._retry(now)
            elif leader not in self._busy:
                self._ask(leader, link, markers[:MARKERS_MAX], now)

    def _ask(self, leader: BrokerId, link: PeerLink, markers: list[tuple[_Ending, TopicPartition]], now: Now) -> None:
        asked: list[tuple[_Ending, list[TopicPartition]]] = []
        for _, group in groupby(markers, key=lambda entry: entry[0].producer_id):
            entries = list(group)
            ending, partitions = entries[0][0], [tp for _, tp in entries]
            ending.waiting.difference_update(partitions)
            ending.asked.update(partitions)
            asked.append((ending, partitions))
        self._busy.add(leader)
        request = WriteTxnMarkersRequest(markers=tuple(_marker(*entry) for entry in asked))
        answered, failed = partial(self._answered, leader, asked), partial(self._failed, leader, asked)
        link.request(request, answered, failed, now=now, timeout_ms=ANSWER_MS_MAX)

    def _answered(
        self,
        leader: BrokerId,
        asked: list[tuple[_Ending, list[TopicPartition]]],
        response: WriteTxnMarkersResponse,
        now: Now,
    ) -> None:
        codes = {
            (marker.producer_id, TopicPartition(topic.name, result.partition_index)): result.error_code
            for marker in response.markers
            for topic in marker.topics
            for result in topic.partitions
        }
        self._settle(leader, asked, lambda key: codes.get(key, ErrorCode.UNKNOWN_SERVER_ERROR), now)

    def _failed(
        self, leader: BrokerId, asked: list[tuple[_Ending, list[TopicPartition]]], error: KafkaError, now: Now
    ) -> None:
        self._settle(leader, asked, lambda _: error.code, now)

    def _settle(
        self,
        leader: BrokerId,
        asked: list[tuple[_Ending, list[TopicPartition]]],
        code_of: Callable[[tuple[int, TopicPartition]], ErrorCode],
        now: Now,
    ) -> None:
        self._busy.discard(leader)
        for ending, partitions in asked:
            ending.asked.difference_update(partitions)
            if self._endings.get(ending.producer_id) is not ending:
                continue
            codes = {tp: code_of((ending.producer_id, tp)) for tp in partitions}
            if any(code in _DECIDED_BY_OTHERS for code in codes.values()):
                del self._endings[ending.producer_id]
                continue
            refused = [tp for tp, code in codes.items() if code != ErrorCode.NONE]
            ending.waiting.update(refused)
            if refused:
                self._retry(now)
            self._end_if_told(ending, now)
        if self.retry_ms is None and any(ending.waiting for ending in self._endings.values()):
            self.retry_ms = now.monotonic_ms  # markers that were added while the request was in flight

    def _end_if_told(self, ending: _Ending, now: Now) -> None:
        if not ending.waiting and not ending.asked:
            del self._endings[ending.producer_id]
            ending.on_done(ending.decided, now)

    def _retry(self, now: Now) -> None:
        self.retry_ms = now.monotonic_ms + BACKOFF_MS


def _marker(ending: _Ending, partitions: Iterable[TopicPartition]) -> WritableTxnMarker:
    return WritableTxnMarker(
        producer_id=ending.producer_id,
        producer_epoch=ending.decided.producer.producer_epoch,
        transaction_result=ending.decided.state is TransactionState.PREPARE_COMMIT,
        topics=tuple(
            WritableTxnMarkerTopic(name=name, partition_indexes=numbers) for name, numbers in by_topic(partitions)
        ),
        coordinator_epoch=ending.coordinator_epoch,
    )
