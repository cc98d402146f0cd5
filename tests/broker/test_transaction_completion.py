"""A request that meets the completion of the transaction before waits for it on the broker, and not longer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from raylog.core.errors import ErrorCode
from raylog.core.ids import TopicPartition
from raylog.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from raylog.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from raylog.protocol.messages.end_txn import EndTxnRequest
from raylog.protocol.messages.init_producer_id import InitProducerIdRequest
from tests.support.direct_broker import DirectBroker
from tests.support.direct_cluster import DirectCluster
from tests.support.transactional_client import TIMEOUT_MS, TransactionalClient, group_coordinator

A = TopicPartition("t", 0)
WAIT_MS = 100
"""add.partitions.to.txn.retry.backoff.max.ms."""


@pytest.fixture
def cluster() -> DirectCluster:
    broker = DirectBroker({"transaction.state.log.num.partitions": "1", "offsets.topic.num.partitions": "1"})
    broker.create_topic("t")
    return broker.cluster


@pytest.fixture
def client(cluster: DirectCluster) -> TransactionalClient:
    client = TransactionalClient(cluster)
    assert client.init() is ErrorCode.NONE
    group_coordinator(cluster)
    return client


def add_partitions(client: TransactionalClient) -> Any:
    return AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=client.name,
        v3_and_below_producer_id=client.producer.producer_id,
        v3_and_below_producer_epoch=client.producer.producer_epoch,
        v3_and_below_topics=(AddPartitionsToTxnTopic(name=A.topic, partitions=(0,)),),
    )


def add_offsets(client: TransactionalClient) -> Any:
    producer_id, producer_epoch = client.producer
    return AddOffsetsToTxnRequest(
        transactional_id=client.name, producer_id=producer_id, producer_epoch=producer_epoch, group_id="g"
    )


def init(client: TransactionalClient) -> Any:
    return InitProducerIdRequest(transactional_id=client.name, transaction_timeout_ms=TIMEOUT_MS)


def commit(client: TransactionalClient) -> Any:
    producer_id, producer_epoch = client.producer
    return EndTxnRequest(
        transactional_id=client.name, producer_id=producer_id, producer_epoch=producer_epoch, committed=True
    )


NEXT = pytest.mark.parametrize(("make", "version"), [(add_partitions, 3), (add_offsets, 4), (init, 5), (commit, 4)])


def code_of(answer: Any) -> ErrorCode:
    if hasattr(answer, "results_by_topic_v3_and_below"):
        answer = answer.results_by_topic_v3_and_below[0].results_by_partition[0]
        code: ErrorCode = answer.partition_error_code
    else:
        code = answer.error_code
    return code


@NEXT
def test_the_next_request_is_answered_when_the_markers_are_written(
    cluster: DirectCluster, client: TransactionalClient, make: Callable[[TransactionalClient], Any], version: int
) -> None:
    [member] = cluster.brokers
    connection = member.connect()
    assert client.write(A, b"a") is ErrorCode.NONE
    ended = member.send(commit(client), version=4, connection=connection)
    answer = member.answer(ended, connection=connection)
    assert answer is not None
    assert answer.error_code is ErrorCode.NONE
    sent = member.send(make(client), version=version, connection=connection)
    assert member.answer(sent, connection=connection) is None
    cluster.pass_time(1)
    answer = member.answer(sent, connection=connection)
    assert answer is not None
    assert code_of(answer) is ErrorCode.NONE


@NEXT
def test_it_is_refused_when_the_completion_takes_too_long(
    cluster: DirectCluster,
    client: TransactionalClient,
    make: Callable[[TransactionalClient], Any],
    version: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    [member] = cluster.brokers
    assert client.write(A, b"a") is ErrorCode.NONE
    monkeypatch.setattr(member.broker.transactions._markers, "send", lambda *args: None)
    assert client.end(committed=True) is ErrorCode.NONE
    connection = member.connect()
    sent = member.send(make(client), version=version, connection=connection)
    cluster.pass_time(WAIT_MS - 1)
    assert member.answer(sent, connection=connection) is None
    cluster.pass_time(1)
    answer = member.answer(sent, connection=connection)
    assert answer is not None
    assert code_of(answer) is ErrorCode.CONCURRENT_TRANSACTIONS


def test_requests_of_closed_connections_are_dropped(
    cluster: DirectCluster, client: TransactionalClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    [member] = cluster.brokers
    assert client.write(A, b"a") is ErrorCode.NONE
    monkeypatch.setattr(member.broker.transactions._markers, "send", lambda *args: None)
    assert client.end(committed=True) is ErrorCode.NONE
    waiting = len(member.broker.delayed)
    for _ in range(1000):
        connection = member.connect()
        member.send(init(client), version=5, connection=connection)
        member.broker.connection_closed(connection, cluster.now())
    assert len(member.broker.delayed) == waiting


def test_a_new_producer_is_fenced_by_a_newer_one_that_came_while_it_waited(
    cluster: DirectCluster, client: TransactionalClient
) -> None:
    """Each of those that wait is decided again, one after another, and gets its own epoch."""
    [member] = cluster.brokers
    assert client.write(A, b"a") is ErrorCode.NONE
    connections = [member.connect() for _ in range(20)]
    sent = [member.send(init(client), version=5, connection=each) for each in connections]
    cluster.pass_time(1)
    answers = [member.answer(one, connection=each) for one, each in zip(sent, connections, strict=True)]
    assert all(answer is not None and answer.error_code is ErrorCode.NONE for answer in answers)
    first = client.producer.producer_epoch + 2
    assert sorted(answer.producer_epoch for answer in answers if answer) == list(range(first, first + 20))
    assert client.end(committed=True) is ErrorCode.PRODUCER_FENCED
