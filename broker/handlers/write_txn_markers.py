"""WriteTxnMarkers (key 27), v1-2: how transactions ended, to be written to partitions that this broker leads (KIP-98).

v1 flexible; v2 the version of transactions, which is not looked at: an epoch of the producer may come again. From the
transaction's coordinator, or from a tool that ends what hangs (KIP-664). Each answer is given once all replicas in sync
have the marker. Asks for CLUSTER_ACTION or ALTER on the cluster.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from raylog.broker.groups import OFFSETS_TOPIC
from raylog.core.errors import ErrorCode, KafkaError
from raylog.core.ids import TopicPartition
from raylog.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from raylog.protocol.records.markers import EndTransactionMarker, build_marker
from raylog.security.acl import CLUSTER, Operation
from raylog.transport.request import Parked

if TYPE_CHECKING:
    from raylog.broker.broker import Broker
    from raylog.replication.partition import Uncommitted
    from raylog.transport.request import RequestContext

COMMIT_MS_MAX = 5000
"""Who asks is told after that time that it is not certain, and asks again."""

_Codes = dict[tuple[int, TopicPartition], ErrorCode]


def handle(
    broker: Broker, context: RequestContext, request: WriteTxnMarkersRequest
) -> WriteTxnMarkersResponse | Parked:
    codes: _Codes = {}
    waiting: dict[tuple[int, TopicPartition], Uncommitted] = {}
    if not any(broker.may(context, operation, CLUSTER) for operation in (Operation.CLUSTER_ACTION, Operation.ALTER)):
        refused = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        return _response(request, {(marker.producer_id, tp): refused for marker, tp in _each(request)})
    for marker, tp in _each(request):
        key = marker.producer_id, tp
        codes[key] = _write(broker, context, marker, tp)
        if codes[key] == ErrorCode.NONE:
            uncommitted = broker.partition(tp).uncommitted()
            if uncommitted is not None:
                waiting[key] = uncommitted
    if not waiting:
        return _response(request, codes)
    operation = _DelayedMarkers(context, request, codes, waiting)
    return Parked(operation, [tp for _, tp in waiting])


class _DelayedMarkers:
    """Markers that are written, and wait for the replicas in sync."""

    def __init__(
        self,
        context: RequestContext,
        request: WriteTxnMarkersRequest,
        codes: _Codes,
        waiting: dict[tuple[int, TopicPartition], Uncommitted],
    ) -> None:
        self._context = context
        self._request = request
        self._codes = codes
        self._waiting = waiting
        self.deadline_ms = context.now.monotonic_ms + COMMIT_MS_MAX

    def try_complete(self, grown_bytes: int) -> bool:
        for key, uncommitted in list(self._waiting.items()):
            if uncommitted.is_in_doubt():
                self._codes[key] = ErrorCode.NOT_LEADER_OR_FOLLOWER
            elif not uncommitted.is_committed():
                continue
            del self._waiting[key]
        if self._waiting:
            return False
        self._context.reply(_response(self._request, self._codes))
        return True

    def complete(self) -> None:
        self._codes.update(dict.fromkeys(self._waiting, ErrorCode.REQUEST_TIMED_OUT))
        self._context.reply(_response(self._request, self._codes))


def _each(request: WriteTxnMarkersRequest) -> Iterator[tuple[WritableTxnMarker, TopicPartition]]:
    for marker in request.markers:
        for topic in marker.topics:
            for number in topic.partition_indexes:
                yield marker, TopicPartition(topic.name, number)


def _write(broker: Broker, context: RequestContext, marker: WritableTxnMarker, tp: TopicPartition) -> ErrorCode:
    batch = build_marker(
        EndTransactionMarker(marker.transaction_result, marker.coordinator_epoch),
        producer_id=marker.producer_id,
        producer_epoch=marker.producer_epoch,
        timestamp_ms=context.now.wall_ms,
    )
    try:
        partition = broker.partition(tp)
        partition.check_insync_replicas()
        partition.append_as_leader(memoryview(batch), now_ms=context.now.wall_ms, from_client=False)
    except KafkaError as error:
        return error.code
    broker.verification.marker_written(marker.producer_id)
    if tp.topic == OFFSETS_TOPIC:
        broker.groups.transaction_ended(tp.partition, marker.producer_id, committed=marker.transaction_result)
    broker.partition_changed(tp, len(batch))
    return ErrorCode.NONE


def _response(request: WriteTxnMarkersRequest, codes: _Codes) -> WriteTxnMarkersResponse:
    return WriteTxnMarkersResponse(
        markers=tuple(
            WritableTxnMarkerResult(
                producer_id=marker.producer_id,
                topics=tuple(
                    WritableTxnMarkerTopicResult(
                        name=topic.name,
                        partitions=tuple(
                            WritableTxnMarkerPartitionResult(
                                partition_index=number,
                                error_code=codes[marker.producer_id, TopicPartition(topic.name, number)],
                            )
                            for number in topic.partition_indexes
                        ),
                    )
                    for topic in marker.topics
                ),
            )
            for marker in request.markers
        )
    )
