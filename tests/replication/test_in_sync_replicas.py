"""A leader exposes no record that an eligible leader lacks."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raylog.core.errors import ErrorCode, KafkaError
from raylog.core.ids import BrokerId
from raylog.replication.in_sync_replicas import InSyncReplicas

ZERO, ONE, TWO = BrokerId(0), BrokerId(1), BrokerId(2)
LAG_MS = 1000


def replicas(*isr: BrokerId, start: int = 0) -> InSyncReplicas:
    return InSyncReplicas(ZERO, (ZERO, ONE, TWO), isr or (ZERO, ONE, TWO), 5, epoch_start_offset=start, now_ms=0)


def fetched(leader: InSyncReplicas, replica: BrokerId, offset: int, *, end: int = 10, now_ms: int = 0) -> None:
    leader.fetched(
        replica, offset, log_start_offset=0, broker_epoch=100 + replica, leader_end_offset=end, now_ms=now_ms
    )


def proposal(
    leader: InSyncReplicas,
    *,
    now_ms: int = 0,
    end: int = 10,
    high_watermark: int = 0,
    excluded: tuple[BrokerId, ...] = (),
) -> list[tuple[BrokerId, int]] | None:
    return leader.proposal(
        high_watermark=high_watermark,
        leader_end_offset=end,
        lag_ms_max=LAG_MS,
        may_join=lambda replica: replica not in excluded,
        now_ms=now_ms,
    )


def test_records_of_all_in_sync_replicas_are_committed() -> None:
    leader = replicas()
    assert leader.committed_upto(10) == -1, "no follower has fetched yet"
    fetched(leader, ONE, 7)
    fetched(leader, TWO, 4)
    assert leader.committed_upto(10) == 4
    fetched(leader, TWO, 10)
    assert leader.committed_upto(10) == 7
    assert replicas(ZERO).committed_upto(10) == 10


def test_a_lagging_follower_leaves_once_the_controller_agrees() -> None:
    leader = replicas()
    fetched(leader, ONE, 10, now_ms=900)
    fetched(leader, TWO, 4, now_ms=900)
    assert proposal(leader, now_ms=1000) is None
    assert proposal(leader, now_ms=1001) == [(ZERO, -1), (ONE, 101)]
    assert leader.committed_upto(10) == 4, "the controller may not agree"
    assert proposal(leader, now_ms=2000) is None, "it was asked"
    leader.changed((ZERO, ONE), 6)
    assert leader.committed_upto(10) == 10
    assert leader.partition_epoch == 6


def test_a_follower_that_keeps_up_with_a_busy_leader_stays() -> None:
    leader = replicas(ZERO, ONE)
    for second in range(10):
        fetched(leader, ONE, second * 100, end=second * 100 + 100, now_ms=second * 900)
        assert proposal(leader, end=second * 100 + 100, now_ms=second * 900) is None
    fetched(leader, ONE, 950, end=1100, now_ms=10_000)
    assert proposal(leader, end=1100, now_ms=10_000) == [(ZERO, -1)]


def test_an_idle_follower_with_all_records_stays() -> None:
    leader = replicas(ZERO, ONE)
    fetched(leader, ONE, 10)
    assert proposal(leader, now_ms=10**6) is None


def test_a_joining_follower_holds_back_the_high_watermark_before_it_joins() -> None:
    leader = replicas(ZERO, start=8)
    fetched(leader, ONE, 7)
    assert proposal(leader, high_watermark=5) is None, "it has less than this leadership began with"
    fetched(leader, ONE, 9)
    assert proposal(leader, high_watermark=10) is None, "it has less than what was read"
    assert proposal(leader, high_watermark=9) == [(ZERO, -1), (ONE, 101)]
    assert leader.committed_upto(12) == 9
    leader.proposal_failed()
    assert leader.committed_upto(12) == 9, "the controller may have agreed"
    assert proposal(leader, high_watermark=9) == [(ZERO, -1), (ONE, 101)], "it is asked the same again"
    leader.changed((ZERO,), 6)
    assert leader.committed_upto(12) == 12


def test_a_refused_follower_does_not_hold_back_the_high_watermark() -> None:
    leader = replicas(ZERO)
    fetched(leader, ONE, 9)
    assert proposal(leader, high_watermark=9) == [(ZERO, -1), (ONE, 101)]
    leader.proposal_refused()
    assert leader.committed_upto(12) == 12


def test_after_a_refusal_an_earlier_request_without_response_may_still_be_applied() -> None:
    leader = replicas(ZERO)
    fetched(leader, ONE, 9)
    assert proposal(leader, high_watermark=9) == [(ZERO, -1), (ONE, 101)]
    leader.proposal_failed()
    assert proposal(leader, high_watermark=9) == [(ZERO, -1), (ONE, 101)]
    leader.proposal_refused()
    assert leader.committed_upto(12) == 9, "the first one may be taken when the follower is eligible again"
    assert not leader.alone
    assert proposal(leader, high_watermark=9) == [(ZERO, -1)], "which makes the first one too old"
    leader.changed((ZERO,), 6)
    assert leader.committed_upto(12) == 12
    assert proposal(leader, high_watermark=9) == [(ZERO, -1), (ONE, 101)]
    leader.proposal_refused()
    assert leader.committed_upto(12) == 12


def test_older_isr_changes_are_ignored() -> None:
    leader = replicas(ZERO)
    fetched(leader, ONE, 10)
    assert proposal(leader) is not None
    leader.changed((ZERO, TWO), 5)
    assert leader.isr == {ZERO}
    assert leader.partition_epoch == 5
    assert leader.committed_upto(12) == 10


def test_unknown_brokers_and_old_incarnations_are_refused() -> None:
    leader = replicas()
    leader.fetched(ONE, 3, log_start_offset=0, broker_epoch=200, leader_end_offset=10, now_ms=0)
    for replica, broker_epoch in ((BrokerId(7), 1), (ONE, 199)):
        with pytest.raises(KafkaError) as proposal_refused:
            leader.fetched(replica, 5, log_start_offset=0, broker_epoch=broker_epoch, leader_end_offset=10, now_ms=0)
        assert proposal_refused.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert leader.followers[ONE].log_end_offset == 3


@given(
    st.lists(st.tuples(st.sampled_from(["append", "fetch", "propose", "agree", "refuse", "lose"]), st.integers(0, 9)))
)
def test_every_eligible_leader_has_all_committed_records(steps: list[tuple[str, int]]) -> None:
    leader = replicas()
    ends = {ZERO: 0, ONE: 0, TWO: 0}
    committed = now_ms = 0
    controllers_isr, controllers_epoch = leader.isr, 5
    asked: tuple[frozenset[BrokerId], int] | None = None
    for step, number in steps:
        now_ms += number * 200
        follower = BrokerId(1 + number % 2)
        if step == "append":
            ends[ZERO] += 1
        elif step == "fetch":
            fetched(leader, follower, ends[follower], end=ends[ZERO], now_ms=now_ms)
            ends[follower] = min(ends[ZERO], ends[follower] + number)
        elif step == "propose" and asked is None:
            wanted = proposal(leader, now_ms=now_ms, end=ends[ZERO], high_watermark=committed)
            if wanted is not None:
                asked = frozenset(one for one, _ in wanted), leader.partition_epoch
        elif asked is not None:
            heard = step != "lose"
            if step != "refuse" and asked[1] == controllers_epoch:
                controllers_isr, controllers_epoch = asked[0], controllers_epoch + 1
            elif asked[1] != controllers_epoch:
                heard = True
                leader.changed(controllers_isr, controllers_epoch)  # as the metadata will tell
            if not heard:
                leader.proposal_failed()
            elif step == "refuse" and leader.partition_epoch == controllers_epoch:
                leader.proposal_refused()
            else:
                leader.changed(controllers_isr, controllers_epoch)
            asked = None
        committed = max(committed, leader.committed_upto(ends[ZERO]))
        assert all(ends[replica] >= committed for replica in controllers_isr)


def test_a_follower_that_may_not_join_is_not_proposed_and_holds_nothing_back() -> None:
    leader = replicas(ZERO)
    fetched(leader, ONE, 10)
    fetched(leader, TWO, 10)
    assert proposal(leader, excluded=(ONE,)) == [(ZERO, -1), (TWO, 102)]
    assert leader.committed_upto(12) == 10
    leader = replicas(ZERO, ONE)
    fetched(leader, ONE, 10)
    assert proposal(leader, excluded=(ONE,)) is None, "who is in sync leaves by the controller's word"
