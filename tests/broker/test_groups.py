"""Group requests over the wire in every version; members get a response when their coordinator fails."""

from __future__ import annotations

import errno
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from raylog.coordination.event_log import EventLog
from raylog.core.coordinator_partition import coordinator_partition
from raylog.core.errors import ErrorCode, KafkaError
from raylog.core.ids import LeaderEpoch, TopicPartition
from raylog.metadata.records import LeaderChanged
from raylog.protocol.fetch import FetchPartition, FetchRequest, FetchTopic
from raylog.protocol.framing import frame
from raylog.protocol.header import encode_request
from raylog.protocol.messages.delete_groups import DeleteGroupsRequest
from raylog.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
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
from raylog.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from raylog.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from raylog.transport.accepted_connection import AcceptedConnection
from raylog.transport.peer_link import BETWEEN_NODES
from tests.groupcoord.coordinator import RANGE
from tests.support.direct_broker import DirectBroker

PARTITIONS = 3
SESSION_MS = 10_000
MINUTE_MS = 60_000
CONFIG = {"offsets.topic.num.partitions": PARTITIONS, "group.initial.rebalance.delay.ms": 0}

TWO_MINUTES = {**CONFIG, "offsets.retention.minutes": 2, "offsets.retention.check.interval.ms": 1000}


@pytest.fixture
def broker() -> DirectBroker:
    return started(CONFIG)


def started(config: Mapping[str, object]) -> DirectBroker:
    broker = DirectBroker(dict(config))
    broker.call(FindCoordinatorRequest(coordinator_keys=("g",)))
    broker.settle()
    broker.create_topic("t", partitions=2)
    return broker


# --- requests


def join_request(member_id: str = "", *, instance: str | None = None, metadata: bytes = RANGE[1], **more: Any) -> Any:
    return JoinGroupRequest(
        group_id=more.pop("group_id", "g"),
        session_timeout_ms=more.pop("session_timeout_ms", SESSION_MS),
        rebalance_timeout_ms=60_000,
        member_id=member_id,
        group_instance_id=instance,
        protocol_type=more.pop("protocol_type", "consumer"),
        protocols=(JoinGroupRequestProtocol(name="range", metadata=metadata),),
        **more,
    )


def sync_request(member_id: str, generation_id: int, plan: dict[str, bytes] | None = None, **more: Any) -> Any:
    said: dict[str, Any] = {"protocol_type": "consumer", "protocol_name": "range", **more}
    return SyncGroupRequest(
        group_id="g",
        generation_id=generation_id,
        member_id=member_id,
        assignments=tuple(
            SyncGroupRequestAssignment(member_id=name, assignment=part) for name, part in (plan or {}).items()
        ),
        **said,
    )


def stable_member(broker: DirectBroker, *, instance: str | None = None, version: int = 9, **more: Any) -> str:
    """Generation 1 with one member, whose part is `part`."""
    joined = broker.call(join_request(instance=instance if version >= 5 else None, **more), version=version)
    if joined.error_code == ErrorCode.MEMBER_ID_REQUIRED:
        joined = broker.call(join_request(joined.member_id, **more), version=version)
    assert (joined.error_code, joined.generation_id) == (ErrorCode.NONE, 1)
    synced = broker.call(sync_request(joined.member_id, 1, {joined.member_id: b"part"}))
    assert (synced.error_code, synced.assignment) == (ErrorCode.NONE, b"part")
    member_id: str = joined.member_id
    return member_id


def heartbeat(broker: DirectBroker, member_id: str, generation_id: int = 1, **more: Any) -> ErrorCode:
    request = HeartbeatRequest(group_id="g", generation_id=generation_id, member_id=member_id)
    code: ErrorCode = broker.call(request, **more).error_code
    return code


def commit(
    broker: DirectBroker, offset: int, *, group: str = "g", version: int = 9, partitions: int = 1, **more: Any
) -> ErrorCode:
    positions = tuple(
        OffsetCommitRequestPartition(
            partition_index=number, committed_offset=offset, committed_metadata=more.get("note")
        )
        for number in range(partitions)
    )
    more.pop("note", None)
    topic = OffsetCommitRequestTopic(name=more.pop("topic", "t"), partitions=positions)
    answer = broker.call(OffsetCommitRequest(group_id=group, topics=(topic,), **more), version=version)
    code: ErrorCode = answer.topics[0].partitions[0].error_code
    return code


