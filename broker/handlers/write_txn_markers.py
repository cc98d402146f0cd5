"""WriteTxnMarkers (key 27), v1-2: write end-of-transaction markers to partitions that this broker leads (KIP-98).

v1 flexible; v2 the transaction version: an epoch belongs to one transaction of version 2, so that a delayed marker
cannot end the next one (KIP-1228). Sent by the transaction coordinator, or by a tool that ends hanging transactions
(KIP-664). The response is sent once all in-sync replicas have the markers. Requires CLUSTER_ACTION or ALTER on the
cluster.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from raylog.core.errors import ErrorCode, KafkaError
from raylog.core.ids import ProducerId, ProducerIdentity, TopicPartition
from raylog.groupcoord.shards import OFFSETS_TOPIC
from raylog.protocol.error_responses import error_response
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
from raylog.transport.commits import COMMITTED, CommitPoint
from raylog.txncoord.transactions import VERSION_2

if TYPE_CHECKING:
    from raylog.broker.services import BrokerServices
    from raylog.transport.exchange import Exchange

COMMIT_MS_MAX = 5000
"""After this time the sender gets a timeout error for uncommitted markers, and retries."""

_Codes = dict[tuple[int, TopicPartition], ErrorCode]


def handle(
    broker: BrokerServices, exchange: Exchange, request: WriteTxnMarkersRequest
) -> WriteTxnMarkersResponse | None:
    may_alter = broker.authorization.may(exchange, Operation.ALTER, CLUSTER, logs_denial=False)
    if not may_alter and not broker.authorization.may(exchange, Operation.CLUSTER_ACTION, CLUSTER):
        refusal: WriteTxnMarkersResponse = error_response(request, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
        return refusal
    codes: _Codes = {}
    points: dict[tuple[int, TopicPartition], CommitPoint] = {}
    for marker, tp in _each(request):
        key = marker.producer_id, tp
        codes[key] = _write(broker, exchange, marker, tp)
        point = broker.partition(tp).commit_point() if codes[key] == ErrorCode.NONE else None
        if point is not None:
            points[key] = point
    if not points:
        return _response(request, codes)

    def settled(outcomes: Sequence[ErrorCode]) -> None:
        for key, code in zip(points, outcomes, strict=True):
            codes[key] = ErrorCode.NONE if code in COMMITTED else code
        exchange.answer(_response(request, codes))

    deadline_ms = exchange.now.monotonic_ms + COMMIT_MS_MAX
    broker.commits.wait(list(points.values()), deadline_ms=deadline_ms, done=settled)
    return None


def _each(request: WriteTxnMarkersRequest) -> Iterator[tuple[WritableTxnMarker, TopicPartition]]:
    for marker in request.markers:
        for topic in marker.topics:
            for number in topic.partition_indexes:
                yield marker, TopicPartition(topic.name, number)


def _write(broker: BrokerServices, exchange: Exchange, marker: WritableTxnMarker, tp: TopicPartition) -> ErrorCode:
    batch = build_marker(
        EndTransactionMarker(marker.transaction_result, marker.coordinator_epoch),
        producer_id=marker.producer_id,
        producer_epoch=marker.producer_epoch,
        timestamp_ms=exchange.now.wall_ms,
    )
    try:
        partition = broker.partition(tp)
        partition.check_insync_replicas()
        producer = ProducerIdentity(ProducerId(marker.producer_id), marker.producer_epoch)
        if marker.transaction_version >= VERSION_2 and partition.log.producers.has_open_transaction(producer):
            return ErrorCode.INVALID_PRODUCER_EPOCH  # the open one has begun after this marker was written
        partition.append_as_leader(memoryview(batch), now_ms=exchange.now.wall_ms, from_client=False)
    except KafkaError as error:
        return error.code
    broker.verification.marker_written(marker.producer_id)
    if tp.topic == OFFSETS_TOPIC:
        broker.groups.transaction_ended(tp.partition, marker.producer_id, committed=marker.transaction_result)
    broker.partition_appended(tp, len(batch))
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
