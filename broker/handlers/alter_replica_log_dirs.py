"""AlterReplicaLogDirs (key 34), v1-2: move replicas to another log directory of this broker (KIP-113). v2 flexible.

The directory that has the replica is accepted, without effect; a move to any other one is not supported yet and gets
LOG_DIR_NOT_FOUND. Requires ALTER on the cluster.
"""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING

from raylog.core.errors import ErrorCode
from raylog.core.ids import TopicPartition
from raylog.protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
)
from raylog.security.acl import CLUSTER, Operation

if TYPE_CHECKING:
    from raylog.broker.services import BrokerServices
    from raylog.transport.exchange import Exchange


def handle(
    broker: BrokerServices, exchange: Exchange, request: AlterReplicaLogDirsRequest
) -> AlterReplicaLogDirsResponse:
    may_alter = broker.authorization.may(exchange, Operation.ALTER, CLUSTER)
    codes = {
        TopicPartition(topic.name, number): (
            _code(broker, wanted.path, TopicPartition(topic.name, number))
            if may_alter
            else ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        )
        for wanted in request.dirs
        for topic in wanted.topics
        for number in topic.partitions
    }
    return AlterReplicaLogDirsResponse(
        results=tuple(
            AlterReplicaLogDirTopicResult(
                topic_name=name,
                partitions=tuple(
                    AlterReplicaLogDirPartitionResult(partition_index=tp.partition, error_code=code)
                    for tp, code in group
                ),
            )
            for name, group in groupby(sorted(codes.items()), key=lambda entry: entry[0].topic)
        )
    )


def _code(broker: BrokerServices, path: str, tp: TopicPartition) -> ErrorCode:
    holder = broker.table.log_dirs.holder(tp)
    if path not in ([holder.path] if holder is not None else [each.path for each in broker.table.log_dirs.dirs]):
        return ErrorCode.LOG_DIR_NOT_FOUND
    shown = broker.image.partition(tp)
    if shown is None or broker.identity.node_id not in shown.replicas:
        return ErrorCode.REPLICA_NOT_AVAILABLE
    partition = broker.partitions.get(tp)
    is_served = partition is not None and partition.log.offline_reason is None
    return ErrorCode.NONE if is_served else ErrorCode.KAFKA_STORAGE_ERROR