def committed(broker: DirectBroker, group: str = "g") -> dict[tuple[str, int], int]:
    (answer,) = broker.call(OffsetFetchRequest(groups=(OffsetFetchRequestGroup(group_id=group),)), version=9).groups
    assert answer.error_code == ErrorCode.NONE
    return {
        (topic.name, each.partition_index): each.committed_offset
        for topic in answer.topics
        for each in topic.partitions
    }


def described(broker: DirectBroker, group: str = "g", **more: Any) -> Any:
    (answer,) = broker.call(DescribeGroupsRequest(groups=(group,), include_authorized_operations=True), **more).groups
    return answer


def listed(broker: DirectBroker, **filters: tuple[str, ...]) -> dict[str, tuple[str, str]]:
    answer = broker.call(ListGroupsRequest(**filters))
    assert answer.error_code == ErrorCode.NONE
    return {each.group_id: (each.protocol_type, each.group_state) for each in answer.groups}


def delete(broker: DirectBroker, group: str = "g") -> ErrorCode:
    (answer,) = broker.call(DeleteGroupsRequest(groups_names=(group,))).results
    code: ErrorCode = answer.error_code
    return code


def delete_offsets(broker: DirectBroker, topic: str = "t", partition: int = 0, group: str = "g") -> Any:
    wanted = OffsetDeleteRequestTopic(name=topic, partitions=(OffsetDeleteRequestPartition(partition_index=partition),))
    return broker.call(OffsetDeleteRequest(group_id=group, topics=(wanted,)))


def parked(broker: DirectBroker, request: Any) -> tuple[AcceptedConnection, tuple[int, int]]:
    connection = broker.connect()
    sent = broker.send(request, connection=connection)
    assert broker.answer(sent, connection=connection) is None
    return connection, sent


def lose_leadership(broker: DirectBroker) -> None:
    """The controller misses it for a moment; when it is back it leads again, under another epoch."""
    broker.links.cut(broker.now())
    broker.pass_time(BETWEEN_NODES.backoff_ms)


# --- tests


