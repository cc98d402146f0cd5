"""A classic group rebalances as in Apache Kafka: which members it waits for, how long, and what each gets."""

from __future__ import annotations

import pytest

from raylog.core.errors import ErrorCode
from raylog.groupcoord.classic.group import NEW_MEMBER_JOIN_TIMEOUT_MS, PENDING_MAX, GroupState, Joined
from raylog.groupcoord.records import CommittedMember, GroupCommitted, GroupDeleted
from tests.groupcoord.coordinator import (
    RANGE,
    REBALANCE_MS,
    ROUND_ROBIN,
    SESSION_MS,
    WALL_START_MS,
    Coordinator,
)

NONE = ErrorCode.NONE
REBALANCE = ErrorCode.REBALANCE_IN_PROGRESS
UNKNOWN = ErrorCode.UNKNOWN_MEMBER_ID
NOT_COORDINATOR = ErrorCode.NOT_COORDINATOR


class TestARebalance:
    def test_the_first_generation_has_the_leaders_assignments(self) -> None:
        coordinator = Coordinator(delay_ms=3000)
        first, second = coordinator.join(), coordinator.join(protocols=[(RANGE[0], b"second")])
        assert not first.answered
        coordinator.pass_time(6000)
        leader = first.answer.member_id
        assert first.answer == Joined(
            NONE,
            leader,
            1,
            "consumer",
            "range",
            leader,
            ((leader, None, RANGE[1]), (second.answer.member_id, None, b"second")),
        )
        assert second.answer == Joined(NONE, second.answer.member_id, 1, "consumer", "range", leader)
        follows = coordinator.sync(second.answer.member_id, 1)
        assert not follows.answered
        assert not coordinator.log
        plan = {leader: b"all of it", "a stranger": b"nothing"}
        assert coordinator.sync(leader, 1, plan).answer.assignment == b"all of it"
        assert (follows.code, follows.answer.assignment) == (NONE, b"")
        assert (follows.answer.protocol_type, follows.answer.protocol_name) == ("consumer", "range")

    def test_its_record_is_kafkas(self) -> None:
        coordinator = Coordinator()
        (member,) = coordinator.stable(1, static=True)
        assert coordinator.last_record() == GroupCommitted(
            "g",
            "consumer",
            1,
            "range",
            member,
            WALL_START_MS + 1010,  # since when its plan was waited for
            (
                CommittedMember(
                    member, "i0", "client", "/127.0.0.1", REBALANCE_MS, SESSION_MS, RANGE[1], member.encode()
                ),
            ),
        )

    def test_members_learn_of_it_by_heartbeats_and_are_waited_for(self) -> None:
        coordinator = Coordinator()
        leader, follower = coordinator.stable()
        new = coordinator.join()
        assert coordinator.heartbeat(leader, 1) == coordinator.heartbeat(follower, 1) == REBALANCE
        again = coordinator.join(leader)
        assert not new.answered
        assert not again.answered
        coordinator.join(follower)
        assert (again.answer.generation_id, again.answer.leader, len(again.answer.members)) == (2, leader, 3)
        assert (new.answer.generation_id, new.answer.members) == (2, ())
        coordinator.sync_all([leader, follower, new.answer.member_id])

    def test_it_completes_without_members_that_do_not_rejoin(self) -> None:
        coordinator = Coordinator()
        leader, follower = coordinator.stable()
        new = coordinator.join()
        for _ in range(REBALANCE_MS // 5000 - 1):
            coordinator.pass_time(5000)
            assert coordinator.heartbeat(leader, 1) == coordinator.heartbeat(follower, 1) == REBALANCE
        coordinator.join(follower)
        assert not new.answered
        coordinator.pass_time(5000)
        assert new.answer.leader == follower
        assert coordinator.heartbeat(leader, 1) == UNKNOWN

    def test_the_longest_rebalance_timeout_applies(self) -> None:
        coordinator = Coordinator()
        first = coordinator.join(rebalance_ms=5000, session_ms=600_000).answer.member_id
        coordinator.sync_all([first])
        new = coordinator.join(rebalance_ms=9000)
        coordinator.pass_time(8999)
        assert not new.answered
        coordinator.pass_time(1)
        assert new.answered

    def test_the_leader_may_trigger_one_at_any_time(self) -> None:
        coordinator = Coordinator()
        leader, follower = coordinator.stable()
        assert coordinator.join(follower).answer.generation_id == 1
        assert not coordinator.join(leader).answered
        assert coordinator.heartbeat(follower, 1) == REBALANCE

    def test_a_repeated_join_gets_the_same_response(self) -> None:
        coordinator = Coordinator()
        leader, follower = coordinator.stable()
        coordinator.join(leader)
        coordinator.join(follower)
        assert coordinator.state is GroupState.COMPLETING_REBALANCE
        assert len(coordinator.join(leader).answer.members) == 2
        assert coordinator.join(follower).answer == Joined(NONE, follower, 2, "consumer", "range", leader)

    def test_a_repeated_sync_gets_the_same_response(self) -> None:
        coordinator = Coordinator()
        _, follower = coordinator.stable()
        assert coordinator.sync(follower, 1).answer.assignment == follower.encode()

    def test_every_attempt_gets_a_response(self) -> None:
        """A client that asks twice, over two connections, leaves none of them parked for ever."""
        coordinator = Coordinator()
        leader, follower = coordinator.stable()
        joins = [coordinator.join(leader), coordinator.join(leader)]
        assert [each.answered for each in joins] == [True, False]
        assert joins[0].code == REBALANCE
        coordinator.join(follower)
        assert joins[1].code == NONE
        syncs = [coordinator.sync(follower, 2), coordinator.sync(follower, 2)]
        assert [each.answered for each in syncs] == [True, False]
        assert syncs[0].code == REBALANCE

    def test_a_join_interrupts_a_sync(self) -> None:
        coordinator = Coordinator()
        leader, follower = coordinator.stable()
        coordinator.join(leader)
        coordinator.join(follower)
        waiting = coordinator.sync(follower, 2)
        coordinator.join()
        assert waiting.code == REBALANCE
        assert coordinator.sync(leader, 2, {leader: b"too late"}).code == REBALANCE

    def test_a_member_that_does_not_sync_is_removed(self) -> None:
        coordinator = Coordinator()
        leader, follower = coordinator.stable()
        coordinator.join(leader)
        coordinator.join(follower)
        coordinator.sync(leader, 2, {})
        for _ in range(REBALANCE_MS // 5000):
            assert coordinator.heartbeat(leader, 2) == coordinator.heartbeat(follower, 2) == NONE
            coordinator.pass_time(5000)
        assert coordinator.heartbeat(leader, 2) == REBALANCE
        assert coordinator.heartbeat(follower, 2) == UNKNOWN

    def test_a_leader_that_does_not_sync_is_removed(self) -> None:
        coordinator = Coordinator()
        leader, follower = coordinator.stable()
        coordinator.join(leader)
        coordinator.join(follower)
        waiting = coordinator.sync(follower, 2)
        for _ in range(REBALANCE_MS // 5000):
            assert coordinator.heartbeat(leader, 2) == NONE
            coordinator.pass_time(5000)
        assert waiting.code == REBALANCE
        assert coordinator.heartbeat(leader, 2) == UNKNOWN
        assert coordinator.join(follower).answer.leader == follower

    def test_a_missing_sync_does_not_count_after_the_next_rebalance(self) -> None:
        """The sync deadline of one generation must remove no member of the next."""
        coordinator = Coordinator()
        leader, follower = coordinator.stable()
        coordinator.join(leader)
        coordinator.join(follower)
        coordinator.sync(leader, 2, {})
        for _ in range(REBALANCE_MS // 5000 - 1):
            coordinator.pass_time(5000)
            assert coordinator.heartbeat(leader, 2) == coordinator.heartbeat(follower, 2) == NONE
        waiting = coordinator.join(leader)
        coordinator.pass_time(6000)
        assert not waiting.answered
        assert coordinator.heartbeat(follower, 2) == REBALANCE

    def test_members_that_leave_in_one_request_cause_one_rebalance(self) -> None:
        coordinator = Coordinator()
        leader, second, third = coordinator.stable(3)
        codes = coordinator.classic.leave("g", [(second, None), ("x", None), (third, None)], coordinator.now)
        assert codes == [NONE, UNKNOWN, NONE]
        assert coordinator.heartbeat(leader, 1) == REBALANCE
        assert coordinator.join(leader).answer.generation_id == 2

    def test_the_last_member_leaves_an_empty_group(self) -> None:
        coordinator = Coordinator()
        (member,) = coordinator.stable(1)
        assert coordinator.leave(member) == NONE
        assert coordinator.last_record() == GroupCommitted("g", "consumer", 2, None, None, coordinator.now.wall_ms, ())
        assert coordinator.group.leader is None

    def test_an_empty_group_may_change_its_protocol_type(self) -> None:
        coordinator = Coordinator()
        (member,) = coordinator.stable(1)
        coordinator.leave(member)
        joined = coordinator.join(protocol_type="connect", protocols=[("sessioned", b"")]).answer
        assert (joined.generation_id, joined.protocol_type, joined.protocol_name) == (3, "connect", "sessioned")


class TestTheInitialDelay:
    """An empty group's first rebalance waits for more members, longer as long as more come, but not for ever."""

    def test_one_member_waits_once(self) -> None:
        coordinator = Coordinator(delay_ms=3000)
        join = coordinator.join()
        coordinator.pass_time(2999)
        assert not join.answered
        coordinator.pass_time(1)
        assert join.answered

    def test_a_new_member_extends_the_delay(self) -> None:
        coordinator = Coordinator(delay_ms=3000)
        coordinator.join()
        coordinator.pass_time(2900)
        second = coordinator.join()
        coordinator.pass_time(3000)
        assert not second.answered
        coordinator.pass_time(100)
        assert second.answered

    def test_it_ends_at_the_rebalance_timeout(self) -> None:
        coordinator = Coordinator(delay_ms=3000)
        first = coordinator.join(rebalance_ms=7000)
        for _ in range(6):
            coordinator.pass_time(1000)
            coordinator.join(rebalance_ms=7000)
        coordinator.pass_time(999)
        assert not first.answered
        coordinator.pass_time(1)
        assert first.answered
        assert coordinator.group.generation_id == 1

    def test_a_group_with_members_does_not_wait(self) -> None:
        coordinator = Coordinator(delay_ms=3000)
        first = coordinator.join()
        coordinator.pass_time(3000)
        coordinator.sync_all([first.answer.member_id])
        new = coordinator.join()
        coordinator.join(first.answer.member_id)
        assert new.answered


class TestRequiredMemberIds:
    """KIP-394: who joins without an id is given one, and is a member once it has joined with it."""

    def test_the_member_joins_with_its_id(self) -> None:
        coordinator = Coordinator()
        given = coordinator.join(require_known_member_id=True)
        assert given.code == ErrorCode.MEMBER_ID_REQUIRED
        member = given.answer.member_id
        assert member.startswith("client-")
        assert coordinator.heartbeat(member, 0) == UNKNOWN
        assert coordinator.join(member, require_known_member_id=True).answer.member_id == member

    def test_ids_that_nobody_uses_are_forgotten(self) -> None:
        coordinator = Coordinator()
        given = [coordinator.join(require_known_member_id=True).answer.member_id for _ in range(PENDING_MAX + 1)]
        [group] = coordinator.classic.groups.values()
        assert len(group.pending) == PENDING_MAX
        assert coordinator.join(given[0], require_known_member_id=True).code == UNKNOWN
        assert given[1] in group.pending

    def test_a_rebalance_waits_for_pending_members(self) -> None:
        coordinator = Coordinator()
        (member,) = coordinator.stable(1)
        given = coordinator.join(require_known_member_id=True).answer.member_id
        assert coordinator.state is GroupState.STABLE
        waiting = coordinator.join(member)
        assert not waiting.answered
        new = coordinator.join(given)
        assert waiting.answered
        assert new.answered

    def test_a_pending_id_expires(self) -> None:
        coordinator = Coordinator()
        (member,) = coordinator.stable(1)
        given = coordinator.join(require_known_member_id=True, session_ms=4000).answer.member_id
        waiting = coordinator.join(member)
        coordinator.pass_time(4000)
        assert waiting.answered
        assert coordinator.join(given).code == UNKNOWN

    def test_a_pending_id_may_leave_and_sessions_begin_with_the_join(self) -> None:
        coordinator = Coordinator()
        (member,) = coordinator.stable(1)
        given = coordinator.join(require_known_member_id=True, session_ms=1_800_000).answer.member_id
        waiting = coordinator.join(member, rebalance_ms=1_700_000)
        assert coordinator.leave(given) == NONE
        assert waiting.answered
        coordinator.pass_time(SESSION_MS)
        assert coordinator.state is GroupState.EMPTY

    def test_a_group_with_expired_pending_ids_only_does_not_exist(self) -> None:
        coordinator = Coordinator()
        coordinator.join(require_known_member_id=True)
        other = coordinator.join(group="other", require_known_member_id=True).answer.member_id
        coordinator.classic.leave("other", [(other, None)], coordinator.now)
        assert list(coordinator.classic.groups) == ["g"]
        coordinator.pass_time(SESSION_MS)
        assert not coordinator.classic.groups
        assert not coordinator.log

    def test_a_pending_id_cannot_become_a_static_member(self) -> None:
        coordinator = Coordinator()
        given = coordinator.join(require_known_member_id=True).answer.member_id
        assert coordinator.join(given, instance="i").code == UNKNOWN


class TestSessionTimeout:
    def test_a_silent_member_is_removed(self) -> None:
        coordinator = Coordinator()
        leader, follower = coordinator.stable()
        coordinator.pass_time(SESSION_MS // 2)
        coordinator.heartbeat(follower, 1)
        coordinator.pass_time(SESSION_MS // 2)
        assert coordinator.heartbeat(follower, 1) == REBALANCE
        assert coordinator.join(follower).answer.leader == follower
        assert coordinator.heartbeat(leader, 1) == UNKNOWN

    def test_all_members_at_once(self) -> None:
        coordinator = Coordinator()
        coordinator.stable(3)
        coordinator.pass_time(SESSION_MS)
        assert coordinator.state is GroupState.EMPTY
        assert coordinator.group.generation_id == 2

    def test_a_commit_renews_the_session(self) -> None:
        coordinator = Coordinator()
        (member,) = coordinator.stable(1)
        for _ in range(3):
            coordinator.pass_time(SESSION_MS - 1)
            assert coordinator.check_commit(1, member) == NONE
        assert coordinator.heartbeat(member, 1) == NONE

    def test_a_waiting_member_does_not_expire(self) -> None:
        coordinator = Coordinator()
        leader, follower = coordinator.stable()
        waiting = coordinator.join(leader)
        for _ in range(5):
            coordinator.pass_time(SESSION_MS - 1)
            assert coordinator.heartbeat(follower, 1) == REBALANCE
        assert not waiting.answered
        coordinator.join(follower)
        assert waiting.code == NONE

    def test_a_first_join_waits_for_at_most_five_minutes(self) -> None:
        coordinator = Coordinator()
        member = coordinator.join(session_ms=1_000_000, rebalance_ms=1_000_000).answer.member_id
        coordinator.sync_all([member])
        new = coordinator.join()
        coordinator.pass_time(NEW_MEMBER_JOIN_TIMEOUT_MS - 1)
        assert not new.answered
        coordinator.pass_time(1)
        assert new.answer == Joined(UNKNOWN, "")
        assert list(coordinator.group.members) == [member]

    def test_sessions_restart_when_a_coordinator_takes_over(self) -> None:
        coordinator = Coordinator()
        leader, follower = coordinator.stable()
        coordinator.pass_time(SESSION_MS - 1)
        coordinator.restart()
        coordinator.pass_time(SESSION_MS - 1)
        assert coordinator.heartbeat(leader, 1) == NONE
        assert coordinator.state is GroupState.STABLE
        coordinator.pass_time(1)
        assert coordinator.heartbeat(leader, 1) == REBALANCE
        assert coordinator.heartbeat(follower, 1) == UNKNOWN


class TestTakingOver:
    def test_a_stable_group_continues(self) -> None:
        coordinator = Coordinator()
        leader, follower = coordinator.stable(static=True)
        coordinator.restart()
        assert coordinator.heartbeat(leader, 1, "i0") == coordinator.heartbeat(follower, 1, "i1") == NONE
        assert coordinator.sync(follower, 1, instance="i1").answer.assignment == follower.encode()
        assert coordinator.join(follower, instance="i1").answer.leader == leader
        assert coordinator.check_commit(1, leader, "i0") == NONE

    def test_a_rebalance_in_progress_is_lost(self) -> None:
        coordinator = Coordinator()
        leader, follower = coordinator.stable()
        coordinator.join(leader)
        assert coordinator.join(follower).answer.generation_id == 2
        coordinator.restart()
        assert coordinator.sync(leader, 2, {}).code == ErrorCode.ILLEGAL_GENERATION
        assert coordinator.heartbeat(follower, 1) == NONE

    def test_waiting_joins_get_not_coordinator(self) -> None:
        coordinator = Coordinator()
        leader, _ = coordinator.stable()
        joins = [coordinator.join(leader), coordinator.join()]
        coordinator.classic.unload()
        assert [each.code for each in joins] == [NOT_COORDINATOR] * 2

    def test_waiting_syncs_get_not_coordinator(self) -> None:
        coordinator = Coordinator()
        leader, follower = coordinator.stable()
        coordinator.join(leader)
        coordinator.join(follower)
        waiting = coordinator.sync(follower, 2)
        coordinator.classic.unload()
        assert waiting.code == NOT_COORDINATOR

    def test_the_last_record_of_a_group_applies(self) -> None:
        """Of one generation there may be several, with the same members."""
        coordinator = Coordinator()
        (member,) = coordinator.stable(1, static=True)
        record = coordinator.last_record()
        assert isinstance(record, GroupCommitted)
        coordinator.log += coordinator.log
        coordinator.restart()
        assert coordinator.group.members[member].assignment == member.encode()

    def test_a_group_above_its_maximum_size_rebalances(self) -> None:
        coordinator = Coordinator()
        first, second = coordinator.stable()
        coordinator.limits = Coordinator(members_max=1).limits
        coordinator.restart()
        assert coordinator.heartbeat(first, 1) == REBALANCE
        stays = coordinator.join(second)
        assert coordinator.join(first).answer == Joined(ErrorCode.GROUP_MAX_SIZE_REACHED, "")
        assert stays.answer.leader == second


class TestStaticMembers:
    """KIP-345: an instance keeps its part through a restart of its process."""

    def test_a_restart_causes_no_rebalance(self) -> None:
        coordinator = Coordinator()
        leader, follower = coordinator.stable(static=True)
        joined = coordinator.join(instance="i1").answer
        assert (joined.error_code, joined.generation_id, joined.leader) == (NONE, 1, leader)
        assert joined.member_id not in (leader, follower)
        assert coordinator.state is GroupState.STABLE
        assert coordinator.sync(joined.member_id, 1, instance="i1").answer.assignment == follower.encode()

    def test_the_new_member_id_is_saved(self) -> None:
        coordinator = Coordinator()
        leader, _ = coordinator.stable(static=True)
        new = coordinator.join(instance="i1").answer.member_id
        coordinator.restart()
        assert coordinator.heartbeat(new, 1, "i1") == coordinator.heartbeat(leader, 1, "i0") == NONE

    def test_the_previous_process_is_fenced(self) -> None:
        coordinator = Coordinator()
        _, follower = coordinator.stable(static=True)
        coordinator.join(instance="i1")
        fenced = ErrorCode.FENCED_INSTANCE_ID
        assert coordinator.join(follower, instance="i1").code == fenced
        assert coordinator.sync(follower, 1, instance="i1").code == fenced
        assert coordinator.heartbeat(follower, 1, "i1") == fenced
        assert coordinator.leave(follower, "i1") == fenced
        assert coordinator.check_commit(1, follower, "i1") == fenced
        assert coordinator.heartbeat(follower, 1) == UNKNOWN

    def test_the_previous_process_is_fenced_while_it_waits(self) -> None:
        coordinator = Coordinator()
        leader, follower = coordinator.stable(static=True)
        waiting = coordinator.join(leader, instance="i0")
        replacing = coordinator.join(instance="i0")
        assert waiting.answer == Joined(ErrorCode.FENCED_INSTANCE_ID, leader)
        coordinator.join(follower, instance="i1")
        assert replacing.answer.leader == replacing.answer.member_id
        assert len(replacing.answer.members) == 2

    def test_a_restart_before_the_sync_causes_a_rebalance(self) -> None:
        """The plan on its way knows the old id alone."""
        coordinator = Coordinator()
        leader, follower = coordinator.stable(static=True)
        coordinator.join(leader, instance="i0")
        coordinator.join(follower, instance="i1")
        waiting = coordinator.sync(follower, 2, instance="i1")
        coordinator.join(instance="i1")
        assert waiting.code == ErrorCode.FENCED_INSTANCE_ID
        assert coordinator.heartbeat(leader, 2, "i0") == REBALANCE

    def test_a_restarted_leader_skips_the_assignment(self) -> None:
        coordinator = Coordinator()
        coordinator.stable(static=True)
        joined = coordinator.join(instance="i0", supports_skip_assignment=True).answer
        assert (joined.leader, joined.skip_assignment, len(joined.members)) == (joined.member_id, True, 2)
        assert coordinator.join(instance="i1", supports_skip_assignment=True).answer.skip_assignment is False

    def test_older_versions_get_the_previous_leader_id(self) -> None:
        coordinator = Coordinator()
        leader, _ = coordinator.stable(static=True)
        joined = coordinator.join(instance="i0", supports_skip_assignment=False).answer
        assert (joined.leader, joined.skip_assignment, joined.members) == (leader, False, ())
        assert coordinator.sync(joined.member_id, 1, instance="i0").answer.assignment == leader.encode()

    def test_a_restart_with_another_protocol_causes_a_rebalance(self) -> None:
        coordinator = Coordinator()
        both = (RANGE, ROUND_ROBIN)
        first = coordinator.join(instance="i0", protocols=both)
        coordinator.sync_all([first.answer.member_id])
        second = coordinator.join(instance="i1", protocols=both)
        coordinator.join(first.answer.member_id, instance="i0", protocols=both)
        coordinator.sync_all([first.answer.member_id, second.answer.member_id])
        assert not coordinator.join(instance="i1", protocols=(ROUND_ROBIN, ("x", b""))).answered
        assert coordinator.state is GroupState.PREPARING_REBALANCE

    def test_its_assignment_is_kept_for_its_session_timeout(self) -> None:
        coordinator = Coordinator()
        leader, _ = coordinator.stable(static=True)
        coordinator.pass_time(SESSION_MS - 1)
        coordinator.heartbeat(leader, 1, "i0")
        coordinator.pass_time(1)
        assert coordinator.heartbeat(leader, 1, "i0") == REBALANCE
        assert list(coordinator.group.static) == ["i0"]

    def test_a_rebalance_completes_without_absent_static_members(self) -> None:
        coordinator = Coordinator()
        first = coordinator.join(instance="i0", session_ms=600_000)
        second = coordinator.join(instance="i1", session_ms=600_000)
        leader, absent = first.answer.member_id, coordinator.join(first.answer.member_id, instance="i0")
        coordinator.sync_all([leader, second.answer.member_id])
        assert absent.answered
        new = coordinator.join()
        coordinator.join(leader, instance="i0")
        coordinator.pass_time(REBALANCE_MS)
        assert new.answer.generation_id == coordinator.group.generation_id
        assert len(coordinator.group.members) == 3

    def test_an_absent_leader_is_replaced(self) -> None:
        coordinator = Coordinator()
        first = coordinator.join(instance="i0", session_ms=600_000)
        coordinator.sync_all([first.answer.member_id])
        new = coordinator.join()
        coordinator.pass_time(REBALANCE_MS)
        assert new.answer.leader == new.answer.member_id
        assert {member_id for member_id, _, _ in new.answer.members} == {
            first.answer.member_id,
            new.answer.member_id,
        }

    @pytest.mark.parametrize("rebalance_ms", [REBALANCE_MS, 0, -1, -(1 << 31)])
    def test_a_join_without_any_member_is_postponed_until_sessions_expire(self, rebalance_ms: int) -> None:
        coordinator = Coordinator()
        first = coordinator.join(instance="i0", rebalance_ms=rebalance_ms, session_ms=100_000).answer.member_id
        coordinator.sync(first, 1, {})
        given = coordinator.join(require_known_member_id=True).answer.member_id
        coordinator.join(given, rebalance_ms=rebalance_ms)
        coordinator.leave(given)
        assert coordinator.state is GroupState.PREPARING_REBALANCE
        coordinator.pass_time(99_999)
        assert list(coordinator.group.members) == [first]
        coordinator.pass_time(1)
        assert not coordinator.group.members

    def test_an_admin_removes_it_by_its_instance_id(self) -> None:
        coordinator = Coordinator()
        leader, _ = coordinator.stable(static=True)
        assert coordinator.leave("", "i1") == NONE
        assert coordinator.heartbeat(leader, 1, "i0") == REBALANCE


class TestProtocols:
    def test_a_common_protocol_is_chosen_by_vote(self) -> None:
        coordinator = Coordinator(delay_ms=10)
        a, b, c = (("a", b""), ("b", b""), ("c", b""))
        joins = [coordinator.join(protocols=protocols) for protocols in ((a, b), (b, a), (c, b, a))]
        coordinator.pass_time(20)
        assert {each.answer.protocol_name for each in joins} == {"b"}

    def test_a_leaving_member_no_longer_restricts_the_protocols(self) -> None:
        coordinator = Coordinator()
        first = coordinator.join(protocols=[ROUND_ROBIN, RANGE]).answer.member_id
        coordinator.sync(first, 1, {}, protocol_name="roundrobin")
        second = coordinator.join(protocols=[RANGE])
        assert coordinator.join(first, protocols=[ROUND_ROBIN, RANGE]).answer.protocol_name == "range"
        coordinator.leave(second.answer.member_id)
        assert coordinator.join(first, protocols=[ROUND_ROBIN, RANGE]).answer.protocol_name == "roundrobin"


class TestSize:
    def test_a_full_group_refuses_members(self) -> None:
        coordinator = Coordinator(members_max=2)
        leader, follower = coordinator.stable()
        assert coordinator.join().answer == Joined(ErrorCode.GROUP_MAX_SIZE_REACHED, "")
        assert coordinator.state is GroupState.STABLE
        assert coordinator.join(follower).code == NONE
        assert not coordinator.join(leader).answered

    def test_during_a_rebalance_the_first_to_join_stay(self) -> None:
        coordinator = Coordinator(members_max=2)
        leader, follower = coordinator.stable()
        coordinator.join(leader)
        new = coordinator.join()
        assert not new.answered
        assert coordinator.join(follower).code == ErrorCode.GROUP_MAX_SIZE_REACHED
        assert {member_id for member_id, _, _ in new.answer.members} == set()
        assert list(coordinator.group.members) == [leader, new.answer.member_id]

    def test_pending_ids_do_not_count(self) -> None:
        coordinator = Coordinator(members_max=1)
        given = [coordinator.join(require_known_member_id=True).answer.member_id for _ in range(3)]
        coordinator.join(given[0])
        assert coordinator.join(given[1]).code == ErrorCode.GROUP_MAX_SIZE_REACHED
        assert list(coordinator.group.pending) == [given[2]]

    def test_a_static_member_of_a_full_group_may_restart(self) -> None:
        coordinator = Coordinator(members_max=2)
        coordinator.stable(static=True)
        assert coordinator.join(instance="i1").code == NONE
        assert coordinator.join(instance="i2").code == ErrorCode.GROUP_MAX_SIZE_REACHED


class TestAFailingLog:
    def test_an_assignment_that_is_not_appended_is_not_returned(self) -> None:
        coordinator = Coordinator()
        leader, follower = coordinator.stable()
        coordinator.join(leader)
        coordinator.join(follower)
        coordinator.appends_fail_with = NOT_COORDINATOR
        waiting = coordinator.sync(follower, 2)
        assert coordinator.sync(leader, 2, {}).code == waiting.code == NOT_COORDINATOR
        assert coordinator.heartbeat(follower, 2) == REBALANCE
        coordinator.appends_fail_with = None
        coordinator.join(leader)
        coordinator.join(follower)
        coordinator.sync_all([leader, follower])
        assert coordinator.group.generation_id == 3

    def test_a_static_member_that_cannot_be_appended_has_not_joined(self) -> None:
        coordinator = Coordinator()
        leader, follower = coordinator.stable(static=True)
        coordinator.appends_fail_with = ErrorCode.UNKNOWN_SERVER_ERROR
        changed = ((RANGE[0], b"changed"),)
        joined = coordinator.join(instance="i0", protocols=changed, session_ms=2000, rebalance_ms=7, client_id="new")
        assert joined.answer == Joined(ErrorCode.UNKNOWN_SERVER_ERROR, "")
        member = coordinator.group.members[leader]
        assert (member.protocols, member.session_timeout_ms, member.rebalance_timeout_ms, member.client_id) == (
            (RANGE,),
            SESSION_MS,
            REBALANCE_MS,
            "client",
        )
        assert coordinator.group.leader == leader
        assert coordinator.heartbeat(leader, 1, "i0") == coordinator.heartbeat(follower, 1, "i1") == NONE

    def test_an_empty_group_is_empty_nevertheless(self) -> None:
        coordinator = Coordinator()
        (member,) = coordinator.stable(1)
        coordinator.appends_fail_with = NOT_COORDINATOR
        assert coordinator.leave(member) == NONE
        assert not coordinator.group.members
        coordinator.restart()
        assert list(coordinator.group.members) == [member]
        coordinator.appends_fail_with = None
        coordinator.pass_time(SESSION_MS)
        assert coordinator.state is GroupState.EMPTY


class TestHostileInput:
    """Refused or bounded: what one client sends must neither raise, nor break the record or others' answers."""

    @pytest.mark.parametrize(
        "said",
        [
            {"group": "g" * 32_768},
            {"instance": "i" * 32_768},
            {"instance": "ü" * 16_384},
            {"protocol_type": "t" * 32_768},
            {"protocols": [("p" * 32_768, b"")]},
        ],
    )
    def test_texts_longer_than_a_record_field(self, said: dict[str, object]) -> None:
        coordinator = Coordinator()
        assert coordinator.join(**said).code == ErrorCode.INVALID_REQUEST  # type: ignore[arg-type]
        assert not coordinator.classic.groups

    def test_texts_as_long_as_a_record_field(self) -> None:
        longest = "x" * 32_767
        coordinator = Coordinator()
        joined = coordinator.join(instance=longest, client_id=longest, protocols=[(longest, b"")]).answer
        assert len(joined.member_id) < 300
        assert coordinator.sync(joined.member_id, 1, {}, protocol_name=longest).code == NONE
        coordinator.restart()
        assert coordinator.group.static == {longest: joined.member_id}

    def test_ids_with_any_characters(self) -> None:
        coordinator = Coordinator()
        strange = "\x00\u202e\U0001f4a3" * 1000
        given = coordinator.join(client_id=strange, require_known_member_id=True).answer.member_id
        assert len(given.encode()) < 1000
        assert coordinator.join(given, client_id=strange).code == NONE
        coordinator.sync_all([given])
        assert coordinator.leave(strange, strange) == UNKNOWN
        coordinator.restart()
        assert coordinator.heartbeat(given, 1) == NONE

    def test_many_protocols_and_long_lists(self) -> None:
        coordinator = Coordinator()
        many = [(f"p{number}", b"") for number in range(20_000)]
        joined = coordinator.join(protocols=many).answer
        assert not coordinator.join(protocols=many).answered
        codes = coordinator.classic.leave("g", [("x", None)] * 100_000, coordinator.now)
        assert set(codes) == {UNKNOWN}
        assert joined.protocol_name is not None

    def test_duplicate_protocols(self) -> None:
        coordinator = Coordinator()
        joined = coordinator.join(protocols=[("range", b"first"), ("range", b"second")]).answer
        assert joined.members == ((joined.member_id, None, b"first"),)

    def test_invalid_metadata(self) -> None:
        coordinator = Coordinator()
        member = coordinator.join(protocols=[("range", b"\x00\x00\x7f\xff\xff\xff garbage")]).answer.member_id
        coordinator.sync_all([member])
        assert coordinator.classic.groups["g"].is_subscribed_to("any topic")


class TestSubscriptions:
    def test_of_a_consumer_group(self) -> None:
        coordinator = Coordinator()
        (member,) = coordinator.stable(1)
        assert coordinator.classic.groups["g"].is_subscribed_to("t")
        assert not coordinator.classic.groups["g"].is_subscribed_to("other")
        coordinator.restart()
        assert coordinator.classic.groups["g"].is_subscribed_to("t")
        assert not coordinator.classic.groups["g"].is_subscribed_to("other")
        coordinator.leave(member)
        assert not coordinator.classic.groups["g"].is_subscribed_to("t")

    def test_other_protocol_types_have_no_subscriptions(self) -> None:
        coordinator = Coordinator()
        coordinator.join(protocol_type="connect")
        assert not coordinator.classic.groups["g"].is_subscribed_to("t")


def test_a_deleted_group_starts_at_generation_1() -> None:
    coordinator = Coordinator()
    (member,) = coordinator.stable(1)
    coordinator.leave(member)
    coordinator.classic.check_delete("g")
    coordinator.classic.replay(GroupDeleted("g"))
    assert not coordinator.classic.groups
    assert coordinator.join().answer.generation_id == 1
