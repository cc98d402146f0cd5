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

_SUPERSEDED_CODES = (ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.TRANSACTION_COORDINATOR_FENCED)

OnDone = Callable[[TransactionUpdated, Now], None]


@dataclass(slots=True)
class _PendingMarkers:
    """One decision whose markers are being written; partitions in `waiting` have no request in flight."""

    decided: TransactionUpdated
    coordinator_epoch: LeaderEpoch
    on_done: OnDone
    waiting: set[TopicPartition]
    in_flight: set[TopicPartition] = field(default_factory=set)

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
        self._pending: dict[int, _PendingMarkers] = {}
        """By producer id: a producer has one transaction at a time."""

    def send(self, decided: TransactionUpdated, coordinator_epoch: LeaderEpoch, on_done: OnDone) -> None:
        """Write the markers, beginning with the next `tick`. `on_done` is called once, when all existing partitions
        have theirs."""
        self._pending[decided.producer.producer_id] = _PendingMarkers(
            decided, coordinator_epoch, on_done, set(decided.partitions)
        )
        self.retry_ms = 0

    def forget(self, coordinator_epoch: LeaderEpoch, decided: TransactionUpdated) -> None:
        """Stop sending the markers of a decision: the coordinator of another epoch completes it.

        That may be this broker again, which may have passed the same decision to `send` already.
        """
        pending = self._pending.get(decided.producer.producer_id)
        if pending is not None and pending.decided == decided and pending.coordinator_epoch == coordinator_epoch:
            del self._pending[decided.producer.producer_id]

    def tick(self, now: Now) -> None:
        if self.retry_ms is not None and now.monotonic_ms >= self.retry_ms:
            self.send_waiting(now)

    def send_waiting(self, now: Now) -> None:
        """Send waiting markers to the leaders that can be reached. Also called when a link becomes ready."""
        self.retry_ms = None
        wanted: dict[BrokerId, list[tuple[_PendingMarkers, TopicPartition]]] = {}
        for pending in list(self._pending.values()):
            for tp in sorted(pending.waiting):
                shown = self._image().partition(tp)
                if shown is None:  # the partition was deleted
                    pending.waiting.discard(tp)
                elif shown.leader == NO_BROKER_ID:
                    self._retry(now)
                else:
                    wanted.setdefault(shown.leader, []).append((pending, tp))
            self._complete_if_written(pending, now)
        for leader, markers in wanted.items():
            link = self._link_to(leader)
            if not link.ready:
                self._retry(now)
            elif leader not in self._busy:
                self._ask(leader, link, markers[:MARKERS_MAX], now)

    def _ask(
        self, leader: BrokerId, link: PeerLink, markers: list[tuple[_PendingMarkers, TopicPartition]], now: Now
    ) -> None:
        in_flight: list[tuple[_PendingMarkers, list[TopicPartition]]] = []
        for _, group in groupby(markers, key=lambda entry: entry[0].producer_id):
            entries = list(group)
            pending, partitions = entries[0][0], [tp for _, tp in entries]
            pending.waiting.difference_update(partitions)
            pending.in_flight.update(partitions)
            in_flight.append((pending, partitions))
        self._busy.add(leader)
        request = WriteTxnMarkersRequest(markers=tuple(_marker(*entry) for entry in in_flight))
        answered, failed = partial(self._answered, leader, in_flight), partial(self._failed, leader, in_flight)
        link.request(request, answered, failed, now=now, timeout_ms=ANSWER_MS_MAX)

    def _answered(
        self,
        leader: BrokerId,
        in_flight: list[tuple[_PendingMarkers, list[TopicPartition]]],
        response: WriteTxnMarkersResponse,
        now: Now,
    ) -> None:
        codes = {
            (marker.producer_id, TopicPartition(topic.name, result.partition_index)): result.error_code
            for marker in response.markers
            for topic in marker.topics
            for result in topic.partitions
        }
        self._settle(leader, in_flight, lambda key: codes.get(key, ErrorCode.UNKNOWN_SERVER_ERROR), now)

    def _failed(
        self,
        leader: BrokerId,
        in_flight: list[tuple[_PendingMarkers, list[TopicPartition]]],
        error: KafkaError,
        now: Now,
    ) -> None:
        self._settle(leader, in_flight, lambda _: error.code, now)

    def _settle(
        self,
        leader: BrokerId,
        in_flight: list[tuple[_PendingMarkers, list[TopicPartition]]],
        code_of: Callable[[tuple[int, TopicPartition]], ErrorCode],
        now: Now,
    ) -> None:
        self._busy.discard(leader)
        for pending, partitions in in_flight:
            pending.in_flight.difference_update(partitions)
            if self._pending.get(pending.producer_id) is not pending:
                continue
            codes = {tp: code_of((pending.producer_id, tp)) for tp in partitions}
            if any(code in _SUPERSEDED_CODES for code in codes.values()):
                del self._pending[pending.producer_id]
                continue
            refused = [tp for tp, code in codes.items() if code != ErrorCode.NONE]
            pending.waiting.update(refused)
            if refused:
                self._retry(now)
            self._complete_if_written(pending, now)
        if self.retry_ms is None and any(pending.waiting for pending in self._pending.values()):
            self.retry_ms = now.monotonic_ms  # markers that were added while the request was in flight

    def _complete_if_written(self, pending: _PendingMarkers, now: Now) -> None:
        if not pending.waiting and not pending.in_flight:
            del self._pending[pending.producer_id]
            pending.on_done(pending.decided, now)

    def _retry(self, now: Now) -> None:
        self.retry_ms = now.monotonic_ms + BACKOFF_MS


def _marker(pending: _PendingMarkers, partitions: Iterable[TopicPartition]) -> WritableTxnMarker:
    return WritableTxnMarker(
        producer_id=pending.producer_id,
        producer_epoch=pending.decided.producer.producer_epoch,
        transaction_result=pending.decided.state is TransactionState.PREPARE_COMMIT,
        topics=tuple(
            WritableTxnMarkerTopic(name=name, partition_indexes=numbers) for name, numbers in by_topic(partitions)
        ),
        coordinator_epoch=pending.coordinator_epoch,
        transaction_version=pending.decided.client_version,
    )
