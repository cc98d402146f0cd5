"""Streams groups: joining, epochs and fencing, moving tasks, statuses, timeouts, commits, endpoints, replay."""

from __future__ import annotations

from typing import Any

import pytest

from raylog.core.errors import ErrorCode, KafkaError
from raylog.core.ids import TopicPartition as CommittedPartition
from raylog.groupcoord.streams.configured import StatusCode
from raylog.groupcoord.streams.records import (
    MemberState,
    StreamsGroupEpochBumped,
    StreamsMemberAssigned,
    StreamsMemberJoined,
    StreamsMemberTargeted,
    StreamsRecordDeleted,
    StreamsTargetDecided,
    TopologySet,
)
from raylog.groupcoord.streams.tasks import NO_TASKS, Tasks
from raylog.protocol.messages.streams_group_heartbeat import Endpoint, EndpointToPartitions, TopicPartition
from tests.groupcoord.streams_coordinator import (
    COUNT,
    DELAY_MS,
    REBALANCE_MS,
    SESSION_MS,
    StreamsClient,
    StreamsCoordinator,
    subtopology,
    tasks,
    topology,
)

ONE = topology(subtopology("0", "in", stores=["log"]))
OWNED = {"owned": NO_TASKS}


def ready(**more: Any) -> StreamsCoordinator:
    """All topics of `ONE` exist, with two partitions."""
    return StreamsCoordinator(**{"in": 2, "log": 2, **more})


def ready_without_log(**more: Any) -> StreamsCoordinator:
    coordinator = ready(**more)
    coordinator.delete_topic("log")
    return coordinator


Partitions = tuple[tuple[str, tuple[int, ...]], ...]


def endpoint(host: str, port: int, active: Partitions, standby: Partitions) -> EndpointToPartitions:
    return EndpointToPartitions(
        user_endpoint=Endpoint(host=host, port=port),
        active_partitions=tuple(TopicPartition(topic=topic, partitions=numbers) for topic, numbers in active),
        standby_partitions=tuple(TopicPartition(topic=topic, partitions=numbers) for topic, numbers in standby),
    )


def client(coordinator: StreamsCoordinator, name: str, process: str = "", **more: Any) -> StreamsClient:
    return StreamsClient(coordinator, name, process, ONE, **more)


