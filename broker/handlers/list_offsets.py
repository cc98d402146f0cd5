"""ListOffsets (key 2), v1-11: the offset for a timestamp, or for a special timestamp.

v2 isolation level: read_committed stops at the last stable offset; v4 leader epochs; v6 flexible; v7 -3 the largest
timestamp (KIP-734); v8 -4 the earliest local; v9 -5 the last tiered; v10 a timeout; v11 -6 the earliest not yet
uploaded. There is no tiered storage: -4 is -2, -5 and -6 find nothing. A partition that is named twice is refused.
Requires DESCRIBE on each topic.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from raylog.core.errors import ErrorCode, KafkaError
from raylog.core.ids import NO_LEADER_EPOCH, NO_OFFSET, NO_TIMESTAMP_MS, TopicPartition
from raylog.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from raylog.security.acl import Operation, Resource

if TYPE_CHECKING:
    from raylog.broker.services import BrokerServices
    from raylog.replication.partition import Partition
    from raylog.transport.exchange import Exchange

LATEST = -1
EARLIEST = -2
MAX_TIMESTAMP = -3
EARLIEST_LOCAL = -4
LATEST_TIERED = -5
EARLIEST_PENDING_UPLOAD = -6
EARLIEST_ONES = (EARLIEST, EARLIEST_LOCAL)
READ_COMMITTED = 1
NEEDS_VERSION = {MAX_TIMESTAMP: 7, EARLIEST_LOCAL: 8, LATEST_TIERED: 9, EARLIEST_PENDING_UPLOAD: 11}


def handle(broker: BrokerServices, exchange: Exchange, request: ListOffsetsRequest) -> ListOffsetsResponse:
    committed = request.isolation_level == READ_COMMITTED
    counts = Counter((topic.name, wanted.partition_index) for topic in request.topics for wanted in topic.partitions)
    return ListOffsetsResponse(
        topics=tuple(
            ListOffsetsTopicResponse(
                name=topic.name,
                partitions=tuple(
                    _list(
                        broker,
                        exchange,
                        topic.name,
                        wanted,
                        committed=committed,
                        repeated=counts[topic.name, wanted.partition_index] > 1,
                    )
                    for wanted in topic.partitions
                ),
            )
            for topic in request.topics
        )
    )


def _list(
    broker: BrokerServices,
    exchange: Exchange,
    topic: str,
    wanted: ListOffsetsPartition,
    *,
    committed: bool,
    repeated: bool,
) -> ListOffsetsPartitionResponse:
    try:
        broker.authorization.check(exchange, Operation.DESCRIBE, Resource.topic(topic))
        if repeated:
            raise KafkaError(ErrorCode.INVALID_REQUEST)
        partition = broker.partition(TopicPartition(topic, wanted.partition_index))
        partition.check_leader_epoch(wanted.current_leader_epoch)
        if exchange.api_version < NEEDS_VERSION.get(wanted.timestamp, 0) or wanted.timestamp < EARLIEST_PENDING_UPLOAD:
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)
        if not partition.is_high_watermark_known and wanted.timestamp not in EARLIEST_ONES:
            early = exchange.api_version < 5
            raise KafkaError(ErrorCode.LEADER_NOT_AVAILABLE if early else ErrorCode.OFFSET_NOT_AVAILABLE)
        offset, timestamp_ms, leader_epoch = _look_up(partition, wanted.timestamp, committed=committed)
    except KafkaError as error:
        return ListOffsetsPartitionResponse(
            partition_index=wanted.partition_index, error_code=error.code, timestamp=NO_TIMESTAMP_MS, offset=NO_OFFSET
        )
    return ListOffsetsPartitionResponse(
        partition_index=wanted.partition_index, timestamp=timestamp_ms, offset=offset, leader_epoch=leader_epoch
    )


def _look_up(partition: Partition, timestamp: int, *, committed: bool) -> tuple[int, int, int]:
    """Offset, timestamp and leader epoch; -1 for missing values."""
    upto = partition.readable_upto(committed=committed)
    nothing = (NO_OFFSET, NO_TIMESTAMP_MS, NO_LEADER_EPOCH)
    if timestamp == LATEST:
        return upto, NO_TIMESTAMP_MS, partition.leader_epoch
    if timestamp in EARLIEST_ONES:
        start = partition.log.log_start_offset
        return start, NO_TIMESTAMP_MS, partition.epoch_of(start)
    if timestamp in (LATEST_TIERED, EARLIEST_PENDING_UPLOAD):
        return nothing
    if timestamp == MAX_TIMESTAMP:
        return partition.log.offset_of_max_timestamp(upto=upto) or nothing
    return partition.log.offset_for_timestamp(timestamp, upto=upto) or nothing
