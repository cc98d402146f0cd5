"""Streams groups over the wire: internal topics are created, offsets follow epochs, kinds of groups convert."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from raylog.broker.streams_topics import StreamsTopics
from raylog.broker.topic_creation import Requester
from raylog.core.errors import ErrorCode, KafkaError
from raylog.core.ids import TopicPartition
from raylog.metadata.features import STREAMS_FEATURE
from raylog.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from raylog.protocol.messages.delete_groups import DeleteGroupsRequest
from raylog.protocol.messages.describe_groups import DescribeGroupsRequest
from raylog.protocol.messages.envelope import EnvelopeResponse
from raylog.protocol.messages.find_coordinator import FindCoordinatorRequest
from raylog.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from raylog.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from raylog.protocol.messages.list_groups import ListGroupsRequest
from raylog.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from raylog.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from raylog.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from raylog.protocol.messages.share_group_heartbeat import ShareGroupHeartbeatRequest
from raylog.protocol.messages.streams_group_describe import StreamsGroupDescribeRequest
from raylog.protocol.messages.streams_group_heartbeat import (
    KeyValue,
    StreamsGroupHeartbeatRequest,
    Subtopology,
    TaskIds,
    TaskOffset,
    TopicInfo,
    Topology,
)
from tests.broker.share.members import configure
from tests.groupcoord.streams_coordinator import COUNT, subtopology, topology
from tests.support.direct_broker import DirectBroker

CONFIG: dict[str, Any] = {"offsets.topic.num.partitions": 3, "group.streams.initial.rebalance.delay.ms": 0}
LOG_CONFIG = KeyValue(key="cleanup.policy", value="compact")
STORED = Topology(
    subtopologies=(
        Subtopology(
            subtopology_id="0",
            source_topics=("words",),
            state_changelog_topics=(TopicInfo(name="log", topic_configs=(LOG_CONFIG,)),),
        ),
    )
)


def started(**more: Any) -> DirectBroker:
    """It coordinates the group g; topic words has two partitions."""
    broker = DirectBroker({**CONFIG, **more})
    broker.call(FindCoordinatorRequest(coordinator_keys=("g",)))
    broker.settle()
    broker.create_topic("words", partitions=2)
    return broker


@pytest.fixture
def broker() -> DirectBroker:
    return started()


def beat(broker: DirectBroker, epoch: int, member: str = "m", **more: Any) -> Any:
    given: dict[str, Any] = {"group_id": "g", "member_id": member, "member_epoch": epoch}
    if epoch == 0:
        given |= {"rebalance_timeout_ms": 1000, "topology": COUNT, "process_id": f"process-of-{member}"}
    return broker.call(StreamsGroupHeartbeatRequest(**{**given, **more}))


def owning(**active: tuple[int, ...]) -> dict[str, Any]:
    ids = tuple(TaskIds(subtopology_id=name[1:], partitions=numbers) for name, numbers in active.items())
    return {"active_tasks": ids, "standby_tasks": (), "warmup_tasks": ()}


def settled(broker: DirectBroker, member: str = "m", **more: Any) -> int:
    """The epoch of the member, once it has tasks and the topics of the topology exist."""
    response = beat(broker, 0, member, **more)
    for _ in range(20):
        assert response.error_code == ErrorCode.NONE, response
        if not response.status and response.active_tasks:
            return int(response.member_epoch)
        broker.settle()
        response = beat(broker, response.member_epoch, member, **owning())
    raise AssertionError(response)


def statuses(response: Any) -> list[tuple[int, str]]:
    return [(each.status_code, each.status_detail) for each in response.status]


def described(broker: DirectBroker, group: str = "g") -> Any:
    return broker.call(StreamsGroupDescribeRequest(group_ids=(group,))).groups[0]


def commit(broker: DirectBroker, epoch: int, member: str = "m", version: int = 9, number: int = 0) -> ErrorCode:
    partition = OffsetCommitRequestPartition(partition_index=number, committed_offset=5)
    request = OffsetCommitRequest(
        group_id="g",
        generation_id_or_member_epoch=epoch,
        member_id=member,
        topics=(OffsetCommitRequestTopic(name="words", partitions=(partition,)),),
    )
    response = broker.call(request, version=version)
    return cast(ErrorCode, response.topics[0].partitions[0].error_code)


def listed(broker: DirectBroker) -> list[tuple[str, str, str]]:
    groups = broker.call(ListGroupsRequest()).groups
    return [(group.group_type, group.protocol_type, group.group_state) for group in groups]


class TestInternalTopics:
    def test_they_are_created(self, broker: DirectBroker) -> None:
        response = beat(broker, 0)
        assert statuses(response) == [(3, "Internal topics are missing: counts, mid")]
        assert (response.member_epoch, response.active_tasks, response.heartbeat_interval_ms) == (2, (), 5000)
        broker.settle()
        assert {name: len(broker.broker.image.topics[name].partitions) for name in ("counts", "mid")} == {
            "counts": 2,
            "mid": 2,
        }
        response = beat(broker, 2, **owning())
        assert (response.member_epoch, response.status) == (3, ())
        assert response.active_tasks == (
            TaskIds(subtopology_id="0", partitions=(0, 1)),
            TaskIds(subtopology_id="1", partitions=(0, 1)),
        )

    def test_with_their_configuration(self, broker: DirectBroker) -> None:
        settled(broker, topology=STORED)
        topic = broker.broker.image.topics["log"]
        assert topic.configs["cleanup.policy"] == "compact"
        assert len(topic.partitions) == 2

    def test_many_of_them(self, broker: DirectBroker) -> None:
        """They take several requests to the controller."""
        many = topology(subtopology("0", "words", stores=[f"log-{number}" for number in range(120)]))
        settled(broker, topology=many)
        assert sum(name.startswith("log-") for name in broker.broker.image.topics) == 120

    def test_errors_are_shown_for_a_while(self, broker: DirectBroker) -> None:
        wrong = TopicInfo(name="log", topic_configs=(KeyValue(key="cleanup.policy", value="sweep"),))
        bad = Topology(
            subtopologies=(Subtopology(subtopology_id="0", source_topics=("words",), state_changelog_topics=(wrong,)),)
        )
        beat(broker, 0, topology=bad)
        broker.settle()
        ((code, detail),) = statuses(beat(broker, 2))
        assert code == 3
        assert detail.startswith("Internal topics are missing: log; Creation failed: log (")
        assert "sweep" in detail
        broker.settle()
        broker.pass_time(10_001)
        assert "Creation failed" not in statuses(beat(broker, 2))[0][1]

    def test_a_topic_that_exists_already_is_no_error(self, broker: DirectBroker) -> None:
        requester = Requester(broker.connect().client, "c")
        words, bad = TopicInfo(name="words", partitions=2), TopicInfo(name="a/b", partitions=2)
        creation = broker.broker.streams_topics
        creation.create((words, bad), requester, broker.now(), errors_ms=1000)
        broker.settle()
        assert [name for name, _ in creation.errors((words, bad), broker.now())] == ["a/b"]

    def test_one_request_at_a_time_and_each_topic_once(self, broker: DirectBroker) -> None:
        sent: list[Any] = []
        link = SimpleNamespace(request=lambda request, *_, **__: sent.append(request))
        creation = StreamsTopics(cast(Any, link))
        requester = Requester(broker.connect().client, "c")
        topics = [TopicInfo(name=f"log-{number}", partitions=60) for number in range(2)]
        for _ in range(2):
            creation.create(topics, requester, broker.now(), errors_ms=1)
            assert len(sent) == 1
        creation._answered(EnvelopeResponse(error_code=ErrorCode.NOT_CONTROLLER), broker.now())
        assert len(sent) == 2, "the second topic, with 60 more partitions"
        assert creation.errors(topics, broker.now()) == [("log-0", "NOT_CONTROLLER")]
        creation._failed(KafkaError(ErrorCode.NETWORK_EXCEPTION), broker.now())
        creation.create(topics[:1], requester, broker.now(), errors_ms=1)
        assert len(sent) == 3


class TestRequests:
    def test_the_feature(self) -> None:
        broker = started()
        broker.broker.image.feature_levels[STREAMS_FEATURE] = 0
        assert beat(broker, 0).error_code == ErrorCode.UNSUPPORTED_VERSION
        assert described(broker).error_code == ErrorCode.UNSUPPORTED_VERSION

    def test_the_protocol(self) -> None:
        key = "group.coordinator.rebalance.protocols"
        assert beat(started(**{key: "classic,consumer"}), 0).error_code == ErrorCode.UNSUPPORTED_VERSION
        assert beat(started(**{key: "classic,streams"}), 0).error_code == ErrorCode.NONE

    @pytest.mark.parametrize(
        ("more", "code"),
        [
            ({"task_offsets": (TaskOffset(),)}, ErrorCode.INVALID_REQUEST),
            ({"task_end_offsets": ()}, ErrorCode.INVALID_REQUEST),
            ({"active_tasks": ()}, ErrorCode.INVALID_REQUEST),
            ({"instance_id": "i"}, ErrorCode.INVALID_REQUEST),
            ({"group_id": ""}, ErrorCode.INVALID_REQUEST),
            ({"topology": topology(subtopology("0", "a b"))}, ErrorCode.STREAMS_INVALID_TOPOLOGY),
            ({"topology": topology(subtopology("0", "__transaction_state"))}, ErrorCode.STREAMS_INVALID_TOPOLOGY),
        ],
    )
    def test_refusals(self, broker: DirectBroker, more: dict[str, Any], code: ErrorCode) -> None:
        assert beat(broker, 0, **more).error_code == code
        assert listed(broker) == []

    def test_description(self, broker: DirectBroker) -> None:
        epoch = settled(broker, client_tags=(KeyValue(key="zone", value="a"),))
        group = described(broker)
        assert (group.group_state, group.group_epoch, group.assignment_epoch) == ("Stable", epoch, epoch)
        assert [each.subtopology_id for each in group.topology.subtopologies] == ["0", "1"]
        (changelog,) = group.topology.subtopologies[1].state_changelog_topics
        assert (changelog.name, changelog.partitions) == ("counts", 2)
        (member,) = group.members
        assert (member.member_id, member.process_id, member.topology_epoch) == ("m", "process-of-m", 0)
        assert member.client_tags[0].value == "a"
        assert member.assignment == member.target_assignment
        assert [each.partitions for each in member.assignment.active_tasks] == [(0, 1), (0, 1)]
        assert described(broker, "other").error_code == ErrorCode.GROUP_ID_NOT_FOUND

    def test_it_is_listed(self, broker: DirectBroker) -> None:
        settled(broker)
        assert listed(broker) == [("streams", "streams", "Stable")]
        assert len(broker.call(ListGroupsRequest(types_filter=("Streams",))).groups) == 1
        assert broker.call(ListGroupsRequest(types_filter=("classic",))).groups == ()
        (group,) = broker.call(DescribeGroupsRequest(groups=("g",)), version=6).groups
        assert (group.error_code, group.error_message) == (
            ErrorCode.GROUP_ID_NOT_FOUND,
            "Group g is not a classic group.",
        )

    def test_settings_of_the_group(self, broker: DirectBroker) -> None:
        configure(broker, "g", **{"streams.heartbeat.interval.ms": "7000", "streams.num.standby.replicas": "1"})
        assert beat(broker, 0).heartbeat_interval_ms == 7000
        assert broker.broker.streams_group_settings("g").standby_replicas == 1

    def test_a_restart_keeps_members(self, broker: DirectBroker) -> None:
        epoch = settled(broker)
        broker.restart()
        assert beat(broker, epoch).member_epoch == epoch
        assert described(broker).group_state == "Stable"


class TestOffsets:
    def test_commit_and_fetch_by_member_epoch(self, broker: DirectBroker) -> None:
        epoch = settled(broker)
        assert commit(broker, epoch) == ErrorCode.NONE
        assert commit(broker, epoch + 1) == ErrorCode.STALE_MEMBER_EPOCH
        assert commit(broker, epoch - 1) == ErrorCode.STALE_MEMBER_EPOCH
        assert commit(broker, epoch, member="n") == ErrorCode.UNKNOWN_MEMBER_ID
        assert commit(broker, epoch, version=8) == ErrorCode.UNSUPPORTED_VERSION
        assert commit(broker, -1, member="") == ErrorCode.UNKNOWN_MEMBER_ID

        def fetch(member: str | None, epoch: int) -> ErrorCode:
            group = OffsetFetchRequestGroup(group_id="g", member_id=member, member_epoch=epoch)
            (found,) = broker.call(OffsetFetchRequest(groups=(group,)), version=9).groups
            return cast(ErrorCode, found.error_code)

        assert fetch("m", epoch) == ErrorCode.NONE
        assert fetch("m", epoch - 1) == ErrorCode.STALE_MEMBER_EPOCH
        assert fetch("n", epoch) == ErrorCode.UNKNOWN_MEMBER_ID
        assert fetch(None, -1) == ErrorCode.NONE

    def test_offsets_of_topics_in_use_are_not_deleted(self, broker: DirectBroker) -> None:
        def delete() -> ErrorCode:
            partition = OffsetDeleteRequestPartition(partition_index=0)
            topic = OffsetDeleteRequestTopic(name="words", partitions=(partition,))
            response = broker.call(OffsetDeleteRequest(group_id="g", topics=(topic,)))
            return cast(ErrorCode, response.topics[0].partitions[0].error_code)

        epoch = settled(broker)
        assert commit(broker, epoch) == ErrorCode.NONE
        assert delete() == ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
        beat(broker, -1)
        assert delete() == ErrorCode.NONE

    def test_deletion(self, broker: DirectBroker) -> None:
        def delete() -> ErrorCode:
            return cast(ErrorCode, broker.call(DeleteGroupsRequest(groups_names=("g",))).results[0].error_code)

        epoch = settled(broker)
        assert commit(broker, epoch) == ErrorCode.NONE
        assert delete() == ErrorCode.NON_EMPTY_GROUP
        assert beat(broker, -1).member_epoch == -1
        assert delete() == ErrorCode.NONE
        assert listed(broker) == []
        broker.restart()
        assert listed(broker) == []

    def test_offsets_and_the_group_expire(self) -> None:
        broker = started(**{"offsets.retention.minutes": 1, "offsets.retention.check.interval.ms": 1000})
        epoch = settled(broker)
        assert commit(broker, epoch) == ErrorCode.NONE
        for _ in range(3):
            broker.pass_time(30_000)
            beat(broker, epoch)
        (shard,) = [each for each in broker.broker.groups.coordinated() if each.streams.groups]
        assert shard.offsets.committed("g").keys() == {TopicPartition("words", 0)}
        beat(broker, -1)
        broker.pass_time(61_000)
        assert listed(broker) == []


class TestOtherKinds:
    def classic(self, broker: DirectBroker, member_id: str = "") -> Any:
        request = JoinGroupRequest(
            group_id="g",
            session_timeout_ms=10_000,
            rebalance_timeout_ms=10_000,
            member_id=member_id,
            protocol_type="consumer",
            protocols=(JoinGroupRequestProtocol(name="range", metadata=b""),),
        )
        return broker.call(request, version=3)

    def test_an_empty_classic_group_becomes_a_streams_group(self) -> None:
        broker = started(**{"group.initial.rebalance.delay.ms": 0})
        member_id = self.classic(broker).member_id
        assert beat(broker, 0).error_code == ErrorCode.GROUP_ID_NOT_FOUND
        broker.call(LeaveGroupRequest(group_id="g", members=(MemberIdentity(member_id=member_id),)))
        assert beat(broker, 5).error_code == ErrorCode.GROUP_ID_NOT_FOUND
        settled(broker)
        assert listed(broker) == [("streams", "streams", "Stable")]
        broker.restart()
        assert listed(broker) == [("streams", "streams", "Stable")]

    def test_an_empty_streams_group_becomes_a_classic_group(self) -> None:
        broker = started(**{"group.initial.rebalance.delay.ms": 0})
        settled(broker)
        assert self.classic(broker).error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        beat(broker, -1)
        assert self.classic(broker).error_code == ErrorCode.NONE
        assert [kind for kind, _, _ in listed(broker)] == ["classic"]
        broker.restart()
        assert "streams" not in [kind for kind, _, _ in listed(broker)]

    def test_other_members_are_refused(self, broker: DirectBroker) -> None:
        settled(broker)
        beat(broker, -1)
        consumer = ConsumerGroupHeartbeatRequest(
            group_id="g", member_id="c", rebalance_timeout_ms=1, subscribed_topic_names=("words",), topic_partitions=()
        )
        assert broker.call(consumer).error_code == ErrorCode.GROUP_ID_NOT_FOUND
        share = ShareGroupHeartbeatRequest(group_id="g", member_id="s", subscribed_topic_names=("words",))
        assert broker.call(share, version=1).error_code == ErrorCode.GROUP_ID_NOT_FOUND

    def test_consumer_groups_stay_what_they_are(self, broker: DirectBroker) -> None:
        consumer = ConsumerGroupHeartbeatRequest(
            group_id="g", member_id="c", rebalance_timeout_ms=1, subscribed_topic_names=("words",), topic_partitions=()
        )
        assert broker.call(consumer).error_code == ErrorCode.NONE
        assert beat(broker, 0).error_code == ErrorCode.GROUP_ID_NOT_FOUND
