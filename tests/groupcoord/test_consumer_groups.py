"""Members of a consumer group join, revoke, leave, return and are fenced as KIP-848 says."""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest

from raylog.config.consumer_groups import ASSIGNED_AT_ONCE_MAX
from raylog.core.errors import ErrorCode, KafkaError
from raylog.groupcoord.consumer.groups import REGEX_REFRESH_MS_MIN, RETRY_MS, heartbeat_interval_ms
from raylog.groupcoord.consumer.records import (
    NO_PARTITIONS,
    GroupEpochBumped,
    MemberAssigned,
    MemberState,
    MemberSubscribed,
    MemberTargeted,
    Partitions,
    TargetDecided,
)
from tests.groupcoord.consumer_coordinator import HEARTBEAT_MS, REBALANCE_MS, SESSION_MS, Client, ConsumerCoordinator

A = UUID(int=1)


def partitions(*numbers: int) -> Partitions:
    return frozenset((A, number) for number in numbers)


def code_of(call: Any, *given: Any, **more: Any) -> ErrorCode:
    try:
        call(*given, **more)
    except KafkaError as error:
        return error.code
    return ErrorCode.NONE


def pair(coordinator: ConsumerCoordinator, **more: Any) -> tuple[Client, Client]:
    """Two members that share the topic `a`."""
    both = Client(coordinator, "m1", ("a",), **more), Client(coordinator, "m2", ("a",))
    coordinator.settle(*both)
    return both


def test_the_first_member_gets_everything_and_the_records_are_those_of_kafka() -> None:
    coordinator = ConsumerCoordinator(a=2)
    answer = coordinator.join("m", "a", client_id="c", client_host="/h", server_assignor="range")
    assert (answer.member_epoch, answer.assignment) == (1, partitions(0, 1))
    subscribed, bumped, targeted, decided, assigned = coordinator.decided
    assert subscribed == MemberSubscribed("g", "m", None, None, "c", "/h", ("a",), None, REBALANCE_MS, "range")
    assert bumped == GroupEpochBumped("g", 1, coordinator.group.metadata_hash)
    assert (targeted, decided) == (MemberTargeted("g", "m", partitions(0, 1)), TargetDecided("g", 1))
    assert assigned == MemberAssigned("g", "m", 1, 0, MemberState.STABLE, partitions(0, 1), NO_PARTITIONS)
    assert coordinator.group.state == "Stable"


def test_a_heartbeat_without_news_appends_nothing_and_tells_nothing() -> None:
    coordinator = ConsumerCoordinator(a=2)
    coordinator.join("m", "a", client_id="c")
    before = len(coordinator.log)
    answer = coordinator.heartbeat("m", 1, client_id="c")
    assert (answer.member_epoch, answer.assignment, len(coordinator.log)) == (1, None, before)


def test_a_full_heartbeat_is_told_the_assignment_again() -> None:
    coordinator = ConsumerCoordinator(a=1)
    coordinator.join("m", "a")
    told = coordinator.heartbeat("m", 1, rebalance_timeout_ms=5, topic_names=("a",), owned=partitions(0))
    assert told.assignment == partitions(0)


def test_a_partition_moves_once_its_owner_has_revoked_it() -> None:
    coordinator = ConsumerCoordinator(a=2)
    coordinator.join("m1", "a")
    second = coordinator.join("m2", "a")
    assert (second.member_epoch, second.assignment) == (2, NO_PARTITIONS)
    assert coordinator.group.members["m2"].state is MemberState.UNRELEASED_PARTITIONS
    first = coordinator.heartbeat("m1", 1)
    assert (first.member_epoch, first.assignment) == (1, partitions(0))
    assert coordinator.group.members["m1"].state is MemberState.UNREVOKED_PARTITIONS
    assert coordinator.group.state == "Reconciling"
    assert coordinator.heartbeat("m1", 1).member_epoch == 1
    assert coordinator.heartbeat("m1", 1, owned=partitions(0, 1)).member_epoch == 1
    assert coordinator.heartbeat("m2", 2).assignment is None
    assert coordinator.heartbeat("m1", 1, owned=partitions(0)).member_epoch == 2
    assert coordinator.heartbeat("m2", 2).assignment == partitions(1)
    assert coordinator.group.state == "Stable"


