"""AddOffsetsToTxn (key 25), v0-4: add a group's offset commits to a transaction (KIP-98).

v2 PRODUCER_FENCED instead of INVALID_PRODUCER_EPOCH; v3 flexible; v4 TRANSACTION_ABORTABLE. The partition of
__consumer_offsets that stores the group is added to the transaction like any other partition, even before there is this
topic: there are clients that do not repeat the request after COORDINATOR_NOT_AVAILABLE, and end the transaction.
Requires WRITE on the transactional id, and READ on the group.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from raylog.broker.handlers.init_producer_id import fenced_as
from raylog.broker.handlers.transaction_completion import decided
from raylog.core.errors import KafkaError
from raylog.core.ids import ProducerId, ProducerIdentity
from raylog.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from raylog.security.acl import Operation, Resource

if TYPE_CHECKING:
    from raylog.broker.services import BrokerServices
    from raylog.transport.exchange import Exchange


def handle(
    broker: BrokerServices, exchange: Exchange, request: AddOffsetsToTxnRequest
) -> AddOffsetsToTxnResponse | None:
    producer = ProducerIdentity(ProducerId(request.producer_id), request.producer_epoch)

    def decide() -> AddOffsetsToTxnResponse:
        broker.authorization.check(exchange, Operation.WRITE, Resource.transactional_id(request.transactional_id))
        broker.authorization.check(exchange, Operation.READ, Resource.group(request.group_id))
        partition = broker.partition_of_group(request.group_id, exchange.now)
        broker.transactions.add_partitions(exchange, request.transactional_id, producer, [partition])
        return AddOffsetsToTxnResponse()

    def refuse(error: KafkaError) -> AddOffsetsToTxnResponse:
        return AddOffsetsToTxnResponse(error_code=fenced_as(error.code, named_from=2, version=exchange.api_version))

    return decided(broker, exchange, request.transactional_id, decide, refuse)
