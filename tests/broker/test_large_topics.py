"""While the partitions of a new topic are created the broker serves others, and clients get errors that they retry."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from raylog.broker.broker import Broker
from raylog.broker.partition_directories import STEP_PARTITIONS
from raylog.core.clock import Now
from raylog.core.errors import ErrorCode
from raylog.core.ids import TopicPartition
from raylog.protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from raylog.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from raylog.protocol.messages.describe_quorum import DescribeQuorumRequest
from raylog.protocol.messages.find_coordinator import FindCoordinatorRequest
from raylog.transport.node import Job
from tests.support.direct_broker import DirectBroker
from tests.support.direct_cluster import DirectCluster

MANY = 4 * STEP_PARTITIONS
EVENTS = ("bytes_received", "link_bytes_received", "link_connected", "next_turn", "job_ended", "tick")


class HeldJobs:
    """The jobs of a broker, which run when the test releases them."""

    def __init__(self, broker: DirectBroker, monkeypatch: pytest.MonkeyPatch) -> None:
        self.jobs: list[Job] = []
        self._broker = broker
        self._monkeypatch = monkeypatch
        monkeypatch.setattr(broker.broker, "add_job", self.jobs.append)

    def release(self) -> None:
        self._monkeypatch.undo()
        for job in self.jobs:
            self._broker.broker.add_job(job)
        self._broker.settle()


@pytest.fixture
def broker() -> DirectBroker:
    return DirectBroker({"offsets.topic.num.partitions": 1, "log.segment.bytes": 300})


@pytest.fixture
def held(broker: DirectBroker, monkeypatch: pytest.MonkeyPatch) -> HeldJobs:
    return HeldJobs(broker, monkeypatch)


def operations_of_events(broker: DirectBroker, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The number of disk operations in each event of the broker from now on; jobs are not events."""
    counts: list[int] = []

    def counted(event: Callable[..., Any]) -> Callable[..., Any]:
        def run(*args: Any) -> None:
            before = broker.disk.op_count
            event(*args)
            counts.append(broker.disk.op_count - before)

        return run

    for name in EVENTS:
        monkeypatch.setattr(broker.broker, name, counted(getattr(broker.broker, name)))
    return counts


