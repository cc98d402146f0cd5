"""Groups of the consumer protocol over the wire: beside classic groups, after restarts, in every list of groups."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from raylog.core.errors import ErrorCode
from raylog.metadata.features import GROUP_FEATURE
from raylog.metadata.levels import CONSUMER_GROUPS_LEVEL, MIXED_GROUPS_LEVEL
from raylog.protocol.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    decode,
    encode,
)
from raylog.protocol.consumer_protocol import TopicPartitions as OfTopic
from raylog.protocol.messages.api_versions import ApiVersionsRequest
from raylog.protocol.messages.consumer_group_describe import ConsumerGroupDescribeRequest, DescribedGroup
from raylog.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, TopicPartitions
from raylog.protocol.messages.delete_groups import DeleteGroupsRequest
from raylog.protocol.messages.describe_groups import DescribeGroupsRequest
from raylog.protocol.messages.find_coordinator import FindCoordinatorRequest
from raylog.protocol.messages.heartbeat import HeartbeatRequest
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
from raylog.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from raylog.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from tests.groupcoord.coordinator import RANGE
from tests.support.direct_broker import DirectBroker

CONFIG = {"offsets.topic.num.partitions": 3, "group.initial.rebalance.delay.ms": 0}
MINUTE_MS = 60_000
SUBSCRIPTION = encode(ConsumerProtocolSubscription(topics=("t",)))
MISSING = ErrorCode.GROUP_ID_NOT_FOUND


@pytest.fixture
def broker() -> DirectBroker:
    return started()


def started(**more: object) -> DirectBroker:
    broker = DirectBroker({**CONFIG, **more})
    broker.call(FindCoordinatorRequest(coordinator_keys=("g",)))
    broker.settle()
    broker.create_topic("t", partitions=2)
    return broker


def heartbeat(broker: DirectBroker, member_id: str = "m", epoch: int = 0, *, version: int = 1, **more: Any) -> Any:
    given: dict[str, Any] = {"group_id": "g", "member_id": member_id, "member_epoch": epoch}
    if epoch == 0:
        given |= {"rebalance_timeout_ms": 1000, "subscribed_topic_names": ("t",), "topic_partitions": ()}
    return broker.call(ConsumerGroupHeartbeatRequest(**{**given, **more}), version=version)


def join_classic(
    broker: DirectBroker, member_id: str = "", *, metadata: bytes = RANGE[1], kind: str = "consumer"
) -> Any:
    return broker.call(joining(member_id, metadata, kind), version=3)


def joining(member_id: str, metadata: bytes, kind: str = "consumer") -> JoinGroupRequest:
    return JoinGroupRequest(
        group_id="g",
        session_timeout_ms=6000,
        rebalance_timeout_ms=6000,
        member_id=member_id,
        protocol_type=kind,
        protocols=(JoinGroupRequestProtocol(name="range", metadata=metadata),),
    )


def commit(broker: DirectBroker, member_id: str, epoch: int, *, offset: int = 5, version: int = 9) -> ErrorCode:
    part = OffsetCommitRequestPartition(partition_index=0, committed_offset=offset, committed_metadata="")
    topics = (OffsetCommitRequestTopic(name="t", partitions=(part,)),)
    request = OffsetCommitRequest(group_id="g", generation_id_or_member_epoch=epoch, member_id=member_id, topics=topics)
    code: ErrorCode = broker.call(request, version=version).topics[0].partitions[0].error_code
    return code


def fetch(broker: DirectBroker, member_id: str | None, epoch: int) -> Any:
    topics = (OffsetFetchRequestTopics(name="t", partition_indexes=(0,)),)
    group = OffsetFetchRequestGroup(group_id="g", member_id=member_id, member_epoch=epoch, topics=topics)
    return broker.call(OffsetFetchRequest(groups=(group,)), version=9).groups[0]


def described(broker: DirectBroker, group: str = "g", version: int = 1) -> DescribedGroup:
    (found,) = broker.call(ConsumerGroupDescribeRequest(group_ids=(group,)), version=version).groups
    assert isinstance(found, DescribedGroup)
    return found


def delete(broker: DirectBroker) -> ErrorCode:
    code: ErrorCode = broker.call(DeleteGroupsRequest(groups_names=("g",))).results[0].error_code
    return code


@pytest.mark.parametrize("version", [0, 1])
def test_a_member_gets_its_assignment_and_the_interval_of_its_heartbeats(broker: DirectBroker, version: int) -> None:
    answer = heartbeat(broker, "m" if version else "", version=version)
    assert (answer.error_code, answer.member_epoch, answer.heartbeat_interval_ms) == (ErrorCode.NONE, 1, 500)
    assert bool(answer.member_id)
    (topic,) = answer.assignment.topic_partitions
    assert (topic.topic_id, topic.partitions) == (broker.broker.image.topics["t"].topic_id, (0, 1))
    assert heartbeat(broker, answer.member_id, 1, version=version).assignment is None
    found = described(broker, version=version)
    assert (found.group_state, found.group_epoch, found.assignment_epoch) == ("Stable", 1, 1)
    assert found.assignor_name == "uniform"
    (member,) = found.members
    assert (member.member_id, member.member_epoch) == (answer.member_id, 1)
    assert (member.subscribed_topic_names, member.member_type) == (("t",), 1 if version else -1)
    assert member.client_host == "/127.0.0.1"
    assert member.assignment == member.target_assignment
    assert [(each.topic_name, each.partitions) for each in member.assignment.topic_partitions] == [("t", (0, 1))]


def test_what_is_not_asked_for_properly_is_refused(broker: DirectBroker) -> None:
    assert heartbeat(broker, group_id="").error_code == ErrorCode.INVALID_REQUEST
    assert heartbeat(broker, "").error_code == ErrorCode.INVALID_REQUEST
    refused = heartbeat(broker, server_assignor="sticky")
    assert refused.error_code == ErrorCode.UNSUPPORTED_ASSIGNOR
    assert refused.error_message == "ServerAssignor sticky is not supported. Supported assignors: uniform, range."
    assert described(broker).error_code == MISSING
    assert described(broker, "").error_code == ErrorCode.INVALID_GROUP_ID


def test_new_partitions_reach_members_and_deleted_topics_leave_them(broker: DirectBroker) -> None:
    heartbeat(broker, subscribed_topic_names=None, subscribed_topic_regex="t|u")
    broker.create_topic("u")
    broker.pass_time(10_000)
    answer = heartbeat(broker, "m", 1)
    assert sorted(len(topic.partitions) for topic in answer.assignment.topic_partitions) == [1, 2]
    broker.cluster.delete_topic("t")
    broker.pass_time(10_000)
    answer = heartbeat(broker, "m", 2)
    assert [topic.partitions for topic in answer.assignment.topic_partitions] == [(0,)]


def test_members_commit_and_fetch_in_their_epoch(broker: DirectBroker) -> None:
    heartbeat(broker)
    assert commit(broker, "m", 1) == ErrorCode.NONE
    assert commit(broker, "m", 2) == ErrorCode.STALE_MEMBER_EPOCH
    assert commit(broker, "x", 1) == commit(broker, "", -1) == ErrorCode.UNKNOWN_MEMBER_ID
    assert commit(broker, "m", 1, version=8) == ErrorCode.UNSUPPORTED_VERSION
    assert fetch(broker, "m", 1).topics[0].partitions[0].committed_offset == 5
    assert fetch(broker, None, -1).topics[0].partitions[0].committed_offset == 5
    assert fetch(broker, "m", 2).error_code == ErrorCode.STALE_MEMBER_EPOCH
    assert fetch(broker, "x", 1).error_code == ErrorCode.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize("clean", [False, True])
def test_a_restarted_coordinator_knows_the_members(broker: DirectBroker, clean: bool) -> None:
    heartbeat(broker)
    before = described(broker)
    commit(broker, "m", 1)
    broker.restart(clean=clean)
    broker.pass_time(2000)
    assert described(broker) == before
    assert heartbeat(broker, "m", 1).error_code == ErrorCode.NONE
    assert fetch(broker, "m", 1).topics[0].partitions[0].committed_offset == 5
    broker.pass_time(45_000)
    assert described(broker).group_state == "Empty"


class TestBesideClassicGroups:
    @pytest.fixture
    def broker(self) -> DirectBroker:
        return started(**{"group.consumer.migration.policy": "disabled"})

    def test_a_group_with_members_keeps_its_protocol_at_an_earlier_level(self, broker: DirectBroker) -> None:
        heartbeat(broker)
        broker.broker.image.metadata_level = MIXED_GROUPS_LEVEL - 1
        assert join_classic(broker).error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        classic = HeartbeatRequest(group_id="g", generation_id=1, member_id="m")
        assert broker.call(classic).error_code == ErrorCode.UNKNOWN_MEMBER_ID
        (found,) = broker.call(DescribeGroupsRequest(groups=("g",)), version=6).groups
        assert (found.error_code, found.error_message) == (MISSING, "Group g is not a classic group.")
        (found,) = broker.call(DescribeGroupsRequest(groups=("g",)), version=5).groups
        assert (found.error_code, found.group_state) == (ErrorCode.NONE, "Dead")

    def test_a_classic_group_with_members_stays_classic(self, broker: DirectBroker) -> None:
        assert join_classic(broker).error_code == ErrorCode.NONE
        assert heartbeat(broker).error_code == MISSING
        found = described(broker)
        assert (found.error_code, found.error_message) == (MISSING, "Group g is not a consumer group.")

    def test_a_group_without_members_changes_its_protocol_and_keeps_its_offsets(self, broker: DirectBroker) -> None:
        assert commit(broker, "", -1) == ErrorCode.NONE
        join_classic(broker)
        broker.pass_time(20_000)
        assert heartbeat(broker).error_code == ErrorCode.NONE
        assert heartbeat(broker, "m", -1).member_epoch == -1
        assert join_classic(broker).error_code == ErrorCode.NONE
        assert described(broker).error_code == MISSING
        assert fetch(broker, None, -1).topics[0].partitions[0].committed_offset == 5
        broker.restart()
        broker.pass_time(20_000)
        (listed,) = broker.call(ListGroupsRequest(), version=5).groups
        assert (listed.group_id, listed.group_type) == ("g", "classic")


class TestMixedGroups:
    """Members of the classic protocol in a consumer group, and the group's change from one kind to the other."""

    def test_a_classic_group_becomes_a_consumer_group_and_back(self, broker: DirectBroker) -> None:
        classic = joined(broker)
        assert synced(broker, classic) == {0, 1}
        commit(broker, classic.member_id, classic.generation_id, version=8)
        upgrading = heartbeat(broker)
        assert (upgrading.error_code, upgrading.member_epoch) == (ErrorCode.NONE, classic.generation_id + 1)
        assert upgrading.assignment.topic_partitions == ()
        kinds = {each.member_id: each.member_type for each in described(broker).members}
        assert kinds == {"m": 1, classic.member_id: 0}
        assert beat_classic(broker, classic) == ErrorCode.REBALANCE_IN_PROGRESS
        again = joined(broker, classic.member_id)
        assert again.generation_id == classic.generation_id + 1
        assert len(synced(broker, again)) == 1
        answer = heartbeat(broker, "m", again.generation_id)
        assert [len(each.partitions) for each in answer.assignment.topic_partitions] == [1]
        assert beat_classic(broker, again) == ErrorCode.NONE
        assert commit(broker, again.member_id, again.generation_id, version=8, offset=9) == ErrorCode.NONE
        assert commit(broker, again.member_id, 1, version=8) == ErrorCode.ILLEGAL_GENERATION
        assert beat_classic(broker, classic) == ErrorCode.ILLEGAL_GENERATION
        before = described(broker)
        broker.restart()
        broker.pass_time(1000)
        assert described(broker) == before
        assert heartbeat(broker, "m", -1).error_code == ErrorCode.NONE
        assert described(broker).error_code == MISSING
        assert beat_classic(broker, again) == ErrorCode.REBALANCE_IN_PROGRESS
        last = joined(broker, again.member_id)
        assert last.generation_id == again.generation_id + 1
        assert synced(broker, last) == {0, 1}
        assert fetch(broker, None, -1).topics[0].partitions[0].committed_offset == 9
        broker.restart()
        broker.pass_time(1000)
        assert beat_classic(broker, last) == ErrorCode.NONE

    def test_members_that_wait_join_the_consumer_group(self, broker: DirectBroker) -> None:
        first = joined(broker)
        synced(broker, first)
        other = broker.connect()
        waiting = broker.send(joining("", SUBSCRIPTION), version=3, connection=other)
        assert broker.answer(waiting, connection=other) is None
        heartbeat(broker)
        assert broker.answer(waiting, connection=other).error_code == ErrorCode.REBALANCE_IN_PROGRESS
        assert len(described(broker).members) == 3

    @pytest.mark.parametrize(("policy", "upgrades"), [("upgrade", True), ("downgrade", False), ("disabled", False)])
    def test_the_policy_says_what_is_permitted(self, policy: str, upgrades: bool) -> None:
        broker = started(**{"group.consumer.migration.policy": policy})
        classic = joined(broker)
        synced(broker, classic)
        assert heartbeat(broker).error_code == (ErrorCode.NONE if upgrades else MISSING)
        if upgrades:
            heartbeat(broker, "m", -1)
            assert [each.member_type for each in described(broker).members] == [0]
            assert beat_classic(broker, classic) == ErrorCode.REBALANCE_IN_PROGRESS
            assert synced(broker, joined(broker, classic.member_id)) == {0, 1}

    def test_a_classic_member_that_does_not_join_again_is_removed(self, broker: DirectBroker) -> None:
        classic = joined(broker)
        synced(broker, classic)
        heartbeat(broker)
        assert beat_classic(broker, classic) == ErrorCode.REBALANCE_IN_PROGRESS
        for _ in range(3):
            broker.pass_time(2500)
            heartbeat(broker, "m", 2)
            beat_classic(broker, classic)
        assert [each.member_id for each in described(broker).members] == ["m"]
        assert beat_classic(broker, classic) == ErrorCode.UNKNOWN_MEMBER_ID

    def test_an_administrator_removes_a_member_of_the_consumer_protocol(self, broker: DirectBroker) -> None:
        heartbeat(broker)
        leaving = (MemberIdentity(member_id="m"), MemberIdentity(member_id="x"))
        answers = broker.call(LeaveGroupRequest(group_id="g", members=leaving), version=5).members
        assert [each.error_code for each in answers] == [ErrorCode.NONE, ErrorCode.UNKNOWN_MEMBER_ID]
        assert described(broker).members == ()
        assert heartbeat(broker, "m", 1).error_code == ErrorCode.UNKNOWN_MEMBER_ID

    def test_members_of_the_other_protocol_are_not_taken_for_classic_ones(self, broker: DirectBroker) -> None:
        heartbeat(broker)
        classic = joined(broker)
        wrong = SyncGroupRequest(
            group_id="g",
            generation_id=classic.generation_id,
            member_id=classic.member_id,
            protocol_type="consumer",
            protocol_name="sticky",
        )
        assert broker.call(wrong, version=5).error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        leaving = (MemberIdentity(member_id=classic.member_id),)
        (answer,) = broker.call(LeaveGroupRequest(group_id="g", members=leaving), version=5).members
        assert answer.error_code == ErrorCode.NONE
        assert [each.member_id for each in described(broker).members] == ["m"]

    @pytest.mark.parametrize("metadata", [b"", b"\xff", b"\0\1" + b"\xff" * 400, b"\0\0\x7f\xff\xff\xff"])
    def test_words_that_are_no_subscription(self, broker: DirectBroker, metadata: bytes) -> None:
        heartbeat(broker)
        assert join_classic(broker, metadata=metadata).error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        assert join_classic(broker, kind="connect").error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        assert len(described(broker).members) == 1

    def test_a_group_that_does_not_share_partitions_stays_what_it_is(self, broker: DirectBroker) -> None:
        classic = join_classic(broker, metadata=b"its own words")
        request = SyncGroupRequest(group_id="g", generation_id=1, member_id=classic.member_id)
        assert broker.call(request, version=3).error_code == ErrorCode.NONE
        refused = heartbeat(broker)
        assert refused.error_code == MISSING
        assert "Cannot upgrade the classic group g" in refused.error_message
        assert beat_classic(broker, classic) == ErrorCode.NONE