class TestJoining:
    def test_the_records_of_the_first_member(self) -> None:
        coordinator = ready()
        answer = coordinator.join("m", ONE, rack_id="r", client_id="c", client_host="/h", endpoint=("x", 1))
        both = Tasks(tasks("0", 0, 1))
        assert (answer.member_epoch, answer.tasks, answer.statuses) == (2, both, ())
        hashed = coordinator.group.metadata_hash
        assert coordinator.decided == [
            StreamsMemberJoined("g", "m", None, "r", "c", "/h", REBALANCE_MS, 0, "process-of-m", ("x", 1)),
            TopologySet("g", ONE),
            StreamsGroupEpochBumped("g", 2, hashed, 0, (("num.standby.replicas", "0"),)),
            StreamsMemberTargeted("g", "m", both),
            StreamsTargetDecided("g", 2),
            StreamsMemberAssigned("g", "m", 2, 0, MemberState.STABLE, both, NO_TASKS, {("0", 0): 2, ("0", 1): 2}),
        ]
        assert coordinator.group.state == "Stable"

    def test_a_heartbeat_that_changes_nothing_writes_nothing(self) -> None:
        coordinator = ready()
        coordinator.join("m", ONE)
        written = len(coordinator.log)
        assert coordinator.heartbeat("m", 2).tasks is None
        assert len(coordinator.log) == written

    def test_a_member_that_joins_again_gets_its_tasks(self) -> None:
        coordinator = ready()
        first = coordinator.join("m", ONE)
        assert coordinator.join("m", ONE).tasks == first.tasks

    def test_the_topology_must_stay(self) -> None:
        coordinator = ready()
        coordinator.join("m", ONE)
        assert coordinator.refusal("n", 0, topology=COUNT, rebalance_timeout_ms=1) == ErrorCode.INVALID_REQUEST
        newer = topology(*ONE.subtopologies, epoch=1)
        assert coordinator.refusal("n", 0, topology=newer, rebalance_timeout_ms=1) == ErrorCode.INVALID_REQUEST
        assert "n" not in coordinator.group.members

    def test_the_order_of_subtopologies_does_not_matter(self) -> None:
        coordinator = StreamsCoordinator(words=1)
        coordinator.join("m")
        assert coordinator.join("n", topology(*reversed(COUNT.subtopologies))).member_epoch > 0

    def test_an_older_topology_is_stale(self) -> None:
        coordinator = ready()
        coordinator.join("m", topology(*ONE.subtopologies, epoch=3))
        answer = coordinator.join("n", ONE)
        assert [status.code for status in answer.statuses] == [StatusCode.STALE_TOPOLOGY]
        assert coordinator.group.topology is not None
        assert coordinator.group.topology.epoch == 3

    def test_a_full_group(self) -> None:
        coordinator = ready(members_max=1)
        coordinator.join("m", ONE)
        assert coordinator.refusal("n", 0, topology=ONE, rebalance_timeout_ms=1) == ErrorCode.GROUP_MAX_SIZE_REACHED
        assert coordinator.join("m", ONE).member_epoch == 2

    @pytest.mark.parametrize(
        "wrong",
        [
            {"member_id": ""},
            {"member_id": " "},
            {"group": ""},
            {"rack_id": ""},
            {"instance_id": "i"},
            {"topology": None},
            {"rebalance_timeout_ms": -1},
            {"rebalance_timeout_ms": -2},
            {"owned": Tasks(tasks("0", 0))},
            {"owned": Tasks(warmup=tasks("0", 0))},
            {"client_tags": tuple((str(number), "x") for number in range(101))},
        ],
    )
    def test_invalid_first_heartbeats(self, wrong: dict[str, Any]) -> None:
        given = {"member_id": "m", "topology": ONE, "rebalance_timeout_ms": 1, **wrong}
        assert ready().refusal(given.pop("member_id"), 0, **given) == ErrorCode.INVALID_REQUEST

    @pytest.mark.parametrize("more", [{"member_epoch": -2}, {"member_epoch": -3}, {"topology": ONE}])
    def test_invalid_later_heartbeats(self, more: dict[str, Any]) -> None:
        coordinator = ready()
        coordinator.join("m", ONE)
        given = {"member_epoch": 2, **more}
        assert coordinator.refusal("m", **given) == ErrorCode.INVALID_REQUEST

    def test_an_append_that_fails_changes_nothing(self) -> None:
        coordinator = ready()
        coordinator.appends_fail_with = ErrorCode.NOT_ENOUGH_REPLICAS
        assert coordinator.refusal("m", 0, topology=ONE, rebalance_timeout_ms=1) == ErrorCode.NOT_ENOUGH_REPLICAS
        assert not coordinator.streams.groups
        assert coordinator.streams.next_deadline_ms() is None


