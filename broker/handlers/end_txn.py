"""EndTxn (key 26), v0-4: commit or abort a transaction (KIP-98).

v2 PRODUCER_FENCED instead of INVALID_PRODUCER_EPOCH; v3 flexible; v4 TRANSACTION_ABORTABLE. The outcome is durable
when the response is sent; the markers are written afterwards. Requires WRITE on the transactional id.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from raylog.broker.handlers.init_producer_id import fenced_as
from raylog.broker.handlers.transaction_completion import decided
from raylog.core.errors import KafkaError
from raylog.core.ids import ProducerId, ProducerIdentity
from raylog.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from raylog.security.acl import Operation, Resource

if TYPE_CHECKING:
    from raylog.broker.services import BrokerServices
    from raylog.transport.exchange import Exchange


def handle(broker: BrokerServices, exchange: Exchange, request: EndTxnRequest) -> EndTxnResponse | None:
    producer = ProducerIdentity(ProducerId(request.producer_id), request.producer_epoch)

    def decide() -> EndTxnResponse:
        broker.authorization.check(exchange, Operation.WRITE, Resource.transactional_id(request.transactional_id))
        broker.transactions.end(exchange, request.transactional_id, producer, committed=request.committed)
        return EndTxnResponse()

    def refuse(error: KafkaError) -> EndTxnResponse:
        return EndTxnResponse(error_code=fenced_as(error.code, named_from=2, version=exchange.api_version))

    return decided(broker, exchange, request.transactional_id, decide, refuse)
