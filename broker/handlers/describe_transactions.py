"""DescribeTransactions (key 65), v0: the state of transactional ids, from their coordinator (KIP-664).

Requires DESCRIBE on each transactional id; topics without DESCRIBE are omitted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from raylog.core.errors import KafkaError
from raylog.core.ids import NO_PRODUCER_ID, NO_TIMESTAMP_MS, by_topic
from raylog.protocol.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TopicData,
    TransactionState,
)
from raylog.security.acl import Operation, Resource

if TYPE_CHECKING:
    from raylog.broker.services import BrokerServices
    from raylog.transport.exchange import Exchange


def handle(
    broker: BrokerServices, exchange: Exchange, request: DescribeTransactionsRequest
) -> DescribeTransactionsResponse:
    described = tuple(_describe(broker, exchange, transactional_id) for transactional_id in request.transactional_ids)
    return DescribeTransactionsResponse(transaction_states=described)


def _describe(broker: BrokerServices, exchange: Exchange, transactional_id: str) -> TransactionState:
    try:
        broker.authorization.check(exchange, Operation.DESCRIBE, Resource.transactional_id(transactional_id))
        found = broker.transactions.shard(exchange, transactional_id).transactions.described(transactional_id)
    except KafkaError as error:
        return TransactionState(
            error_code=error.code, transactional_id=transactional_id, producer_id=NO_PRODUCER_ID, producer_epoch=-1
        )
    return TransactionState(
        transactional_id=transactional_id,
        transaction_state=found.state.shown,
        transaction_timeout_ms=found.timeout_ms,
        transaction_start_time_ms=found.start_timestamp_ms if found.state.is_open else NO_TIMESTAMP_MS,
        producer_id=found.producer.producer_id,
        producer_epoch=found.producer.producer_epoch,
        topics=tuple(
            TopicData(topic=name, partitions=numbers)
            for name, numbers in by_topic(found.partitions)
            if broker.authorization.may(exchange, Operation.DESCRIBE, Resource.topic(name), logs_denial=False)
        ),
    )
