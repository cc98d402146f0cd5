"""Any broker forwards requests to the controller, and responds once its own image includes the change."""

from __future__ import annotations

from typing import Any

import pytest

from raylog.broker.handlers.forwarded import FORWARD_MS_MAX
from raylog.core.errors import ErrorCode
from raylog.core.ids import ZERO_TOPIC_ID
from raylog.protocol import registry
from raylog.protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from raylog.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from raylog.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from raylog.protocol.messages.envelope import EnvelopeRequest, EnvelopeResponse
from raylog.protocol.messages.metadata import MetadataRequest
from raylog.protocol.schema import Message
from raylog.security.principal import ANONYMOUS, encode_principal
from tests.broker.test_lifecycle import listen_in
from tests.support.direct_cluster import DirectCluster, DirectMember


@pytest.fixture
def cluster() -> DirectCluster:
    return DirectCluster(2)


@pytest.fixture
def member(cluster: DirectCluster) -> DirectMember:
    return cluster.brokers[0]


def create(*topics: str, num_partitions: int = 1) -> CreateTopicsRequest:
    wanted = (CreatableTopic(name=topic, num_partitions=num_partitions, replication_factor=1) for topic in topics)
    return CreateTopicsRequest(topics=tuple(wanted), timeout_ms=1000)


def delete(*topics: str) -> DeleteTopicsRequest:
    return DeleteTopicsRequest(topics=tuple(DeleteTopicState(name=topic) for topic in topics))


def grow(topic: str, count: int) -> CreatePartitionsRequest:
    return CreatePartitionsRequest(topics=(CreatePartitionsTopic(name=topic, count=count, assignments=None),))


def hold_back_metadata(member: DirectMember) -> None:
    """The broker gets the controller's responses, but not its log."""
    (follower_link,) = (link for link in member.broker.links if link is not member.broker.lifecycle.link)
    member.links.held = [follower_link]