def joined(broker: DirectBroker, member_id: str = "") -> Any:
    """The response to a JoinGroup of a consumer, which is a member then."""
    response = join_classic(broker, member_id, metadata=SUBSCRIPTION)
    assert response.error_code == ErrorCode.NONE
    return response


def synced(broker: DirectBroker, joined: Any) -> set[int]:
    """The partitions that the member gets. As the leader it takes all."""
    shares: tuple[SyncGroupRequestAssignment, ...] = ()
    if joined.leader == joined.member_id:
        whole = ConsumerProtocolAssignment(assigned_partitions=(OfTopic(topic="t", partitions=(0, 1)),))
        shares = (SyncGroupRequestAssignment(member_id=joined.member_id, assignment=encode(whole)),)
    request = SyncGroupRequest(
        group_id="g", generation_id=joined.generation_id, member_id=joined.member_id, assignments=shares
    )
    response = broker.call(request, version=3)
    assert response.error_code == ErrorCode.NONE
    content = decode(ConsumerProtocolAssignment, bytes(response.assignment))
    return {number for topic in content.assigned_partitions for number in topic.partitions}


def beat_classic(broker: DirectBroker, joined: Any) -> ErrorCode:
    request = HeartbeatRequest(group_id="g", generation_id=joined.generation_id, member_id=joined.member_id)
    code: ErrorCode = broker.call(request).error_code
    return code