class TestTopics:
    def test_missing_sources(self) -> None:
        coordinator = StreamsCoordinator()
        answer = coordinator.join("m", ONE)
        assert [status.code for status in answer.statuses] == [StatusCode.MISSING_SOURCE_TOPICS]
        assert (answer.member_epoch, answer.tasks, coordinator.group.state) == (2, NO_TASKS, "NotReady")
        coordinator.create_topic("in", 2)
        coordinator.create_topic("log", 2)
        answer = coordinator.heartbeat("m", 2, owned=NO_TASKS)
        assert (answer.member_epoch, answer.tasks, answer.statuses) == (3, Tasks(tasks("0", 0, 1)), ())
        assert coordinator.group.state == "Stable"

    def test_internal_topics_are_named_until_they_exist(self) -> None:
        coordinator = ready_without_log(creates=False)
        answer = coordinator.join("m", ONE)
        assert [(topic.name, topic.partitions) for topic in answer.missing_topics] == [("log", 2)]
        assert [status.code for status in answer.statuses] == [StatusCode.MISSING_INTERNAL_TOPICS]
        assert coordinator.heartbeat("m", 2).missing_topics == answer.missing_topics
        coordinator.create_topic("log", 2)
        assert coordinator.heartbeat("m", 2).missing_topics == ()

    def test_a_source_that_is_deleted_takes_all_tasks(self) -> None:
        coordinator = ready()
        member = client(coordinator, "m")
        coordinator.settle(member)
        coordinator.delete_topic("in")
        member.beat()
        assert member.statuses == (StatusCode.MISSING_SOURCE_TOPICS,)
        assert member.assigned == NO_TASKS
        assert coordinator.group.state == "NotReady"

    def test_a_topology_that_no_topics_fit(self) -> None:
        coordinator = StreamsCoordinator(inputs=1)
        alone = topology(subtopology("0", "inputs", reads=["mid"]))
        assert coordinator.refusal("m", 0, topology=alone, rebalance_timeout_ms=1) == ErrorCode.STREAMS_INVALID_TOPOLOGY
        assert not coordinator.streams.groups

    def test_tasks_that_do_not_exist_are_refused(self) -> None:
        coordinator = ready()
        coordinator.join("m", ONE)
        for owned in (Tasks(tasks("1", 0)), Tasks(tasks("0", 2)), Tasks(standby=tasks("0", -1))):
            assert coordinator.refusal("m", 2, owned=owned) == ErrorCode.INVALID_REQUEST

    def test_tasks_of_a_topic_that_has_fewer_partitions_now_are_revoked(self) -> None:
        coordinator = ready()
        member = client(coordinator, "m")
        coordinator.settle(member)
        for name in ("in", "log"):
            coordinator.delete_topic(name)
            coordinator.create_topic(name, 1)
        member.told = None  # it says again what it owns
        coordinator.settle(member)
        assert member.errors == []
        assert member.owned.active == tasks("0", 0)


