"""AlterPartition (key 56), v2-3, internal: a leader proposes a new ISR (KIP-497). v3 broker epochs (KIP-903).

If the change completes a reassignment, the leader epoch is raised or another leader elected: NEW_LEADER_ELECTED.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import UUID

from raylog.controller import brokers
from raylog.controller.isr import UNKNOWN_BROKER_EPOCH, alter_partition
from raylog.core.errors import ErrorCode, KafkaError
from raylog.core.ids import BrokerId
from raylog.protocol.messages.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    RequestPartitionData,
    ResponsePartitionData,
    ResponseTopicData,
)

if TYPE_CHECKING:
    from raylog.controller.services import ControllerServices
    from raylog.transport.exchange import Exchange


def handle(
    controller: ControllerServices, exchange: Exchange, request: AlterPartitionRequest
) -> AlterPartitionResponse:
    leader = BrokerId(request.broker_id)
    try:
        controller.check_active()
        brokers.registered_broker(controller.image, leader, broker_epoch=request.broker_epoch)
    except KafkaError as error:
        return AlterPartitionResponse(error_code=error.code)
    return AlterPartitionResponse(
        topics=tuple(
            ResponseTopicData(
                topic_id=topic.topic_id,
                partitions=tuple(
                    _alter(controller, exchange, leader, topic.topic_id, wanted) for wanted in topic.partitions
                ),
            )
            for topic in request.topics
        )
    )


def _alter(
    controller: ControllerServices, exchange: Exchange, leader: BrokerId, topic_id: UUID, wanted: RequestPartitionData
) -> ResponsePartitionData:
    isr = [(BrokerId(member.broker_id), member.broker_epoch) for member in wanted.new_isr_with_epochs]
    isr += [(BrokerId(member), UNKNOWN_BROKER_EPOCH) for member in wanted.new_isr]
    try:
        outcome = alter_partition(
            controller.image,
            leader,
            topic_id,
            wanted.partition_index,
            leader_epoch=wanted.leader_epoch,
            partition_epoch=wanted.partition_epoch,
            isr=isr,
        )
        after = controller.decide(outcome, exchange.now)
    except KafkaError as error:
        return ResponsePartitionData(partition_index=wanted.partition_index, error_code=error.code)
    return ResponsePartitionData(
        partition_index=wanted.partition_index,
        error_code=ErrorCode.NONE if after.leader_epoch == wanted.leader_epoch else ErrorCode.NEW_LEADER_ELECTED,
        leader_id=after.leader,
        leader_epoch=after.leader_epoch,
        isr=after.isr,
        partition_epoch=after.partition_epoch,
    )
