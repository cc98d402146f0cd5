"""Whatever members, topics and coordinators do, a partition has one owner, and each finds one if members behave."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from raylog.core.errors import ErrorCode, KafkaError
from raylog.groupcoord.consumer.records import TopicIdPartition
from tests.groupcoord.consumer_coordinator import Client, ConsumerCoordinator
from tests.support.forms import by_form

NAMES = ("a", "b", "ab")
SUBSCRIPTIONS = st.sampled_from([("a",), ("b",), ("a", "b"), ("a", "b", "ab"), ()])


class Groups(RuleBasedStateMachine):
    """The naive model: `clients` says who uses which partition; a client that is no member any more uses none."""

    def __init__(self) -> None:
        super().__init__()
        self.coordinator = ConsumerCoordinator()
        self.clients: list[Client] = []
        self.left: list[Client] = []
        """Static members that have left for a while."""

    @initialize(
        counts=st.tuples(*(st.integers(1, 7) for _ in NAMES)), first=st.integers(1, 4), assigned_at_once=st.booleans()
    )
    def create_topics(self, counts: tuple[int, ...], first: int, assigned_at_once: bool) -> None:
        if not assigned_at_once:  # as large groups are
            self.coordinator.settings = replace(
                self.coordinator.settings, assignment_interval_ms=1000, assigned_at_once_max=0
            )
        for name, count in zip(NAMES, counts, strict=True):
            self.coordinator.create_topic(name, count)
        for number in range(first):
            self.clients.append(Client(self.coordinator, f"first{number}", ("a", "b")))
            self.clients[-1].beat()

    @precondition(lambda self: len(self.clients) < 6)
    @rule(
        topics=SUBSCRIPTIONS,
        regex=st.sampled_from([None, None, "a.*"]),
        is_static=st.booleans(),
        assignor=st.sampled_from([None, "uniform", "range"]),
    )
    def join(self, topics: tuple[str, ...], regex: str | None, is_static: bool, assignor: str | None) -> None:
        number = len(self.coordinator.log) + len(self.clients)
        client = Client(
            self.coordinator, f"m{number}", topics, f"i{number}" if is_static else None, regex, server_assignor=assignor
        )
        client.beat()
        self.clients.append(client)

    @precondition(lambda self: self.clients)
    @rule(data=st.data(), response_is_lost=st.sampled_from([False, False, True]), revokes=st.booleans())
    def beat(self, data: st.DataObject, response_is_lost: bool, revokes: bool) -> None:
        client = data.draw(st.sampled_from(self.clients))
        client.beat(response_is_lost=response_is_lost)
        if revokes:
            client.revoke()

    @precondition(lambda self: self.clients)
    @rule(data=st.data(), topics=SUBSCRIPTIONS)
    def subscribe(self, data: st.DataObject, topics: tuple[str, ...]) -> None:
        data.draw(st.sampled_from(self.clients)).subscribe(*topics)

    @precondition(lambda self: len(self.clients) > 1)
    @rule(data=st.data(), way=st.sampled_from(["leave", "for a while", "die"]))
    def end(self, data: st.DataObject, way: str) -> None:
        client = data.draw(st.sampled_from(self.clients))
        self.clients.remove(client)
        if way == "die" or not client.is_member:
            client.abandon()
            return
        for_a_while = way == "for a while" and client.instance_id is not None
        try:
            client.leave(for_a_while=for_a_while)
        except KafkaError:
            client.abandon()
        if for_a_while:
            self.left.append(client)

    @precondition(lambda self: self.left)
    @rule(number=st.integers(0, 1000))
    def return_as_another_process(self, number: int) -> None:
        old = self.left.pop()
        client = Client(self.coordinator, f"r{number}-{old.member_id}", old.topics, old.instance_id, old.topic_regex)
        client.beat()
        self.clients.append(client)

    @rule(ms=st.sampled_from([1, 5000, 20_000, 46_000, 61_000]))
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

    @rule(name=st.sampled_from(NAMES), change=st.sampled_from(["more", "delete", "again"]))
    def change_topic(self, name: str, change: str) -> None:
        exists = name in self.coordinator.topics.shapes
        if change == "more" and exists:
            self.coordinator.add_partitions(name, 2)
        elif change == "delete" and exists:
            self.coordinator.delete_topic(name)
        elif change == "again" and not exists:
            self.coordinator.create_topic(name, 3)

    @invariant()
    def a_partition_has_one_owner(self) -> None:
        group = self.coordinator.consumer.groups.get("g")
        members = {} if group is None else group.members
        users: dict[TopicIdPartition, str] = {}
        for client in self.clients:
            if client.member_id in members:
                for partition in client.owned:
                    other = users.setdefault(partition, client.member_id)
                    assert other == client.member_id, f"{partition} is used by {other} and {client.member_id}"
        if group is not None:
            held = [(each, member_id) for member_id, m in members.items() for each in m.assigned | m.revoking]
            assert len(held) == len(dict(held)) == len(group.owners)
            assert dict(held) == group.owners

    @invariant()
    def the_log_tells_the_state(self) -> None:
        current = self.coordinator.consumer.groups
        assert self.coordinator.replayed(self.coordinator.log).groups == current
        assert self.coordinator.replayed(self.coordinator.compacted()).groups == current

    def teardown(self) -> None:
        """Everybody behaves: each partition that somebody subscribes to has one owner, who subscribes to it."""
        coordinator = self.coordinator
        for _ in range(2):  # static members that do not return, and members that died, are removed
            for _ in range(14):
                for client in self.clients:
                    client.beat()
                    client.revoke()
                coordinator.pass_time(5000)
        if not self.clients:
            return
        coordinator.settle(*self.clients)
        topics = coordinator.topics
        owned = [partition for client in self.clients for partition in client.owned]
        wanted = [self.subscription(client) for client in self.clients]
        assert sorted(owned) == sorted(topics.partitions(*{name for names in wanted for name in names}))
        for client, names in zip(self.clients, wanted, strict=True):
            assert client.owned <= topics.partitions(*names)
            assert client.owned == coordinator.group.members[client.member_id].assigned
        assert coordinator.group.state == "Stable"
        assert set(coordinator.group.members) == {client.member_id for client in self.clients}
        if len(set(wanted)) == 1 and coordinator.consumer.assignor_of(coordinator.group) == "uniform":
            counts = [len(client.owned) for client in self.clients]
            assert max(counts) - min(counts) <= 1

    def subscription(self, client: Client) -> frozenset[str]:
        matching = [name for name in self.coordinator.topics.names() if client.topic_regex and name.startswith("a")]
        return frozenset([*client.topics, *matching])


TestGroups = Groups.TestCase
TestGroups.settings = settings(
    max_examples=by_form(100, long=5000, quick=20),
    stateful_step_count=40,
    deadline=None,
    phases=[Phase.explicit, Phase.generate],
)