class TestMovingTasks:
    def test_a_task_is_revoked_before_it_is_assigned(self) -> None:
        coordinator = ready()
        old, new = client(coordinator, "a"), client(coordinator, "b")
        coordinator.settle(old)
        new.beat()
        assert new.owned == NO_TASKS, "a has both tasks"
        old.beat()
        assert (old.epoch, old.assigned.active, coordinator.group.state) == (2, tasks("0", 0), "Reconciling")
        new.beat()
        assert new.owned == NO_TASKS
        old.beat()
        assert old.epoch == 2, "it has not revoked the task"
        old.revoke()
        old.beat()
        new.beat()
        assert (old.epoch, new.epoch, new.owned.active) == (3, 3, tasks("0", 1))

    def test_a_task_that_is_gone_needs_no_revocation(self) -> None:
        coordinator = ready()
        coordinator.join("a", ONE)
        coordinator.join("b", ONE)
        answer = coordinator.heartbeat("a", 2, owned=Tasks(tasks("0", 0)))
        assert answer.member_epoch == 3

    def test_standby_tasks_are_at_other_processes(self) -> None:
        coordinator = ready(standby_replicas=1)
        members = [client(coordinator, name, process) for name, process in (("a", "p"), ("b", "p"), ("c", "q"))]
        coordinator.settle(*members)
        active = {task: member.process_id for member in members for task in member.owned.active}
        standby = {task: member.process_id for member in members for task in member.owned.standby}
        assert active.keys() == standby.keys() == tasks("0", 0, 1)
        assert all(active[task] != standby[task] for task in active)

    def test_members_of_a_process_do_not_share_a_task(self) -> None:
        """A standby task becomes active in the same process: its former member must close the state first."""
        coordinator = ready(standby_replicas=1)
        first, second, third = (client(coordinator, *each) for each in (("a", "p"), ("b", "q"), ("c", "q")))
        coordinator.settle(first, second, third)
        holder = {task: member for member in (second, third) for task in member.owned.standby}
        first.leave()
        for member in (second, third, second, third):
            member.beat()
            for task in member.owned.active:
                if task in holder and holder[task] is not member:
                    assert task not in holder[task].owned.standby
            member.revoke()
        coordinator.settle(second, third)
        assert second.owned.active | third.owned.active == tasks("0", 0, 1)

    def test_without_state_there_are_no_standby_tasks(self) -> None:
        coordinator = ready_without_log(standby_replicas=1)
        plain = topology(subtopology("0", "in"))
        members = [StreamsClient(coordinator, name, "", plain) for name in "ab"]
        coordinator.settle(*members)
        assert [member.owned.standby for member in members] == [frozenset(), frozenset()]

    def test_a_changed_number_of_standby_replicas(self) -> None:
        coordinator = ready()
        members = [client(coordinator, name) for name in "ab"]
        coordinator.settle(*members)
        assert not any(member.owned.standby for member in members)
        coordinator.settings = ready(standby_replicas=1).settings
        coordinator.settle(*members)
        assert all(len(member.owned.standby) == 1 for member in members)
        assert coordinator.group.assignment_configs == (("num.standby.replicas", "1"),)

    def test_the_tasks_of_a_lost_member_move(self) -> None:
        coordinator = ready()
        lost, stays = client(coordinator, "a"), client(coordinator, "b")
        coordinator.settle(lost, stays)
        coordinator.pass_time(SESSION_MS - 1)
        stays.beat()
        coordinator.pass_time(1)
        coordinator.settle(stays)
        assert stays.owned.active == tasks("0", 0, 1)
        assert coordinator.refusal("a", lost.epoch) == ErrorCode.UNKNOWN_MEMBER_ID

    def test_a_member_that_does_not_revoke_is_removed(self) -> None:
        coordinator = ready()
        old, new = client(coordinator, "a"), client(coordinator, "b")
        coordinator.settle(old)
        new.beat()
        old.beat()
        for _ in range(0, REBALANCE_MS, 20_000):
            coordinator.pass_time(20_000)
            new.beat()
            old.beat()
        assert old.errors == [ErrorCode.UNKNOWN_MEMBER_ID]
        new.beat()
        assert new.owned.active == tasks("0", 0, 1)

    def test_a_member_that_leaves(self) -> None:
        coordinator = ready()
        leaves, stays = client(coordinator, "a"), client(coordinator, "b")
        coordinator.settle(leaves, stays)
        epoch = coordinator.group.group_epoch
        leaves.leave()
        assert coordinator.decided[:3] == [StreamsRecordDeleted("g", kind, "a") for kind in (22, 21, 19)]
        assert coordinator.group.group_epoch == epoch + 1
        coordinator.settle(stays)
        assert stays.owned.active == tasks("0", 0, 1)
        stays.leave()
        assert coordinator.group.state == "Empty"