class TestResponses:
    def test_the_broker_has_the_change_when_it_responds(self, cluster: DirectCluster) -> None:
        for number, member in enumerate(cluster.brokers):
            name = f"t-{number}"
            assert member.call(create(name)).topics[0].error_code == ErrorCode.NONE
            assert member.describe(name).topics[0].error_code == ErrorCode.NONE
            assert member.call(grow(name, 3)).results[0].error_code == ErrorCode.NONE
            assert len(member.describe(name).topics[0].partitions) == 3
            assert member.call(delete(name)).responses[0].error_code == ErrorCode.NONE
            assert member.describe(name).topics[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    def test_the_response_waits_for_the_image(self, cluster: DirectCluster, member: DirectMember) -> None:
        hold_back_metadata(member)
        sent = member.send(create("t"))
        assert "t" in cluster.active.image.topics
        assert member.answer(sent) is None
        cluster.pass_time(1000)
        assert member.answer(sent) is None
        member.links.held.clear()
        cluster.settle()
        assert member.answer(sent).topics[0].error_code == ErrorCode.NONE
        assert member.describe("t").topics[0].error_code == ErrorCode.NONE

    def test_the_response_waits_for_a_single_record_too(self, cluster: DirectCluster, member: DirectMember) -> None:
        member.call(create("t"))
        hold_back_metadata(member)
        sent = member.send(delete("t"))
        assert "t" not in cluster.active.image.topics
        assert member.answer(sent) is None
        member.links.held.clear()
        cluster.settle()
        assert member.answer(sent).responses[0].error_code == ErrorCode.NONE

    def test_errors_of_the_controller_are_passed_on(self, member: DirectMember) -> None:
        member.call(create("t"))
        (refused,) = member.call(create("t")).topics
        assert (refused.error_code, refused.error_message) == (
            ErrorCode.TOPIC_ALREADY_EXISTS,
            "Topic 't' already exists.",
        )

    @pytest.mark.parametrize("version", range(2, 8))
    def test_every_version_is_forwarded_unchanged(self, member: DirectMember, version: int) -> None:
        (answer,) = member.call(create(f"t{version}"), version=version).topics
        assert (answer.name, answer.error_code) == (f"t{version}", ErrorCode.NONE)

    def test_the_principal_of_the_client_is_forwarded(self, cluster: DirectCluster, member: DirectMember) -> None:
        envelopes: list[EnvelopeRequest] = listen_in(cluster.active, registry.ENVELOPE)
        for host in ("10.1.2.3", "::1", "unix:1000", "ray"):
            member.call(create(f"t-{len(envelopes)}"), connection=member.connect(host=host))
        assert [envelope.client_host_address for envelope in envelopes] == [
            bytes((10, 1, 2, 3)),
            bytes(15) + b"\1",
            bytes((127, 0, 0, 1)),  # a process of this machine
            b"ray",
        ]
        assert {envelope.request_principal for envelope in envelopes} == {encode_principal(ANONYMOUS)}
        assert all(b"test" in bytes(envelope.request_data) for envelope in envelopes)

    def test_the_next_request_of_a_connection_waits_for_the_response(self, member: DirectMember) -> None:
        hold_back_metadata(member)
        member.send(create("t"))
        member.send(MetadataRequest(topics=None))
        assert member.connection.take_output() == []
        member.links.held.clear()
        member.cluster.settle()
        output = b"".join(member.connection.take_output())
        first = int.from_bytes(output[:4], "big") + 4
        assert [output[at + 4 : at + 8][-1] for at in (0, first)] == [1, 2]


class TestFailures:
    @pytest.mark.parametrize(
        ("request_", "results"),
        [(create("a", "b"), "topics"), (delete("a", "b"), "responses"), (grow("a", 2), "results")],
    )
    def test_without_a_controller_each_topic_times_out(
        self, cluster: DirectCluster, member: DirectMember, request_: Message, results: str
    ) -> None:
        cluster.stop_controller()
        sent = member.send(request_)
        cluster.pass_time(FORWARD_MS_MAX - 1)
        assert member.answer(sent) is None
        cluster.pass_time(1)
        answers = getattr(member.answer(sent), results)
        assert [answer.name for answer in answers] == ["a", "b"][: len(answers)]
        assert all(answer.error_code == ErrorCode.REQUEST_TIMED_OUT for answer in answers)
        assert all("did not respond" in answer.error_message for answer in answers)

    def test_a_topic_given_by_id_is_refused_by_id(self, cluster: DirectCluster, member: DirectMember) -> None:
        topic_id = cluster.create_topic("t")
        cluster.stop_controller()
        wanted = DeleteTopicState(name=None, topic_id=topic_id)
        sent = member.send(DeleteTopicsRequest(topics=(wanted, DeleteTopicState(name="u"))))
        cluster.pass_time(FORWARD_MS_MAX)
        answers = member.answer(sent).responses
        assert [(answer.name, answer.topic_id) for answer in answers] == [(None, topic_id), ("u", ZERO_TOPIC_ID)]

    def test_a_controller_that_returns_in_time_gets_the_request(
        self, cluster: DirectCluster, member: DirectMember
    ) -> None:
        cluster.stop_controller()
        sent = member.send(create("t"))
        cluster.pass_time(10_000)
        cluster.start_controller()
        cluster.pass_time(2_000)
        assert member.answer(sent).topics[0].error_code == ErrorCode.NONE

    def test_a_request_without_a_response_is_forwarded_again(
        self, cluster: DirectCluster, member: DirectMember
    ) -> None:
        envelopes = listen_in(cluster.active, registry.ENVELOPE)
        cluster.brokers.remove(member)  # no bytes are delivered until the test calls for it
        sent = member.send(create("t"))
        while not envelopes:
            member.links.carry(cluster.now(), answers=False)
        member.links.cut(cluster.now())
        cluster.brokers.append(member)
        cluster.pass_time(1000)
        (answer,) = member.answer(sent).topics
        assert answer.error_code == ErrorCode.TOPIC_ALREADY_EXISTS
        assert len(envelopes) == 2

    def test_a_request_is_forwarded_again_after_a_controller_is_deposed(
        self, cluster: DirectCluster, member: DirectMember
    ) -> None:
        not_active = EnvelopeResponse(error_code=ErrorCode.NOT_CONTROLLER)
        asked = listen_in(cluster.active, registry.ENVELOPE, lambda _: not_active)
        sent = member.send(create("t"))
        cluster.pass_time(100)
        assert member.answer(sent) is None
        cluster.pass_time(FORWARD_MS_MAX)
        assert member.answer(sent).topics[0].error_code == ErrorCode.REQUEST_TIMED_OUT
        assert len(asked) > 2

    def test_a_link_lost_while_the_image_catches_up_ends_the_wait(self, member: DirectMember) -> None:
        hold_back_metadata(member)
        answered: list[Any] = []
        member.broker.follower.catch_up(
            member.broker.lifecycle.link, lambda now: answered.append(now), member.cluster.now()
        )
        member.links.cut(member.cluster.now())
        assert len(answered) == 1

    def test_a_client_that_disconnects_has_no_effect(self, cluster: DirectCluster, member: DirectMember) -> None:
        hold_back_metadata(member)
        gone = member.connect()
        member.send(create("t"), connection=gone)
        member.broker.connection_closed(gone, cluster.now())
        member.links.held.clear()
        cluster.settle()
        assert gone.take_output() == []
        assert member.describe("t").topics[0].error_code == ErrorCode.NONE
        cluster.stop_controller()
        gone = member.connect()
        member.send(create("u"), connection=gone)
        member.broker.connection_closed(gone, cluster.now())
        cluster.pass_time(FORWARD_MS_MAX)
        assert gone.take_output() == []

    def test_an_envelope_that_cannot_be_decoded_is_refused_for_each_topic(
        self, cluster: DirectCluster, member: DirectMember
    ) -> None:
        unsupported = EnvelopeResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
        listen_in(cluster.active, registry.ENVELOPE, lambda _: unsupported)
        answers = member.call(create("a", "b")).topics
        assert [answer.error_code for answer in answers] == [ErrorCode.UNSUPPORTED_VERSION] * 2