class TestVersions:
    @pytest.mark.parametrize("version", range(10))
    def test_join(self, broker: DirectBroker, version: int) -> None:
        joined = broker.call(join_request(), version=version)
        if version >= 4:
            assert joined.error_code == ErrorCode.MEMBER_ID_REQUIRED
            assert joined.protocol_name == (None if version >= 7 else "")
            joined = broker.call(join_request(joined.member_id), version=version)
        assert (joined.error_code, joined.generation_id, joined.leader) == (ErrorCode.NONE, 1, joined.member_id)
        assert (joined.protocol_name, joined.protocol_type) == ("range", "consumer" if version >= 7 else None)
        assert [(each.member_id, each.metadata) for each in joined.members] == [(joined.member_id, RANGE[1])]
        assert joined.member_id.startswith("test-")

    def test_in_join_v0_the_rebalance_timeout_is_the_session_timeout(self, broker: DirectBroker) -> None:
        stable_member(broker, version=0)
        connection, sent = parked(broker, join_request(instance="new"))
        broker.pass_time(SESSION_MS)
        assert broker.answer(sent, connection=connection).generation_id == 2

    @pytest.mark.parametrize("version", range(6))
    def test_sync(self, broker: DirectBroker, version: int) -> None:
        member_id = stable_member(broker)
        synced = broker.call(sync_request(member_id, 1), version=version)
        assert (synced.error_code, synced.assignment) == (ErrorCode.NONE, b"part")
        assert (synced.protocol_type, synced.protocol_name) == (("consumer", "range") if version >= 5 else (None, None))

    def test_sync_requires_the_protocol_since_version_5(self, broker: DirectBroker) -> None:
        member_id = stable_member(broker)
        for missing in ("protocol_type", "protocol_name"):
            request = sync_request(member_id, 1, **{missing: None})
            assert broker.call(request).error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
            assert broker.call(request, version=4).error_code == ErrorCode.NONE

    @pytest.mark.parametrize("version", range(5))
    def test_heartbeat(self, broker: DirectBroker, version: int) -> None:
        member_id = stable_member(broker)
        assert heartbeat(broker, member_id, version=version) == ErrorCode.NONE
        assert heartbeat(broker, member_id, 2, version=version) == ErrorCode.ILLEGAL_GENERATION

    @pytest.mark.parametrize("version", range(3))
    def test_leave_of_one_member(self, broker: DirectBroker, version: int) -> None:
        member_id = stable_member(broker)
        for code in (ErrorCode.NONE, ErrorCode.UNKNOWN_MEMBER_ID):
            request = LeaveGroupRequest(group_id="g", member_id=member_id)
            assert broker.call(request, version=version).error_code == code

    @pytest.mark.parametrize("version", range(3, 6))
    def test_leave_of_several_members(self, broker: DirectBroker, version: int) -> None:
        member_id = stable_member(broker, instance="i")
        leaving = (
            MemberIdentity(member_id="somebody"),
            MemberIdentity(member_id="somebody", group_instance_id="i"),
            MemberIdentity(member_id="", group_instance_id="i"),
            MemberIdentity(member_id=member_id),
        )
        answer = broker.call(LeaveGroupRequest(group_id="g", members=leaving), version=version)
        assert answer.error_code == ErrorCode.NONE
        assert [(each.member_id, each.group_instance_id, each.error_code) for each in answer.members] == [
            ("somebody", None, ErrorCode.UNKNOWN_MEMBER_ID),
            ("somebody", "i", ErrorCode.FENCED_INSTANCE_ID),
            ("", "i", ErrorCode.NONE),
            (member_id, None, ErrorCode.UNKNOWN_MEMBER_ID),
        ]

    @pytest.mark.parametrize("version", range(7))
    def test_describe(self, broker: DirectBroker, version: int) -> None:
        member_id = stable_member(broker, instance="i")
        group = described(broker, version=version)
        assert (group.error_code, group.group_state, group.protocol_type, group.protocol_data) == (
            ErrorCode.NONE,
            "Stable",
            "consumer",
            "range",
        )
        (member,) = group.members
        assert (member.member_id, member.client_id, member.client_host) == (member_id, "test", "/127.0.0.1")
        assert (member.member_metadata, member.member_assignment) == (RANGE[1], b"part")
        assert member.group_instance_id == ("i" if version >= 4 else None)
        assert (group.authorized_operations == -(1 << 31)) == (version < 3)
        missing = described(broker, "missing", version=version)
        assert (missing.group_state, missing.members) == ("Dead", ())
        assert missing.error_code == (ErrorCode.GROUP_ID_NOT_FOUND if version >= 6 else ErrorCode.NONE)
        assert (missing.authorized_operations == -(1 << 31)) == (version not in (3, 4, 5))

    def test_a_rebalancing_group_is_described_without_assignments(self, broker: DirectBroker) -> None:
        stable_member(broker)
        parked(broker, join_request(instance="new"))
        group = described(broker)
        assert (group.group_state, group.protocol_type, group.protocol_data) == ("PreparingRebalance", "consumer", "")
        assert {(each.member_metadata, each.member_assignment) for each in group.members} == {(b"", b"")}

    @pytest.mark.parametrize("version", [2, 5, 8, 9])
    def test_commit_with_a_generation_of_an_unknown_group(self, broker: DirectBroker, version: int) -> None:
        code = commit(broker, 5, version=version, member_id="m", generation_id_or_member_epoch=1)
        assert code == (ErrorCode.GROUP_ID_NOT_FOUND if version >= 9 else ErrorCode.ILLEGAL_GENERATION)
        assert commit(broker, 5, version=version) == ErrorCode.NONE
        code = commit(broker, 5, version=version, member_id="m", generation_id_or_member_epoch=1)
        assert code == ErrorCode.UNKNOWN_MEMBER_ID