class TestEpochs:
    def test_fencing(self) -> None:
        coordinator = ready()
        coordinator.join("m", ONE)
        coordinator.join("m", ONE, rack_id="other")
        assert coordinator.refusal("m", 4) == ErrorCode.FENCED_MEMBER_EPOCH
        assert coordinator.refusal("m", 1) == ErrorCode.FENCED_MEMBER_EPOCH
        assert coordinator.refusal("n", 3) == ErrorCode.UNKNOWN_MEMBER_ID
        assert coordinator.refusal("n", -1) == ErrorCode.UNKNOWN_MEMBER_ID
        assert coordinator.refusal("m", 3, group="other") == ErrorCode.GROUP_ID_NOT_FOUND
        assert coordinator.refusal("m", -1, group="other") == ErrorCode.GROUP_ID_NOT_FOUND

    def test_the_previous_epoch_after_a_lost_response(self) -> None:
        coordinator = ready()
        coordinator.join("m", ONE)
        coordinator.join("m", ONE, rack_id="other")
        assert coordinator.group.members["m"].member_epoch == 3
        assert coordinator.refusal("m", 2) == ErrorCode.FENCED_MEMBER_EPOCH, "it does not say what it owns"
        assert coordinator.heartbeat("m", 2, owned=Tasks(tasks("0", 0))).member_epoch == 3
        not_its_own = Tasks(tasks("0", 0), tasks("0", 1))
        assert coordinator.refusal("m", 2, owned=not_its_own) == ErrorCode.FENCED_MEMBER_EPOCH

    def test_lost_responses_lose_no_tasks(self) -> None:
        coordinator = ready()
        first, second = client(coordinator, "a"), client(coordinator, "b")
        first.beat(response_is_lost=True)
        coordinator.settle(first)
        second.beat()
        first.beat(response_is_lost=True)
        coordinator.settle(first, second)
        assert first.owned.active | second.owned.active == tasks("0", 0, 1)
        assert not first.owned.active & second.owned.active

    def test_a_lost_assignment_is_sent_again(self) -> None:
        """Also one that came in the epoch that the member has, and one that only takes tasks."""
        coordinator = ready(delay_ms=DELAY_MS)
        member = client(coordinator, "a")
        member.beat()
        coordinator.pass_time(DELAY_MS)
        member.beat(response_is_lost=True)
        member.beat()
        assert (member.epoch, member.owned.active) == (2, tasks("0", 0, 1))
        coordinator.settle(member)
        other = client(coordinator, "b")
        other.beat()
        member.beat(response_is_lost=True)
        member.beat()
        assert member.assigned.active == tasks("0", 0)
        member.revoke()
        member.beat()
        other.beat()
        member.beat()
        coordinator.settle(member, other)
        assert other.owned.active == tasks("0", 1)


class TestFirstAssignment:
    def test_a_new_group_waits_for_members(self) -> None:
        coordinator = ready(delay_ms=DELAY_MS)
        members = [client(coordinator, name) for name in "ab"]
        for member in members:
            member.beat()
            assert (member.epoch, member.statuses) == (1, (StatusCode.ASSIGNMENT_DELAYED,))
        coordinator.pass_time(DELAY_MS - 1)
        members[0].beat()
        assert members[0].epoch == 1
        coordinator.pass_time(1)
        for member in members:
            member.beat()
        assert [member.owned.active for member in members] == [tasks("0", 0), tasks("0", 1)]
        assert members[0].statuses == ()

    def test_a_failed_append_is_retried(self) -> None:
        coordinator = ready(delay_ms=DELAY_MS)
        member = client(coordinator, "a")
        member.beat()
        coordinator.appends_fail_with = ErrorCode.NOT_ENOUGH_REPLICAS
        coordinator.pass_time(DELAY_MS)
        coordinator.appends_fail_with = None
        coordinator.pass_time(1000)
        assert coordinator.group.assignment_epoch == coordinator.group.group_epoch

    def test_a_group_that_is_empty_again_by_then(self) -> None:
        coordinator = ready(delay_ms=DELAY_MS)
        member = client(coordinator, "a")
        member.beat()
        member.leave()
        written = len(coordinator.log)
        coordinator.pass_time(DELAY_MS)
        assert len(coordinator.log) == written

    def test_another_coordinator_assigns_at_once(self) -> None:
        coordinator = ready(delay_ms=DELAY_MS)
        member = client(coordinator, "a")
        member.beat()
        coordinator.restart()
        member.beat()
        assert member.owned.active == tasks("0", 0, 1)


class TestShutdown:
    def test_all_members_are_told(self) -> None:
        coordinator = ready()
        members = [client(coordinator, name) for name in "ab"]
        coordinator.settle(*members)
        coordinator.heartbeat("a", members[0].epoch, shuts_down=True)
        answer = coordinator.heartbeat("b", members[1].epoch)
        assert [status.code for status in answer.statuses] == [StatusCode.SHUTDOWN_APPLICATION]
        assert "member a encountered a fatal error" in answer.statuses[0].detail
        for member in members:
            member.leave()
        members[0].beat()
        assert members[0].statuses == ()

    def test_a_member_that_leaves_may_ask(self) -> None:
        coordinator = ready()
        members = [client(coordinator, name) for name in "ab"]
        coordinator.settle(*members)
        coordinator.heartbeat("a", -1, shuts_down=True)
        members[1].beat()
        assert members[1].statuses == (StatusCode.SHUTDOWN_APPLICATION,)


