"""One voter: its votes, its elections, the leader it follows, and its high watermark."""

from __future__ import annotations

import pytest

from raylog.config.controller import QuorumTimeouts
from raylog.controller.quorum.election_state import ElectionState
from raylog.controller.quorum.events import (
    BeginEpoch,
    EpochSeen,
    Event,
    Flushed,
    LeaderSeen,
    LogEnd,
    PeerLost,
    Ready,
    RequestVote,
    Ticked,
    VoteAnswered,
    VoteRequested,
    VoterFetched,
)
from raylog.controller.quorum.quorum import LOST_LEADER_MS_MAX, Quorum, Role
from raylog.core.errors import InvariantViolation
from raylog.core.ids import NO_BROKER_ID, NO_DIRECTORY_ID, BrokerId, LeaderEpoch, Offset
from raylog.metadata.voters import VoterSet

ONE, TWO, THREE = BrokerId(1), BrokerId(2), BrokerId(3)
TIMEOUTS = QuorumTimeouts(election_timeout_ms=1000, fetch_timeout_ms=2000, election_backoff_ms_max=600)


class Bench:
    """Voter 1 of three (or of as many as `voters`), its log and its clock; what it wants saved is noted."""

    def __init__(
        self,
        *,
        voters: tuple[BrokerId, ...] = (ONE, TWO, THREE),
        state: ElectionState | None = None,
        jitter_ms: int = 0,
        last_epoch: int = 3,
        end_offset: int = 10,
    ) -> None:
        self.now_ms = 5000
        self.end = log_end(last_epoch, end_offset)
        self.saved = state or ElectionState(LeaderEpoch(3))
        self.quorum = Quorum(
            ONE,
            VoterSet.of_ids(voters),
            self.saved,
            directory_id=NO_DIRECTORY_ID,
            high_watermark=Offset(0),
            timeouts=TIMEOUTS,
            jitter_ms=lambda most: min(jitter_ms, most),
            now_ms=self.now_ms,
        )

    def step(self, event: Event) -> Ready:
        ready = self.quorum.step(event, self.end, self.now_ms)
        self.saved = ready.save or self.saved
        assert self.saved == self.quorum.state, "what is to be remembered was not given out to be saved"
        return ready

    def pass_time(self, ms: int) -> Ready:
        self.now_ms += ms
        return self.step(Ticked())

    def vote(
        self, voter: BrokerId, *, pre_vote: bool, granted: bool = True, leader_id: BrokerId = NO_BROKER_ID
    ) -> Ready:
        epoch = self.quorum.leader_epoch
        return self.step(
            VoteAnswered(voter, epoch, pre_vote=pre_vote, granted=granted, leader_epoch=epoch, leader_id=leader_id)
        )

    def asked_by(self, candidate: BrokerId, epoch: int, *, last: LogEnd | None = None, pre_vote: bool = False) -> bool:
        return self.step(VoteRequested(candidate, LeaderEpoch(epoch), last or self.end, pre_vote=pre_vote)).granted

    def lead(self) -> None:
        """Win an election and write the record that begins the epoch."""
        self.pass_time(0)
        self.vote(TWO, pre_vote=True)
        self.vote(TWO, pre_vote=False)
        assert self.quorum.is_leader
        self.end = log_end(self.quorum.leader_epoch, self.end.end_offset + 1)
        self.step(Flushed())


def log_end(last_epoch: int, end_offset: int) -> LogEnd:
    return LogEnd(LeaderEpoch(last_epoch), Offset(end_offset))


def asked(ready: Ready) -> list[tuple[BrokerId, int, bool]]:
    return [(each.voter, each.leader_epoch, each.pre_vote) for each in ready.send if isinstance(each, RequestVote)]


