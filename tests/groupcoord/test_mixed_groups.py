"""Members of the classic protocol in consumer groups take Kafka's steps, and nothing is owned twice on the way."""

from __future__ import annotations

from dataclasses import replace

import pytest

from raylog.config.consumer_groups import DISABLED
from raylog.core.errors import ErrorCode, KafkaError
from raylog.core.ids import TopicPartition
from raylog.groupcoord.consumer.records import MemberState
from raylog.groupcoord.records import OffsetCommitted, OffsetPending, TransactionEnded
from raylog.protocol import consumer_protocol
from raylog.protocol.consumer_protocol import ConsumerProtocolAssignment
from tests.groupcoord.consumer_coordinator import REBALANCE_MS, SESSION_MS, Client
from tests.groupcoord.mixed_coordinator import ClassicClient, MixedCoordinator


def grown(
    *, cooperative: bool, count: int = 1, is_static: bool = False
) -> tuple[MixedCoordinator, list[ClassicClient]]:
    """A stable classic group; static members have the instance ids 0, 1, 2 and so on."""
    coordinator = MixedCoordinator(t=4)
    members = [
        ClassicClient(coordinator, ("t",), cooperative, str(number) if is_static else None) for number in range(count)
    ]
    for _ in range(8):
        for member in members:
            member.beat()
    assert sum(len(member.owned) for member in members) == 4
    return coordinator, members


def test_a_cooperative_member_gives_up_before_another_gets() -> None:
    coordinator, (classic,) = grown(cooperative=True)
    other = Client(coordinator, "m", ("t",))
    other.beat()
    assert other.owned == frozenset()
    classic.beat()
    assert (classic.errors, classic.step) == ([ErrorCode.REBALANCE_IN_PROGRESS], "join")
    classic.beat()  # it joins, and still owns everything
    other.beat()
    assert other.owned == frozenset()
    member = coordinator.group.members[classic.member_id]
    assert (member.state, len(member.revoking)) == (MemberState.UNREVOKED_PARTITIONS, 2)
    classic.beat()  # it gets two by SyncGroup, and gives up two
    assert (len(classic.owned), classic.step) == (2, "join")
    other.beat()
    assert other.owned == frozenset()
    classic.beat()
    other.beat()
    assert len(other.owned) == 2
    assert not other.owned & classic.owned


def test_an_eager_member_takes_one_step() -> None:
    coordinator, (classic,) = grown(cooperative=False)
    other = Client(coordinator, "m", ("t",))
    other.beat()
    classic.beat()
    classic.beat()
    assert classic.owned == frozenset()
    other.beat()
    classic.beat()
    assert (len(classic.owned), len(other.owned), classic.step) == (2, 2, "in")
    assert coordinator.group.state == "Stable"


def test_what_others_have_released_is_fetched_by_another_join() -> None:
    coordinator = MixedCoordinator(t=4)
    first = Client(coordinator, "m", ("t",))
    first.beat()
    first.beat()
    classic = ClassicClient(coordinator, ("t",), cooperative=True)
    for _ in range(3):
        classic.beat()
    assert (classic.owned, classic.step) == (frozenset(), "in")
    classic.beat()
    assert classic.errors == []
    first.beat()
    first.revoke()
    first.beat()
    classic.beat()
    assert classic.errors == [ErrorCode.REBALANCE_IN_PROGRESS]
    for _ in range(2):
        classic.beat()
    assert len(classic.owned) == 2


