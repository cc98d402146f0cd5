"""InitProducerId (key 22), v0-5: a producer id for an idempotent or transactional producer (KIP-98).

v2 flexible; v3 a producer may send its current id and epoch (KIP-360); without a transactional id it then gets a new
one; v4 PRODUCER_FENCED instead of INVALID_PRODUCER_EPOCH; v5 TRANSACTION_ABORTABLE.
Requires WRITE on the transactional id; without one IDEMPOTENT_WRITE on the cluster, or WRITE on any topic (KIP-679).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from raylog.broker.handlers.transaction_completion import decided
from raylog.core.errors import ErrorCode, KafkaError
from raylog.core.ids import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, ProducerId, ProducerIdentity
from raylog.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from raylog.security.acl import CLUSTER, Operation, Resource, ResourceType

if TYPE_CHECKING:
    from raylog.broker.services import BrokerServices
    from raylog.transport.exchange import Exchange


def handle(broker: BrokerServices, exchange: Exchange, request: InitProducerIdRequest) -> InitProducerIdResponse | None:
    transactional_id = request.transactional_id

    def decide() -> InitProducerIdResponse:
        _check(broker, exchange, request)
        if transactional_id is None:
            producer = ProducerIdentity(broker.producer_ids.take(exchange.now), 0)
        else:
            producer = broker.transactions.init_producer(
                exchange,
                transactional_id,
                timeout_ms=request.transaction_timeout_ms,
                expected=ProducerIdentity(ProducerId(request.producer_id), request.producer_epoch),
            )
        return InitProducerIdResponse(producer_id=producer.producer_id, producer_epoch=producer.producer_epoch)

    def refuse(error: KafkaError) -> InitProducerIdResponse:
        return InitProducerIdResponse(
            error_code=fenced_as(error.code, named_from=4, version=exchange.api_version),
            producer_id=NO_PRODUCER_ID,
            producer_epoch=NO_PRODUCER_EPOCH,
        )

    return decided(broker, exchange, transactional_id or "", decide, refuse)


def _check(broker: BrokerServices, exchange: Exchange, request: InitProducerIdRequest) -> None:
    """Raises KafkaError."""
    if request.transactional_id is not None:
        broker.authorization.check(exchange, Operation.WRITE, Resource.transactional_id(request.transactional_id))
    elif not broker.authorization.may_with_any(exchange, Operation.WRITE, ResourceType.TOPIC):
        broker.authorization.check(exchange, Operation.IDEMPOTENT_WRITE, CLUSTER)
    if (request.producer_id == NO_PRODUCER_ID) != (request.producer_epoch == NO_PRODUCER_EPOCH):
        raise KafkaError(ErrorCode.INVALID_REQUEST, "A producer id needs its epoch.")


def fenced_as(code: ErrorCode, *, named_from: int, version: int) -> ErrorCode:
    """The code; before the version that introduced PRODUCER_FENCED, INVALID_PRODUCER_EPOCH in its place (KIP-588)."""
    if code == ErrorCode.PRODUCER_FENCED and version < named_from:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    return code
