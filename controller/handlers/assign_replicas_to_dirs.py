"""AssignReplicasToDirs (key 73), v0, internal: the log directories in which a broker has its replicas (KIP-858)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from raylog.controller import brokers
from raylog.core.errors import KafkaError
from raylog.core.ids import BrokerId
from raylog.protocol.messages import assign_replicas_to_dirs as message

if TYPE_CHECKING:
    from raylog.controller.services import ControllerServices
    from raylog.transport.exchange import Exchange


def handle(
    controller: ControllerServices, exchange: Exchange, request: message.AssignReplicasToDirsRequest
) -> message.AssignReplicasToDirsResponse:
    broker_id = BrokerId(request.broker_id)
    try:
        controller.check_active()
        brokers.registered_broker(controller.image, broker_id, broker_epoch=request.broker_epoch)
        wanted = [
            (directory.id_, topic.topic_id, partition.partition_index)
            for directory in request.directories
            for topic in directory.topics
            for partition in topic.partitions
        ]
        outcome = brokers.assign_replicas(controller.image, broker_id, wanted, controller.allows_unclean)
        codes = controller.decide(outcome, exchange.now)
    except KafkaError as error:
        return message.AssignReplicasToDirsResponse(error_code=error.code)
    return message.AssignReplicasToDirsResponse(
        directories=tuple(
            message.ResponseDirectoryData(
                id_=directory.id_,
                topics=tuple(
                    message.ResponseTopicData(
                        topic_id=topic.topic_id,
                        partitions=tuple(
                            message.ResponsePartitionData(
                                partition_index=number, error_code=codes[directory.id_, topic.topic_id, number]
                            )
                            for number in (partition.partition_index for partition in topic.partitions)
                        ),
                    )
                    for topic in directory.topics
                ),
            )
            for directory in request.directories
        )
    )
