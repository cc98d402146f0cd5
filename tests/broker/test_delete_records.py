"""DeleteRecords raises the log start offset of all replicas, at most to the high watermark, and returns it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from raylog.core.errors import ErrorCode
from raylog.core.ids import BrokerId, Offset, TopicPartition
from raylog.protocol import registry
from raylog.protocol.fetch import FetchPartition, FetchRequest, FetchTopic
from raylog.protocol.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from raylog.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from raylog.replication.partition import Partition
from tests.broker.test_lifecycle import listen_in
from tests.support.direct_broker import DirectBroker
from tests.support.direct_cluster import DirectCluster, DirectMember

OUT_OF_RANGE = (-1, ErrorCode.OFFSET_OUT_OF_RANGE)
EARLIEST = -2
COUNT = 30
PAIRS = [(0, 6), (1, 0), (0, 11), (0, 4)]
"""(partition, offset) in a request."""


@pytest.fixture
def broker() -> DirectBroker:
    broker = DirectBroker({"log.retention.check.interval.ms": "1000", "log.segment.bytes": "300"})
    broker.create_topic("t", partitions=2)
    for number in range(10):
        broker.produce([b"%d" % number * 100])
    return broker


def delete(
    broker: DirectBroker, *offsets: int, topic: str = "t", partition: int = 0, version: int = 2
) -> list[tuple[int, ErrorCode]]:
    """(low watermark, error) of one request for each offset."""
    results = []
    for offset in offsets:
        wanted = (DeleteRecordsPartition(partition_index=partition, offset=offset),)
        request = DeleteRecordsRequest(topics=(DeleteRecordsTopic(name=topic, partitions=wanted),), timeout_ms=1000)
        (answered,) = broker.call(request, version=version).topics
        [result] = answered.partitions
        assert (answered.name, result.partition_index) == (topic, partition)
        results.append((result.low_watermark, result.error_code))
    return results


def fetch(broker: DirectBroker, offset: int) -> tuple[ErrorCode, int]:
    """(error, log start offset)."""
    part = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1000)
    request = FetchRequest(max_wait_ms=0, topics=[FetchTopic(name="t", partitions=[part])])
    result = broker.call(request, version=12).responses[0].partitions[0]
    return result.error_code, result.log_start_offset


def earliest(broker: DirectBroker) -> int:
    wanted = ListOffsetsPartition(partition_index=0, timestamp=EARLIEST)
    request = ListOffsetsRequest(topics=(ListOffsetsTopic(name="t", partitions=(wanted,)),))
    return int(broker.call(request, version=6).topics[0].partitions[0].offset)


@pytest.mark.parametrize("version", [0, 1, 2])
def test_records_before_the_offset_are_unreadable_at_once(broker: DirectBroker, version: int) -> None:
    assert delete(broker, 4, version=version) == [(4, ErrorCode.NONE)]
    assert earliest(broker) == 4
    assert fetch(broker, 3)[0] == ErrorCode.OFFSET_OUT_OF_RANGE
    assert fetch(broker, 4) == (ErrorCode.NONE, 4)


def test_the_log_start_offset_never_decreases(broker: DirectBroker) -> None:
    assert delete(broker, 4, 2, 0, 4) == [(4, ErrorCode.NONE)] * 4


def test_the_last_offset_counts_of_a_partition_that_is_named_twice(broker: DirectBroker) -> None:
    named = [DeleteRecordsPartition(partition_index=partition, offset=offset) for partition, offset in PAIRS]
    topics = (
        DeleteRecordsTopic(name="t", partitions=tuple(named[:2])),
        DeleteRecordsTopic(name="t", partitions=tuple(named[2:])),
    )
    (answered,) = broker.call(DeleteRecordsRequest(topics=topics, timeout_ms=1000), version=2).topics
    results = [(result.partition_index, result.low_watermark, result.error_code) for result in answered.partitions]
    assert results == [(0, 4, ErrorCode.NONE), (1, 0, ErrorCode.NONE)]
    assert earliest(broker) == 4


def test_at_most_to_the_high_watermark(broker: DirectBroker) -> None:
    assert delete(broker, 11, -2, 1 << 62) == [OUT_OF_RANGE] * 3
    assert earliest(broker) == 0
    assert delete(broker, -1) == [(10, ErrorCode.NONE)]
    assert delete(broker, 10) == [(10, ErrorCode.NONE)]
    assert delete(broker, -1, partition=1) == [(0, ErrorCode.NONE)]
    assert broker.produce([b"next"]).base_offset == 10


def test_topics_that_are_only_compacted_are_refused(broker: DirectBroker) -> None:
    broker.create_topic("compacted", cleanup_policy="compact")
    broker.create_topic("both", cleanup_policy="compact,delete")
    assert delete(broker, 0, -1, topic="compacted") == [(-1, ErrorCode.POLICY_VIOLATION)] * 2
    assert delete(broker, 0, topic="both") == [(0, ErrorCode.NONE)]


def test_a_topic_with_an_empty_cleanup_policy_keeps_its_records_until_they_are_deleted(broker: DirectBroker) -> None:
    broker.create_topic("kept", cleanup_policy="", retention_ms="1", retention_bytes="1")
    broker.create_topic("expired", cleanup_policy="delete", retention_ms="1")
    for topic in ("kept", "expired"):
        for number in range(10):
            broker.produce([b"%d" % number * 100], topic=topic)
    broker.pass_time(2000)
    logs = [broker.broker.partition(TopicPartition(topic, 0)).log for topic in ("kept", "expired")]
    assert [log.log_start_offset for log in logs] == [0, 10]
    before = logs[0].segment_count
    assert delete(broker, 7, topic="kept") == [(7, ErrorCode.NONE)]
    broker.pass_time(2000)
    assert (logs[0].log_start_offset, logs[0].segment_count < before) == (7, True)


def test_retention_deletes_the_files_and_the_log_start_offset_survives_a_stop(broker: DirectBroker) -> None:
    before = len(broker.disk.listdir("/broker-0/t-0"))
    delete(broker, 7)
    assert len(broker.disk.listdir("/broker-0/t-0")) == before
    broker.pass_time(2000)
    assert len(broker.disk.listdir("/broker-0/t-0")) >= before
    broker.pass_time(65_000)
    assert len(broker.disk.listdir("/broker-0/t-0")) < before
    broker.restart()
    assert earliest(broker) == 7


def test_errors(broker: DirectBroker) -> None:
    unknown = [(-1, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)]
    assert delete(broker, 0, topic="none") == delete(broker, 0, partition=2) == unknown
    assert delete(broker, 0, topic="__consumer_offsets") == [(-1, ErrorCode.INVALID_TOPIC_EXCEPTION)]
    broker.broker.partition(TopicPartition("t", 0)).log.take_offline("for the test")
    assert delete(broker, 5) == [(-1, ErrorCode.KAFKA_STORAGE_ERROR)]


class TestReplicas:
    """The response waits for the log start offsets of all live replicas."""

    @pytest.fixture
    def cluster(self) -> DirectCluster:
        cluster = DirectCluster(3, {"replica.fetch.wait.max.ms": "30000"})
        cluster.create_topic("t", on=[[0, 1, 2]])
        cluster.pass_time(100)
        for number in range(10):
            assert cluster.brokers[0].produce([b"%d" % number]).error_code == ErrorCode.NONE
        cluster.pass_time(40_000)
        return cluster

    def send(self, member: DirectMember, offset: int, *, timeout_ms: int = 30_000) -> tuple[int, int]:
        wanted = (DeleteRecordsPartition(partition_index=0, offset=offset),)
        topics = (DeleteRecordsTopic(name="t", partitions=wanted),)
        return member.send(DeleteRecordsRequest(topics=topics, timeout_ms=timeout_ms), version=2)

    def result(self, member: DirectMember, sent: tuple[int, int]) -> tuple[int, ErrorCode] | None:
        answer = member.answer(sent)
        if answer is None:
            return None
        [result] = answer.topics[0].partitions
        return result.low_watermark, result.error_code

    def starts(self, cluster: DirectCluster) -> list[int]:
        tp = TopicPartition("t", 0)
        return [member.broker.partitions[tp].log.log_start_offset for member in cluster.brokers]

    def test_it_is_answered_when_all_have_the_log_start_offset(self, cluster: DirectCluster) -> None:
        """Without time: the followers do not wait until their long polls end."""
        leader, _, slow = cluster.brokers
        slow.silent = True
        sent = self.send(leader, 7)
        assert (self.result(leader, sent), self.starts(cluster)) == (None, [7, 7, 0])
        slow.silent = False
        cluster.settle()
        assert (self.result(leader, sent), self.starts(cluster)) == ((7, ErrorCode.NONE), [7, 7, 7])

    def test_followers_are_told_once(self, cluster: DirectCluster) -> None:
        leader = cluster.brokers[0]
        asked = listen_in(leader.broker, registry.FETCH)
        assert self.result(leader, self.send(leader, 7)) == (7, ErrorCode.NONE)
        assert len(asked) == 2

    @pytest.mark.parametrize("timeout_ms", [0, 500])
    def test_it_times_out(self, cluster: DirectCluster, timeout_ms: int) -> None:
        leader, _, slow = cluster.brokers
        slow.silent = True
        sent = self.send(leader, 7, timeout_ms=timeout_ms)
        if timeout_ms:
            cluster.pass_time(timeout_ms - 1)
            assert self.result(leader, sent) is None
            cluster.pass_time(1)
        assert self.result(leader, sent) == (0, ErrorCode.REQUEST_TIMED_OUT)

    def test_it_does_not_wait_for_brokers_that_are_not_alive(self, cluster: DirectCluster) -> None:
        leader, _, dying = cluster.brokers
        dying.silent = True
        sent = self.send(leader, 7)
        assert self.result(leader, sent) is None
        dying.stop(clean=False)
        cluster.pass_time(100)
        assert self.result(leader, sent) == (7, ErrorCode.NONE)
        assert self.result(leader, self.send(leader, 8)) == (8, ErrorCode.NONE)

    def test_it_fails_if_another_broker_leads(self, cluster: DirectCluster) -> None:
        leader, _, slow = cluster.brokers
        slow.silent = True
        sent = self.send(leader, 7)
        assert self.result(leader, sent) is None
        leader.links.cut(cluster.now(), server=cluster.active)
        leader.links.held = [leader.broker.lifecycle.link]
        cluster.pass_time(9_000)
        assert self.result(leader, sent) == (-1, ErrorCode.NOT_LEADER_OR_FOLLOWER)


class TestManyPartitions:
    """One request for many partitions, each with a record, whose follower lags."""

    @pytest.fixture
    def cluster(self) -> DirectCluster:
        cluster = DirectCluster(2, {"replica.fetch.wait.max.ms": "500"})
        cluster.create_topic("t", on=[[0, 1]] * COUNT)
        cluster.pass_time(2000)
        for number in range(COUNT):
            assert cluster.brokers[0].produce([b"x"], partition=number).error_code == ErrorCode.NONE
        cluster.pass_time(2000)
        cluster.brokers[1].silent = True
        return cluster

    def send(self, member: DirectMember, *, timeout_ms: int = 5000) -> tuple[int, int]:
        wanted = tuple(DeleteRecordsPartition(partition_index=number, offset=1) for number in range(COUNT))
        topics = (DeleteRecordsTopic(name="t", partitions=wanted),)
        return member.send(DeleteRecordsRequest(topics=topics, timeout_ms=timeout_ms), version=2)

    def codes(self, member: DirectMember, sent: tuple[int, int]) -> list[ErrorCode]:
        answer = member.answer(sent)
        assert answer is not None
        return [result.error_code for result in answer.topics[0].partitions]

    def test_each_change_makes_it_check_few_partitions(
        self, cluster: DirectCluster, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        checked: list[Partition] = []
        low_watermark_of = Partition.low_watermark

        def low_watermark(partition: Partition, is_alive: Callable[[BrokerId], bool]) -> Offset:
            checked.append(partition)
            return low_watermark_of(partition, is_alive)

        monkeypatch.setattr(Partition, "low_watermark", low_watermark)
        leader, slow = cluster.brokers
        sent = self.send(leader)
        slow.silent = False
        cluster.pass_time(2000)
        assert self.codes(leader, sent) == [ErrorCode.NONE] * COUNT
        assert len(checked) <= 5 * COUNT

    @pytest.mark.parametrize("failed", [0, COUNT - 1])
    def test_at_the_deadline_each_has_its_own_error(self, cluster: DirectCluster, failed: int) -> None:
        leader = cluster.brokers[0]
        sent = self.send(leader, timeout_ms=1)
        leader.broker.partition(TopicPartition("t", failed)).log.take_offline("for the test")
        cluster.pass_time(1)
        expected = [ErrorCode.REQUEST_TIMED_OUT] * COUNT
        expected[failed] = ErrorCode.KAFKA_STORAGE_ERROR
        assert self.codes(leader, sent) == expected