def test_no_event_does_much_on_the_disk_when_a_large_topic_is_created_deleted_and_created_again(
    broker: DirectBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    counts = operations_of_events(broker, monkeypatch)
    for _ in range(2):
        broker.create_topic("t", partitions=MANY)
        assert len(broker.broker.partitions) == MANY
        broker.cluster.delete_topic("t")
        broker.pass_time(120_000)
        assert broker.disk.listdir("/broker-0") == sorted(
            name for name in broker.disk.listdir("/broker-0") if not name.startswith("t-")
        )
    assert max(counts) <= STEP_PARTITIONS


def test_retention_and_flush_ms_do_little_in_one_event(broker: DirectBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    broker.create_topic("t", partitions=3, retention_bytes="400", flush_ms="1")
    for partition in range(3):
        for _ in range(10):
            assert broker.produce([b"x" * 200], partition=partition).error_code == ErrorCode.NONE
    logs = [broker.broker.partitions[TopicPartition("t", number)].log for number in range(3)]
    counts = operations_of_events(broker, monkeypatch)
    broker.pass_time(2000)
    assert [log.recovery_point for log in logs] == [10, 10, 10]
    broker.pass_time(300_000)
    assert [log.segment_count for log in logs] == [2, 2, 2]
    assert max(counts) <= 12


def test_a_partition_that_is_being_created_is_not_led_yet(broker: DirectBroker, held: HeldJobs) -> None:
    broker.create_topic("t")
    assert broker.produce([b"x"]).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    held.release()
    assert broker.produce([b"x"]).error_code == ErrorCode.NONE


def test_a_topic_is_created_when_its_partitions_are_open(broker: DirectBroker, held: HeldJobs) -> None:
    request = CreateTopicsRequest(topics=(CreatableTopic(name="t", num_partitions=2, replication_factor=1),))
    sent = broker.send(request)
    assert "t" in broker.broker.image.topics
    assert broker.answer(sent) is None
    held.release()
    assert broker.answer(sent).topics[0].error_code == ErrorCode.NONE
    assert broker.produce([b"x"], partition=1).error_code == ErrorCode.NONE


def test_other_requests_do_not_wait_for_the_partitions(broker: DirectBroker, held: HeldJobs) -> None:
    broker.create_topic("t")
    answer = broker.call(DescribeQuorumRequest(topics=()))
    assert answer.error_code == ErrorCode.NONE
    held.release()


def test_a_disk_that_hangs_does_not_keep_the_response_for_ever(broker: DirectBroker, held: HeldJobs) -> None:
    request = CreateTopicsRequest(topics=(CreatableTopic(name="t", num_partitions=2, replication_factor=1),))
    sent = broker.send(request)
    broker.pass_time(21_000)
    assert broker.answer(sent).topics[0].error_code == ErrorCode.NONE
    held.release()


def test_a_coordinator_whose_partition_is_being_created_is_not_available(broker: DirectBroker, held: HeldJobs) -> None:
    def found() -> ErrorCode:
        answer = broker.call(FindCoordinatorRequest(coordinator_keys=("g",)))
        code: ErrorCode = answer.coordinators[0].error_code
        return code

    assert found() == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert found() == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert "__consumer_offsets" in broker.broker.image.topics
    held.release()
    assert found() == ErrorCode.NONE


def test_followers_fetch_and_the_high_watermark_moves_once_both_replicas_are_open() -> None:
    cluster = DirectCluster(2)
    cluster.create_topic("t", on=[[number % 2, 1 - number % 2] for number in range(MANY)])
    cluster.pass_time(1000)
    for number in (0, 1, MANY - 2, MANY - 1):
        leader, follower = cluster.brokers[number % 2], cluster.brokers[1 - number % 2]
        assert leader.produce([b"x"], partition=number).error_code == ErrorCode.NONE
        cluster.pass_time(1000)
        assert follower.broker.partitions[TopicPartition("t", number)].high_watermark == 1


def test_a_broker_serves_once_its_partitions_are_open(broker: DirectBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    broker.create_topic("t", partitions=MANY)
    broker.stop()
    steps: list[Callable[[Now], bool]] = []
    monkeypatch.setattr(Broker, "add_steps", lambda _, step: steps.append(step))
    broker.start(accepting=False)
    assert not broker.broker.accepting
    monkeypatch.undo()
    for step in steps:
        broker.broker.add_steps(step)
    broker.settle()
    assert broker.broker.accepting
    assert len(broker.broker.partitions) == MANY


class TestPartitionsPerRequest:
    """As in Kafka, the limit holds for all topics of a request together."""

    def test_a_request_for_too_many_partitions_creates_nothing(self) -> None:
        broker = DirectBroker()
        end_offset = broker.cluster.active.next_offset
        wanted = [
            CreatableTopic(name=f"t{number}", num_partitions=10_000, replication_factor=1) for number in range(1000)
        ]
        request = CreateTopicsRequest(topics=tuple(wanted), timeout_ms=1000)
        answer = broker.call(request, version=7)
        assert [topic.name for topic in answer.topics] == [topic.name for topic in wanted]
        assert {(topic.error_code, topic.error_message) for topic in answer.topics} == {
            (
                ErrorCode.POLICY_VIOLATION,
                "Excessively large number of partitions per request: 10000000, at most 10000.",
            )
        }
        assert broker.cluster.active.next_offset == end_offset, "the controller has written records"

    def test_all_topics_of_the_cluster_count_together(self) -> None:
        broker = DirectBroker({"max.partitions.per.cluster": "1000"})
        broker.create_topic("a", partitions=997)

        def create(*sizes: int) -> set[tuple[ErrorCode, str | None]]:
            wanted = [CreatableTopic(name=f"t{size}", num_partitions=size, replication_factor=1) for size in sizes]
            answer = broker.call(CreateTopicsRequest(topics=tuple(wanted), timeout_ms=1000), version=7)
            return {(topic.error_code, topic.error_message) for topic in answer.topics}

        def grow(count: int) -> Any:
            topic = CreatePartitionsTopic(name="a", count=count, assignments=None)
            (result,) = broker.call(CreatePartitionsRequest(topics=(topic,), timeout_ms=1000)).results
            return result.error_code

        rule = "The cluster has 997 partitions and cannot have 4 more: max.partitions.per.cluster=1000."
        assert create(1, 3) == {(ErrorCode.POLICY_VIOLATION, rule)}
        assert (grow(1001), grow(998)) == (ErrorCode.POLICY_VIOLATION, ErrorCode.NONE)
        assert create(2) == {(ErrorCode.NONE, None)}
        assert create(1) != {(ErrorCode.NONE, None)}
        broker.cluster.delete_topic("a")
        assert create(1) == {(ErrorCode.NONE, None)}

    def test_refused_topics_do_not_count(self) -> None:
        broker = DirectBroker()
        sizes = {"negative": -2_000_000_000, "twice": 10_000, "good": 3}
        wanted = [
            CreatableTopic(name=name, num_partitions=count, replication_factor=1) for name, count in sizes.items()
        ]
        request = CreateTopicsRequest(topics=(*wanted, wanted[1]), timeout_ms=1000)
        codes = {topic.name: topic.error_code for topic in broker.call(request, version=7).topics}
        assert codes == {
            "negative": ErrorCode.INVALID_PARTITIONS,
            "twice": ErrorCode.INVALID_REQUEST,
            "good": ErrorCode.NONE,
        }

    def test_added_partitions_count_together(self) -> None:
        broker = DirectBroker()
        for name in ("a", "b"):
            broker.create_topic(name)
        end_offset = broker.cluster.active.next_offset

        def grow(count: int) -> set[ErrorCode]:
            topics = tuple(
                CreatePartitionsTopic(name=name, count=count, assignments=None) for name in ("a", "b", "gone")
            )
            answer = broker.call(CreatePartitionsRequest(topics=topics, timeout_ms=1000, validate_only=True))
            return {topic.error_code for topic in answer.results if topic.name != "gone"}

        assert grow(5_002) == grow(2**31 - 1) == {ErrorCode.POLICY_VIOLATION}
        assert grow(5_001) == {ErrorCode.NONE}
        assert broker.cluster.active.next_offset == end_offset
