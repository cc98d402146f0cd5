"""InitProducerId (key 22), v0-5: an id for an idempotent producer (KIP-98).

v2 flexible; v3 a producer may bring the id it had (KIP-360), which without a transactional id earns it a new one.
A transactional id is refused: transactions are not served yet (the code: see find_coordinator).
Asks for WRITE on the transactional id; without one for IDEMPOTENT_WRITE on the cluster, or WRITE on any topic
(KIP-679).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from raylog.core.errors import ErrorCode, KafkaError
from raylog.core.ids import NO_PRODUCER_EPOCH, NO_PRODUCER_ID
from raylog.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from raylog.security.acl import CLUSTER, Operation, Resource, ResourceType

if TYPE_CHECKING:
    from raylog.broker.broker import Broker
    from raylog.transport.request import RequestContext


def handle(broker: Broker, context: RequestContext, request: InitProducerIdRequest) -> InitProducerIdResponse:
    try:
        _check(broker, context, request.transactional_id)
        if request.transactional_id is not None:
            raise KafkaError(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, "Transactions are not served yet.")
        producer_id = broker.producer_ids.take(context.now)
    except KafkaError as error:
        return InitProducerIdResponse(
            error_code=error.code, producer_id=NO_PRODUCER_ID, producer_epoch=NO_PRODUCER_EPOCH
        )
    return InitProducerIdResponse(producer_id=producer_id, producer_epoch=0)


def _check(broker: Broker, context: RequestContext, transactional_id: str | None) -> None:
    """Raises KafkaError."""
    if transactional_id is not None:
        broker.check(context, Operation.WRITE, Resource.transactional_id(transactional_id))
    elif not broker.may_with_any(context, Operation.WRITE, ResourceType.TOPIC):
        broker.check(context, Operation.IDEMPOTENT_WRITE, CLUSTER)
