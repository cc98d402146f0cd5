"""AddPartitionsToTxn (key 24), v0-5: add the partitions that a producer will write to in its transaction (KIP-98).

v2 PRODUCER_FENCED instead of INVALID_PRODUCER_EPOCH; v3 flexible; v4 requests of brokers for several transactions:
verifications, and partitions of transactions of version 2 (KIP-890); v5 TRANSACTION_ABORTABLE. If one of the partitions
cannot be added, none is: the others get OPERATION_NOT_ATTEMPTED.
Requires WRITE on the transactional id and on each topic; since v4 CLUSTER_ACTION, because brokers send it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from raylog.broker.handlers.init_producer_id import fenced_as
from raylog.broker.handlers.transaction_completion import decided
from raylog.core.errors import ErrorCode, KafkaError
from raylog.core.ids import ProducerId, ProducerIdentity, TopicPartition
from raylog.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTopicResult,
    AddPartitionsToTxnTransaction,
)
from raylog.security.acl import CLUSTER, Operation, Resource
from raylog.txncoord.transactions import VERSION_2

if TYPE_CHECKING:
    from raylog.broker.services import BrokerServices
    from raylog.transport.exchange import Exchange

FIRST_VERSION_OF_BROKERS = 4


def handle(
    broker: BrokerServices, exchange: Exchange, request: AddPartitionsToTxnRequest
) -> AddPartitionsToTxnResponse | None:
    if exchange.api_version >= FIRST_VERSION_OF_BROKERS:
        if not broker.authorization.may(exchange, Operation.CLUSTER_ACTION, CLUSTER):
            return AddPartitionsToTxnResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
        return AddPartitionsToTxnResponse(
            results_by_transaction=tuple(_result(broker, exchange, one) for one in request.transactions)
        )
    one = AddPartitionsToTxnTransaction(
        transactional_id=request.v3_and_below_transactional_id,
        producer_id=request.v3_and_below_producer_id,
        producer_epoch=request.v3_and_below_producer_epoch,
        topics=request.v3_and_below_topics,
    )

    def decide() -> AddPartitionsToTxnResponse:
        codes = _unauthorized(broker, exchange, one) or _add_or_verify(broker, exchange, one)
        return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=_results(one.topics, codes))

    def refuse(error: KafkaError) -> AddPartitionsToTxnResponse:
        codes = _refused(exchange, one, error)
        return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=_results(one.topics, codes))

    return decided(broker, exchange, one.transactional_id, decide, refuse)


def _result(broker: BrokerServices, exchange: Exchange, one: AddPartitionsToTxnTransaction) -> AddPartitionsToTxnResult:
    try:
        codes = _add_or_verify(broker, exchange, one)
    except KafkaError as error:
        codes = _refused(exchange, one, error)
    return AddPartitionsToTxnResult(transactional_id=one.transactional_id, topic_results=_results(one.topics, codes))


def _unauthorized(
    broker: BrokerServices, exchange: Exchange, one: AddPartitionsToTxnTransaction
) -> Mapping[TopicPartition, ErrorCode]:
    """Error codes for all partitions if the client may not write to one of them; else empty."""
    partitions = _partitions(one)
    if not broker.authorization.may(exchange, Operation.WRITE, Resource.transactional_id(one.transactional_id)):
        return dict.fromkeys(partitions, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    unauthorized = {
        each.name
        for each in one.topics
        if not broker.authorization.may(exchange, Operation.WRITE, Resource.topic(each.name))
    }
    if not unauthorized:
        return {}
    refused = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    return {tp: refused if tp.topic in unauthorized else ErrorCode.OPERATION_NOT_ATTEMPTED for tp in partitions}


def _add_or_verify(
    broker: BrokerServices, exchange: Exchange, one: AddPartitionsToTxnTransaction
) -> Mapping[TopicPartition, ErrorCode]:
    """Raises KafkaError for all partitions."""
    partitions = _partitions(one)
    unknown = [tp for tp in partitions if broker.image.partition(tp) is None]
    if unknown:
        others = dict.fromkeys(partitions, ErrorCode.OPERATION_NOT_ATTEMPTED)
        return others | dict.fromkeys(unknown, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    producer = ProducerIdentity(ProducerId(one.producer_id), one.producer_epoch)
    if one.verify_only:
        shard = broker.transactions.shard(exchange, one.transactional_id)
        return shard.transactions.verify(one.transactional_id, producer, partitions)
    client_version = VERSION_2 if exchange.api_version >= FIRST_VERSION_OF_BROKERS else 0
    broker.transactions.add_partitions(
        exchange, one.transactional_id, producer, partitions, client_version=client_version
    )
    return dict.fromkeys(partitions, ErrorCode.NONE)


def _refused(
    exchange: Exchange, one: AddPartitionsToTxnTransaction, error: KafkaError
) -> Mapping[TopicPartition, ErrorCode]:
    return dict.fromkeys(_partitions(one), fenced_as(error.code, named_from=2, version=exchange.api_version))


def _partitions(one: AddPartitionsToTxnTransaction) -> Sequence[TopicPartition]:
    return [TopicPartition(topic.name, number) for topic in one.topics for number in topic.partitions]


def _results(
    topics: Sequence[AddPartitionsToTxnTopic], codes: Mapping[TopicPartition, ErrorCode]
) -> tuple[AddPartitionsToTxnTopicResult, ...]:
    return tuple(
        AddPartitionsToTxnTopicResult(
            name=topic.name,
            results_by_partition=tuple(
                AddPartitionsToTxnPartitionResult(
                    partition_index=number, partition_error_code=codes[TopicPartition(topic.name, number)]
                )
                for number in topic.partitions
            ),
        )
        for topic in topics
    )