class TestElection:
    def test_pre_votes_come_first_and_the_epoch_is_raised_only_after_a_majority_grants_them(self) -> None:
        bench = Bench()
        assert asked(bench.pass_time(0)) == [(TWO, 3, True), (THREE, 3, True)]
        assert bench.saved.leader_epoch == 3
        ready = bench.vote(TWO, pre_vote=True)
        assert ready.save == ElectionState(LeaderEpoch(4), voted_for=ONE), "its own vote is saved before it is sent"
        assert asked(ready) == [(TWO, 4, False), (THREE, 4, False)]
        ready = bench.vote(THREE, pre_vote=False)
        assert bench.quorum.role is Role.LEADER
        assert [each for each in ready.send if isinstance(each, BeginEpoch)] == [
            BeginEpoch(TWO, LeaderEpoch(4)),
            BeginEpoch(THREE, LeaderEpoch(4)),
        ]

    def test_a_single_voter_leads_at_once_in_a_new_epoch(self) -> None:
        bench = Bench(voters=(ONE,))
        assert bench.pass_time(0).save == ElectionState(LeaderEpoch(4), leader_id=ONE, voted_for=ONE)
        assert bench.quorum.is_leader

    def test_a_prospective_voter_refused_by_a_majority_raises_no_epoch(self) -> None:
        bench = Bench()
        bench.pass_time(0)
        bench.vote(TWO, pre_vote=True, granted=False)
        bench.vote(THREE, pre_vote=True, granted=False)
        assert (bench.quorum.role, bench.saved.leader_epoch) == (Role.UNATTACHED, 3)
        assert bench.quorum.deadline_ms > bench.now_ms

    def test_a_lost_election_is_repeated_after_a_random_backoff(self) -> None:
        bench = Bench(jitter_ms=250)
        bench.pass_time(LOST_LEADER_MS_MAX)
        bench.vote(TWO, pre_vote=True)
        bench.vote(TWO, pre_vote=False, granted=False)
        bench.vote(THREE, pre_vote=False, granted=False)
        assert (bench.quorum.role, bench.quorum.deadline_ms) == (Role.UNATTACHED, bench.now_ms + 250)
        assert asked(bench.pass_time(250)) == [(TWO, 4, True), (THREE, 4, True)]

    def test_an_election_without_responses_is_repeated(self) -> None:
        bench = Bench()
        bench.pass_time(0)
        bench.vote(TWO, pre_vote=True)
        bench.pass_time(TIMEOUTS.election_timeout_ms)
        assert asked(bench.pass_time(0)) == [(TWO, 4, True), (THREE, 4, True)]

    def test_votes_of_an_earlier_election_do_not_count(self) -> None:
        bench = Bench()
        bench.pass_time(0)
        bench.vote(TWO, pre_vote=True)
        for epoch, pre_vote in ((3, False), (4, True)):
            old = VoteAnswered(
                THREE,
                LeaderEpoch(epoch),
                pre_vote=pre_vote,
                granted=True,
                leader_epoch=LeaderEpoch(4),
                leader_id=NO_BROKER_ID,
            )
            bench.step(old)
            assert bench.quorum.role is Role.CANDIDATE

    def test_each_voter_counts_once(self) -> None:
        five = (ONE, TWO, THREE, BrokerId(4), BrokerId(5))
        bench = Bench(voters=five)
        bench.pass_time(0)
        bench.vote(TWO, pre_vote=True)
        bench.vote(TWO, pre_vote=True)
        assert bench.saved.leader_epoch == 3
        bench.vote(THREE, pre_vote=True)
        assert bench.saved.leader_epoch == 4


class TestVote:
    def test_one_vote_per_epoch_and_the_same_vote_again_for_the_same_candidate(self) -> None:
        bench = Bench()
        assert bench.asked_by(TWO, 4)
        assert bench.saved == ElectionState(LeaderEpoch(4), voted_for=TWO)
        assert not bench.asked_by(THREE, 4)
        assert bench.asked_by(TWO, 4)
        assert bench.asked_by(THREE, 5)

    def test_a_vote_survives_a_restart(self) -> None:
        bench = Bench(state=ElectionState(LeaderEpoch(4), voted_for=TWO))
        assert not bench.asked_by(THREE, 4)
        assert bench.asked_by(TWO, 4)

    @pytest.mark.parametrize(
        ("last", "granted"),
        [((3, 10), True), ((3, 9), False), ((2, 99), False), ((4, 1), True), ((3, 11), True)],
    )
    def test_only_for_a_log_that_is_at_least_as_complete(self, last: tuple[int, int], granted: bool) -> None:
        for pre_vote in (True, False):
            assert Bench().asked_by(TWO, 4, last=log_end(*last), pre_vote=pre_vote) is granted

    def test_an_old_epoch_is_refused_and_a_higher_one_adopted_without_a_vote_too(self) -> None:
        bench = Bench()
        assert not bench.asked_by(TWO, 2)
        assert bench.saved.leader_epoch == 3
        assert not bench.asked_by(TWO, 9, last=log_end(0, 0))
        assert bench.saved == ElectionState(LeaderEpoch(9))

    def test_a_pre_vote_is_not_a_promise(self) -> None:
        bench = Bench()
        assert bench.asked_by(TWO, 3, pre_vote=True)
        assert bench.asked_by(THREE, 3, pre_vote=True)
        assert bench.saved == ElectionState(LeaderEpoch(3))

    def test_no_pre_vote_while_there_is_a_live_leader(self) -> None:
        bench = Bench()
        bench.step(LeaderSeen(THREE, LeaderEpoch(4)))
        assert not bench.asked_by(TWO, 4, pre_vote=True)
        bench.now_ms += TIMEOUTS.fetch_timeout_ms - 1
        assert not bench.asked_by(TWO, 4, pre_vote=True)
        bench.now_ms += 1
        assert bench.asked_by(TWO, 4, pre_vote=True)
        assert not bench.asked_by(TWO, 4), "an epoch with a leader has no other election"
        assert bench.asked_by(TWO, 5)

    def test_a_pre_vote_at_once_after_the_connection_to_the_leader_is_lost(self) -> None:
        bench = Bench()
        bench.step(LeaderSeen(THREE, LeaderEpoch(4)))
        bench.step(PeerLost(TWO))
        assert not bench.asked_by(TWO, 4, pre_vote=True)
        bench.step(PeerLost(THREE))
        assert bench.asked_by(TWO, 4, pre_vote=True)

    def test_a_pre_vote_although_others_still_report_a_leader_that_has_resigned(self) -> None:
        bench = Bench()
        bench.step(EpochSeen(LeaderEpoch(4), THREE))
        assert bench.asked_by(THREE, 4, pre_vote=True)
        bench.step(LeaderSeen(THREE, LeaderEpoch(4)))
        assert not bench.asked_by(THREE, 4, pre_vote=True), "but not once that leader itself is heard"

    def test_a_leader_grants_no_pre_vote_in_its_epoch(self) -> None:
        bench = Bench()
        bench.lead()
        for pre_vote in (True, False):
            assert not bench.asked_by(TWO, 4, pre_vote=pre_vote)
        assert bench.quorum.is_leader
        assert bench.asked_by(TWO, 5)
        assert bench.quorum.role is Role.UNATTACHED

    def test_only_one_of_two_concurrent_prospective_voters_continues(self) -> None:
        yields, goes_on = Bench(), Bench()
        for bench, other in ((yields, BrokerId(0)), (goes_on, TWO)):
            bench.pass_time(0)
            assert bench.asked_by(other, 3, pre_vote=True)
        assert (yields.quorum.role, goes_on.quorum.role) == (Role.UNATTACHED, Role.PROSPECTIVE)


