"""Controllers join and leave the quorum of production controllers, one at a time (KIP-853)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest

from raylog.controller.controller import Controller
from raylog.controller.handlers import (
    add_raft_voter,
    begin_quorum_epoch,
    describe_quorum,
    fetch,
    remove_raft_voter,
    update_features,
    update_raft_voter,
    vote,
)
from raylog.controller.quorum.events import EpochSeen
from raylog.core.errors import ErrorCode, InvariantViolation, KafkaError
from raylog.core.ids import NO_BROKER_ID, NO_DIRECTORY_ID, BrokerId, LeaderEpoch
from raylog.metadata.features import KRAFT_FEATURE
from raylog.metadata.records import voters_in
from raylog.metadata.topic_names import METADATA_PARTITION, METADATA_TOPIC_ID
from raylog.protocol import registry
from raylog.protocol.fetch import FetchPartition, FetchRequest, FetchTopic
from raylog.protocol.messages.add_raft_voter import AddRaftVoterRequest, Listener
from raylog.protocol.messages.begin_quorum_epoch import BeginQuorumEpochRequest
from raylog.protocol.messages.begin_quorum_epoch import RequestPartitionData as BeginPartition
from raylog.protocol.messages.begin_quorum_epoch import RequestTopicData as BeginTopic
from raylog.protocol.messages.describe_quorum import DescribeQuorumRequest, RequestPartitionData, RequestTopicData
from raylog.protocol.messages.remove_raft_voter import RemoveRaftVoterRequest
from raylog.protocol.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from raylog.protocol.messages.update_raft_voter import KRaftVersionFeature, UpdateRaftVoterRequest
from raylog.protocol.messages.update_raft_voter import Listener as ReportedListener
from raylog.protocol.messages.vote import RequestPartitionData as VotePartition
from raylog.protocol.messages.vote import RequestTopicData as VoteTopic
from raylog.protocol.messages.vote import VoteRequest
from tests.support.direct_quorum import CLUSTER_ID, DirectQuorum
from tests.support.exchanges import Answers, exchange_on

HANDLERS: dict[type, tuple[int, Any]] = {
    AddRaftVoterRequest: (registry.ADD_RAFT_VOTER, add_raft_voter.handle),
    RemoveRaftVoterRequest: (registry.REMOVE_RAFT_VOTER, remove_raft_voter.handle),
    UpdateRaftVoterRequest: (registry.UPDATE_RAFT_VOTER, update_raft_voter.handle),
    UpdateFeaturesRequest: (registry.UPDATE_FEATURES, update_features.handle),
    DescribeQuorumRequest: (registry.DESCRIBE_QUORUM, describe_quorum.handle),
    VoteRequest: (registry.VOTE, vote.handle),
    BeginQuorumEpochRequest: (registry.BEGIN_QUORUM_EPOCH, begin_quorum_epoch.handle),
    FetchRequest: (registry.FETCH, fetch.handle),
}
LISTENERS = (Listener(name="CONTROLLER", host="h", port=9093),)
REPORTED = (ReportedListener(name="CONTROLLER", host="h", port=9093),)
SMALL_SNAPSHOTS = {"metadata.log.max.record.bytes.between.snapshots": "2000"}


def call(quorum: DirectQuorum, controller: Controller, request: Any) -> Any:
    """The response of this controller; messages between controllers are then delivered."""
    key, handle = HANDLERS[type(request)]
    connection = controller.connection_opened(quorum.listener, "127.0.0.1", quorum.now())
    assert connection is not None
    version = 2 if key == registry.UPDATE_FEATURES else 0
    exchange = exchange_on(controller, connection, key, version, quorum.now())
    response = handle(controller, Answers(exchange, print), request)
    controller.run(quorum.now())
    quorum.settle()
    return response


def upgraded(count: int = 1, config: dict[str, str] | None = None) -> DirectQuorum:
    quorum = DirectQuorum(config, count=count)
    quorum.start_all()
    assert upgrade(quorum).error_code is ErrorCode.NONE
    return quorum


def upgrade(quorum: DirectQuorum, level: int = 1, upgrade_type: int = 1) -> Any:
    key = FeatureUpdateKey(feature=KRAFT_FEATURE, max_version_level=level, upgrade_type=upgrade_type)
    return call(quorum, quorum.active, UpdateFeaturesRequest(feature_updates=(key,)))


def add(quorum: DirectQuorum, number: int, *, directory_id: UUID | None = None) -> ErrorCode:
    if directory_id is None:
        controller = quorum.controllers[number]
        assert controller is not None
        directory_id = controller.directory_id
    request = AddRaftVoterRequest(
        cluster_id=CLUSTER_ID, voter_id=quorum.id_of(number), voter_directory_id=directory_id, listeners=LISTENERS
    )
    code: ErrorCode = call(quorum, quorum.active, request).error_code
    return code


def remove(quorum: DirectQuorum, number: int, *, directory_id: UUID | None = None) -> ErrorCode:
    voter = quorum.active.quorum.voters.get(quorum.id_of(number))
    directory = directory_id or (voter.directory_id if voter else quorum.new_id())
    request = RemoveRaftVoterRequest(voter_id=quorum.id_of(number), voter_directory_id=directory)
    code: ErrorCode = call(quorum, quorum.active, request).error_code
    return code


def joined(quorum: DirectQuorum) -> int:
    """Start a controller, let it catch up and add it; its number."""
    number = quorum.join()
    quorum.pass_time(1500)
    assert add(quorum, number) is ErrorCode.NONE
    quorum.pass_time(500)
    return number


def check_same(quorum: DirectQuorum, numbers: set[int]) -> None:
    """All running controllers have the same log and these voters."""
    quorum.pass_time(3000)
    active = quorum.active
    assert {each.metadata_log.flushed_end for each in quorum.running} == {active.metadata_log.flushed_end}
    assert {each.quorum.voters for each in quorum.running} == {active.quorum.voters}
    assert set(active.quorum.voters.ids) == {quorum.id_of(number) for number in numbers}
    assert {frozenset(each.image.topics) for each in quorum.running} == {frozenset(active.image.topics)}
    assert {each.image.voters for each in quorum.running} == {active.quorum.voters}


class TestUpgrade:
    def test_the_voters_are_in_the_log_with_their_directories(self) -> None:
        quorum = upgraded(3)
        check_same(quorum, {0, 1, 2})
        for controller in quorum.running:
            voter = controller.quorum.voters.get(controller.quorum.node_id)
            assert voter is not None
            assert voter.directory_id == controller.directory_id
            assert voter.endpoints, "each has reported its listeners"
            assert controller.image.feature_level(KRAFT_FEATURE) == 1

    def test_it_is_refused_while_a_voter_is_unknown_and_cannot_be_undone(self) -> None:
        quorum = DirectQuorum()
        quorum.start(0)
        quorum.start(1)
        quorum.pass_time(3000)
        assert upgrade(quorum).error_code is ErrorCode.INVALID_UPDATE_VERSION
        quorum.start(2)
        quorum.pass_time(3000)
        assert upgrade(quorum, level=2).error_code is ErrorCode.INVALID_UPDATE_VERSION
        assert upgrade(quorum).error_code is ErrorCode.NONE
        assert upgrade(quorum).error_code is ErrorCode.NONE, "it is there already"
        for downgrade in (2, 3):
            assert upgrade(quorum, level=0, upgrade_type=downgrade).error_code is ErrorCode.INVALID_UPDATE_VERSION
        check_same(quorum, {0, 1, 2})

    def test_before_it_nothing_can_be_changed(self) -> None:
        quorum = DirectQuorum(count=1)
        quorum.start_all()
        number = quorum.join()
        quorum.pass_time(2000)
        assert add(quorum, number) is ErrorCode.UNSUPPORTED_VERSION
        assert remove(quorum, 0) is ErrorCode.UNSUPPORTED_VERSION
        assert set(quorum.active.quorum.voters.ids) == {1000}


class TestChanges:
    def test_from_one_to_three_to_five_and_back(self) -> None:
        quorum = upgraded(1)
        for number in range(4):
            quorum.create_topic(quorum.active, f"before-{number}")
            assert joined(quorum) == number + 1
        check_same(quorum, {0, 1, 2, 3, 4})
        quorum.kill(quorum.number_of(quorum.active))
        quorum.pass_time(3000)
        down = next(number for number, each in enumerate(quorum.controllers) if each is None)
        quorum.create_topic(quorum.active, "with four")
        for number in [down, (down + 1) % 5]:
            assert remove(quorum, number) is ErrorCode.NONE
            quorum.pass_time(3000)
        check_same(quorum, {0, 1, 2, 3, 4} - {down, (down + 1) % 5})
        assert "with four" in quorum.active.image.topics

    def test_two_of_three_may_be_lost_after_the_others_have_replaced_them(self) -> None:
        quorum = upgraded(3)
        fresh = [joined(quorum) for _ in range(2)]
        for number in (0, 1):
            assert remove(quorum, number) is ErrorCode.NONE
            quorum.pass_time(3000)
        quorum.create_topic(quorum.active, "t")
        quorum.settle()
        for number in (0, 1):
            quorum.kill(number)
        quorum.pass_time(5000)
        quorum.create_topic(quorum.active, "later")
        check_same(quorum, {2, *fresh})

    def test_the_leader_removes_itself_after_its_response(self) -> None:
        quorum = upgraded(3)
        active = quorum.active
        number, epoch = quorum.number_of(active), active.leader_epoch
        quorum.create_topic(active, "t")
        left: list[object] = []
        request = RemoveRaftVoterRequest(voter_id=active.quorum.node_id, voter_directory_id=active.directory_id)
        connection = active.connection_opened(quorum.listener, "127.0.0.1", quorum.now())
        assert connection is not None
        exchange = exchange_on(active, connection, registry.REMOVE_RAFT_VOTER, 0, quorum.now())
        response = remove_raft_voter.handle(active, exchange, request)
        assert response.error_code is ErrorCode.NONE
        point = active.commit_point()
        assert point is not None
        active.commits.wait((point,), deadline_ms=None, done=lambda codes: left.extend(codes))
        active.run(quorum.now())
        quorum.settle()
        assert left == [ErrorCode.NONE], "the response is sent before it resigns"
        quorum.pass_time(100)
        assert not active.is_active
        assert quorum.active.leader_epoch > epoch
        check_same(quorum, {0, 1, 2} - {number})
        quorum.pass_time(20_000)
        assert quorum.active is not active

    def test_a_removed_controller_is_an_observer_and_can_be_added_again(self) -> None:
        quorum = upgraded(3)
        number = next(each for each in range(3) if quorum.controllers[each] is not quorum.active)
        assert remove(quorum, number) is ErrorCode.NONE
        check_same(quorum, {0, 1, 2} - {number})
        assert add(quorum, number) is ErrorCode.NONE
        check_same(quorum, {0, 1, 2})

    def test_a_controller_that_lost_its_disk_is_replaced(self) -> None:
        quorum = upgraded(3)
        number = next(each for each in range(3) if quorum.controllers[each] is not quorum.active)
        quorum.replace_disk(number)
        quorum.pass_time(3000)
        assert add(quorum, number) is ErrorCode.DUPLICATE_VOTER, "its old directory is a voter still"
        controller = quorum.controllers[number]
        assert controller is not None
        assert not controller.quorum.is_voter
        assert remove(quorum, number) is ErrorCode.NONE
        quorum.pass_time(1000)
        assert add(quorum, number) is ErrorCode.NONE
        check_same(quorum, {0, 1, 2})

    def test_a_snapshot_holds_the_voters(self) -> None:
        quorum = upgraded(1, SMALL_SNAPSHOTS)
        joined(quorum)
        for number in range(60):
            quorum.create_topic(quorum.active, f"topic-{number}")
            quorum.pass_time(50)
        log = quorum.active.metadata_log
        batches = log.log.read(log.start_offset, max_bytes=1 << 20, upto=log.end_offset).records
        assert log.start_offset > 0
        assert not list(voters_in(batches)), "the record itself is deleted"
        for number in (0, 1):
            quorum.kill(number)
        for number in (0, 1):
            quorum.start(number)
        check_same(quorum, {0, 1})
        third = quorum.join()
        check_same(quorum, {0, 1})  # it has them from the snapshot that it fetched
        assert add(quorum, third) is ErrorCode.NONE
        check_same(quorum, {0, 1, third})

    def test_a_change_that_is_truncated_is_undone(self) -> None:
        quorum = upgraded(3)
        fourth = quorum.join()
        quorum.pass_time(1500)
        active = quorum.active
        quorum.cut_off.add(quorum.number_of(active))
        assert add(quorum, fourth) is ErrorCode.NONE  # decided, and never committed
        assert quorum.id_of(fourth) in active.quorum.voters
        quorum.pass_time(8000)
        quorum.create_topic(quorum.active, "t")
        assert quorum.active is not active
        assert quorum.id_of(fourth) in active.quorum.voters, "it applies until it is truncated"
        quorum.cut_off.clear()
        check_same(quorum, {0, 1, 2})


class TestRefusals:
    def test_a_voter_that_has_not_caught_up(self) -> None:
        quorum = upgraded(1)
        assert add(quorum, 1, directory_id=quorum.new_id()) is ErrorCode.REQUEST_TIMED_OUT, "it has never fetched"
        number = quorum.join()
        quorum.pass_time(1000)
        quorum.cut_off.add(number)
        quorum.pass_time(5000)
        assert add(quorum, number) is ErrorCode.REQUEST_TIMED_OUT, "it does not fetch any more"
        quorum.cut_off.clear()
        quorum.pass_time(5000)
        assert add(quorum, number, directory_id=quorum.new_id()) is ErrorCode.REQUEST_TIMED_OUT
        assert add(quorum, number) is ErrorCode.NONE

    def test_a_change_while_another_one_is_not_committed(self) -> None:
        quorum = upgraded(1)
        first, second = quorum.join(), quorum.join()
        quorum.pass_time(1000)
        quorum.cut_off.add(first)
        assert add(quorum, first) is ErrorCode.NONE  # decided; its response waits for the commit
        assert not quorum.active.all_committed
        assert add(quorum, second) is ErrorCode.REQUEST_TIMED_OUT
        assert remove(quorum, first) is ErrorCode.REQUEST_TIMED_OUT
        quorum.cut_off.clear()
        quorum.pass_time(3000)
        assert add(quorum, second) is ErrorCode.NONE
        check_same(quorum, {0, first, second})

    def test_voters_that_are_not_there_and_the_last_one(self) -> None:
        quorum = upgraded(1)
        assert remove(quorum, 5) is ErrorCode.VOTER_NOT_FOUND
        assert remove(quorum, 0, directory_id=quorum.new_id()) is ErrorCode.VOTER_NOT_FOUND
        assert remove(quorum, 0) is ErrorCode.INVALID_REQUEST
        assert add(quorum, 0) is ErrorCode.DUPLICATE_VOTER

    @pytest.mark.parametrize(
        "changes",
        [
            {"voter_id": -1},
            {"voter_id": 0},
            {"voter_id": 2000},
            {"voter_id": (1 << 31) - 1},
            {"voter_directory_id": NO_DIRECTORY_ID},
            {"listeners": ()},
            {"listeners": LISTENERS * 2},
            {"listeners": tuple(Listener(name=f"L{each}", host="h", port=1) for each in range(1000))},
            {"listeners": (Listener(name="CONTROLLER", host="", port=1),)},
            {"listeners": (Listener(name="CONTROLLER", host="h", port=0),)},
        ],
    )
    def test_absurd_voters(self, changes: dict[str, Any]) -> None:
        quorum = upgraded(1)
        usual = {"voter_id": 1001, "voter_directory_id": quorum.new_id(), "listeners": LISTENERS}
        response = call(quorum, quorum.active, AddRaftVoterRequest(**{**usual, **changes}))
        assert response.error_code is ErrorCode.INVALID_REQUEST
        assert set(quorum.active.quorum.voters.ids) == {1000}

    def test_another_cluster(self) -> None:
        quorum = upgraded(1)
        for request in (
            AddRaftVoterRequest(cluster_id="other", voter_id=1001, listeners=LISTENERS),
            RemoveRaftVoterRequest(cluster_id="other", voter_id=1000),
            UpdateRaftVoterRequest(cluster_id="other", voter_id=1000, listeners=REPORTED),
        ):
            assert call(quorum, quorum.active, request).error_code is ErrorCode.INCONSISTENT_CLUSTER_ID

    def test_a_standby_changes_nothing(self) -> None:
        quorum = upgraded(3)
        active = quorum.active
        standby = next(each for each in quorum.running if each is not active)
        own = standby.as_voter
        update = UpdateRaftVoterRequest(voter_id=own.voter_id, voter_directory_id=own.directory_id, listeners=REPORTED)
        answer = call(quorum, standby, update)
        assert (answer.error_code, answer.current_leader.leader_id) == (
            ErrorCode.NOT_LEADER_OR_FOLLOWER,
            active.quorum.node_id,
        )
        removal = RemoveRaftVoterRequest(voter_id=own.voter_id, voter_directory_id=own.directory_id)
        assert call(quorum, standby, removal).error_code in (ErrorCode.NOT_CONTROLLER, ErrorCode.REQUEST_TIMED_OUT)


class TestUpdate:
    def test_listeners_that_have_changed_are_reported(self) -> None:
        quorum = upgraded(3)
        for controller in quorum.running:
            controller.endpoints = {
                name: replace(each, port=7000 + controller.identity.node_id)
                for name, each in controller.endpoints.items()
            }
        quorum.pass_time(6000)
        for controller in quorum.running:
            known = {each.voter_id: each.endpoints[0][2] for each in controller.quorum.voters}
            assert known == {1000: 8000, 1001: 8001, 1002: 8002}

    def test_a_leader_of_another_epoch_and_another_directory_are_refused(self) -> None:
        quorum = upgraded(1)
        own, epoch = quorum.active.as_voter, quorum.active.leader_epoch
        supported = KRaftVersionFeature(min_supported_version=0, max_supported_version=1)

        def update(**changes: Any) -> ErrorCode:
            usual = {
                "current_leader_epoch": epoch,
                "voter_id": own.voter_id,
                "voter_directory_id": own.directory_id,
                "listeners": REPORTED,
                "k_raft_version_feature": supported,
            }
            code: ErrorCode = call(quorum, quorum.active, UpdateRaftVoterRequest(**{**usual, **changes})).error_code
            return code

        assert update(current_leader_epoch=epoch - 1) is ErrorCode.FENCED_LEADER_EPOCH
        assert update(current_leader_epoch=epoch + 1) is ErrorCode.UNKNOWN_LEADER_EPOCH
        assert update(voter_directory_id=quorum.new_id()) is ErrorCode.VOTER_NOT_FOUND
        assert update(voter_id=1001) is ErrorCode.VOTER_NOT_FOUND
        assert update(listeners=()) is ErrorCode.INVALID_REQUEST
        assert update(k_raft_version_feature=KRaftVersionFeature()) is ErrorCode.INVALID_REQUEST
        assert update() is ErrorCode.NONE


class TestVoterKeys:
    def test_requests_to_another_directory_of_this_controller_are_refused(self) -> None:
        quorum = upgraded(3)
        standby = next(each for each in quorum.running if not each.is_active)
        other = next(each for each in quorum.running if each is not standby)
        for directory_id, refused in ((quorum.new_id(), True), (standby.directory_id, False)):
            asked = VotePartition(
                replica_epoch=standby.leader_epoch, replica_id=other.quorum.node_id, voter_directory_id=directory_id
            )
            topic = VoteTopic(topic_name=METADATA_PARTITION.topic, partitions=(asked,))
            request = VoteRequest(cluster_id=CLUSTER_ID, voter_id=standby.quorum.node_id, topics=(topic,))
            answer = call(quorum, standby, request).topics[0].partitions[0]
            assert (answer.error_code is ErrorCode.INVALID_VOTER_KEY) == refused
            begun = BeginPartition(
                leader_id=standby.quorum.leader_id,
                leader_epoch=standby.leader_epoch,
                voter_directory_id=directory_id,
            )
            begun_topic = BeginTopic(topic_name=METADATA_PARTITION.topic, partitions=(begun,))
            begin = BeginQuorumEpochRequest(cluster_id=CLUSTER_ID, topics=(begun_topic,))
            answer = call(quorum, standby, begin).topics[0].partitions[0]
            assert (answer.error_code is ErrorCode.INVALID_VOTER_KEY) == refused

    @pytest.mark.parametrize(
        ("changes", "code"),
        [
            ({"replica_id": -1}, ErrorCode.INVALID_REQUEST),
            ({"replica_id": -(1 << 31)}, ErrorCode.INVALID_REQUEST),
            ({"last_offset": -1}, ErrorCode.INVALID_REQUEST),
            ({"last_offset_epoch": -1}, ErrorCode.INVALID_REQUEST),
            ({"last_offset_epoch": 9}, ErrorCode.INVALID_REQUEST),
            ({"last_offset_epoch": 10, "pre_vote": True}, ErrorCode.INVALID_REQUEST),
            ({"replica_epoch": 1, "last_offset_epoch": 0}, ErrorCode.FENCED_LEADER_EPOCH),
            ({"last_offset_epoch": 9, "pre_vote": True}, ErrorCode.NONE),
            ({}, ErrorCode.NONE),
        ],
    )
    def test_an_absurd_candidate_gets_no_vote_and_the_voter_starts_again(
        self, changes: dict[str, Any], code: ErrorCode
    ) -> None:
        quorum = DirectQuorum()
        quorum.start_all()
        voter = follower_alone(quorum, in_epoch=8)
        usual = {"replica_epoch": 9, "replica_id": 1007, "last_offset_epoch": 8, "last_offset": 1000}
        topic = VoteTopic(topic_name=METADATA_PARTITION.topic, partitions=(VotePartition(**{**usual, **changes}),))
        answer = call(quorum, voter, VoteRequest(cluster_id=CLUSTER_ID, topics=(topic,))).topics[0].partitions[0]
        assert (answer.error_code, answer.vote_granted) == (code, code is ErrorCode.NONE)
        number = quorum.number_of(voter)
        quorum.kill(number)
        quorum.start(number)

    @pytest.mark.parametrize("leader_id", [-1, -5])
    def test_an_absurd_leader_is_not_followed_and_the_voter_starts_again(self, leader_id: int) -> None:
        quorum = DirectQuorum()
        quorum.start_all()
        voter = follower_alone(quorum, in_epoch=8)
        begun = BeginPartition(leader_id=leader_id, leader_epoch=9)
        topic = BeginTopic(topic_name=METADATA_PARTITION.topic, partitions=(begun,))
        response = call(quorum, voter, BeginQuorumEpochRequest(cluster_id=CLUSTER_ID, topics=(topic,)))
        assert response.topics[0].partitions[0].error_code is ErrorCode.INVALID_REQUEST
        assert voter.leader_epoch == 8
        number = quorum.number_of(voter)
        quorum.kill(number)
        quorum.start(number)


def follower_alone(quorum: DirectQuorum, *, in_epoch: int) -> Controller:
    """A follower that has seen this epoch, after the others were killed."""
    voter = next(each for each in quorum.running if not each.is_active)
    for other in [each for each in quorum.running if each is not voter]:
        quorum.kill(quorum.number_of(other))
    voter.voter.step(EpochSeen(LeaderEpoch(in_epoch), NO_BROKER_ID), quorum.now())
    return voter


def test_it_is_described_with_directories_listeners_and_observers() -> None:
    quorum = upgraded(3)
    observer = quorum.join()
    quorum.pass_time(3000)
    topic = RequestTopicData(topic_name=METADATA_PARTITION.topic, partitions=(RequestPartitionData(),))
    answer = call(quorum, quorum.active, DescribeQuorumRequest(topics=(topic,)))
    described = answer.topics[0].partitions[0]
    directories = {each.quorum.node_id: each.directory_id for each in quorum.running}
    found = {each.replica_id: each.replica_directory_id for each in described.current_voters}
    assert found == {BrokerId(1000 + number): directories[BrokerId(1000 + number)] for number in range(3)}
    [seen] = described.observers
    assert (seen.replica_id, seen.replica_directory_id) == (1000 + observer, directories[BrokerId(1000 + observer)])
    assert {node.node_id: node.listeners[0].host for node in answer.nodes} == {
        1000: "host-0",
        1001: "host-1",
        1002: "host-2",
    }


def test_a_lost_metadata_log_is_still_refused_with_its_old_directory() -> None:
    """A disk that has lost the log but kept meta.properties would be another voter under the old key."""
    quorum = upgraded(3)
    number = next(each for each in range(3) if quorum.controllers[each] is not quorum.active)
    quorum.kill(number)
    quorum.disks[number].rmtree(f"/controller/{METADATA_PARTITION}")
    with pytest.raises((KafkaError, InvariantViolation), match="has lost"):
        quorum.start(number)


def test_an_observer_with_uncommitted_records_does_not_take_them_for_committed() -> None:
    """It was a voter before; the new leader does not know the high watermark yet."""
    quorum = upgraded(3)
    active = quorum.active
    epoch = active.leader_epoch
    observer = quorum.join()
    active.quorum.epoch_start_offset = committed = active.high_watermark  # as if it had just been elected
    wanted = FetchPartition(
        partition=0,
        fetch_offset=committed + 5,
        current_leader_epoch=epoch,
        partition_max_bytes=1,
        replica_directory_id=quorum.new_id(),
    )
    request = FetchRequest(
        replica_id=quorum.id_of(observer),
        max_wait_ms=0,
        min_bytes=1,
        max_bytes=1,
        topics=[FetchTopic(topic_id=METADATA_TOPIC_ID, partitions=[wanted])],
    )
    result = call(quorum, active, request).responses[0].partitions[0]
    assert (result.error_code, result.high_watermark) == (ErrorCode.NONE, committed)