class TestEmptyGroupId:
    """As in Kafka a group without a name can commit, be shown and deleted, and have no members."""

    def test_members_are_refused(self, broker: DirectBroker) -> None:
        invalid = ErrorCode.INVALID_GROUP_ID
        assert broker.call(join_request(group_id="")).error_code == invalid
        assert broker.call(SyncGroupRequest(protocol_type="a", protocol_name="b")).error_code == invalid
        assert broker.call(HeartbeatRequest()).error_code == invalid
        assert broker.call(LeaveGroupRequest(members=(MemberIdentity(),))).error_code == invalid
        assert broker.call(LeaveGroupRequest(), version=0).error_code == invalid
        assert delete_offsets(broker, group="").error_code == invalid

    def test_members_are_refused_by_other_brokers(self) -> None:
        broker = DirectBroker()
        assert broker.call(HeartbeatRequest()).error_code == ErrorCode.INVALID_GROUP_ID
        assert broker.call(HeartbeatRequest(group_id="g")).error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE

    def test_offsets_are_accepted(self, broker: DirectBroker) -> None:
        assert delete(broker, "") == ErrorCode.GROUP_ID_NOT_FOUND
        assert commit(broker, 5, group="") == ErrorCode.NONE
        assert committed(broker, "") == {("t", 0): 5}
        assert described(broker, "").group_state == "Empty"
        assert listed(broker) == {"": ("", "Empty")}
        assert delete(broker, "") == ErrorCode.NONE
        assert committed(broker, "") == {}


class TestList:
    def test_states_and_types(self, broker: DirectBroker) -> None:
        assert listed(broker) == {}
        member_id = stable_member(broker)
        commit(broker, 1, group="alone")
        both = {"g": ("consumer", "Stable"), "alone": ("", "Empty")}
        assert listed(broker) == both
        assert listed(broker, states_filter=("STABLE ", "Dead")) == {"g": both["g"]}
        assert listed(broker, states_filter=("empty",)) == {"alone": both["alone"]}
        assert listed(broker, types_filter=("Classic",)) == both
        assert listed(broker, types_filter=("consumer",)) == listed(broker, types_filter=("nonsense",)) == {}
        broker.call(LeaveGroupRequest(group_id="g", members=(MemberIdentity(member_id=member_id),)))
        assert listed(broker, states_filter=("Empty",)) == {"g": ("consumer", "Empty"), "alone": ("", "Empty")}


class TestDelete:
    def test_a_group_with_members_is_refused(self, broker: DirectBroker) -> None:
        member_id = stable_member(broker)
        assert delete(broker) == ErrorCode.NON_EMPTY_GROUP
        broker.pass_time(SESSION_MS)
        commit(broker, 3)
        assert delete(broker) == ErrorCode.NONE
        assert listed(broker) == {}
        assert committed(broker) == {}
        assert heartbeat(broker, member_id) == ErrorCode.UNKNOWN_MEMBER_ID
        broker.restart()
        assert listed(broker) == {}
        assert delete(broker) == ErrorCode.GROUP_ID_NOT_FOUND

    def test_a_group_with_offsets_only(self, broker: DirectBroker) -> None:
        commit(broker, 3)
        assert delete(broker) == ErrorCode.NONE
        assert committed(broker) == {}

    def test_more_groups_than_fit_into_one_batch(self) -> None:
        broker = started({**CONFIG, "message.max.bytes": 60_000})
        broker.create_topic("wide", partitions=4000)
        for start in range(0, 4000, 1000):
            positions = tuple(
                OffsetCommitRequestPartition(partition_index=number, committed_offset=1)
                for number in range(start, start + 1000)
            )
            topic = OffsetCommitRequestTopic(name="wide", partitions=positions)
            broker.call(OffsetCommitRequest(group_id="g", topics=(topic,)), version=9)
        assert commit(broker, 2, topic="wide", partitions=4000) == ErrorCode.INVALID_COMMIT_OFFSET_SIZE
        assert committed(broker) == {("wide", number): 1 for number in range(4000)}
        assert delete(broker) == ErrorCode.NONE
        assert committed(broker) == {}

    def test_offsets(self, broker: DirectBroker) -> None:
        assert delete_offsets(broker).error_code == ErrorCode.GROUP_ID_NOT_FOUND
        broker.create_topic("unread")
        commit(broker, 1, topic="unread")
        commit(broker, 2)
        stable_member(broker)

        def code(topic: str, partition: int = 0) -> ErrorCode:
            answer = delete_offsets(broker, topic, partition)
            assert answer.error_code == ErrorCode.NONE
            result: ErrorCode = answer.topics[0].partitions[0].error_code
            return result

        assert code("t") == ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
        assert code("unread") == code("unread") == ErrorCode.NONE
        assert code("missing") == code("t", 2) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert committed(broker) == {("t", 0): 2}
        broker.pass_time(SESSION_MS)
        assert code("t") == ErrorCode.NONE
        assert committed(broker) == {}

    def test_offsets_of_a_group_of_another_type(self, broker: DirectBroker) -> None:
        stable = broker.call(join_request(instance="i", protocol_type="connect"))
        assert stable.error_code == ErrorCode.NONE
        assert delete_offsets(broker).error_code == ErrorCode.NON_EMPTY_GROUP


