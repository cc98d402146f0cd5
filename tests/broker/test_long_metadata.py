"""A long Metadata response is described in steps: it is the same as in one piece, and others are served meanwhile."""

from __future__ import annotations

from typing import Any

import pytest

from raylog.broker import topic_creation
from raylog.broker.handlers import metadata
from raylog.broker.topic_creation import REQUEST_PARTITIONS
from raylog.core.errors import ErrorCode
from raylog.protocol import registry
from raylog.protocol.framing import frame
from raylog.protocol.header import encode_request
from raylog.protocol.messages.api_versions import ApiVersionsRequest
from raylog.protocol.messages.find_coordinator import FindCoordinatorRequest
from raylog.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from tests.broker.test_lifecycle import listen_in
from tests.support.direct_broker import DirectBroker
from tests.support.direct_cluster import DirectCluster

TOPICS = {"large": 23, "small": 1, "none": 0, "more": 4}


@pytest.fixture
def broker() -> DirectBroker:
    broker = DirectBroker({"auto.create.topics.enable": "false"})
    for topic, partitions in TOPICS.items():
        if partitions:
            broker.create_topic(topic, partitions=partitions)
    return broker


def named(*names: str) -> tuple[MetadataRequestTopic, ...]:
    return tuple(MetadataRequestTopic(name=name) for name in names)


@pytest.mark.parametrize("version", range(14))
@pytest.mark.parametrize("names", [None, tuple(TOPICS), ("none", "bad name", "small"), ()])
def test_steps_give_the_response_of_one_piece(
    broker: DirectBroker, monkeypatch: pytest.MonkeyPatch, version: int, names: tuple[str, ...] | None
) -> None:
    topics = None if names is None and version else named(*(names or ()))
    request = MetadataRequest(topics=topics, allow_auto_topic_creation=False, include_topic_authorized_operations=True)
    whole = broker.call(request, version=version)
    for entries in (1, 2, 5):
        monkeypatch.setattr(metadata, "STEP_ENTRIES", entries)
        assert broker.call(request, version=version) == whole


def test_topics_named_by_id(broker: DirectBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    ids = [topic.topic_id for topic in broker.broker.image.topics.values()]
    request = MetadataRequest(topics=tuple(MetadataRequestTopic(topic_id=topic_id, name=None) for topic_id in ids))
    whole = broker.call(request, version=13)
    monkeypatch.setattr(metadata, "STEP_ENTRIES", 2)
    assert broker.call(request, version=13) == whole
    assert {len(topic.partitions) for topic in whole.topics} == {23, 1, 4}


def test_a_topic_named_twice_is_described_once(broker: DirectBroker) -> None:
    """Else a small request could ask for millions of partitions. As in Kafka."""
    assert broker.describe("large", "small", "large") == broker.describe("large", "small")


class Steps:
    """A Metadata request for all topics, of which only the first turn has passed."""

    def __init__(self, broker: DirectBroker, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(metadata, "STEP_ENTRIES", 3)
        self.broker = broker
        self.connection = broker.connect()
        request = MetadataRequest(topics=None)
        data = b"".join(frame(encode_request(request, api_version=13, correlation_id=1, client_id="test")))
        self.connection.receive_buffer()[: len(data)] = data
        broker.broker.bytes_received(self.connection, len(data), broker.now())

    def turns(self) -> int:
        """Run to the end; how many turns it took."""
        count = 0
        while self.broker.broker.wants_turn:
            self.broker.broker.next_turn(self.broker.now())
            count += 1
        return count

    def answer(self) -> Any:
        return self.broker.answer((registry.METADATA, 13), connection=self.connection)


def test_each_turn_describes_a_bounded_number(broker: DirectBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    steps = Steps(broker, monkeypatch)
    entries = sum(TOPICS.values()) + len(broker.broker.image.topics)
    assert entries // 3 <= steps.turns() <= entries // 3 + 2
    assert sum(len(topic.partitions) for topic in steps.answer().topics) == sum(TOPICS.values())


def test_others_are_served_between_two_steps(broker: DirectBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    steps = Steps(broker, monkeypatch)
    broker.broker.next_turn(broker.now())
    assert steps.answer() is None
    other = broker.connect()
    data = b"".join(frame(encode_request(ApiVersionsRequest(), api_version=0, correlation_id=1, client_id=None)))
    other.receive_buffer()[: len(data)] = data
    broker.broker.bytes_received(other, len(data), broker.now())
    assert broker.answer((registry.API_VERSIONS, 0), connection=other).error_code == ErrorCode.NONE
    steps.turns()
    assert steps.answer() is not None


def test_topics_that_come_and_go_between_steps(broker: DirectBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    steps = Steps(broker, monkeypatch)
    broker.broker.next_turn(broker.now())
    broker.create_topic("new")
    broker.cluster.delete_topic("more")
    steps.turns()
    assert {topic.name for topic in steps.answer().topics} <= {"large", "small", "more"}


def test_a_closed_connection_ends_its_steps(broker: DirectBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    steps = Steps(broker, monkeypatch)
    broker.broker.next_turn(broker.now())
    broker.broker.connection_closed(steps.connection, broker.now())
    assert steps.turns() == 1


def test_many_unknown_topics_are_created_by_few_requests() -> None:
    cluster = DirectCluster(1, {"num.partitions": "2"})
    (member,) = cluster.brokers
    asked = listen_in(cluster.active, registry.CREATE_TOPICS)
    names = [f"t{number}" for number in range(120)]
    answered = member.describe(*names, create=True)
    assert {topic.error_code for topic in answered.topics} == {ErrorCode.LEADER_NOT_AVAILABLE}
    assert {topic.error_code for topic in member.describe(*names).topics} == {ErrorCode.NONE}
    assert [len(request.topics) for request in asked] == [1, REQUEST_PARTITIONS // 2, REQUEST_PARTITIONS // 2, 19]


def test_only_so_many_topics_wait_for_their_creation(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topic_creation, "WAITING_MAX", 20)
    cluster = DirectCluster(1)
    (member,) = cluster.brokers
    names = [f"t{number}" for number in range(50)]
    assert {topic.error_code for topic in member.describe(*names, create=True).topics} == {
        ErrorCode.LEADER_NOT_AVAILABLE
    }
    assert len(cluster.active.image.topics) == 21
    member.describe(*names, create=True)
    assert len(cluster.active.image.topics) == 42  # clients that still need a topic request it again


def test_topics_whose_controller_is_away_are_requested_again_by_clients() -> None:
    cluster = DirectCluster(1)
    (member,) = cluster.brokers
    cluster.stop_controller()
    member.describe(*(f"t{number}" for number in range(50)), create=True)
    cluster.pass_time(12_000)
    cluster.start_controller()
    cluster.pass_time(2_000)
    assert not cluster.active.image.topics
    assert member.describe("u", create=True).topics[0].error_code == ErrorCode.LEADER_NOT_AVAILABLE
    assert member.describe("u").topics[0].error_code == ErrorCode.NONE


def test_an_internal_topic_does_not_wait_behind_others() -> None:
    cluster = DirectCluster(1)
    (member,) = cluster.brokers
    asked = listen_in(cluster.active, registry.CREATE_TOPICS)
    member.silent = True
    member.describe(*(f"t{number}" for number in range(500)), create=True)
    member.call(FindCoordinatorRequest(coordinator_keys=("g",)))
    member.silent = False
    cluster.settle()
    assert [request.topics[0].name for request in asked[:2]] == ["t0", "__consumer_offsets"]
