"""A voter's election state is read back as written, in the format of Kafka's quorum-state file."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raylog.controller.quorum.election_state import ElectionState
from raylog.core.ids import BrokerId, LeaderEpoch


@given(st.integers(0, 2**31 - 1), st.integers(-1, 2**31 - 1), st.integers(-1, 2**31 - 1))
def test_it_is_read_back(epoch: int, leader: int, voted_for: int) -> None:
    state = ElectionState(LeaderEpoch(epoch), BrokerId(leader), BrokerId(voted_for))
    assert ElectionState.decode(state.encode()) == state


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
        b'{"leaderId": null, "leaderEpoch": 1, "votedId": 1, "data_version": 1}',
    ],
)
def test_other_content_is_refused(data: bytes) -> None:
    with pytest.raises(ValueError):
        ElectionState.decode(data)