class TestCoordinatorFailure:
    def test_waiting_members_get_a_response_at_once(self, broker: DirectBroker) -> None:
        leader = stable_member(broker, instance="leader")
        joining, sent = parked(broker, join_request(instance="new"))
        lose_leadership(broker)
        assert broker.answer(sent, connection=joining).error_code == ErrorCode.NOT_COORDINATOR
        assert heartbeat(broker, leader) == ErrorCode.NONE

        joining, sent = parked(broker, join_request(instance="follower"))
        broker.call(join_request(leader, instance="leader"))
        follower = broker.answer(sent, connection=joining).member_id
        syncing, sent = parked(broker, sync_request(follower, 2))
        lose_leadership(broker)
        assert broker.answer(sent, connection=syncing).error_code == ErrorCode.NOT_COORDINATOR

    def test_a_coordinator_that_is_elected_again_reloads(self, broker: DirectBroker) -> None:
        member_id = stable_member(broker)
        joining, sent = parked(broker, join_request(instance="new"))
        topic = broker.broker.image.topics["__consumer_offsets"]
        number = coordinator_partition("g", PARTITIONS)
        epoch = LeaderEpoch(topic.partitions[number].leader_epoch + 1)
        elected = LeaderChanged(topic.topic_id, number, leader=broker.broker_id, leader_epoch=epoch)
        broker.broker.image.replay(elected)
        broker.broker.table.metadata_changed(elected, broker.now())
        assert broker.answer(sent, connection=joining).error_code == ErrorCode.NOT_COORDINATOR
        assert heartbeat(broker, member_id) == ErrorCode.NONE
        assert commit(broker, 1, member_id=member_id, generation_id_or_member_epoch=1) == ErrorCode.NONE

    def test_a_group_continues_under_a_new_leader_epoch(self, broker: DirectBroker) -> None:
        member_id = stable_member(broker)
        lose_leadership(broker)
        assert heartbeat(broker, member_id) == ErrorCode.NONE
        assert commit(broker, 7, member_id=member_id, generation_id_or_member_epoch=1) == ErrorCode.NONE

    @pytest.mark.parametrize("clean", [True, False])
    def test_a_restart_causes_no_rebalance_and_restarts_sessions(self, broker: DirectBroker, clean: bool) -> None:
        member_id = stable_member(broker)
        assert commit(broker, 7, member_id=member_id, generation_id_or_member_epoch=1) == ErrorCode.NONE
        broker.pass_time(SESSION_MS - 1)
        broker.restart(clean=clean)
        assert heartbeat(broker, member_id) == ErrorCode.NONE
        assert broker.call(sync_request(member_id, 1)).assignment == b"part"
        assert committed(broker) == {("t", 0): 7}
        broker.pass_time(SESSION_MS)
        assert heartbeat(broker, member_id) == ErrorCode.UNKNOWN_MEMBER_ID

    def test_no_state_is_left_after_the_partition_moves(self, broker: DirectBroker) -> None:
        stable_member(broker)
        connection, sent = parked(broker, join_request(instance="new"))
        broker.cluster.delete_topic("__consumer_offsets")
        assert broker.answer(sent, connection=connection).error_code == ErrorCode.NOT_COORDINATOR
        assert heartbeat(broker, "m") == ErrorCode.COORDINATOR_NOT_AVAILABLE


