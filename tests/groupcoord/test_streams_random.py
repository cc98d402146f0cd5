"""Whatever members, topics and coordinators do, an active task has one owner, and each finds one if members behave."""

from __future__ import annotations

from contextlib import suppress

from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from raylog.core.errors import ErrorCode, KafkaError
from raylog.groupcoord.streams.tasks import TaskId
from tests.groupcoord.streams_coordinator import StreamsClient, StreamsCoordinator
from tests.support.forms import by_form

INTERNAL = ("mid", "counts")
PROCESSES = ("p", "q", "r")


class Groups(RuleBasedStateMachine):
    """The naive model: `clients` says who uses which task; a client that is no member any more uses none."""

    def __init__(self) -> None:
        super().__init__()
        self.coordinator = StreamsCoordinator()
        self.clients: list[StreamsClient] = []

    @initialize(
        count=st.integers(1, 6),
        first=st.integers(1, 3),
        replicas=st.integers(0, 2),
        delay_ms=st.sampled_from([0, 0, 3000]),
    )
    def begin(self, count: int, first: int, replicas: int, delay_ms: int) -> None:
        self.coordinator = StreamsCoordinator(standby_replicas=replicas, delay_ms=delay_ms, words=count)
        for number in range(first):
            self.add(f"first{number}", PROCESSES[number])

    def add(self, member_id: str, process_id: str) -> None:
        endpoint = ("host", 1) if process_id == "p" else None
        self.clients.append(StreamsClient(self.coordinator, member_id, process_id, endpoint=endpoint))
        self.clients[-1].beat()

    @precondition(lambda self: len(self.clients) < 6)
    @rule(process_id=st.sampled_from(PROCESSES))
    def join(self, process_id: str) -> None:
        self.add(f"m{len(self.coordinator.log) + len(self.clients)}", process_id)

    @precondition(lambda self: self.clients)
    @rule(data=st.data(), response_is_lost=st.sampled_from([False, False, True]), revokes=st.booleans())
    def beat(self, data: st.DataObject, response_is_lost: bool, revokes: bool) -> None:
        client = data.draw(st.sampled_from(self.clients))
        client.beat(response_is_lost=response_is_lost)
        if revokes:
            client.revoke()

    @precondition(lambda self: len(self.clients) > 1)
    @rule(data=st.data(), dies=st.booleans())
    def end(self, data: st.DataObject, dies: bool) -> None:
        client = data.draw(st.sampled_from(self.clients))
        self.clients.remove(client)
        if not dies and client.is_member:
            with suppress(KafkaError):  # it may have been removed
                client.leave()
        client.abandon()

    @rule(ms=st.sampled_from([1, 3000, 20_000, 46_000, 61_000]))
    def pass_time(self, ms: int) -> None:
        self.coordinator.pass_time(ms)

    @rule()
    def fail_over(self) -> None:
        self.coordinator.restart()

    @precondition(lambda self: self.clients)
    @rule(data=st.data())
    def fail_to_append(self, data: st.DataObject) -> None:
        self.coordinator.appends_fail_with = ErrorCode.NOT_COORDINATOR
        data.draw(st.sampled_from(self.clients)).beat()
        self.coordinator.appends_fail_with = None

    @rule(replicas=st.integers(0, 2))
    def change_standby_replicas(self, replicas: int) -> None:
        self.coordinator.settings = StreamsCoordinator(standby_replicas=replicas).settings

    @rule(name=st.sampled_from(["words", *INTERNAL]))
    def delete_topic(self, name: str) -> None:
        if name in self.coordinator.topics.shapes:
            self.coordinator.delete_topic(name)

    @rule(count=st.integers(1, 6))
    def create_words(self, count: int) -> None:
        if "words" not in self.coordinator.topics.shapes:
            self.coordinator.create_topic("words", count)

    def users(self) -> list[StreamsClient]:
        group = self.coordinator.streams.groups.get("g")
        return [client for client in self.clients if group is not None and client.member_id in group.members]

    @invariant()
    def an_active_task_has_one_owner(self) -> None:
        users: dict[TaskId, str] = {}
        for client in self.users():
            for task in client.owned.active:
                other = users.setdefault(task, client.member_id)
                assert other == client.member_id, f"{task} is active at {other} and {client.member_id}"

    @invariant()
    def a_process_has_a_task_once(self) -> None:
        """Two members of it would open one state directory."""
        users: dict[tuple[str, TaskId], str] = {}
        for client in self.users():
            for task in client.owned.active | client.owned.standby:
                other = users.setdefault((client.process_id, task), client.member_id)
                assert other == client.member_id, f"{task} is at {other} and {client.member_id}"

    @invariant()
    def the_group_knows_who_has_what(self) -> None:
        group = self.coordinator.streams.groups.get("g")
        if group is None:
            return
        held = {member.member_id: member.assigned | member.revoking for member in group.members.values()}
        assert group.active_owners == {task: name for name, tasks in held.items() for task in tasks.active}
        assert sum(len(tasks.active) for tasks in held.values()) == len(group.active_owners)
        assert {(task, name) for task, names in group.passive_owners.items() for name in names} == {
            (task, name) for name, tasks in held.items() for task in tasks.passive
        }
        assert all(
            member.epochs.keys() == held[member.member_id].active
            and all(epoch <= group.group_epoch for epoch in member.epochs.values())
            for member in group.members.values()
        )

    @invariant()
    def the_log_tells_the_state(self) -> None:
        current = self.coordinator.streams.groups
        assert self.coordinator.replayed(self.coordinator.log).groups == current
        assert self.coordinator.replayed(self.coordinator.compacted()).groups == current

    def teardown(self) -> None:
        """Everybody behaves, and the topics are there: every task has one active owner, and its standby copies."""
        coordinator = self.coordinator
        if "words" not in coordinator.topics.shapes:
            coordinator.create_topic("words", 3)
        for name in INTERNAL:  # they may not fit the number of partitions that words has now
            if name in coordinator.topics.shapes:
                coordinator.delete_topic(name)
        for _ in range(2):  # members that died are removed
            for _ in range(14):
                for client in self.clients:
                    client.beat()
                    client.revoke()
                coordinator.pass_time(5000)
        if not self.clients:
            return
        coordinator.settle(*self.clients)
        count = coordinator.topics.shapes["words"].partition_count
        expected = [(name, number) for name in "01" for number in range(count)]
        assert sorted(task for client in self.clients for task in client.owned.active) == expected
        processes = {client.process_id for client in self.clients}
        copies = min(coordinator.settings.standby_replicas, len(processes) - 1)
        assert sorted(task for client in self.clients for task in client.owned.standby) == sorted(
            task for task in expected if task[0] == "1" for _ in range(copies)
        )
        assert all(client.owned == coordinator.group.members[client.member_id].assigned for client in self.clients)
        assert all(client.statuses == () for client in self.clients)
        assert coordinator.group.state == "Stable"
        if len(processes) == len(self.clients):
            numbers = [len(client.owned.active) for client in self.clients]
            assert max(numbers) - min(numbers) <= 1


TestGroups = Groups.TestCase
TestGroups.settings = settings(
    max_examples=by_form(15, long=5000, quick=8),
    stateful_step_count=40,
    deadline=None,
    phases=[Phase.explicit, Phase.generate],
)