class TestEndpoints:
    def test_members_learn_where_state_is(self) -> None:
        coordinator = ready(standby_replicas=1)
        first = client(coordinator, "a", endpoint=("host-a", 1))
        second = client(coordinator, "b", endpoint=("host-b", 2))
        coordinator.settle(first, second)
        answer = coordinator.heartbeat("a", first.epoch, endpoint_epoch=0)
        assert answer.endpoints is not None
        assert sorted(answer.endpoints, key=lambda each: each.user_endpoint.port) == [
            endpoint("host-a", 1, (("in", (0,)),), (("in", (1,)),)),
            endpoint("host-b", 2, (("in", (1,)),), (("in", (0,)),)),
        ]
        again = coordinator.heartbeat("a", first.epoch, endpoint_epoch=answer.endpoint_epoch)
        assert (again.endpoints, again.endpoint_epoch) == (None, answer.endpoint_epoch)
        second.leave()
        coordinator.settle(first)
        changed = coordinator.heartbeat("a", first.epoch, endpoint_epoch=answer.endpoint_epoch)
        assert changed.endpoints == (endpoint("host-a", 1, (("in", (0, 1)),), ()),)

    def test_members_without_endpoints(self) -> None:
        coordinator = ready()
        assert coordinator.join("a", ONE).endpoint_epoch == 0

    def test_partitions_that_a_topic_does_not_have(self) -> None:
        both = topology(subtopology("0", "inputs", "narrow"))
        coordinator = StreamsCoordinator(inputs=3, narrow=1)
        answer = coordinator.join("a", both, endpoint=("h", 1))
        assert answer.endpoints == (endpoint("h", 1, (("inputs", (0, 1, 2)), ("narrow", (0,))), ()),)


