"""AlterReplicaLogDirs (key 34), v1-2: move replicas to another log directory of this broker (KIP-113). v2 flexible.

The response says that a move has begun; DescribeLogDirs shows its progress. It replaces an earlier move of the replica;
a move to the directory that has the replica cancels it. For a replica that this broker does not have yet the directory
is remembered until it is created, and the code is REPLICA_NOT_AVAILABLE. Requires ALTER on the cluster.
"""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING

from raylog.core.errors import ErrorCode, KafkaError
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
    try:
        broker.table.move(tp, path)
    except KafkaError as error:
        return error.code
    return ErrorCode.NONE