class TestFollower:
    def test_it_requests_pre_votes_after_the_fetch_timeout(self) -> None:
        bench = Bench()
        bench.step(LeaderSeen(TWO, LeaderEpoch(4)))
        assert bench.saved == ElectionState(LeaderEpoch(4), leader_id=TWO)
        assert bench.pass_time(TIMEOUTS.fetch_timeout_ms - 1).send == ()
        bench.step(LeaderSeen(TWO, LeaderEpoch(4)))
        assert bench.pass_time(TIMEOUTS.fetch_timeout_ms - 1).send == ()
        assert asked(bench.pass_time(1)) == [(TWO, 4, True), (THREE, 4, True)]

    def test_it_requests_pre_votes_within_milliseconds_after_the_connection_to_the_leader_breaks(self) -> None:
        bench = Bench(jitter_ms=7)
        bench.step(LeaderSeen(TWO, LeaderEpoch(4)))
        bench.step(PeerLost(TWO))
        assert asked(bench.pass_time(7)) == [(TWO, 4, True), (THREE, 4, True)]

    def test_it_returns_to_a_leader_that_the_others_follow(self) -> None:
        bench = Bench()
        bench.step(LeaderSeen(TWO, LeaderEpoch(4)))
        bench.step(PeerLost(TWO))
        bench.pass_time(0)
        bench.vote(TWO, pre_vote=True, granted=False, leader_id=TWO)
        bench.vote(THREE, pre_vote=True, granted=False, leader_id=TWO)
        assert (bench.quorum.role, bench.quorum.leader_id) == (Role.FOLLOWER, TWO)

    def test_a_leader_reported_by_another_voter_does_not_reset_the_fetch_timeout(self) -> None:
        bench = Bench()
        bench.step(EpochSeen(LeaderEpoch(4), TWO))
        assert (bench.quorum.role, bench.quorum.leader_id) == (Role.FOLLOWER, TWO)
        deadline_ms = bench.quorum.deadline_ms
        bench.now_ms += 100
        bench.step(EpochSeen(LeaderEpoch(4), TWO))
        assert bench.quorum.deadline_ms == deadline_ms

    def test_a_leader_of_an_old_epoch_is_not_followed(self) -> None:
        bench = Bench()
        bench.step(LeaderSeen(TWO, LeaderEpoch(2)))
        assert (bench.quorum.role, bench.quorum.leader_id) == (Role.UNATTACHED, NO_BROKER_ID)

    def test_two_leaders_in_one_epoch_are_a_violation(self) -> None:
        bench = Bench()
        bench.step(LeaderSeen(TWO, LeaderEpoch(4)))
        with pytest.raises(InvariantViolation, match="two leaders"):
            bench.step(LeaderSeen(THREE, LeaderEpoch(4)))

    def test_its_high_watermark_is_the_leaders_up_to_its_log_end(self) -> None:
        bench = Bench()
        bench.step(LeaderSeen(TWO, LeaderEpoch(4)))
        for told, known in ((7, 7), (5, 7), (99, 10)):
            bench.quorum.follower_high_watermark(Offset(told), bench.end)
            assert bench.quorum.high_watermark == known


