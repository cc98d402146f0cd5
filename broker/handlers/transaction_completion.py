"""Requests of a transactional producer that meet the completion of its transaction before wait for its end (KIP-890).

EndTxn is answered before the markers are written. The producer's next request comes a moment later; if it were refused
with CONCURRENT_TRANSACTIONS, clients would repeat it after 20 to 100 ms.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from raylog.core.errors import ErrorCode, KafkaError
from raylog.txncoord.shards import Completion

if TYPE_CHECKING:
    from raylog.broker.services import BrokerServices
    from raylog.transport.exchange import Exchange

Response = TypeVar("Response")


def decided(
    broker: BrokerServices,
    exchange: Exchange,
    transactional_id: str,
    decide: Callable[[], Response],
    refuse: Callable[[KafkaError], Response],
) -> Response | None:
    """What `decide` returns, or `refuse` makes of the KafkaError that it raises.

    None if it raises CONCURRENT_TRANSACTIONS. The exchange is then decided again when the transaction is completed, and
    refused after `add.partitions.to.txn.retry.backoff.max.ms`. Requests of other nodes do not wait, because requests of
    other producers follow them on the same connection.
    """
    try:
        return decide()
    except KafkaError as error:
        wait_ms = 0 if exchange.internal else broker.settings.transactions.completion_ms_max
        if error.code != ErrorCode.CONCURRENT_TRANSACTIONS or not wait_ms:
            return refuse(error)
    deadline_ms = exchange.now.monotonic_ms + wait_ms
    exchange.hold_back()
    exchange.wait_for(_Undecided(broker, exchange, decide, refuse, deadline_ms), [Completion(transactional_id)])
    return None


class _Undecided:
    """A request that waits for the completion of a transaction."""

    def __init__(
        self,
        broker: BrokerServices,
        exchange: Exchange,
        decide: Callable[[], Response],
        refuse: Callable[[KafkaError], Response],
        deadline_ms: int,
    ) -> None:
        self._broker = broker
        self._exchange = exchange
        self._decide = decide
        self._refuse = refuse
        self.deadline_ms = deadline_ms

    def try_complete(self, grown_bytes: int) -> bool:
        self._exchange.now = self._broker.now
        try:
            response = self._decide()
        except KafkaError as error:
            if error.code == ErrorCode.CONCURRENT_TRANSACTIONS:
                return False
            response = self._refuse(error)
        self._exchange.answer(response)
        return True

    def complete(self) -> None:
        if not self.try_complete(0):
            self._exchange.answer(self._refuse(KafkaError(ErrorCode.CONCURRENT_TRANSACTIONS)))
