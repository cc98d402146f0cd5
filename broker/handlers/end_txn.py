"""EndTxn (key 26), v0-5: commit or abort a transaction (KIP-98).

v2 PRODUCER_FENCED instead of INVALID_PRODUCER_EPOCH; v3 flexible; v4 TRANSACTION_ABORTABLE; v5 transactions of version
2, with the producer's identity from now on in the response (KIP-890). The outcome is durable
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

FIRST_VERSION_OF_2 = 5
"""The request of transactions of version 2."""


def handle(broker: BrokerServices, exchange: Exchange, request: EndTxnRequest) -> EndTxnResponse | None:
    producer = ProducerIdentity(ProducerId(request.producer_id), request.producer_epoch)

    def decide() -> EndTxnResponse:
        broker.authorization.check(exchange, Operation.WRITE, Resource.transactional_id(request.transactional_id))
        asked = exchange, request.transactional_id, producer
        if exchange.api_version < FIRST_VERSION_OF_2 or not broker.supports_transactions_2:
            broker.transactions.end(*asked, committed=request.committed)
            return EndTxnResponse(producer_id=producer.producer_id, producer_epoch=producer.producer_epoch)
        producer_id, producer_epoch = broker.transactions.end_2(*asked, committed=request.committed)
        return EndTxnResponse(producer_id=producer_id, producer_epoch=producer_epoch)

    def refuse(error: KafkaError) -> EndTxnResponse:
        return EndTxnResponse(error_code=fenced_as(error.code, named_from=2, version=exchange.api_version))

    return decided(broker, exchange, request.transactional_id, decide, refuse)