class TestLeader:
    def test_records_on_a_majority_are_committed(self) -> None:
        bench = Bench()
        bench.lead()
        assert bench.quorum.high_watermark == 0
        bench.step(VoterFetched(TWO, Offset(11)))
        assert bench.quorum.high_watermark == 11
        bench.end = log_end(4, 20)
        bench.step(VoterFetched(TWO, Offset(15)))
        bench.step(VoterFetched(THREE, Offset(13)))
        assert bench.quorum.high_watermark == 15
        bench.step(VoterFetched(THREE, Offset(20)))
        assert bench.quorum.high_watermark == 20

    def test_records_of_earlier_epochs_are_not_committed_by_count(self) -> None:
        """Raft 5.4.2, figure 8: another may yet be elected that has not got it."""
        bench = Bench()
        bench.lead()
        bench.step(VoterFetched(TWO, Offset(10)))
        bench.step(VoterFetched(THREE, Offset(10)))
        assert (bench.quorum.high_watermark, bench.quorum.has_committed_in_epoch) == (0, False)
        bench.step(VoterFetched(THREE, Offset(11)))
        assert (bench.quorum.high_watermark, bench.quorum.has_committed_in_epoch) == (11, True)

    def test_its_own_unflushed_records_do_not_count(self) -> None:
        bench = Bench(voters=(ONE,))
        bench.pass_time(0)
        bench.step(Flushed())
        assert bench.quorum.high_watermark == 0
        bench.end = log_end(4, 11)
        bench.step(Flushed())
        assert bench.quorum.high_watermark == 11

    def test_a_fetch_of_a_non_voter_does_not_count(self) -> None:
        bench = Bench()
        bench.lead()
        bench.step(VoterFetched(BrokerId(77), Offset(11)))
        assert bench.quorum.high_watermark == 0

    def test_a_voter_with_all_records_of_the_fetch_before_was_caught_up_then(self) -> None:
        """KIP-836: in a log that grows all the time, a voter may never be at its end."""
        bench = Bench()
        bench.lead()
        began_ms = bench.now_ms
        progress = bench.quorum.progress[TWO]
        seen: list[int | None] = []
        for fetched, leader_end in ((10, 20), (20, 30), (30, 40), (35, 50), (50, 50)):
            bench.now_ms += 100
            bench.end = log_end(4, leader_end)
            bench.step(VoterFetched(TWO, Offset(fetched)))
            seen.append(None if progress.caught_up_ms is None else progress.caught_up_ms - began_ms)
        assert seen == [None, 100, 200, 200, 500]

    def test_the_high_watermark_never_decreases(self) -> None:
        bench = Bench()
        bench.lead()
        bench.step(VoterFetched(TWO, Offset(11)))
        bench.step(VoterFetched(TWO, Offset(4)))
        assert bench.quorum.high_watermark == 11

    def test_it_repeats_begin_quorum_epoch_to_voters_that_have_not_fetched(self) -> None:
        bench = Bench()
        bench.lead()
        bench.step(VoterFetched(TWO, Offset(3)))
        assert bench.pass_time(TIMEOUTS.fetch_timeout_ms // 4).send == (BeginEpoch(THREE, LeaderEpoch(4)),)

    def test_it_resigns_without_fetches_from_a_majority(self) -> None:
        bench = Bench()
        bench.lead()
        bench.step(VoterFetched(TWO, Offset(11)))
        bench.pass_time(2999)
        assert bench.quorum.is_leader
        bench.pass_time(500)
        assert (bench.quorum.role, bench.quorum.leader_id) == (Role.UNATTACHED, NO_BROKER_ID)
        assert bench.saved.voted_for == ONE
        assert not bench.asked_by(TWO, 4)

    def test_one_silent_voter_of_three_does_not_matter(self) -> None:
        bench = Bench()
        bench.lead()
        for _ in range(10):
            bench.pass_time(1000)
            bench.step(VoterFetched(THREE, Offset(11)))
        assert bench.quorum.is_leader

    def test_a_higher_epoch_ends_its_leadership(self) -> None:
        bench = Bench()
        bench.lead()
        bench.step(EpochSeen(LeaderEpoch(5), NO_BROKER_ID))
        assert (bench.quorum.role, bench.saved) == (Role.UNATTACHED, ElectionState(LeaderEpoch(5)))
