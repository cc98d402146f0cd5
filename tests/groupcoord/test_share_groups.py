"""Share groups with random members: every partition with state has a member, epochs fence, and a replay is the same."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raylog.config.share_groups import share_group_settings
from raylog.config.table import broker_configs
from raylog.core.clock import Now
from raylog.core.errors import ErrorCode, KafkaError
from raylog.groupcoord.consumer.records import Partitions
from raylog.groupcoord.share import records
from raylog.groupcoord.share.assignor import assign
from raylog.groupcoord.share.groups import (
    INITIALIZING_HEARTBEAT_MS,
    LEAVING,
    OnInitialized,
    ShareAnswer,
    ShareGroups,
    ShareHeartbeat,
)
from raylog.groupcoord.topics import TopicShape
from tests.support.forms import by_form

SETTINGS = share_group_settings(broker_configs({"group.share.max.size": 4}))
SESSION_MS = SETTINGS.session_timeout_ms


class Coordinator:
    """Runs one shard's share groups on a log; state is initialized when the test says."""

    def __init__(self, shapes: dict[str, TopicShape]) -> None:
        self.shapes = shapes
        self.log: list[Any] = []
        self.now_ms = 0
        self.asked: list[tuple[Partitions, int, OnInitialized]] = []
        self.groups = self.made()

    def made(self) -> ShareGroups:
        return ShareGroups(lambda _: SETTINGS, append=self.append, topics=self, initialize=self.initialize)

    @property
    def now(self) -> Now:
        return Now(self.now_ms, self.now_ms)

    def shape(self, name: str) -> TopicShape | None:
        return self.shapes.get(name)

    def name(self, topic_id: UUID) -> str | None:
        return next((name for name, shape in self.shapes.items() if shape.topic_id == topic_id), None)

    def names(self) -> Sequence[str]:
        return list(self.shapes)

    def deleted(self, names: Iterable[str]) -> set[str]:
        return set()

    def append(self, decided: Sequence[Any], now: Now) -> None:
        for record in decided:
            key, value = records.FORMAT.encode(record)
            assert records.FORMAT.decode(int.from_bytes(key[:2]), key, value) == record
            self.log.append(record)
            self.groups.replay(record)

    def initialize(self, group: str, partitions: Partitions, epoch: int, done: OnInitialized, now: Now) -> None:
        self.asked.append((partitions, epoch, done))

    def initialized(self, *, fails: bool = False) -> None:
        asked, self.asked = self.asked, []
        for partitions, _, done in asked:
            done(frozenset() if fails else partitions, self.now)

    def beat(self, member_id: str, epoch: int, *topics: str) -> ShareAnswer:
        request = ShareHeartbeat(group_id="g", member_id=member_id, member_epoch=epoch, topic_names=topics or None)
        return self.groups.heartbeat(request, self.now)

    def reload(self) -> None:
        """Another coordinator: requests for state are lost."""
        before, self.asked = self.groups.groups, []
        self.groups = self.made()
        for record in self.log:
            self.groups.replay(record)
        assert self.groups.groups == before
        self.groups.loaded(self.now)


def coordinator(partitions: int = 3) -> Coordinator:
    return Coordinator({"t": TopicShape(UUID(int=1), partitions), "u": TopicShape(UUID(int=2), 2)})


def refused(run: Coordinator, *beat: Any) -> ErrorCode:
    with pytest.raises(KafkaError) as error:
        run.beat(*beat)
    return error.value.code


def test_partitions_are_assigned_once_they_have_state() -> None:
    run = coordinator()
    first = run.beat("a", 0, "t")
    assert (first.assignment, first.heartbeat_interval_ms) == (frozenset(), INITIALIZING_HEARTBEAT_MS)
    run.beat("a", first.member_epoch)
    assert len(run.asked) == 1, "the state is asked for once"
    run.initialized(fails=True)
    run.beat("a", first.member_epoch)
    run.initialized()
    second = run.beat("a", first.member_epoch)
    assert second.assignment == frozenset((UUID(int=1), number) for number in range(3))
    assert run.beat("a", second.member_epoch).assignment is None
    run.shapes["t"] = TopicShape(UUID(int=1), 5)
    run.groups.topics_changed()
    run.beat("a", second.member_epoch)
    ((asked, _, _),) = run.asked
    assert asked == {(UUID(int=1), 3), (UUID(int=1), 4)}


