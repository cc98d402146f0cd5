"""ListPartitionReassignments (key 46), v0: the current reassignments, with added and removed replicas (KIP-455).

Partitions that are not being reassigned or do not exist are left out. Requires DESCRIBE on the cluster.
"""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING

from raylog.controller.reassignments import ongoing
from raylog.core.errors import KafkaError
from raylog.core.ids import TopicPartition
from raylog.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
)
from raylog.security.acl import CLUSTER, Operation

if TYPE_CHECKING:
    from raylog.controller.services import ControllerServices
    from raylog.transport.exchange import Exchange


def handle(
    controller: ControllerServices, exchange: Exchange, request: ListPartitionReassignmentsRequest
) -> ListPartitionReassignmentsResponse:
    try:
        controller.authorization.check(exchange, Operation.DESCRIBE, CLUSTER)
    except KafkaError as error:
        return refused(error)
    wanted = None
    if request.topics is not None:
        wanted = [TopicPartition(topic.name, number) for topic in request.topics for number in topic.partition_indexes]
    by_topic = groupby(ongoing(controller.image, wanted), key=lambda one: one.topic_partition.topic)
    return ListPartitionReassignmentsResponse(
        topics=tuple(
            OngoingTopicReassignment(
                name=topic,
                partitions=tuple(
                    OngoingPartitionReassignment(
                        partition_index=partition.partition,
                        replicas=partition.replicas,
                        adding_replicas=partition.adding,
                        removing_replicas=partition.removing,
                    )
                    for _, partition in found
                ),
            )
            for topic, found in by_topic
        )
    )


def refused(error: KafkaError) -> ListPartitionReassignmentsResponse:
    return ListPartitionReassignmentsResponse(error_code=error.code, error_message=error.message)