def test_a_member_that_does_not_sync_or_beat_is_removed() -> None:
    coordinator, (classic,) = grown(cooperative=True)
    other = Client(coordinator, "m", ("t",))
    for _ in range(SESSION_MS // 5000 + 1):
        other.beat()
        coordinator.pass_time(5000)
    assert set(coordinator.group.members) == {"m"}
    coordinator, (classic,) = grown(cooperative=True)
    other = Client(coordinator, "m", ("t",))
    other.beat()
    for _ in range(REBALANCE_MS // 5000 + 1):
        other.beat()
        coordinator.pass_time(5000)
        coordinator.shard.classic_heartbeat("g", classic.generation, classic.member_id, None, coordinator.now)
    assert set(coordinator.group.members) == {"m"}


@pytest.mark.parametrize("is_present", [True, False])
def test_leave_group_removes_members_of_the_consumer_protocol(is_present: bool) -> None:
    """Kafka's AdminClient removes members so, static ones by their instance ids alone."""
    coordinator = MixedCoordinator(t=4)
    static = Client(coordinator, "s", ("t",), "i")
    members = [static, Client(coordinator, "m", ("t",)), Client(coordinator, "n", ("t",))]
    coordinator.settle(*members)
    if not is_present:
        static.leave(for_a_while=True)
    leaving = [("", "i"), ("s", "i"), ("m", None), ("m", "i"), ("x", None), ("", "j"), ("n", "j")]
    assert coordinator.shard.leave("g", leaving, coordinator.now) == [
        *[ErrorCode.NONE] * 3,
        ErrorCode.FENCED_INSTANCE_ID,
        *[ErrorCode.UNKNOWN_MEMBER_ID] * 3,
    ]
    assert (coordinator.member_ids, coordinator.group.static) == ({"n"}, {})
    coordinator.settle(members[2])
    assert len(members[2].owned) == 4
    members[1].beat()
    assert members[1].errors == [ErrorCode.UNKNOWN_MEMBER_ID]
    coordinator.settle(*members)
    assert {len(member.owned) for member in members} == {1, 2}


def test_a_group_whose_log_cannot_be_written_stays_what_it_is() -> None:
    coordinator, (classic,) = grown(cooperative=False)
    coordinator.appends_fail_with = ErrorCode.NOT_ENOUGH_REPLICAS
    other = Client(coordinator, "m", ("t",))
    other.beat()
    assert other.errors == [ErrorCode.NOT_ENOUGH_REPLICAS]
    assert not coordinator.is_consumer_group
    classic.beat()
    assert classic.step == "in"
    coordinator.appends_fail_with = None
    other.beat()
    assert coordinator.is_consumer_group
    coordinator.appends_fail_with = ErrorCode.NOT_ENOUGH_REPLICAS
    with pytest.raises(KafkaError):
        other.leave()
    assert coordinator.is_consumer_group
    assert set(coordinator.group.members) == {"m", classic.member_id}
    coordinator.appends_fail_with = None
    other.leave()
    assert not coordinator.is_consumer_group
    for _ in range(3):
        classic.beat()
    assert len(classic.owned) == 4


@pytest.mark.parametrize(("protocol", "upgrades"), [("cooperative-sticky", True), ("own", False)])
def test_what_an_assignor_of_its_own_has_noted_is_not_lost(protocol: str, upgrades: bool) -> None:
    coordinator, (classic,) = grown(cooperative=True)
    group = coordinator.shard.classic.groups["g"]
    member = group.members[classic.member_id]
    content = consumer_protocol.decode(ConsumerProtocolAssignment, member.assignment)
    member.assignment = consumer_protocol.encode(replace(content, user_data=b"notes"))
    group.protocol_name = protocol
    other = Client(coordinator, "m", ("t",))
    other.beat()
    assert other.is_member == coordinator.is_consumer_group == upgrades


def test_without_a_downgrade_classic_members_stay_in_the_consumer_group() -> None:
    coordinator, (classic,) = grown(cooperative=False)
    other = Client(coordinator, "m", ("t",))
    other.beat()
    coordinator.settings = replace(coordinator.settings, migration=DISABLED)
    other.leave()
    assert coordinator.is_consumer_group
    for _ in range(5):
        classic.beat()
    assert len(classic.owned) == 4
    classic.leave()
    assert coordinator.group.state == "Empty"
    again = ClassicClient(coordinator, ("t",))
    for _ in range(5):
        again.beat()
    assert not coordinator.is_consumer_group
    assert len(again.owned) == 4


def test_many_members_change_the_protocol() -> None:
    coordinator, members = grown(cooperative=False, count=40)
    other = Client(coordinator, "m", ("t",))
    other.beat()
    assert len(coordinator.group.members) == 41
    for _ in range(6):
        for member in members:
            member.beat()
        other.beat()
    assert sum(len(member.owned) for member in members) + len(other.owned) == 4


def test_a_new_coordinator_keeps_classic_members_that_are_in_the_group() -> None:
    coordinator, (classic,) = grown(cooperative=True)
    other = Client(coordinator, "m", ("t",))
    for _ in range(8):
        other.beat()
        classic.beat()
    assert (len(classic.owned), classic.step) == (2, "in")
    coordinator.restart()
    for _ in range(3 * REBALANCE_MS // SESSION_MS):
        coordinator.pass_time(SESSION_MS - 1)
        other.beat()
        classic.beat()
    assert (classic.errors, classic.step) == ([ErrorCode.REBALANCE_IN_PROGRESS] * len(classic.errors), "in")
    assert classic.member_id in coordinator.member_ids


def test_a_cooperative_member_keeps_what_it_uses_when_the_upgrade_interrupts_a_rebalance() -> None:
    """The assignment of its generation was discarded; what it owns stands in its subscription."""
    coordinator, members = grown(cooperative=True, count=2)
    third = ClassicClient(coordinator, ("t",), cooperative=True)
    for _ in range(2):
        third.beat()
    for member in members:
        member.beat()
        member.beat()
    assert {member.step for member in (*members, third)} == {"sync"}
    third.leave()
    other = Client(coordinator, "m", ("t",))
    other.beat()
    assert coordinator.is_consumer_group
    assert [len(member.owned) for member in members] == [2, 2]
    assert other.owned == frozenset()


def test_a_static_classic_member_that_changes_its_protocol_is_replaced_as_it_upgrades_the_group() -> None:
    """The other member has a session as before."""
    coordinator, (replaced, other) = grown(cooperative=True, count=2, is_static=True)
    client = Client(coordinator, "m", ("t",), instance_id="0")
    client.beat()
    assert coordinator.member_ids == {"m", other.member_id}
    assert coordinator.group.static == {"0": "m", "1": other.member_id}
    replaced.beat()
    assert replaced.errors[-1] is ErrorCode.FENCED_INSTANCE_ID
    coordinator.settle(client)
    assert (client.owned, len(other.owned)) == (replaced.owned, 2)
    for _ in range(4):
        coordinator.pass_time(SESSION_MS // 4)
        client.beat()
    coordinator.settle(client)
    assert (coordinator.member_ids, len(client.owned)) == ({"m"}, 4)


def test_a_cooperative_member_keeps_what_it_uses_when_the_upgrade_comes_before_it_has_synced() -> None:
    coordinator, members = grown(cooperative=True, count=2)
    third = ClassicClient(coordinator, ("t",), cooperative=True)
    for _ in range(2):
        third.beat()
    for _ in range(2):
        for member in members:
            member.beat()
    leader, other = sorted(members, key=lambda member: not member.leads)
    used = other.owned
    leader.beat()
    assert (other.step, other.owned) == ("sync", used)
    Client(coordinator, "m", ("t",)).beat()
    assert coordinator.is_consumer_group
    assert used <= coordinator.consumer.groups["g"].members[other.member_id].assigned


def test_what_a_cooperative_member_has_not_revoked_yet_stays_its_own_in_a_downgraded_group() -> None:
    coordinator, (classic,) = grown(cooperative=True)
    used = classic.owned
    other = Client(coordinator, "m1", ("t",))
    for client in (other, classic, classic):
        client.beat()
    assert (classic.step, classic.owned) == ("sync", used)
    assert coordinator.consumer.groups["g"].members[classic.member_id].revoking
    other.leave()
    assert not coordinator.is_consumer_group
    third = Client(coordinator, "m2", ("t",))
    third.beat()
    assert coordinator.is_consumer_group
    assert (classic.owned, third.owned) == (used, frozenset())


def test_a_removed_classic_member_does_not_join_with_what_it_owned() -> None:
    """Others have its partitions by then; it has to learn that it has lost them."""
    coordinator, (classic,) = grown(cooperative=True)
    Client(coordinator, "m", ("t",)).beat()
    classic.beat()
    assert (classic.step, len(classic.owned)) == ("join", 4)
    coordinator.pass_time(SESSION_MS)
    other = Client(coordinator, "n", ("t",))
    other.beat()
    assert len(other.owned) == 4
    classic.beat()
    assert classic.errors[-1] is ErrorCode.UNKNOWN_MEMBER_ID
    assert classic.owned == frozenset()
    for _ in range(12):
        classic.beat()
        other.beat()
        other.revoke()
    assert (len(classic.owned), len(other.owned)) == (2, 2)


def test_a_removed_classic_member_is_told_so_by_requests_of_any_version() -> None:
    coordinator, (classic,) = grown(cooperative=True)
    other = Client(coordinator, "m", ("t",))
    other.beat()
    uses_epochs = coordinator.shard.uses_epochs
    assert [uses_epochs("g", name) for name in ("m", classic.member_id, "removed")] == [True, False, False]
    with pytest.raises(KafkaError) as raised:
        coordinator.shard.check_commit("g", 1, "removed", None, [], coordinator.now, in_transaction=False)
    assert raised.value.code is ErrorCode.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize("kind", ["consumer", "classic"])
def test_a_stale_epoch_in_a_transaction_is_an_illegal_generation(kind: str) -> None:
    """A producer knows no STALE_MEMBER_EPOCH."""
    coordinator, (classic,) = grown(cooperative=True)
    Client(coordinator, "m", ("t",)).beat()
    member_id = "m" if kind == "consumer" else classic.member_id
    codes = []
    for in_transaction in (True, False):
        with pytest.raises(KafkaError) as raised:
            coordinator.shard.check_commit("g", 99, member_id, None, [], coordinator.now, in_transaction=in_transaction)
        codes.append(raised.value.code)
    stale = ErrorCode.STALE_MEMBER_EPOCH if kind == "consumer" else ErrorCode.ILLEGAL_GENERATION
    assert codes == [ErrorCode.ILLEGAL_GENERATION, stale]


def test_offsets_that_a_transaction_commits_later_do_not_expire_before() -> None:
    coordinator = MixedCoordinator(t=2)
    day_ms = 86_400_000
    shard, now = coordinator.shard, coordinator.now
    old_ms = now.wall_ms - 8 * day_ms
    pending, other = (TopicPartition("t", number) for number in range(2))
    shard.append([OffsetCommitted("g", "t", number, 5, -1, "", old_ms) for number in range(2)], now)
    shard.replay(OffsetPending(7, OffsetCommitted("g", "t", 0, 100, -1, "", now.wall_ms)))
    shard.expire(["g"], retention_ms=7 * day_ms, now=now)
    assert shard.offsets.committed("g").keys() == {pending}
    shard.replay(TransactionEnded(7, committed=True))
    committed = shard.offsets.fetch("g", [pending, other])
    assert [None if each is None else each.offset for each in committed.values()] == [100, None]