def test_list_groups_filters_by_type_and_state(broker: DirectBroker) -> None:
    heartbeat(broker)

    def found(**more: tuple[str, ...]) -> list[tuple[str, str, str, str]]:
        groups = broker.call(ListGroupsRequest(**more), version=5).groups
        return [(each.group_id, each.protocol_type, each.group_state, each.group_type) for each in groups]

    assert found() == found(types_filter=("Consumer",)) == [("g", "consumer", "Stable", "consumer")]
    assert found(states_filter=("stable",), types_filter=("consumer", "classic")) == found()
    assert found(types_filter=("classic",)) == found(states_filter=("Empty",)) == []


def test_a_group_is_deleted_once_it_has_no_members(broker: DirectBroker) -> None:
    heartbeat(broker)
    commit(broker, "m", 1)
    part = OffsetDeleteRequestPartition(partition_index=0)
    request = OffsetDeleteRequest(group_id="g", topics=(OffsetDeleteRequestTopic(name="t", partitions=(part,)),))
    assert broker.call(request).topics[0].partitions[0].error_code == ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
    assert delete(broker) == ErrorCode.NON_EMPTY_GROUP
    heartbeat(broker, "m", -1)
    assert delete(broker) == ErrorCode.NONE
    assert delete(broker) == MISSING
    assert heartbeat(broker, "m", 1).error_code == MISSING
    broker.restart()
    broker.pass_time(1000)
    assert described(broker).error_code == MISSING


