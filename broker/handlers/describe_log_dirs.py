"""DescribeLogDirs (key 35), v1-5: the logs in this broker's log directory, and the space on its disk.

v2 flexible; v3 a top-level error code; v4 total and usable bytes (KIP-827); v5 cordoned directories (KIP-1066), of
which there are none. Requires DESCRIBE on the cluster.

A partition without a log here is omitted, as in Kafka. The lag of a log that is not served is -1.
"""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING

from raylog.core.errors import ErrorCode
from raylog.core.ids import TopicPartition
from raylog.protocol.messages.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)
from raylog.security.acl import CLUSTER, Operation

if TYPE_CHECKING:
    from raylog.broker.services import BrokerServices
    from raylog.transport.exchange import Exchange


def handle(broker: BrokerServices, exchange: Exchange, request: DescribeLogDirsRequest) -> DescribeLogDirsResponse:
    table = broker.table
    if not broker.authorization.may(exchange, Operation.DESCRIBE, CLUSTER):
        return DescribeLogDirsResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    try:
        usage = table.disk_usage()
    except OSError:
        failed = DescribeLogDirsResult(error_code=ErrorCode.KAFKA_STORAGE_ERROR, log_dir=table.log_path)
        return DescribeLogDirsResponse(results=(failed,))
    wanted = None
    if request.topics is not None:
        wanted = {TopicPartition(topic.topic, number) for topic in request.topics for number in topic.partitions}
    replicas = [replica for replica in table.replicas() if wanted is None or replica.topic_partition in wanted]
    topics = tuple(
        DescribeLogDirsTopic(
            name=name,
            partitions=tuple(
                DescribeLogDirsPartition(
                    partition_index=replica.topic_partition.partition,
                    partition_size=replica.size_bytes,
                    offset_lag=replica.offset_lag,
                    is_future_key=False,
                )
                for replica in group
            ),
        )
        for name, group in groupby(replicas, key=lambda replica: replica.topic_partition.topic)
    )
    result = DescribeLogDirsResult(
        log_dir=table.log_path, topics=topics, total_bytes=usage.total_bytes, usable_bytes=usage.usable_bytes
    )
    return DescribeLogDirsResponse(results=(result,))