def test_who_does_not_revoke_in_time_is_removed() -> None:
    coordinator = ConsumerCoordinator(a=2)
    first, second = Client(coordinator, "m1", ("a",)), Client(coordinator, "m2", ("a",))
    first.beat()
    second.beat()
    for _ in range(REBALANCE_MS // 5000):
        first.beat()
        second.beat()
        assert second.owned == NO_PARTITIONS
        coordinator.pass_time(5000)
    second.beat()
    assert second.owned == partitions(0, 1)
    first.beat()
    assert first.errors == [ErrorCode.UNKNOWN_MEMBER_ID]


def test_a_member_without_heartbeats_is_removed_when_its_session_expires() -> None:
    coordinator = ConsumerCoordinator(a=2)
    first, second = pair(coordinator)
    coordinator.pass_time(SESSION_MS - 1)
    second.beat()
    coordinator.pass_time(1)
    second.beat()
    assert (second.owned, list(coordinator.group.members)) == (partitions(0, 1), ["m2"])
    first.beat()
    assert first.errors == [ErrorCode.UNKNOWN_MEMBER_ID]


def test_sessions_begin_again_with_another_coordinator() -> None:
    coordinator = ConsumerCoordinator(a=2)
    pair(coordinator)
    coordinator.pass_time(SESSION_MS - 1)
    coordinator.restart()
    coordinator.pass_time(SESSION_MS - 1)
    assert len(coordinator.group.members) == 2
    coordinator.pass_time(1)
    assert coordinator.group.state == "Empty"


def test_an_expired_member_is_removed_once_the_log_can_be_written() -> None:
    coordinator = ConsumerCoordinator(a=2)
    coordinator.join("m", "a")
    coordinator.appends_fail_with = ErrorCode.NOT_COORDINATOR
    coordinator.pass_time(SESSION_MS)
    assert list(coordinator.group.members) == ["m"]
    coordinator.appends_fail_with = None
    coordinator.pass_time(RETRY_MS)
    assert coordinator.group.members == {}


@pytest.mark.parametrize("letters", [1, 10_000])
def test_many_members_that_expire_at_once_are_removed_in_batches_that_the_log_takes(letters: int) -> None:
    coordinator = ConsumerCoordinator(a=1)
    count = 2000 if letters == 1 else 50
    for number in range(count):
        coordinator.join(f"{number:0{letters}}", "a", group="orders")
    begin = len(coordinator.log)
    batches: list[int] = []
    append = coordinator.consumer._append

    def measured(decided: Any, now: Any) -> None:
        before = len(coordinator.log)
        append(decided, now)
        batches.append(sum(len(key) for key, _ in coordinator.log[before:]))

    coordinator.consumer._append = measured
    coordinator.pass_time(SESSION_MS)
    assert coordinator.consumer.groups["orders"].members == {}
    assert sum(value is None for _, value in coordinator.log[begin:]) == 3 * count
    assert len(batches) > 1
    assert max(batches) < 200_000


def test_a_leaving_member_releases_its_partitions_and_leaves_no_record() -> None:
    coordinator = ConsumerCoordinator(a=2)
    _, second = pair(coordinator)
    assert coordinator.heartbeat("m1", -1).member_epoch == -1
    second.beat()
    assert second.owned == partitions(0, 1)
    second.leave()
    assert coordinator.group.state == "Empty"
    assert len(coordinator.compacted()) == 2  # the epochs of the group
    coordinator.consumer._append(coordinator.consumer.tombstones("g"), coordinator.now)
    assert (coordinator.compacted(), coordinator.consumer.groups) == ([], {})


class TestFencing:
    def test_epochs(self) -> None:
        coordinator = ConsumerCoordinator(a=2)
        pair(coordinator)
        epoch = coordinator.group.members["m1"].member_epoch
        for wrong in (epoch + 1, 1 << 30):
            assert coordinator.refusal("m1", wrong) == ErrorCode.FENCED_MEMBER_EPOCH
        assert coordinator.refusal("x", 1) == ErrorCode.UNKNOWN_MEMBER_ID
        assert coordinator.refusal("m1", 1, group="other") == ErrorCode.GROUP_ID_NOT_FOUND

    def test_the_previous_epoch_is_accepted_from_who_owns_no_more_than_it_was_given(self) -> None:
        coordinator = ConsumerCoordinator(a=2)
        pair(coordinator)
        member = coordinator.group.members["m2"]
        coordinator.add_partitions("a", 2)
        before = member.member_epoch
        assert coordinator.heartbeat("m2", before).member_epoch == before + 1
        assert coordinator.refusal("m2", before, owned=member.assigned) == ErrorCode.NONE
        coordinator.add_partitions("a", 2)
        coordinator.heartbeat("m2", before + 1)
        assert coordinator.refusal("m2", before + 1, owned=partitions(77)) == ErrorCode.FENCED_MEMBER_EPOCH
        assert coordinator.refusal("m2", before + 1) == ErrorCode.FENCED_MEMBER_EPOCH
        assert coordinator.refusal("m2", before, owned=NO_PARTITIONS) == ErrorCode.FENCED_MEMBER_EPOCH

    def test_a_member_that_joins_again_keeps_its_partitions(self) -> None:
        coordinator = ConsumerCoordinator(a=2)
        pair(coordinator)
        epoch = coordinator.group.group_epoch
        again = coordinator.join("m1", "a")
        assert (again.member_epoch, len(again.assignment or ()), coordinator.group.group_epoch) == (epoch, 1, epoch)

    def test_commits(self) -> None:
        coordinator = ConsumerCoordinator(a=2)
        coordinator.join("m", "a")
        check = coordinator.consumer.check_commit
        assert code_of(check, "g", 1, "m") == ErrorCode.NONE
        assert code_of(check, "g", 0, "m") == code_of(check, "g", 2, "m") == ErrorCode.STALE_MEMBER_EPOCH
        assert code_of(check, "g", 1, "x") == code_of(check, "g", -1, "") == ErrorCode.UNKNOWN_MEMBER_ID
        assert code_of(check, "g", -1, "", in_transaction=True) == ErrorCode.NONE
        fetch = coordinator.consumer.check_fetch
        assert code_of(fetch, "g", 1, "m") == code_of(fetch, "g", -1, None) == ErrorCode.NONE
        assert code_of(fetch, "g", 2, "m") == ErrorCode.STALE_MEMBER_EPOCH
        assert code_of(fetch, "g", 1, "x") == ErrorCode.UNKNOWN_MEMBER_ID
        coordinator.heartbeat("m", -1)
        assert code_of(check, "g", -1, "") == ErrorCode.NONE


class TestStaticMembers:
    def test_another_process_takes_over_what_has_left_for_a_while(self) -> None:
        coordinator = ConsumerCoordinator(a=4)
        first, second = pair(coordinator, instance_id="i")
        epoch, owned = coordinator.group.group_epoch, first.owned
        first.leave(for_a_while=True)
        assert coordinator.group.members["m1"].member_epoch == -2
        second.beat()
        assert second.owned.isdisjoint(owned)
        new = Client(coordinator, "m3", ("a",), "i")
        new.beat()
        assert (new.owned, coordinator.group.group_epoch) == (owned, epoch)
        assert coordinator.group.members.keys() == {"m2", "m3"}
        assert coordinator.refusal("m1", epoch, instance_id="i") == ErrorCode.FENCED_INSTANCE_ID
        assert coordinator.refusal("m1", -1, instance_id="i") == ErrorCode.FENCED_INSTANCE_ID
        assert coordinator.refusal("m1", -1, instance_id="j") == ErrorCode.UNKNOWN_MEMBER_ID

    def test_a_member_that_takes_another_instance_id_leaves_the_former_one_free(self) -> None:
        coordinator = ConsumerCoordinator(a=2)
        coordinator.join("m1", "a", instance_id="i")
        coordinator.join("m1", "a", instance_id="j")
        assert coordinator.group.static == {"j": "m1"}
        coordinator.heartbeat("m1", -1, instance_id="j")
        coordinator.join("m2", "a", instance_id="i")
        coordinator.restart()
        assert coordinator.group.static == {"i": "m2"}

    def test_the_instance_id_of_a_present_member_is_not_released(self) -> None:
        coordinator = ConsumerCoordinator(a=4)
        pair(coordinator, instance_id="i")
        assert code_of(coordinator.join, "m3", "a", instance_id="i") == ErrorCode.UNRELEASED_INSTANCE_ID

    def test_who_does_not_return_is_removed(self) -> None:
        coordinator = ConsumerCoordinator(a=4)
        first, second = pair(coordinator, instance_id="i")
        first.leave(for_a_while=True)
        coordinator.pass_time(SESSION_MS - 1)
        second.beat()
        coordinator.pass_time(1)
        assert list(coordinator.group.members) == ["m2"]

    def test_who_leaves_for_good_is_removed_at_once(self) -> None:
        coordinator = ConsumerCoordinator(a=4)
        first, _ = pair(coordinator, instance_id="i")
        first.leave()
        assert list(coordinator.group.members) == ["m2"]
        assert coordinator.group.static == {}


class TestTopics:
    def test_new_partitions_and_topics_are_assigned_and_deleted_ones_taken_away(self) -> None:
        coordinator = ConsumerCoordinator(a=1)
        client = Client(coordinator, "m", ("a", "later"))
        client.beat()
        coordinator.add_partitions("a", 1)
        client.beat()
        assert client.owned == partitions(0, 1)
        coordinator.create_topic("later", 2)
        client.beat()
        assert client.owned == coordinator.topics.partitions("a", "later")
        coordinator.delete_topic("a")
        coordinator.settle(client)
        assert client.owned == coordinator.topics.partitions("later")

    def test_a_topic_that_nobody_wants_changes_nothing(self) -> None:
        coordinator = ConsumerCoordinator(a=1)
        coordinator.join("m", "a")
        coordinator.create_topic("other", 1)
        before = len(coordinator.log)
        coordinator.heartbeat("m", 1)
        assert len(coordinator.log) == before


class TestRegularExpressions:
    def test_the_whole_name_matches_and_new_topics_are_found(self) -> None:
        coordinator = ConsumerCoordinator(a1=1, ba1=1, a11=1)
        client = Client(coordinator, "m", (), topic_regex="a[0-9]")
        client.beat()
        assert client.owned == coordinator.topics.partitions("a1")
        coordinator.create_topic("a2", 1)
        client.beat()
        assert client.owned == coordinator.topics.partitions("a1")
        coordinator.pass_time(REGEX_REFRESH_MS_MIN)
        client.beat()
        assert client.owned == coordinator.topics.partitions("a1", "a2")

    def test_topics_that_may_not_be_described_are_left_out_until_they_may(self) -> None:
        coordinator = ConsumerCoordinator(a1=1, a2=1)
        coordinator.hidden = {"a2"}
        client = Client(coordinator, "m", (), topic_regex="a.")
        client.beat()
        assert client.owned == coordinator.topics.partitions("a1")
        coordinator.hidden = set()
        for _ in range(600_000 // 40_000):
            client.beat()
            assert client.owned == coordinator.topics.partitions("a1")
            coordinator.pass_time(40_000)
        client.beat()
        assert client.owned == coordinator.topics.partitions("a1", "a2")

    def test_an_unused_expression_is_forgotten(self) -> None:
        coordinator = ConsumerCoordinator(a1=1)
        coordinator.join("m", topic_names=None, topic_regex="a.")
        assert list(coordinator.group.regexes) == ["a."]
        coordinator.heartbeat("m", 1, topic_regex="a..")
        assert list(coordinator.group.regexes) == ["a.."]
        coordinator.heartbeat("m", 1, topic_regex="", topic_names=("a1",))
        assert coordinator.group.regexes == {}

    @pytest.mark.parametrize(
        "regex", ["(", "a**", "[", "a{1001}", "(?=a)", r"\1", "((a{1000}){1000}){1000}", "(" * 30_000]
    )
    def test_invalid_ones_are_refused(self, regex: str) -> None:
        refused = code_of(ConsumerCoordinator(a=1).join, "m", topic_regex=regex)
        assert refused == ErrorCode.INVALID_REGULAR_EXPRESSION


def test_most_members_choose_the_assignor() -> None:
    coordinator = ConsumerCoordinator(a=1)
    chosen = []
    for number, name in enumerate([None, "range", "uniform", "range"]):
        coordinator.join(f"m{number}", "a", server_assignor=name)
        chosen.append(coordinator.consumer.assignor_of(coordinator.group))
    assert chosen == ["uniform", "range", "uniform", "range"]


@pytest.mark.parametrize(
    ("more", "code"),
    [
        ({"group": ""}, ErrorCode.INVALID_REQUEST),
        ({"group": "  "}, ErrorCode.INVALID_REQUEST),
        ({"instance_id": ""}, ErrorCode.INVALID_REQUEST),
        ({"rack_id": ""}, ErrorCode.INVALID_REQUEST),
        ({"rebalance_timeout_ms": -1}, ErrorCode.INVALID_REQUEST),
        ({"rebalance_timeout_ms": -(1 << 31)}, ErrorCode.INVALID_REQUEST),
        ({"owned": None}, ErrorCode.INVALID_REQUEST),
        ({"owned": partitions(0)}, ErrorCode.INVALID_REQUEST),
        ({"topic_names": None}, ErrorCode.INVALID_REQUEST),
        ({"server_assignor": ""}, ErrorCode.UNSUPPORTED_ASSIGNOR),
        ({"server_assignor": "x" * 32_767}, ErrorCode.UNSUPPORTED_ASSIGNOR),
        ({}, ErrorCode.NONE),
    ],
)
def test_requests_that_no_group_accepts(more: dict[str, Any], code: ErrorCode) -> None:
    coordinator = ConsumerCoordinator(a=1)
    assert code_of(coordinator.join, "m", "a", **more) == code
    assert bool(coordinator.consumer.groups) == (code == ErrorCode.NONE)


@pytest.mark.parametrize("epoch", [-3, -(1 << 31), -2, -1, 1])
def test_absurd_epochs_and_ids(epoch: int) -> None:
    coordinator = ConsumerCoordinator(a=1)
    coordinator.join("m", "a")
    assert coordinator.refusal("", epoch) == ErrorCode.INVALID_REQUEST
    assert coordinator.refusal("m", epoch) == (ErrorCode.INVALID_REQUEST if epoch < -1 else ErrorCode.NONE)


def test_a_full_group_takes_no_more_members_and_keeps_those_it_has() -> None:
    coordinator = ConsumerCoordinator(a=1, members_max=2)
    pair(coordinator)
    assert code_of(coordinator.join, "m3", "a") == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert code_of(coordinator.join, "m1", "a") == ErrorCode.NONE


def test_a_thousand_members_share_a_thousand_partitions() -> None:
    coordinator = ConsumerCoordinator(a=1000)
    for number in range(1000 - 1):
        coordinator.consumer.replay(
            MemberSubscribed("g", f"m{number:03}", None, None, "c", "/h", ("a",), None, REBALANCE_MS, None)
        )
    coordinator.consumer.replay(GroupEpochBumped("g", 1, 0))
    last = Client(coordinator, "last", ("a",))
    last.beat()
    assert sorted(map(len, coordinator.group.target.values())) == [1] * 1000
    assert len(last.owned) == 1
    names = tuple(f"no-such-topic-{number}" for number in range(20_000))
    coordinator.heartbeat("last", last.epoch, topic_names=names, owned=frozenset((A, n) for n in range(20_000)))
    assert coordinator.group.members["last"].topic_names == tuple(sorted(names))


# --- many members at once


INTERVAL_MS = 1000


def crowd(size: int = ASSIGNED_AT_ONCE_MAX + 1) -> ConsumerCoordinator:
    """A settled group that is too large for a new assignment with each change."""
    coordinator = ConsumerCoordinator(a=size * 2, b=1)
    coordinator.settle(*(Client(coordinator, f"m{number}", ("a",)) for number in range(size)))
    coordinator.settings = replace(coordinator.settings, assignment_interval_ms=INTERVAL_MS)
    coordinator.pass_time(INTERVAL_MS)
    assert coordinator.group.state == "Stable"
    return coordinator


def test_members_that_join_a_large_group_together_get_one_assignment() -> None:
    coordinator = crowd()
    computed = coordinator.group.assignment_epoch
    first = coordinator.join("n1", "a")
    assert coordinator.group.assignment_epoch == first.member_epoch == computed + 1
    others = [coordinator.join(f"n{number}", "a") for number in range(2, 5)]
    assert {(each.member_epoch, each.assignment) for each in others} == {(first.member_epoch, NO_PARTITIONS)}
    assert coordinator.group.state == "Assigning"
    coordinator.pass_time(ASSIGNED_AT_ONCE_MAX)
    coordinator.heartbeat("n1", first.member_epoch)
    assert coordinator.group.assignment_epoch == computed + 1  # too early, for so many members
    coordinator.pass_time(10)
    coordinator.heartbeat("n1", first.member_epoch)
    assert coordinator.group.assignment_epoch == coordinator.group.group_epoch == computed + 4
    assert all(coordinator.group.target[f"n{number}"] for number in range(1, 5))


def test_the_interval_is_the_longest_time_between_two_assignments() -> None:
    coordinator = crowd()
    coordinator.settings = replace(coordinator.settings, assignment_interval_ms=3)
    coordinator.join("n1", "a")
    coordinator.pass_time(2)
    coordinator.join("n2", "a")
    assert coordinator.group.state == "Assigning"
    coordinator.pass_time(1)
    coordinator.join("n3", "a")
    assert coordinator.group.target["n2"]
    coordinator.settings = replace(coordinator.settings, assignment_interval_ms=0)
    coordinator.join("n4", "a")
    assert coordinator.group.target["n4"]


def test_another_subscription_or_topic_gives_a_large_group_an_assignment_at_once() -> None:
    coordinator = crowd()
    coordinator.join("n1", "a")
    epoch = coordinator.group.members["m1"].member_epoch
    coordinator.heartbeat("m1", epoch, topic_names=("b",))
    assert coordinator.group.assignment_epoch == coordinator.group.group_epoch
    assert {topic for topic, _ in coordinator.group.target["m1"]} == {coordinator.topics.shapes["b"].topic_id}
    coordinator.add_partitions("a", 1)
    coordinator.join("n2", "a")
    assert coordinator.group.assignment_epoch == coordinator.group.group_epoch


def test_a_new_coordinator_gives_a_large_group_an_assignment_at_once() -> None:
    coordinator = crowd()
    coordinator.join("n1", "a")
    coordinator.join("n2", "a")
    coordinator.restart()
    coordinator.heartbeat("m0", coordinator.group.members["m0"].member_epoch)
    assert coordinator.group.target["n2"]


def test_members_come_again_soon_after_a_new_assignment_so_that_no_partition_waits_for_its_new_owner() -> None:
    coordinator = ConsumerCoordinator(a=4)
    coordinator.settings = replace(coordinator.settings, rebalance_heartbeat_interval_ms=500)
    assert coordinator.join("m", "a").heartbeat_interval_ms == 500
    coordinator.pass_time(HEARTBEAT_MS - 1)
    assert coordinator.heartbeat("m", 1).heartbeat_interval_ms == 500
    coordinator.pass_time(1)
    assert coordinator.heartbeat("m", 1).heartbeat_interval_ms == HEARTBEAT_MS
    assert coordinator.join("n", "a").heartbeat_interval_ms == 500
    coordinator.restart()  # another coordinator does not know when it was
    assert coordinator.heartbeat("n", 2).heartbeat_interval_ms == HEARTBEAT_MS


@pytest.mark.parametrize(
    ("configured", "members", "interval"),
    [(500, 1, 500), (500, 125, 500), (500, 1000, 4000), (500, 100_000, 5000), (9000, 1, 5000), (0, 1, 5000)],
)
def test_large_groups_come_again_later_and_none_later_than_usual(configured: int, members: int, interval: int) -> None:
    settings = replace(ConsumerCoordinator().settings, rebalance_heartbeat_interval_ms=configured)
    assert heartbeat_interval_ms(settings, members, 0) == interval
    assert heartbeat_interval_ms(settings, members, None) == HEARTBEAT_MS