def test_an_empty_group_expires_after_its_last_offset() -> None:
    broker = started(**{"offsets.retention.minutes": 2, "offsets.retention.check.interval.ms": 1000})
    heartbeat(broker)
    commit(broker, "m", 1)
    for _ in range(5):
        broker.pass_time(MINUTE_MS // 2)
        heartbeat(broker, "m", 1)
    assert fetch(broker, None, -1).topics[0].partitions[0].committed_offset == 5
    heartbeat(broker, "m", -1)
    broker.pass_time(2000)
    assert broker.call(ListGroupsRequest(), version=5).groups == ()


def test_the_number_of_groups_is_limited() -> None:
    broker = started(**{"max.groups.per.broker": 1})
    assert heartbeat(broker).error_code == ErrorCode.NONE
    assert heartbeat(broker, group_id="other").error_code == ErrorCode.POLICY_VIOLATION
    assert heartbeat(broker, "m2").error_code == ErrorCode.NONE


def test_a_coordinator_without_the_protocol_says_so(broker: DirectBroker) -> None:
    classic_only = started(**{"group.coordinator.rebalance.protocols": "classic"})
    assert heartbeat(classic_only).error_code == ErrorCode.UNSUPPORTED_VERSION
    image = broker.broker.image
    image.feature_levels[GROUP_FEATURE] = 0
    assert heartbeat(broker).error_code == ErrorCode.UNSUPPORTED_VERSION
    del image.feature_levels[GROUP_FEATURE]  # as in a cluster that was upgraded
    image.metadata_level = CONSUMER_GROUPS_LEVEL - 1
    assert heartbeat(broker).error_code == ErrorCode.UNSUPPORTED_VERSION
    image.metadata_level = CONSUMER_GROUPS_LEVEL
    assert heartbeat(broker).error_code == ErrorCode.NONE


@pytest.mark.parametrize(("version", "shows"), [(3, False), (4, True)])
def test_the_feature_of_kafka_is_shown_to_who_can_read_it(broker: DirectBroker, version: int, shows: bool) -> None:
    """Before version 4 a feature that begins with 0 cannot be shown."""
    request = ApiVersionsRequest(client_software_name="test", client_software_version="1")
    answer = broker.call(request, version=version)
    assert ("group.version" in [each.name for each in answer.supported_features]) == shows
    finalized = {each.name: each.max_version_level for each in answer.finalized_features}
    assert finalized["group.version"] == 1


def test_huge_and_absurd_values_are_refused_or_kept_within_bounds(broker: DirectBroker) -> None:
    long = "x" * 32_767
    assert heartbeat(broker, long, group_id=long, instance_id=long, rack_id=long).error_code == ErrorCode.NONE
    for epoch in (-(1 << 31), -3, -2, -1, 1, (1 << 31) - 1):
        refused = heartbeat(broker, "nobody", epoch, instance_id="i" if epoch == -2 else None)
        assert refused.error_code in (MISSING, ErrorCode.INVALID_REQUEST)
    absurd = TopicPartitions(topic_id=UUID(int=9), partitions=(-(1 << 31), -1, 0, 0, (1 << 31) - 1) * 2000)
    heartbeat(broker)
    assert heartbeat(broker, "m", 1, topic_partitions=(absurd,) * 5).error_code == ErrorCode.NONE
    names = tuple(f"{number:05}{'y' * 244}" for number in range(8000))  # 2 MB: the record does not fit into the log
    assert heartbeat(broker, "m", 1, subscribed_topic_names=names).error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    assert heartbeat(broker, "m", 1).error_code == ErrorCode.NONE
    assert described(broker).members[0].subscribed_topic_names == ("t",)
