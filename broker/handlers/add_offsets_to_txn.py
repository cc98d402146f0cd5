"""AddOffsetsToTxn (key 25), v0-4: a transaction is to commit offsets of a group (KIP-98).

v2 PRODUCER_FENCED, which was INVALID_PRODUCER_EPOCH before; v3 flexible; v4 TRANSACTION_ABORTABLE. The partition of
__consumer_offsets that keeps the group becomes part of the transaction as any other.
Asks for WRITE on the transactional id, and for READ on the group.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from raylog.broker.groups import OFFSETS_TOPIC
from raylog.broker.handlers.init_producer_id import fenced_as
from raylog.core.errors import KafkaError
from raylog.core.ids import ProducerId
from raylog.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from raylog.security.acl import Operation, Resource
from raylog.txncoord.records import ProducerIdentity

if TYPE_CHECKING:
    from raylog.broker.broker import Broker
    from raylog.transport.request import RequestContext


def handle(broker: Broker, context: RequestContext, request: AddOffsetsToTxnRequest) -> AddOffsetsToTxnResponse:
    producer = ProducerIdentity(ProducerId(request.producer_id), request.producer_epoch)
    try:
        broker.check(context, Operation.WRITE, Resource.transactional_id(request.transactional_id))
        broker.check(context, Operation.READ, Resource.group(request.group_id))
        partition, _ = broker.find_coordinator(OFFSETS_TOPIC, request.group_id, context.now)
        broker.transactions.add_partitions(request.transactional_id, producer, [partition], context.now)
    except KafkaError as error:
        code = fenced_as(error.code, named_from=2, version=context.api_version)
        return AddOffsetsToTxnResponse(error_code=code)
    return AddOffsetsToTxnResponse()
