"""A voter's election state is read back as written, in the format of Kafka's quorum-state file."""

from __future__ import annotations

import json
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raylog.controller.quorum.election_state import ElectionState
from raylog.core.ids import BrokerId, LeaderEpoch
from tests.support.mutations import mutations


@given(st.integers(0, 2**31 - 1), st.integers(-1, 2**31 - 1), st.integers(-1, 2**31 - 1))
def test_it_is_read_back(epoch: int, leader: int, voted_for: int) -> None:
    state = ElectionState(LeaderEpoch(epoch), BrokerId(leader), BrokerId(voted_for))
    assert ElectionState.decode(state.encode()) == state


def test_a_vote_is_for_one_directory_of_the_candidate() -> None:
    one, other = UUID(int=1), UUID(int=2)
    state = ElectionState(LeaderEpoch(3), voted_for=BrokerId(1001), voted_directory=one)
    assert ElectionState.decode(state.encode()) == state
    assert state.may_vote_for(BrokerId(1001), one)
    assert not state.may_vote_for(BrokerId(1001), other)
    assert not state.may_vote_for(BrokerId(1002), one)
    of_before = ElectionState(LeaderEpoch(3), voted_for=BrokerId(1001))
    assert of_before.may_vote_for(BrokerId(1001), other), "the directory was not recorded"


def test_it_has_kafkas_format() -> None:
    fields = json.loads(ElectionState(LeaderEpoch(7), BrokerId(1001), BrokerId(1000)).encode())
    assert fields == {
        "leaderId": 1001,
        "leaderEpoch": 7,
        "votedId": 1000,
        "votedDirectoryId": "AAAAAAAAAAAAAAAAAAAAAA",
        "data_version": 1,
    }


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{",
        b"[]",
        b"\xff\xfe",
        b'{"leaderEpoch": 1}',
        b'{"leaderId": 1, "leaderEpoch": -1, "votedId": 1, "data_version": 1}',
        b'{"leaderId": 1, "leaderEpoch": 1, "votedId": 1, "data_version": 0}',
        b"[" * 100_000,
        b'{"leaderId": 1, "leaderEpoch": 1e999, "votedId": 1, "data_version": 1}',
        b'{"leaderId": 1, "leaderEpoch": 1.5, "votedId": 1, "data_version": 1}',
        b'{"leaderId": 1, "leaderEpoch": "1", "votedId": 1, "data_version": 1}',
        b'{"leaderId": 1, "leaderEpoch": 1, "votedId": true, "data_version": 1}',
        b'{"leaderId": 1, "leaderEpoch": 2147483648, "votedId": 1, "data_version": 1}',
        b'{"leaderId": -2, "leaderEpoch": 1, "votedId": 1, "data_version": 1}',
        b'{"leaderId": 1, "leaderEpoch": 1, "votedId": 1, "votedDirectoryId": "AAAA", "data_version": 1}',
        b'{"leaderId": 1, "leaderEpoch": 1, "votedId": 1, "votedDirectoryId": 5, "data_version": 1}',
        b'{"leaderId": null, "leaderEpoch": 1, "votedId": 1, "data_version": 1}',
    ],
)
def test_other_content_is_refused(data: bytes) -> None:
    with pytest.raises(ValueError):
        ElectionState.decode(data)


def test_mutated_content_is_refused_or_is_another_valid_state() -> None:
    for mutation in mutations(ElectionState(LeaderEpoch(7), BrokerId(1001), BrokerId(1000)).encode(), 5000, 1):
        try:
            state = ElectionState.decode(mutation)
        except ValueError:
            continue
        assert ElectionState.decode(state.encode()) == state
