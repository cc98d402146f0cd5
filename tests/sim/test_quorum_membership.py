"""The voters of a simulated cluster change under kills, power cuts, lost disks and partitions of the network.

After every event: at most one leader in each epoch, nothing committed is lost, and what is committed is on the disks of
a majority of the voters. At the end the cluster serves, and all controllers have the same log.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from raylog.controller.handlers import fetch
from raylog.controller.quorum.events import LogEnd
from raylog.controller.quorum.quorum import Quorum
from raylog.metadata.voters import VoterSet
from tests.sim.admin import Admin
from tests.sim.cluster import SimCluster
from tests.sim.controller_host import ControllerHost
from tests.sim.planting import Planted, Replacement, planted
from tests.sim.producer_ids import GivenProducerIds
from tests.sim.quorum_admin import QuorumAdmin
from tests.sim.quorum_bursts import QuorumBursts
from tests.sim.world import World
from tests.support.forms import by_form

SEEDS = by_form(4, quick=1, long=400)
CONTROLLERS = 5
TROUBLE_MS = 6_000
QUIET_MS = 120_000
CONFIG = {
    "num.partitions": "1",
    "min.insync.replicas": "1",
    "default.replication.factor": "1",
    "offsets.topic.num.partitions": "1",
    "broker.heartbeat.interval.ms": "200",
    "broker.session.timeout.ms": "1000",
    "controller.quorum.election.timeout.ms": "300",
    "controller.quorum.fetch.timeout.ms": "600",
    "controller.quorum.election.backoff.max.ms": "200",
    "leader.imbalance.check.interval.seconds": "300",
    "log.segment.bytes": "7000",
    "message.max.bytes": "100000",
    "max.incremental.fetch.session.cache.slots": "0",
}


def run(seed: int) -> Counter[str]:
    """The marks of the run. Raises AssertionError for a violated guarantee."""
    world = World(seed)
    rng = world.rng
    at_first = rng.choice((1, 3))
    config = {**CONFIG, "metadata.log.max.record.bytes.between.snapshots": rng.choice(("1500", "5000", "20000000"))}
    cluster = SimCluster(
        world, config, broker_count=1, controller_count=at_first, power_cuts=True, joining=CONTROLLERS - at_first
    )
    cluster.start()
    assert world.run(until=cluster.serves, limit_ms=QUIET_MS), "the cluster did not start"
    given = GivenProducerIds(cluster.ledger, world.marks)
    admins = [Admin(world, cluster.brokers, cluster.ledger, given, name=f"admin-{number}") for number in range(2)]
    quorum_admin = QuorumAdmin(cluster, name="quorum-admin")
    _plan_trouble(cluster, config)
    assert not world.run(until=lambda: False, limit_ms=TROUBLE_MS)
    for host in cluster.hosts:
        host.trouble = False
        host.disk.arm(kill_at_op=None)
        host.forget_moment()
    quorum_admin.finished = True
    for admin in admins:
        admin.tasks_left = 2
    done = world.run(until=lambda: all(admin.finished for admin in admins), limit_ms=QUIET_MS)
    assert done, "topics cannot be changed any more"
    assert world.run(until=cluster.serves, limit_ms=QUIET_MS), "the controllers do not agree after the faults ended"
    cluster.check()
    ends = {host.node.metadata_log.flushed_end for host in cluster.controllers if host.node is not None}
    assert len(ends) == 1, "the controllers have different logs"
    return world.marks


def _plan_trouble(cluster: SimCluster, config: dict[str, str]) -> None:
    world, rng = cluster.world, cluster.world.rng
    bursts = QuorumBursts(cluster, config)

    def at_some_time(do: Callable[[], None]) -> None:
        world.after(rng.randint(0, TROUBLE_MS), do)

    for host in cluster.controllers:
        for _ in range(rng.randint(0, 2)):
            at_some_time(rng.choice((host.kill, partial(_kill_in_write, host))))
    for _ in range(rng.choice((0, 0, 2, 4))):
        at_some_time(bursts.some)
    for _ in range(rng.randint(0, 2)):
        one, other = rng.sample(cluster.hosts, 2)
        start = rng.randint(0, TROUBLE_MS - 100)
        world.after(start, partial(cluster.cut, one, other))
        world.after(min(start + rng.randint(50, 2000), TROUBLE_MS), partial(cluster.heal, one, other))
    for _ in range(rng.randint(0, 3)):
        at_some_time(partial(_lose_a_disk, cluster))


def _kill_in_write(host: ControllerHost) -> None:
    host.disk.arm(kill_at_op=host.world.rng.randint(1, 40))


def _lose_a_disk(cluster: SimCluster) -> None:
    """Of a voter without which every voter set, also an uncommitted one, has a majority of working disks.

    So it must have if another voter is removed meanwhile, since that request may be on its way. An observer that loses
    its disk may be added in the next moment, with the directory that is gone.
    """
    host = cluster.world.rng.choice(cluster.controllers)
    nodes = [each.node for each in cluster.controllers if each.node is not None]
    sets = [node.quorum.voters for node in nodes if node.quorum.voters_offset >= 0]
    if len(nodes) < CONTROLLERS or len(sets) < len(nodes):
        return
    working = {each.voter_id for each in cluster.controllers if each.directory_id is not None} - {host.voter_id}
    directories = {each.voter_id: each.directory_id for each in cluster.controllers}

    def survive(voters: VoterSet) -> bool:
        left = [each for each in voters if each.voter_id in working]
        alive = sum(directories[each.voter_id] == each.directory_id for each in left)
        return alive - 1 > (len(voters) - 1) // 2

    if all(host.voter_id in voters and survive(voters) for voters in sets):
        host.lose_disk()


def _majority_of_former() -> list[Replacement]:
    def majority(self: Quorum) -> int:
        voters = self.voters if self.voters_committed else self._voters_before
        return len(voters) // 2 + 1

    return [(Quorum, "majority", property(majority))]


def _removed_counts() -> list[Replacement]:
    def commit(self: Quorum, log_end: LogEnd, now_ms: int) -> None:
        if self.is_leader:
            ends = sorted([log_end.end_offset, *(each.end_offset for each in self.progress.values())], reverse=True)
            committed = ends[self.majority - 1]
            if committed > self.epoch_start_offset:
                self.high_watermark = max(self.high_watermark, committed)
                self.deadline_ms = self.deadline_ms if self.is_voter else now_ms

    return [(Quorum, "_commit", commit)]


def _offset_for_watermark() -> list[Replacement]:
    right = fetch.DelayedMetadataFetch._read

    def read(self: Any) -> Any:
        result = right(self)
        if self._controller.quorum.is_leader and not self._serves():
            return replace(result, high_watermark=self.start)
        return result

    return [(fetch.DelayedMetadataFetch, "_read", read)]


FAULTS = (
    Planted(
        "majority-of-former",
        "Until a change of the voters is committed, the majority is that of the former ones.",
        _majority_of_former,
        0,
        "is considered committed, but is on only",
    ),
    Planted(
        "removed-counts",
        "A leader that removes itself counts its own disk.",
        _removed_counts,
        0,
        "is considered committed, but is on only",
    ),
    Planted(
        "offset-for-watermark",
        "A leader that does not know its high watermark yet returns the offset of an observer's fetch instead.",
        _offset_for_watermark,
        15,
        "committed, but no leader has",
    ),
)


@pytest.mark.parametrize("seed", range(SEEDS))
def test_nothing_committed_is_lost_while_the_voters_change(seed: int) -> None:
    run(seed)


@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_a_planted_mistake_is_found(fault: Planted) -> None:
    assert fault.seed is not None
    with pytest.raises(AssertionError, match=fault.complaint), planted(fault):
        run(fault.seed)
