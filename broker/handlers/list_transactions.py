"""ListTransactions (key 66), v0-2: the transactional ids that this broker coordinates (KIP-664).

v1 filters by minimum duration of the transaction (KIP-994); v2 by a regular expression (RE2) that the whole
transactional id matches (KIP-1152). Omits transactional ids without DESCRIBE.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from raylog.core.errors import KafkaError
from raylog.core.regular_expressions import matching
from raylog.protocol.messages.list_transactions import (
    ListTransactionsRequest,
    ListTransactionsResponse,
    TransactionState,
)
from raylog.security.acl import Operation, Resource
from raylog.txncoord import records
from raylog.txncoord.records import TransactionUpdated

if TYPE_CHECKING:
    from raylog.broker.services import BrokerServices
    from raylog.transport.exchange import Exchange

_STATES = {state.shown for state in records.TransactionState}


def handle(broker: BrokerServices, exchange: Exchange, request: ListTransactionsRequest) -> ListTransactionsResponse:
    try:
        wanted = list(_wanted(broker, exchange, request))
        pattern = request.transactional_id_pattern
        if pattern:
            names = frozenset(matching(pattern, (found.transactional_id for found in wanted)))
            wanted = [found for found in wanted if found.transactional_id in names]
    except KafkaError as error:
        return ListTransactionsResponse(error_code=error.code)
    return ListTransactionsResponse(
        unknown_state_filters=tuple(name for name in request.state_filters if name not in _STATES),
        transaction_states=tuple(
            TransactionState(
                transactional_id=found.transactional_id,
                producer_id=found.producer.producer_id,
                transaction_state=found.state.shown,
            )
            for found in wanted
        ),
    )


def _wanted(
    broker: BrokerServices, exchange: Exchange, request: ListTransactionsRequest
) -> Iterator[TransactionUpdated]:
    states, producer_ids = frozenset(request.state_filters), frozenset(request.producer_id_filters)
    for shard in broker.transactions.all(exchange):
        for found in shard.transactions.by_id.values():
            open_ms = exchange.now.wall_ms - found.start_timestamp_ms
            if (
                (not states or found.state.shown in states)
                and (not producer_ids or found.producer.producer_id in producer_ids)
                and broker.authorization.may(
                    exchange,
                    Operation.DESCRIBE,
                    Resource.transactional_id(found.transactional_id),
                    logs_denial=False,
                )
                and (request.duration_filter < 0 or (found.state.is_open and open_ms > request.duration_filter))
            ):
                yield found