class TestClosedConnections:
    def test_a_member_remains_until_its_timeout(self, broker: DirectBroker) -> None:
        """The answer goes nowhere; who was there is found out by its silence."""
        leader = stable_member(broker)
        connection, _ = parked(broker, join_request(instance="gone"))
        broker.broker.connection_closed(connection, broker.now())
        assert heartbeat(broker, leader) == ErrorCode.REBALANCE_IN_PROGRESS
        joined = broker.call(join_request(leader))
        assert len(joined.members) == 2
        broker.call(sync_request(leader, 2, {}))
        broker.pass_time(SESSION_MS // 2)
        assert heartbeat(broker, leader, 2) == ErrorCode.NONE
        broker.pass_time(SESSION_MS // 2)
        assert heartbeat(broker, leader, 2) == ErrorCode.REBALANCE_IN_PROGRESS
        assert len(broker.call(join_request(leader)).members) == 1

    def test_a_member_repeats_its_request_on_another_connection(self, broker: DirectBroker) -> None:
        leader = stable_member(broker)
        new = broker.call(join_request()).member_id
        first, first_sent = parked(broker, join_request(new))
        second, second_sent = parked(broker, join_request(new))
        assert broker.answer(first_sent, connection=first).error_code == ErrorCode.REBALANCE_IN_PROGRESS
        broker.call(join_request(leader))
        assert broker.answer(second_sent, connection=second).generation_id == 2
        assert not first.in_work


def fails_once(load_some: Callable[[Any], bool]) -> Callable[[Any], bool]:
    failed: list[bool] = []

    def load(log: Any) -> bool:
        if not failed and log.log.log_end_offset:
            failed.append(True)
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR)
        return load_some(log)

    return load


class TestTheLog:
    def test_a_failed_disk_affects_only_its_own_shard(self, broker: DirectBroker) -> None:
        member_id = stable_member(broker)
        broker.disk.fail_next("pwrite", errno.EIO)
        codes = [
            commit(broker, 5, member_id=member_id, generation_id_or_member_epoch=1),
            broker.call(LeaveGroupRequest(group_id="g", members=(MemberIdentity(member_id=member_id),)))
            .members[0]
            .error_code,
        ]
        assert codes == [ErrorCode.NOT_COORDINATOR, ErrorCode.NONE]
        joined = broker.call(join_request(instance="i"))
        assert broker.call(sync_request(joined.member_id, joined.generation_id)).error_code == ErrorCode.NOT_COORDINATOR
        assert delete(broker) == ErrorCode.NON_EMPTY_GROUP

    def test_an_unreadable_shard_does_not_hide_others(self, broker: DirectBroker) -> None:
        commit(broker, 1)
        commit(broker, 1, group="h")
        assert coordinator_partition("g", PARTITIONS) != coordinator_partition("h", PARTITIONS)
        broker.restart()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(EventLog, "load_some", fails_once(EventLog.load_some))
            broker.restart()
            assert len(listed(broker)) == 1
        for group in ("g", "h"):  # the next request loads it again
            assert commit(broker, 2, group=group) == ErrorCode.NONE
        assert len(listed(broker)) == 2

    def test_an_assignment_larger_than_max_message_bytes(self) -> None:
        broker = started({**CONFIG, "message.max.bytes": 5000})
        joined = broker.call(join_request(instance="i"))
        synced = broker.call(sync_request(joined.member_id, 1, {joined.member_id: b"x" * 6000}))
        assert synced.error_code == ErrorCode.UNKNOWN_SERVER_ERROR
        assert heartbeat(broker, joined.member_id) == ErrorCode.REBALANCE_IN_PROGRESS

    def test_consumers_of_the_topic_read_generations_and_commits(self, broker: DirectBroker) -> None:
        offsets = TopicPartition("__consumer_offsets", coordinator_partition("g", PARTITIONS))

        def read(offset: int) -> tuple[AcceptedConnection, tuple[int, int]]:
            wanted = FetchPartition(partition=offsets.partition, fetch_offset=offset, partition_max_bytes=1 << 20)
            topics = [FetchTopic(name=offsets.topic, partitions=[wanted])]
            request = FetchRequest(max_wait_ms=60_000, min_bytes=1, max_bytes=1 << 20, topics=topics)
            connection = broker.connect()
            sent = broker.send(request, version=12, connection=connection)
            assert broker.answer(sent, connection=connection) is None
            return connection, sent

        connection, sent = read(0)
        stable_member(broker)
        assert broker.answer(sent, connection=connection) is not None
        connection, sent = read(1)
        broker.pass_time(SESSION_MS)
        assert broker.answer(sent, connection=connection) is not None


class TestExpiration:
    def test_of_an_empty_group(self) -> None:
        broker = started(TWO_MINUTES)
        member_id = stable_member(broker)
        assert commit(broker, 7, member_id=member_id, generation_id_or_member_epoch=1) == ErrorCode.NONE
        for _ in range(30):
            broker.pass_time(SESSION_MS - 1)
            assert heartbeat(broker, member_id) == ErrorCode.NONE
        broker.pass_time(SESSION_MS)
        assert listed(broker) == {"g": ("consumer", "Empty")}
        broker.pass_time(2 * MINUTE_MS - 2000)
        assert committed(broker) == {("t", 0): 7}
        broker.restart()
        assert listed(broker) == {"g": ("consumer", "Empty")}
        broker.pass_time(3000)
        assert committed(broker) == {}
        assert listed(broker) == {}
        broker.restart()
        assert committed(broker) == {}
        assert listed(broker) == {}

    def test_of_a_group_without_members_that_commits(self) -> None:
        broker = started(TWO_MINUTES)
        broker.create_topic("other")
        commit(broker, 1)
        broker.pass_time(MINUTE_MS)
        commit(broker, 2, topic="other")
        broker.pass_time(MINUTE_MS + 1000)
        assert committed(broker) == {("other", 0): 2}
        broker.pass_time(MINUTE_MS)
        assert listed(broker) == {}

    def test_with_a_retention_that_the_client_asks_for(self) -> None:
        broker = started(TWO_MINUTES)
        for number, retention_ms in ((0, 60_000), (1, 240_000)):
            partition = OffsetCommitRequestPartition(partition_index=number, committed_offset=1)
            request = OffsetCommitRequest(
                group_id="g",
                retention_time_ms=retention_ms,
                topics=(OffsetCommitRequestTopic(name="t", partitions=(partition,)),),
            )
            assert broker.call(request, version=2).topics[0].partitions[0].error_code == ErrorCode.NONE
        broker.pass_time(MINUTE_MS + 1000)
        assert committed(broker) == {("t", 1): 1}
        broker.restart()
        broker.pass_time(2 * MINUTE_MS)
        assert committed(broker) == {("t", 1): 1}
        broker.pass_time(MINUTE_MS + 1000)
        assert committed(broker) == {}

    def test_of_a_topic_without_subscription(self) -> None:
        broker = started(TWO_MINUTES)
        broker.create_topic("unread")
        commit(broker, 1)
        commit(broker, 1, topic="unread")
        member_id = stable_member(broker)
        for _ in range(15):
            broker.pass_time(SESSION_MS - 1)
            heartbeat(broker, member_id)
        assert committed(broker) == {("t", 0): 1}

    def test_a_group_without_offsets_is_deleted(self) -> None:
        broker = started(TWO_MINUTES)
        stable_member(broker)
        broker.pass_time(SESSION_MS + 1000)
        assert listed(broker) == {}

    def test_pending_member_ids_keep_a_group(self) -> None:
        broker = started(TWO_MINUTES)
        given = broker.call(join_request()).member_id
        broker.pass_time(5000)
        assert broker.call(join_request(given)).error_code == ErrorCode.NONE

    def test_a_failed_log_keeps_its_offsets_and_does_not_affect_others(self) -> None:
        broker = started(TWO_MINUTES)
        broker.pass_time(500)
        commit(broker, 1)
        commit(broker, 1, group="h")
        broker.pass_time(2 * MINUTE_MS - 100)
        broker.disk.fail_next("pwrite", errno.EIO)
        broker.pass_time(2000)
        assert sorted([*committed(broker), *committed(broker, "h")]) == [("t", 0)]


class TestHostileClients:
    def test_the_longest_client_id(self, broker: DirectBroker) -> None:
        for version in (0, 5, 9):
            request = join_request(group_id=f"g{version}", instance=f"i{version}" if version >= 5 else None)
            buffers = encode_request(request, api_version=version, correlation_id=1, client_id="c" * 32_767)
            broker.send_bytes(b"".join(frame(buffers)))
            joined = broker.answer((11, version))
            assert joined.error_code == ErrorCode.NONE
            plan = SyncGroupRequest(
                group_id=f"g{version}",
                generation_id=1,
                member_id=joined.member_id,
                protocol_type="consumer",
                protocol_name="range",
            )
            assert broker.call(plan).error_code == ErrorCode.NONE
            assert described(broker, f"g{version}", version=0).members[0].client_id == "c" * 32_767

    def test_a_client_without_an_id(self, broker: DirectBroker) -> None:
        buffers = encode_request(join_request(instance="i"), api_version=9, correlation_id=1, client_id=None)
        broker.send_bytes(b"".join(frame(buffers)))
        assert broker.answer((11, 9)).error_code == ErrorCode.NONE
        assert described(broker).members[0].client_id == ""

    @pytest.mark.parametrize(
        "request_",
        [
            join_request(group_id="x" * 40_000),
            join_request(instance="x" * 40_000),
            join_request(protocol_type="x" * 40_000),
        ],
        ids=["group", "instance", "protocol type"],
    )
    def test_names_that_only_new_versions_could_carry(self, broker: DirectBroker, request_: JoinGroupRequest) -> None:
        """An answer in an old version, for another client, must be able to name whatever is kept."""
        connection = broker.connect()
        broker.send(request_, connection=connection)
        assert connection.closing
        assert "longer than a string may be" in (connection.close_reason or "")
        assert listed(broker) == {}

    def test_metadata_limit_above_the_longest_record_field(self) -> None:
        broker = started({**CONFIG, "offset.metadata.max.bytes": 1_000_000})
        assert commit(broker, 1, note="x" * 32_767) == ErrorCode.NONE

    def test_long_lists(self, broker: DirectBroker) -> None:
        member_id = stable_member(broker)
        leaving = tuple(MemberIdentity(member_id=f"m{number}") for number in range(50_000))
        assert len(broker.call(LeaveGroupRequest(group_id="g", members=leaving)).members) == 50_000
        plan = {f"m{number}": b"" for number in range(50_000)}
        assert broker.call(sync_request(member_id, 1, plan)).error_code == ErrorCode.NONE
        assert len(broker.call(DeleteGroupsRequest(groups_names=("x",) * 20_000)).results) == 20_000

    def test_large_metadata(self, broker: DirectBroker) -> None:
        joined = broker.call(join_request(instance="i", metadata=b"\xff" * (5 << 20)))
        assert len(joined.members[0].metadata) == 5 << 20
        assert broker.call(sync_request(joined.member_id, 1)).error_code == ErrorCode.UNKNOWN_SERVER_ERROR

    def test_invalid_utf8_closes_the_connection(self, broker: DirectBroker) -> None:
        connection = broker.connect()
        body = b"\x00\x0c\x00\x00\x00\x00\x00\x01\xff\xff" + b"\x00\x01g" + b"\x00\x00\x00\x01" + b"\x00\x02\xff\xfe"
        broker.send_bytes(len(body).to_bytes(4, "big") + body, connection=connection)
        assert connection.closing
        assert heartbeat(broker, "m") == ErrorCode.UNKNOWN_MEMBER_ID


def test_deleting_a_topic_deletes_its_offsets_and_keeps_the_members(broker: DirectBroker) -> None:
    member_id = stable_member(broker)
    commit(broker, 1, member_id=member_id, generation_id_or_member_epoch=1)
    broker.call(DeleteTopicsRequest(topics=(DeleteTopicState(name="t"),)))
    assert committed(broker) == {}
    assert heartbeat(broker, member_id) == ErrorCode.NONE