def test_epochs_fence_members() -> None:
    run = coordinator()
    assert refused(run, "a", 5) == ErrorCode.GROUP_ID_NOT_FOUND
    first = run.beat("a", 0, "t")
    run.initialized()
    second = run.beat("a", first.member_epoch)
    assert run.beat("a", first.member_epoch).member_epoch == second.member_epoch, "the response may be lost"
    assert refused(run, "a", second.member_epoch + 1) == ErrorCode.FENCED_MEMBER_EPOCH
    assert refused(run, "b", 1) == ErrorCode.UNKNOWN_MEMBER_ID
    assert refused(run, "b", LEAVING) == ErrorCode.UNKNOWN_MEMBER_ID
    for beat in (("", 0, "t"), ("b", 0), ("b", -2, "t"), ("b", -(1 << 31), "t")):
        assert refused(run, *beat) == ErrorCode.INVALID_REQUEST
    for name in "bcd":
        run.beat(name, 0, "t")
    assert refused(run, "e", 0, "t") == ErrorCode.GROUP_MAX_SIZE_REACHED


@pytest.mark.parametrize("seed", range(by_form(25, long=2000)))
def test_random_members(seed: int) -> None:
    dice = random.Random(seed)
    run = coordinator(dice.randint(1, 6))
    epochs: dict[str, int] = {}
    for _ in range(60):
        name = dice.choice("abcd")
        match dice.randrange(8):
            case 0 | 1 | 2 | 3 if name in epochs:
                if name in run.groups.groups["g"].members:
                    epochs[name] = run.beat(name, epochs[name]).member_epoch
                else:
                    assert refused(run, name, epochs.pop(name)) == ErrorCode.UNKNOWN_MEMBER_ID
            case 4:
                epochs[name] = run.beat(name, 0, *dice.sample("tu", dice.randint(1, 2))).member_epoch
            case 5 if name in epochs and name in run.groups.groups["g"].members:
                assert run.beat(name, LEAVING).member_epoch == LEAVING
                del epochs[name]
            case 6:
                run.initialized(fails=dice.random() < 0.3)
            case 7:
                run.now_ms += dice.randrange(SESSION_MS)
                run.groups.tick(run.now)
                if dice.random() < 0.3:
                    run.reload()
    for name in "ab":
        epochs[name] = run.beat(name, 0, "t", "u").member_epoch
    for _ in range(4):
        run.initialized()
        for name in run.groups.groups["g"].members:
            epochs[name] = run.beat(name, run.groups.groups["g"].members[name].member_epoch).member_epoch
    group = run.groups.groups["g"]
    subscribed = {
        (shape.topic_id, number)
        for name in group.topic_names()
        if (shape := run.shape(name))
        for number in range(shape.partition_count)
    }
    assert subscribed <= group.initialized
    assert frozenset().union(*(member.assigned for member in group.members.values())) == subscribed
    assert {member.member_epoch for member in group.members.values()} == {group.group_epoch}
    run.reload()


@given(st.integers(1, 12), st.integers(1, 12))
def test_the_assignment_is_balanced(members: int, partitions: int) -> None:
    topic_id = UUID(int=1)
    names = tuple(f"m{number:02}" for number in range(members))
    found = assign({topic_id: names}, frozenset((topic_id, number) for number in range(partitions)))
    assert set(found) == set(names)
    sizes = [len(found[name]) for name in names]
    assert max(sizes) - min(sizes) <= 1
    of_partition = [sum((topic_id, number) in mine for mine in found.values()) for number in range(partitions)]
    assert min(of_partition) >= 1
    assert max(of_partition) - min(of_partition) <= 1
