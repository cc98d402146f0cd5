"""Whatever members of both protocols do to one group, which changes its protocol, a partition has one owner."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from raylog.config.consumer_groups import BIDIRECTIONAL, DISABLED, DOWNGRADE, UPGRADE
from raylog.core.errors import KafkaError
from raylog.groupcoord.consumer.records import TopicIdPartition
from tests.groupcoord.consumer_coordinator import Client
from tests.groupcoord.mixed_coordinator import ClassicClient, MixedCoordinator
from tests.support.forms import by_form

SUBSCRIPTIONS = st.sampled_from([("a",), ("b",), ("a", "b")])


class Groups(RuleBasedStateMachine):
    """The naive model: each client says which partitions it uses; one that is no member any more uses none."""

    def __init__(self) -> None:
        super().__init__()
        self.coordinator = MixedCoordinator()
        self.clients: list[Client | ClassicClient] = []
        self.cooperative = False
        self.joined = 0

    @initialize(
        counts=st.tuples(st.integers(1, 6), st.integers(1, 6)), cooperative=st.booleans(), first=st.integers(0, 3)
    )
    def create_topics(self, counts: tuple[int, int], cooperative: bool, first: int) -> None:
        """And a classic group that has begun."""
        for name, count in zip(("a", "b"), counts, strict=True):
            self.coordinator.create_topic(name, count)
        self.cooperative = cooperative
        for _ in range(first):
            self.join(("a", "b"), is_classic=True)
        self.all_beat(8)

    @precondition(lambda self: len(self.clients) < 6)
    @rule(topics=SUBSCRIPTIONS, is_classic=st.booleans())
    def join(self, topics: tuple[str, ...], is_classic: bool) -> None:
        client: Client | ClassicClient
        if is_classic:
            client = ClassicClient(self.coordinator, topics, self.cooperative)
        else:
            self.joined += 1
            client = Client(self.coordinator, f"m{self.joined}", topics)
        client.beat()
        self.clients.append(client)

    @precondition(lambda self: self.clients)
    @rule(data=st.data(), beats=st.integers(1, 3), revokes=st.booleans())
    def beat(self, data: st.DataObject, beats: int, revokes: bool) -> None:
        client = data.draw(st.sampled_from(self.clients))
        for _ in range(beats):
            client.beat()
            if revokes:
                client.revoke()

    @precondition(lambda self: self.clients)
    @rule(rounds=st.integers(1, 4))
    def all_beat(self, rounds: int) -> None:
        for _ in range(rounds):
            for client in self.clients:
                client.beat()
                client.revoke()

    @precondition(lambda self: self.clients)
    @rule(data=st.data(), dies=st.booleans())
    def end(self, data: st.DataObject, dies: bool) -> None:
        client = data.draw(st.sampled_from(self.clients))
        self.clients.remove(client)
        if not dies:
            try:
                client.leave()
            except KafkaError:
                client.abandon()

    @precondition(lambda self: self.clients)
    @rule(data=st.data())
    def change_the_protocol(self, data: st.DataObject) -> None:
        """A client is started again with the other protocol."""
        client = data.draw(st.sampled_from(self.clients))
        self.end_now(client)
        self.join(client.topics, is_classic=isinstance(client, Client))

    @rule()
    def all_consumers_leave(self) -> None:
        for client in [client for client in self.clients if isinstance(client, Client)]:
            self.end_now(client)

    def end_now(self, client: Client | ClassicClient) -> None:
        self.clients.remove(client)
        try:
            client.leave()
        except KafkaError:
            client.abandon()

    @rule(ms=st.sampled_from([1, 5000, 20_000, 46_000, 61_000]))
    def pass_time(self, ms: int) -> None:
        self.coordinator.pass_time(ms)

    @rule(policy=st.sampled_from([BIDIRECTIONAL, BIDIRECTIONAL, UPGRADE, DOWNGRADE, DISABLED]))
    def change_the_policy(self, policy: str) -> None:
        self.coordinator.settings = replace(self.coordinator.settings, migration=policy)

    @rule()
    def fail_over(self) -> None:
        for client in self.clients:
            if isinstance(client, ClassicClient) and client.step in ("joining", "syncing"):
                client.step = "join"  # NOT_COORDINATOR
        self.coordinator.restart()

    @precondition(lambda self: self.coordinator.topics.shapes["a"].partition_count < 9)
    @rule()
    def add_partitions(self) -> None:
        self.coordinator.add_partitions("a", 1)

    @invariant()
    def a_partition_has_one_owner(self) -> None:
        members = self.coordinator.member_ids
        users: dict[TopicIdPartition, Client | ClassicClient] = {}
        for client in self.clients:
            for partition in client.owned if client.member_id in members else ():
                other = users.setdefault(partition, client)
                assert other is client, f"{partition} is used by {other} and {client}"
        group = self.coordinator.consumer.groups.get("g")
        if group is not None:
            held = [(each, name) for name, m in group.members.items() for each in m.assigned | m.revoking]
            assert len(held) == len(dict(held))
            assert dict(held) == group.owners

    @invariant()
    def the_log_tells_the_state(self) -> None:
        for log in (self.coordinator.log, self.coordinator.compacted()):
            assert self.coordinator.replayed_shard(log).consumer.groups == self.coordinator.consumer.groups

    def teardown(self) -> None:
        """Everybody behaves: each partition that somebody subscribes to has an owner."""
        self.change_the_policy(BIDIRECTIONAL)
        for _ in range(40):
            for client in self.clients:
                client.beat()
                client.revoke()
            self.coordinator.pass_time(4000)
        if not self.clients:
            return
        owned = [partition for client in self.clients for partition in client.owned]
        wanted = {name for client in self.clients for name in client.topics}
        grown = self.coordinator.topics.partitions(*wanted)
        assert len(owned) == len(set(owned))
        assert set(owned) <= grown
        has_consumers = any(isinstance(client, Client) for client in self.clients)
        assert self.coordinator.is_consumer_group or not has_consumers
        if has_consumers:  # in a classic group its leader watches the topics, which these do not
            assert set(owned) == grown


TestGroups = Groups.TestCase
TestGroups.settings = settings(
    max_examples=by_form(40, long=5000, quick=15),
    stateful_step_count=40,
    deadline=None,
    phases=[Phase.explicit, Phase.generate],
)
