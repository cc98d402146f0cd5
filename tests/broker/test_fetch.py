"""Fetch returns whole batches from an offset, waits for min_bytes up to max_wait_ms, and respects its limits."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from raylog.core.errors import ErrorCode
from raylog.core.ids import ZERO_TOPIC_ID, TopicPartition
from raylog.logstore.log import FetchSlice, Log
from raylog.protocol.fetch import FetchPartition, FetchRequest, FetchTopic, ForgottenTopic
from raylog.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from raylog.protocol.records.compression import Codec
from raylog.protocol.records.isolation import READ_COMMITTED
from raylog.protocol.records.reader import read_batches
from tests.logstore.batches import NOW, batch, marker
from tests.support.direct_broker import DirectBroker
from tests.support.direct_cluster import DirectCluster
from tests.support.transactional_client import TransactionalClient


@pytest.fixture
def broker() -> DirectBroker:
    direct = DirectBroker()
    direct.create_topic("t", partitions=3)
    return direct


def request(
    offset: int = 0,
    *,
    partitions: tuple[int, ...] = (0,),
    topic: str = "t",
    topic_id: UUID = ZERO_TOPIC_ID,
    max_wait_ms: int = 0,
    min_bytes: int = 1,
    max_bytes: int = 1 << 20,
    partition_max_bytes: int = 1 << 20,
    **more: Any,
) -> FetchRequest:
    wanted = [
        FetchPartition(partition=number, fetch_offset=offset, partition_max_bytes=partition_max_bytes)
        for number in partitions
    ]
    topics = [FetchTopic(name=topic, topic_id=topic_id, partitions=wanted)]
    return FetchRequest(max_wait_ms=max_wait_ms, min_bytes=min_bytes, max_bytes=max_bytes, topics=topics, **more)


def values(answer: Any, partition: int = 0) -> list[bytes | None]:
    for result in answer.responses[0].partitions:
        if result.partition_index == partition:
            return [record.value for record in read_batches(b"".join(result.records or ()))]
    return []


@pytest.mark.parametrize("version", range(4, 13))
def test_returns_what_was_written(broker: DirectBroker, version: int) -> None:
    broker.produce([b"a", b"b"])
    answer = broker.call(request(), version=version)
    assert values(answer) == [b"a", b"b"]
    assert answer.responses[0].partitions[0].high_watermark == 2
    assert answer.responses[0].partitions[0].last_stable_offset == 2


def test_by_topic_id(broker: DirectBroker) -> None:
    broker.produce([b"a"])
    topic_id = broker.broker.image.topics["t"].topic_id
    assert values(broker.call(request(topic="", topic_id=topic_id), version=18)) == [b"a"]
    unknown = broker.call(request(topic="", topic_id=broker.cluster.new_id()), version=18)
    assert unknown.responses[0].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID


def test_offset_out_of_range(broker: DirectBroker) -> None:
    broker.produce([b"a"])
    for offset in (-1, 2, 1 << 40):
        result = broker.call(request(offset), version=12).responses[0].partitions[0]
        assert result.error_code == ErrorCode.OFFSET_OUT_OF_RANGE


def test_at_the_log_end_the_response_is_empty_without_error(broker: DirectBroker) -> None:
    broker.produce([b"a"])
    result = broker.call(request(1), version=12).responses[0].partitions[0]
    assert (result.error_code, b"".join(result.records or ())) == (ErrorCode.NONE, b"")


def test_the_first_batch_is_complete_however_small_the_limit(broker: DirectBroker) -> None:
    broker.produce([b"x" * 500])
    broker.produce([b"y" * 500])
    assert values(broker.call(request(max_bytes=1, partition_max_bytes=1), version=12)) == [b"x" * 500]


def test_the_byte_limit_applies_to_all_partitions_together(broker: DirectBroker) -> None:
    for number in range(3):
        broker.produce([b"x" * 500], partition=number)
    answer = broker.call(request(partitions=(0, 1, 2), max_bytes=1200), version=12)
    assert [values(answer, number) for number in range(3)] == [[b"x" * 500], [b"x" * 500], []]


def test_waits_for_data(broker: DirectBroker) -> None:
    sent = broker.send(request(max_wait_ms=500), version=12)
    assert broker.answer(sent) is None
    writer = broker.connect()
    broker.produce([b"late"], connection=writer)
    assert values(broker.answer(sent)) == [b"late"]


def test_waits_for_min_bytes(broker: DirectBroker) -> None:
    sent = broker.send(request(max_wait_ms=500, min_bytes=1000), version=12)
    writer = broker.connect()
    broker.produce([b"x" * 400], connection=writer)
    assert broker.answer(sent) is None
    broker.produce([b"y" * 900], connection=writer)
    assert values(broker.answer(sent)) == [b"x" * 400, b"y" * 900]


def count_reads(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The bytes of each read of a log from now on."""
    sizes: list[int] = []
    right = Log.read

    def read(self: Log, *args: Any, **more: Any) -> FetchSlice:
        piece = right(self, *args, **more)
        sizes.append(len(piece.records))
        return piece

    monkeypatch.setattr(Log, "read", read)
    return sizes