class TestOffsets:
    def commit(self, coordinator: StreamsCoordinator, epoch: int, *partitions: int, **more: Any) -> ErrorCode:
        given = {"member_id": "a", "topic": "in", **more}
        topic = given.pop("topic")
        found = [CommittedPartition(topic, number) for number in partitions]
        try:
            coordinator.streams.check_commit("g", epoch, given.pop("member_id"), found, **given)
        except KafkaError as error:
            return error.code
        return ErrorCode.NONE

    def test_a_commit_needs_an_epoch_with_the_task(self) -> None:
        coordinator = ready()
        members = [client(coordinator, name) for name in "ab"]
        coordinator.settle(members[0])
        coordinator.settle(*members)
        assert (members[0].owned.active, members[0].epoch) == (tasks("0", 0), 3)
        assert self.commit(coordinator, 3, 0, 1) == ErrorCode.NONE
        assert self.commit(coordinator, 2, 0) == ErrorCode.NONE, "it has had the task since epoch 2"
        assert self.commit(coordinator, 1, 0) == ErrorCode.STALE_MEMBER_EPOCH
        assert self.commit(coordinator, 2, 0, 1) == ErrorCode.STALE_MEMBER_EPOCH, "the other task has moved"
        assert self.commit(coordinator, 4, 0) == ErrorCode.STALE_MEMBER_EPOCH
        assert self.commit(coordinator, 2, 0, topic="other") == ErrorCode.STALE_MEMBER_EPOCH
        assert self.commit(coordinator, 2, 1, member_id="b") == ErrorCode.STALE_MEMBER_EPOCH
        assert self.commit(coordinator, 3, 0, member_id="c") == ErrorCode.UNKNOWN_MEMBER_ID
        assert self.commit(coordinator, 1, 0, in_transaction=True) == ErrorCode.ILLEGAL_GENERATION

    def test_a_task_that_is_being_revoked_is_still_committed(self) -> None:
        coordinator = ready()
        old, new = client(coordinator, "a"), client(coordinator, "b")
        coordinator.settle(old)
        new.beat()
        old.beat()
        assert coordinator.group.members["a"].revoking.active == tasks("0", 1)
        assert self.commit(coordinator, 2, 0, 1) == ErrorCode.NONE

    def test_commits_from_outside_need_an_empty_group(self) -> None:
        coordinator = ready()
        member = client(coordinator, "a")
        coordinator.settle(member)
        assert self.commit(coordinator, -1, 0, member_id="") == ErrorCode.UNKNOWN_MEMBER_ID
        assert self.commit(coordinator, -1, 0, member_id="", in_transaction=True) == ErrorCode.NONE
        member.leave()
        assert self.commit(coordinator, -1, 0, member_id="") == ErrorCode.NONE

    @pytest.mark.parametrize(
        ("member_id", "epoch", "code"),
        [
            ("a", 2, ErrorCode.NONE),
            (None, -1, ErrorCode.NONE),
            ("a", 1, ErrorCode.STALE_MEMBER_EPOCH),
            ("a", -1, ErrorCode.STALE_MEMBER_EPOCH),
            ("b", 2, ErrorCode.UNKNOWN_MEMBER_ID),
        ],
    )
    def test_fetches(self, member_id: str | None, epoch: int, code: ErrorCode) -> None:
        coordinator = ready()
        coordinator.join("a", ONE)
        found = ErrorCode.NONE
        try:
            coordinator.streams.check_fetch("g", epoch, member_id)
        except KafkaError as error:
            found = error.code
        assert found == code

    def test_subscriptions_are_those_of_groups_with_members(self) -> None:
        coordinator = StreamsCoordinator(words=1)
        coordinator.join("a")
        group = coordinator.streams.groups["g"]
        assert [name in group.topic_names() for name in ("words", "mid", "counts")] == [True, True, False]
        coordinator.heartbeat("a", -1)
        assert "words" not in group.topic_names()


class TestReplay:
    def test_the_whole_log_and_the_compacted_log_give_the_group(self) -> None:
        coordinator = ready(standby_replicas=1)
        members = [client(coordinator, name, endpoint=(name, 1)) for name in "abc"]
        coordinator.settle(*members)
        members.pop().leave()
        members[0].beat()
        for log in (coordinator.log, coordinator.compacted()):
            assert coordinator.replayed(log).groups == coordinator.streams.groups

    def test_a_deleted_group_leaves_nothing(self) -> None:
        coordinator = ready()
        member = client(coordinator, "a")
        coordinator.settle(member)
        with pytest.raises(KafkaError) as raised:
            coordinator.streams.check_delete("g")
        assert raised.value.code == ErrorCode.NON_EMPTY_GROUP
        member.leave()
        coordinator.streams.check_delete("g")
        coordinator._append(coordinator.streams.tombstones("g"), coordinator.now)
        assert not coordinator.streams.groups
        assert coordinator.compacted() == []
        assert coordinator.streams.tombstones("g") == []

    def test_deadlines_begin_anew(self) -> None:
        coordinator = ready()
        old, new = client(coordinator, "a"), client(coordinator, "b")
        coordinator.settle(old)
        new.beat()
        old.beat()
        coordinator.pass_time(SESSION_MS - 1)
        coordinator.restart()
        coordinator.pass_time(SESSION_MS - 1)
        assert set(coordinator.group.members) == {"a", "b"}
        coordinator.pass_time(1)
        assert not coordinator.group.members

    def test_a_failed_removal_is_tried_again(self) -> None:
        coordinator = ready()
        coordinator.join("a", ONE)
        coordinator.appends_fail_with = ErrorCode.NOT_ENOUGH_REPLICAS
        coordinator.pass_time(SESSION_MS)
        assert coordinator.group.members
        coordinator.appends_fail_with = None
        coordinator.pass_time(1000)
        assert not coordinator.group.members
