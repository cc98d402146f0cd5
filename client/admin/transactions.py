"""Transactions: list and describe them, abort hanging ones, and fence producers. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from raylog.client.admin.calls import (
    Answer,
    Broker,
    Call,
    Leader,
    Steps,
    distinct,
    named,
    node_ids,
    refused_as_a_whole,
    several,
    transaction,
)
from raylog.client.given_values import checked_partition
from raylog.core.errors import ErrorCode
from raylog.core.ids import ProducerId, ProducerIdentity, TopicPartition
from raylog.protocol.messages.describe_transactions import DescribeTransactionsRequest
from raylog.protocol.messages.init_producer_id import InitProducerIdRequest
from raylog.protocol.messages.list_transactions import ListTransactionsRequest
from raylog.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)

_name = named("transactional id")


class TransactionListing(NamedTuple):
    transactional_id: str
    producer_id: int
    state: str


class TransactionDescription(NamedTuple):
    """`start_time_ms` is wall clock; None if no transaction is open."""

    transactional_id: str
    state: str
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    start_time_ms: int | None
    partitions: tuple[TopicPartition, ...]


def list_transactions(
    *,
    states: Iterable[str] = (),
    producer_ids: Iterable[int] = (),
    longer_than_ms: int = -1,
    pattern: str | None = None,
    timeout: float | None = None,
) -> Steps[list[TransactionListing]]:
    """The transactions of all brokers, those in some states, of some producers or open for longer only.

    `pattern` is a regular expression (RE2) that the whole transactional id matches; Kafka has it from 4.1 on.
    """
    request = ListTransactionsRequest(
        state_filters=tuple(several(states)),
        producer_id_filters=tuple(producer_ids),
        duration_filter=longer_than_ms,
        transactional_id_pattern=pattern,
    )

    def read(response: Any, items: Sequence[int]) -> Iterator[Answer]:
        yield from refused_as_a_whole(response, items)
        if unknown := response.unknown_state_filters:
            text = f"there is no state {', '.join(map(repr, unknown))} of transactions"
            yield Answer(items[0], None, ErrorCode.INVALID_REQUEST, text)
            return
        found = [
            TransactionListing(each.transactional_id, each.producer_id, each.transaction_state)
            for each in response.transaction_states
        ]
        yield Answer(items[0], found)

    routes = {broker_id: Broker(broker_id) for broker_id in (yield from node_ids())}
    found = yield Call(routes, lambda item: f"the transactions of broker {item}", lambda *_: request, read)
    return sorted(each for listed in found.checked().values() for each in listed)


def describe_transactions(
    transactional_ids: Iterable[str] | str, *, timeout: float | None = None
) -> Steps[dict[str, TransactionDescription]]:
    """The state of each transactional id, and the partitions of its open transaction."""
    wanted = distinct(several(transactional_ids), _name)

    def request(items: Sequence[str], _: int) -> DescribeTransactionsRequest:
        return DescribeTransactionsRequest(transactional_ids=tuple(items))

    def read(response: Any, _: Sequence[str]) -> Iterator[Answer]:
        for each in response.transaction_states:
            described = TransactionDescription(
                each.transactional_id,
                each.transaction_state,
                each.producer_id,
                each.producer_epoch,
                each.transaction_timeout_ms,
                None if each.transaction_start_time_ms < 0 else each.transaction_start_time_ms,
                tuple(TopicPartition(topic.topic, number) for topic in each.topics for number in topic.partitions),
            )
            yield Answer(each.transactional_id, described, each.error_code)

    found = yield Call({each: transaction(each) for each in wanted}, _name, request, read)
    return found.checked()


def fence_producers(
    transactional_ids: Iterable[str] | str, *, timeout: float | None = None
) -> Steps[dict[str, ProducerIdentity]]:
    """Abort the open transactions of these ids, and refuse their producers from now on. Returns the new epochs."""
    wanted = distinct(several(transactional_ids), _name)

    def request(items: Sequence[str], left_ms: int) -> InitProducerIdRequest:
        return InitProducerIdRequest(transactional_id=items[0], transaction_timeout_ms=left_ms)

    def read(response: Any, items: Sequence[str]) -> Iterator[Answer]:
        identity = ProducerIdentity(ProducerId(response.producer_id), response.producer_epoch)
        yield Answer(items[0], identity, response.error_code)

    found = yield Call({each: transaction(each) for each in wanted}, _name, request, read, batched=False)
    return found.checked()


def abort_transaction(
    partition: TopicPartition | tuple[str, int],
    *,
    producer_id: int,
    producer_epoch: int,
    coordinator_epoch: int = -1,
    timeout: float | None = None,
) -> Steps[None]:
    """Abort a hanging transaction, which its coordinator does not know, in one partition (KIP-664).

    `describe_producers` shows the arguments.
    """
    tp = checked_partition(partition)
    marker = WritableTxnMarker(
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        transaction_result=False,
        topics=(WritableTxnMarkerTopic(name=tp.topic, partition_indexes=(tp.partition,)),),
        coordinator_epoch=max(coordinator_epoch, 0),
    )

    def read(response: Any, _: Sequence[TopicPartition]) -> Iterator[Answer]:
        for answered in response.markers:
            for topic in answered.topics:
                for each in topic.partitions:
                    yield Answer(TopicPartition(topic.name, each.partition_index), None, each.error_code)

    found = yield Call({tp: Leader(tp)}, str, lambda *_: WriteTxnMarkersRequest(markers=(marker,)), read)
    found.checked()