def test_reads_only_when_there_may_be_min_bytes(broker: DirectBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    reads = count_reads(monkeypatch)
    sent = broker.send(request(max_wait_ms=60_000, min_bytes=20_000), version=12)
    writer = broker.connect()
    appends = 0
    while (answer := broker.answer(sent)) is None:
        broker.produce([b"x" * 1000], connection=writer)
        appends += 1
    assert len(values(answer)) == appends
    assert [size > 0 for size in reads] == [False, True], "once at first, once to answer"


def test_read_committed_reads_only_once_transactions_have_ended(
    broker: DirectBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = TransactionalClient(broker.cluster)
    client.init()
    assert client.write(TopicPartition("t", 0), b"first") is ErrorCode.NONE
    reads = count_reads(monkeypatch)
    sent = broker.send(request(max_wait_ms=60_000, isolation_level=READ_COMMITTED), version=12)
    writer = broker.connect()
    for _ in range(10):
        broker.produce([b"x"], connection=writer)
    assert (broker.answer(sent), len(reads)) == (None, 1)
    assert client.end(committed=True) is ErrorCode.NONE
    broker.pass_time(100)
    assert len(values(broker.answer(sent))) == 11
    assert len(reads) == 2


def test_it_does_not_wait_for_more_than_fits(broker: DirectBroker) -> None:
    sent = broker.send(request(max_wait_ms=60_000, min_bytes=(1 << 31) - 1, max_bytes=2000), version=12)
    writer = broker.connect()
    for _ in range(2):
        assert broker.answer(sent) is None
        broker.produce([b"x" * 1000], connection=writer)
    assert len(values(broker.answer(sent))) >= 1


def test_a_partition_that_is_named_twice_is_read_once(broker: DirectBroker) -> None:
    broker.produce([b"x"])
    answer = broker.call(request(partitions=(0, 0, 0)), version=12)
    assert len(answer.responses[0].partitions) == 1


def test_after_a_read_that_found_too_little_it_counts_again(
    broker: DirectBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = broker.connect()
    reads = count_reads(monkeypatch)
    sent = broker.send(request(max_wait_ms=60_000, min_bytes=3000), version=12)
    for _ in range(3):  # a batch and two duplicates of it, whose bytes count too
        broker.produce([b"x" * 1000], connection=writer, producer_id=7, producer_epoch=0, base_sequence=0)
    assert len(reads) == 2
    broker.produce([b"y" * 500], connection=writer)
    assert (broker.answer(sent), len(reads)) == (None, 2)
    broker.produce([b"z" * 1500], connection=writer)
    assert values(broker.answer(sent)) == [b"x" * 1000, b"y" * 500, b"z" * 1500]
    assert len(reads) == 3


def test_bytes_that_are_committed_after_others_are_counted_then() -> None:
    """Not with the others: the read that follows does not find them, and they would not be counted again."""
    cluster = DirectCluster(2)
    cluster.create_topic("t", on=[[0, 1]])
    cluster.pass_time(1000)
    leader, follower = cluster.brokers
    partition = leader.broker.partitions[TopicPartition("t", 0)]
    consumer = leader.connect()
    sent = leader.send(request(max_wait_ms=60_000, min_bytes=3000), version=12, connection=consumer)
    follower.silent = True
    leader.produce([b"a" * 100], acks=1)
    leader.produce([b"b" * 4000], acks=1)
    assert partition.replicas is not None
    partition.follower_fetched(
        follower.broker_id,
        1,
        log_start_offset=0,
        broker_epoch=partition.replicas.followers[follower.broker_id].broker_epoch,
        now_ms=cluster.now().monotonic_ms,
    )
    leader.broker.partition_committed(partition.topic_partition)
    leader.produce([b"c"], acks=1)
    assert (partition.high_watermark, leader.answer(sent, connection=consumer)) == (1, None)
    follower.silent = False
    cluster.settle()
    assert values(leader.answer(sent, connection=consumer)) == [b"a" * 100, b"b" * 4000, b"c"]


def test_returns_available_data_after_max_wait_ms(broker: DirectBroker) -> None:
    broker.produce([b"a"])
    sent = broker.send(request(max_wait_ms=500, min_bytes=100_000), version=12)
    broker.pass_time(499)
    assert broker.answer(sent) is None
    broker.pass_time(1)
    assert values(broker.answer(sent)) == [b"a"]


def test_an_error_is_returned_at_once(broker: DirectBroker) -> None:
    answer = broker.call(request(partitions=(0, 9), max_wait_ms=60_000), version=12)
    assert answer.responses[0].partitions[1].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_deleted_topic_ends_the_wait(broker: DirectBroker) -> None:
    sent = broker.send(request(max_wait_ms=60_000), version=12)
    gone = DeleteTopicsRequest(topics=(DeleteTopicState(name="t"),))
    broker.call(gone, connection=broker.connect())
    assert broker.answer(sent).responses[0].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_closed_connection_drops_its_waiting_fetches(broker: DirectBroker) -> None:
    other = broker.connect()
    broker.send(request(max_wait_ms=60_000), version=12, connection=other)
    assert len(broker.broker.delayed) == 1
    broker.broker.connection_closed(other, broker.now())
    assert len(broker.broker.delayed) == 0
    broker.produce([b"a"])


def test_pipelined_requests_are_answered_in_order(broker: DirectBroker) -> None:
    sent = broker.send(request(max_wait_ms=500), version=12)
    broker.send(request(max_wait_ms=0), version=12)
    assert broker.answer(sent) is None
    broker.produce([b"a"], connection=broker.connect())
    output = b"".join(broker.connection.take_output())
    first = int.from_bytes(output[:4], "big") + 4
    correlation_ids = [int.from_bytes(output[at + 4 : at + 8], "big") for at in (0, first)]
    assert correlation_ids[1] == correlation_ids[0] + 1


def test_leader_epochs_are_checked(broker: DirectBroker) -> None:
    broker.produce([b"a"])
    epoch = broker.broker.image.topics["t"].partitions[0].leader_epoch
    for current, code in (
        (epoch, ErrorCode.NONE),
        (epoch - 1, ErrorCode.FENCED_LEADER_EPOCH),
        (epoch + 1, ErrorCode.UNKNOWN_LEADER_EPOCH),
    ):
        wanted = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1000, current_leader_epoch=current)
        topics = [FetchTopic(name="t", partitions=[wanted])]
        answer = broker.call(FetchRequest(max_wait_ms=0, min_bytes=1, topics=topics), version=12)
        assert answer.responses[0].partitions[0].error_code == (code if current >= 0 else ErrorCode.NONE)


def test_a_client_with_a_truncated_epoch_gets_the_diverging_epoch() -> None:
    direct = DirectBroker()
    direct.create_topic("t")
    direct.produce([b"a"])
    direct.restart()
    direct.produce([b"b"])  # under the next leader epoch
    wanted = FetchPartition(partition=0, fetch_offset=5, partition_max_bytes=1000, last_fetched_epoch=0)
    topics = [FetchTopic(name="t", partitions=[wanted])]
    answer = direct.call(FetchRequest(max_wait_ms=0, min_bytes=1, topics=topics), version=12)
    diverging = answer.responses[0].partitions[0].diverging_epoch
    assert diverging.end_offset == 1


@pytest.mark.parametrize("version", [4, 9, 10])
def test_zstd_is_returned_in_every_version(broker: DirectBroker, version: int) -> None:
    """There are clients that read zstd, but fetch with old versions."""
    broker.produce([b"a"])
    broker.produce([b"b"], codec=Codec.ZSTD)
    assert values(broker.call(request(), version=version)) == [b"a", b"b"]
    assert values(broker.call(request(1), version=version)) == [b"b"]


def test_read_committed_without_transactions_reads_everything(broker: DirectBroker) -> None:
    broker.produce([b"a"])
    assert values(broker.call(request(isolation_level=1), version=12)) == [b"a"]


def test_a_client_with_a_replica_id_is_refused(broker: DirectBroker) -> None:
    broker.produce([b"a"])
    answer = broker.call(request(replica_id=1), version=12)
    assert answer.responses[0].partitions[0].error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    assert values(answer) == []


def test_a_consumer_that_compares_replicas_is_one(broker: DirectBroker) -> None:
    broker.produce([b"a"])
    assert values(broker.call(request(replica_id=-2), version=12)) == [b"a"]
    topic_id = broker.broker.image.topics["t"].topic_id
    assert values(broker.call(request(topic="", topic_id=topic_id, replica_id=-2), version=18)) == [b"a"]


class TestSessions:
    def test_only_changed_partitions_are_returned(self, broker: DirectBroker) -> None:
        broker.produce([b"a"])
        first = broker.call(request(partitions=(0, 1), session_id=0, session_epoch=0), version=12)
        assert first.session_id > 0
        assert [result.partition_index for result in first.responses[0].partitions] == [0, 1]
        follow = FetchRequest(max_wait_ms=0, min_bytes=1, session_id=first.session_id, session_epoch=1)
        broker.produce([b"b"], partition=1)
        second = broker.call(follow, version=12)
        told = [result.partition_index for result in second.responses[0].partitions]
        assert told == [1, 0]  # partition 0 has data still, and had its turn
        moved = [
            FetchTopic(name="t", partitions=[FetchPartition(partition=0, fetch_offset=1, partition_max_bytes=1000)])
        ]
        third = broker.call(
            FetchRequest(max_wait_ms=0, min_bytes=1, session_id=first.session_id, session_epoch=2, topics=moved),
            version=12,
        )
        assert [result.partition_index for result in third.responses[0].partitions] == [1]

    def test_unknown_session_and_wrong_epoch(self, broker: DirectBroker) -> None:
        lost = FetchRequest(max_wait_ms=0, min_bytes=1, session_id=77, session_epoch=1)
        assert broker.call(lost, version=12).error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
        first = broker.call(request(session_id=0, session_epoch=0), version=12)
        skipped = FetchRequest(max_wait_ms=0, min_bytes=1, session_id=first.session_id, session_epoch=2)
        assert broker.call(skipped, version=12).error_code == ErrorCode.INVALID_FETCH_SESSION_EPOCH

    def test_forgotten_partitions_are_not_read(self, broker: DirectBroker) -> None:
        broker.produce([b"a"], partition=1)
        first = broker.call(request(partitions=(0, 1), session_id=0, session_epoch=0), version=12)
        follow = FetchRequest(
            max_wait_ms=0,
            min_bytes=1,
            session_id=first.session_id,
            session_epoch=1,
            forgotten_topics=[ForgottenTopic(name="t", partitions=[1])],
        )
        answer = broker.call(follow, version=12)
        assert answer.responses == ()

    def test_a_full_session_cache_serves_full_requests(self) -> None:
        direct = DirectBroker({"max.incremental.fetch.session.cache.slots": "1"})
        direct.create_topic("t")
        assert direct.call(request(session_id=0, session_epoch=0), version=12).session_id > 0
        assert direct.call(request(session_id=0, session_epoch=0), version=12).session_id == 0


def append_own(broker: DirectBroker, record_set: bytearray) -> None:
    """As a coordinator does: past the rules for clients."""
    tp = TopicPartition("t", 0)
    broker.broker.partition(tp).append_as_leader(memoryview(record_set), now_ms=NOW, from_client=False)
    broker.broker.partition_appended(tp, len(record_set))
    broker.settle()


def in_transaction(value: bytes, sequence: int) -> bytearray:
    return batch(value, producer=(7, 0, sequence), transactional=True)


def test_read_committed_ends_before_an_open_transaction_and_lists_aborted_ones(broker: DirectBroker) -> None:
    broker.produce([b"a"])
    append_own(broker, in_transaction(b"b", 0))
    committed = broker.call(request(isolation_level=1), version=12)
    assert values(committed) == [b"a"]
    [partition] = committed.responses[0].partitions
    assert (partition.last_stable_offset, partition.high_watermark, partition.aborted_transactions) == (1, 2, ())
    assert values(broker.call(request(), version=12)) == [b"a", b"b"]
    append_own(broker, marker(7, committed=False))
    [partition] = broker.call(request(isolation_level=1), version=12).responses[0].partitions
    assert partition.last_stable_offset == 3
    assert [(one.producer_id, one.first_offset) for one in partition.aborted_transactions] == [(7, 1)]
    assert broker.call(request(), version=12).responses[0].partitions[0].aborted_transactions is None


def test_read_committed_completes_when_a_transaction_ends(broker: DirectBroker) -> None:
    append_own(broker, in_transaction(b"b" * 5000, 0))
    waiting = broker.send(request(isolation_level=1, max_wait_ms=60_000, min_bytes=5000), version=12)
    assert broker.answer(waiting) is None
    append_own(broker, marker(7, committed=True))
    assert values(broker.answer(waiting)) == [b"b" * 5000]


def test_read_committed_counts_the_bytes_of_each_transaction_once_it_has_ended(broker: DirectBroker) -> None:
    """Also of the first records of the partition."""
    waiting = broker.send(request(isolation_level=1, max_wait_ms=60_000, min_bytes=3000), version=12)
    append_own(broker, in_transaction(b"a" * 100, 0))
    append_own(broker, batch(b"b" * 4000, producer=(8, 0, 0), transactional=True))
    append_own(broker, marker(7, committed=True))
    assert broker.answer(waiting) is None
    append_own(broker, marker(8, committed=True))
    assert values(broker.answer(waiting))[:2] == [b"a" * 100, b"b" * 4000]
