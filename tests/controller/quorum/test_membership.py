"""The voter set changes while messages are lost, nodes restart and disks are lost: still one leader in each epoch."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from uuid import UUID

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from raylog.controller.quorum.quorum import Quorum
from raylog.core.ids import BrokerId
from tests.controller.quorum.model import Model

STEPS = 60
STEP_MS = 25
QUIET_MS = 3000


def run(seed: int, make: type[Model] = Model) -> Model:
    """Random changes and faults; then, without further ones, there is a leader that everyone follows."""
    model = make(seed)
    for _ in range(STEPS):
        model.run(model.now_ms + model.rng.randint(1, 2 * STEP_MS))
        model.disturb()
    model.heal()
    model.run(model.now_ms + QUIET_MS)
    leaders = [node for node in model.nodes.values() if node.quorum.is_leader]
    assert len(leaders) == 1, f"{len(leaders)} leaders once nothing fails any more"
    [leader] = leaders
    assert leader.quorum.is_voter, "the leader has removed itself, but has not resigned"
    end = leader.quorum.high_watermark
    assert end == len(leader.log), "the leader cannot commit its records"
    for node in model.nodes.values():
        assert node.quorum.leader_id == leader.node_id, f"{node.key} does not follow the leader"
        assert node.log == leader.log, f"{node.key} has another log"
        assert node.quorum.voters == leader.quorum.voters
    changes = [entry.voters for entry in leader.log if entry.voters is not None]
    for before, after in pairwise(changes):
        assert len({*before} ^ {*after}) == 1, "more than one voter was changed at a time"
    return model


@given(st.integers(0, 1 << 32))
@example(362879)  # observers told each other of a leader that had resigned, and one of them was needed as a voter
def test_one_leader_in_each_epoch_and_nothing_committed_is_lost(seed: int) -> None:
    run(seed)


def test_the_runs_reach_what_they_are_for() -> None:
    marks: Counter[str] = Counter()
    for seed in range(30):
        marks += run(seed).marks
    for mark in ("voter added", "voter removed", "leader removes itself", "disk lost", "unflushed records lost"):
        assert marks[mark], f"{mark}: in none of these runs"


class _Hasty(Model):
    """A leader that does not wait until its last change is committed."""

    def may_change(self, quorum: Quorum) -> bool:
        return quorum.has_committed_in_epoch and quorum.is_voter


class _SameDirectory(Model):
    """A lost disk that is replaced by an empty one with the same directory id."""

    def directory_after_loss(self, node_id: BrokerId) -> UUID:
        return self.stored[node_id].directory_id


@pytest.mark.parametrize(("model", "seed"), [(_Hasty, 96), (_SameDirectory, 692)])
def test_a_planted_mistake_is_found(model: type[Model], seed: int) -> None:
    with pytest.raises(AssertionError, match="committed"):
        run(seed, model)
