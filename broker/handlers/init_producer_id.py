"""InitProducerId (key 22), v0-5: an id for an idempotent producer, or for one with transactions (KIP-98).

v2 flexible; v3 a producer may bring the id it had (KIP-360), which without a transactional id earns it a new one;
v4 PRODUCER_FENCED, which was INVALID_PRODUCER_EPOCH before; v5 TRANSACTION_ABORTABLE.
Asks for WRITE on the transactional id; without one for IDEMPOTENT_WRITE on the cluster, or WRITE on any topic
(KIP-679).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from raylog.core.errors import ErrorCode, KafkaError
from raylog.core.ids import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, ProducerId, ProducerIdentity
from raylog.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from raylog.security.acl import CLUSTER, Operation, Resource, ResourceType

if TYPE_CHECKING:
    from raylog.broker.broker import Broker
    from raylog.transport.exchange import Exchange


def handle(broker: Broker, exchange: Exchange, request: InitProducerIdRequest) -> InitProducerIdResponse:
    try:
        _check(broker, exchange, request.transactional_id)
        if request.transactional_id is None:
            producer = ProducerIdentity(broker.producer_ids.take(exchange.now), 0)
        else:
            producer = broker.transactions.init_producer(
                exchange,
                request.transactional_id,
                timeout_ms=request.transaction_timeout_ms,
                expected=ProducerIdentity(ProducerId(request.producer_id), request.producer_epoch),
            )
    except KafkaError as error:
        return InitProducerIdResponse(
            error_code=fenced_as(error.code, named_from=4, version=exchange.api_version),
            producer_id=NO_PRODUCER_ID,
            producer_epoch=NO_PRODUCER_EPOCH,
        )
    return InitProducerIdResponse(producer_id=producer.producer_id, producer_epoch=producer.producer_epoch)


def _check(broker: Broker, exchange: Exchange, transactional_id: str | None) -> None:
    """Raises KafkaError."""
    if transactional_id is not None:
        broker.authorization.check(exchange, Operation.WRITE, Resource.transactional_id(transactional_id))
    elif not broker.authorization.may_with_any(exchange, Operation.WRITE, ResourceType.TOPIC):
        broker.authorization.check(exchange, Operation.IDEMPOTENT_WRITE, CLUSTER)


def fenced_as(code: ErrorCode, *, named_from: int, version: int) -> ErrorCode:
    """The code; for clients before the version that brought PRODUCER_FENCED the one that they know (KIP-588)."""
    if code == ErrorCode.PRODUCER_FENCED and version < named_from:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    return code
