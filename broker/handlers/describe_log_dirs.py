"""DescribeLogDirs (key 35), v1-5: the logs in this broker's log directories, and the space on their disks.

v2 flexible; v3 a top-level error code; v4 total and usable bytes (KIP-827); v5 cordoned directories (KIP-1066), of
which there are none. Requires DESCRIBE on the cluster.

A partition without a log here is omitted, as in Kafka. The lag of a log that is not served is -1. A directory that has
failed has the error KAFKA_STORAGE_ERROR and no logs. A replica that is being moved has a future log in its new
directory, whose lag is that behind the current log."""

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
    from raylog.logstore.log_dir import LogDir
    from raylog.transport.exchange import Exchange


def handle(broker: BrokerServices, exchange: Exchange, request: DescribeLogDirsRequest) -> DescribeLogDirsResponse:
    if not broker.authorization.may(exchange, Operation.DESCRIBE, CLUSTER):
        return DescribeLogDirsResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    wanted = None
    if request.topics is not None:
        wanted = {TopicPartition(topic.topic, number) for topic in request.topics for number in topic.partitions}
    log_dirs = broker.table.log_dirs
    results = [_describe(broker, log_dir, wanted) for log_dir in log_dirs.dirs]
    results += [_failed(path) for path in log_dirs.unavailable]
    return DescribeLogDirsResponse(results=tuple(results))


def _failed(path: str) -> DescribeLogDirsResult:
    return DescribeLogDirsResult(error_code=ErrorCode.KAFKA_STORAGE_ERROR, log_dir=path)


def _describe(broker: BrokerServices, log_dir: LogDir, wanted: set[TopicPartition] | None) -> DescribeLogDirsResult:
    table = broker.table
    try:
        usage = table.disk_usage(log_dir)
    except OSError:
        return _failed(log_dir.path)
    if log_dir.offline_reason is not None:
        return _failed(log_dir.path)
    replicas = [replica for replica in table.replicas(log_dir) if wanted is None or replica.topic_partition in wanted]
    replicas.sort(key=lambda replica: replica.topic_partition)
    topics = tuple(
        DescribeLogDirsTopic(
            name=name,
            partitions=tuple(
                DescribeLogDirsPartition(
                    partition_index=replica.topic_partition.partition,
                    partition_size=replica.size_bytes,
                    offset_lag=replica.offset_lag,
                    is_future_key=replica.is_future,
                )
                for replica in group
            ),
        )
        for name, group in groupby(replicas, key=lambda replica: replica.topic_partition.topic)
    )
    return DescribeLogDirsResult(
        log_dir=log_dir.path, topics=topics, total_bytes=usage.total_bytes, usable_bytes=usage.usable_bytes
    )
