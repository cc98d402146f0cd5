"""Bursts of faults where replication is weakest: at a leader and its followers, and during leader changes.

Each burst picks the current leader of a partition. It ends all of its faults within `LONGEST_MS`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from raylog.broker.broker import Broker
from raylog.core.ids import NO_BROKER_ID, TopicPartition
from tests.sim.broker_host import BrokerHost
from tests.sim.cluster import SimCluster
from tests.sim.node_host import NodeHost

LONGEST_MS = 6_000
PAUSE_MS_MAX = 400
SLOW_MS = (20, 60, 150, 400)
CLIENTS = "client"
"""The host of all clients."""


class Bursts:
    """The bursts of one cluster. `some` runs a random one."""

    def __init__(self, cluster: SimCluster, config: Mapping[str, str], partitions: list[TopicPartition]) -> None:
        self._cluster = cluster
        self._world = cluster.world
        self._partitions = partitions
        self._session_ms = int(config["broker.session.timeout.ms"])
        self._lag_ms = int(config["replica.lag.time.max.ms"])
        self._tp = partitions[0]
        """The partition of the current burst."""
        self._kinds: tuple[Callable[[BrokerHost, list[BrokerHost]], None], ...] = (
            self._mid_write,
            self._mid_write,
            self._mid_write,
            self._mid_proposal,
            self._mid_proposal,
            self._late_proposal,
            self._late_proposal,
            self._predecessor_back,
            self._deposed,
            self._deposed,
            self._isolated,
            self._hung,
            self._late_follower,
            self._late_follower,
            self._one_after_the_other,
            self._unheard_proposals,
            self._unheard_proposals,
            self._away_and_back,
            self._slow_clients,
        )

    def some(self) -> None:
        rng = self._world.rng
        self._tp = rng.choice(self._partitions)
        shown = self._cluster.ledger.image.partition(self._tp)
        if shown is None or shown.leader == NO_BROKER_ID:
            return
        followers = [self._cluster.broker(one) for one in shown.replicas if one != shown.leader]
        kind = rng.choice(self._kinds)
        self._world.marks[f"burst: {kind.__name__.strip('_').replace('_', ' ')}"] += 1
        kind(self._cluster.broker(shown.leader), rng.sample(followers, len(followers)))

    # --- the kinds

    def _mid_write(self, leader: BrokerHost, followers: list[BrokerHost]) -> None:
        """The leader fails while one in-sync follower has records that the other, on a slow link, lacks."""

        def slow_down() -> None:
            if followers:
                self._slow(followers[0], leader, self._longer_than(self._lag_ms))
            known_ms = self._world.rng.randint(0, PAUSE_MS_MAX)
            if self._world.rng.random() < 0.5:
                self._world.after(known_ms, partial(self._end, leader, at_once=False))
            else:
                self._world.after(known_ms, partial(leader.at_the_moment, self._has_committed_more(), leader.kill))

        leader.at_the_moment(self._is_full, slow_down)

    def _predecessor_back(self, leader: BrokerHost, followers: list[BrokerHost]) -> None:
        """The leader fails while its two in-sync followers are partitioned from each other, and is back before that
        heals."""

        def cut() -> None:
            if len(followers) > 1:
                lasts_ms = self._longer_than(self._lag_ms)
                self._cut(followers[0], followers[1], lasts_ms, hears=False, heard=False)
            self._end(leader, at_once=False)

        leader.at_the_moment(self._is_full, cut)

    def _mid_proposal(self, leader: BrokerHost, followers: list[BrokerHost]) -> None:
        """The leader's AlterPartition for a returning follower is lost, or its response is."""
        rng = self._world.rng
        controller = self._cluster.controller
        lasts_ms = self._longer_than(self._session_ms)
        slow = rng.random() < 0.5
        if slow:
            self._slow(leader, controller, lasts_ms)
        ends: tuple[Callable[[], None], ...] = (
            leader.break_links,
            leader.break_links,
            partial(self._cut, leader, controller, lasts_ms),
            controller.kill,
        )
        end = partial(self._world.after, rng.randint(0, 300 if slow else 8), rng.choice(ends))
        leader.at_the_moment(self._is_proposing, end)
        for follower in followers:
            self._world.after(rng.randint(0, PAUSE_MS_MAX), follower.kill)
        if followers:
            self._slow(followers[-1], leader, lasts_ms)

    def _late_proposal(self, leader: BrokerHost, followers: list[BrokerHost]) -> None:
        """An AlterPartition request that was already retried arrives late, when its follower was cut off and lags."""
        if not followers:
            return
        rng = self._world.rng
        follower, controller = followers[0], self._cluster.controller

        def proposed() -> None:
            lasts_ms = rng.randint(20, 150)
            self._cut(leader, controller, lasts_ms, hears=True)
            self._world.after(1, partial(leader.break_links, noticed=True))
            follower.break_links(noticed=True)
            self._cut(follower, controller, lasts_ms + rng.randint(50, PAUSE_MS_MAX), hears=True)
            self._cut(follower, leader, self._longer_than(self._lag_ms), hears=False, heard=False)

        follower.break_links()
        leader.at_the_moment(self._is_proposing_more, proposed)

    def _deposed(self, leader: BrokerHost, followers: list[BrokerHost]) -> None:
        """The leader is partitioned from the controller, not from its followers. After the election it may fail."""
        lasts_ms = self._longer_than(self._session_ms)
        self._cut(leader, self._cluster.controller, lasts_ms)
        if followers and self._world.rng.random() < 0.3:  # this follower does not learn of the new leader either
            self._cut(followers[0], self._cluster.controller, lasts_ms)
        if self._world.rng.random() < 0.6:
            self._world.after(lasts_ms - self._world.rng.randint(0, PAUSE_MS_MAX), partial(self._end, leader))

    def _isolated(self, leader: BrokerHost, followers: list[BrokerHost]) -> None:
        """One replica cannot send, or cannot receive, or both."""
        alone = self._world.rng.choice([leader, *followers])
        lasts_ms = self._longer_than(self._world.rng.choice((self._session_ms, self._lag_ms)))
        self._world.marks["broker isolated"] += 1
        way = self._way()
        for other in self._cluster.hosts:
            if other is not alone:
                self._cut(alone, other, lasts_ms, **way)
        network = self._cluster.network
        for source, target in ((alone.name, CLIENTS), (CLIENTS, alone.name)):
            network.cut(source, target)
            self._world.after(lasts_ms, partial(network.heal, source, target))

    def _hung(self, leader: BrokerHost, followers: list[BrokerHost]) -> None:
        """The leader hangs until another one is elected, which may have failed when the old one continues."""
        lasts_ms = self._longer_than(self._world.rng.choice((self._session_ms, self._lag_ms)))
        self._world.marks["broker hung past its session"] += lasts_ms > self._session_ms
        leader.hang(lasts_ms)
        if followers and self._world.rng.random() < 0.5:
            self._world.after(lasts_ms - self._world.rng.randint(-PAUSE_MS_MAX, PAUSE_MS_MAX), followers[0].kill)

    def _late_follower(self, leader: BrokerHost, followers: list[BrokerHost]) -> None:
        """A follower lags on a slow or cut link until it leaves the ISR, or nearly so; then the leader fails."""
        if not followers:
            return
        lasts_ms = self._longer_than(self._lag_ms)
        if self._world.rng.random() < 0.5:
            self._slow(followers[0], leader, lasts_ms)
        else:
            self._cut(followers[0], leader, lasts_ms)
        if self._world.rng.random() < 0.7:
            soon_ms = self._world.rng.randint(-PAUSE_MS_MAX, PAUSE_MS_MAX)
            self._world.after(max(lasts_ms + soon_ms, 0), partial(self._end, leader))

    def _one_after_the_other(self, leader: BrokerHost, followers: list[BrokerHost]) -> None:
        """All replicas fail within a short time, in any order."""
        hosts = [leader, *followers]
        delay_ms = 0
        for host in self._world.rng.sample(hosts, len(hosts)):
            self._world.after(delay_ms, host.kill)
            delay_ms += self._world.rng.choice((1, 10, 100, self._session_ms))

    def _unheard_proposals(self, leader: BrokerHost, followers: list[BrokerHost]) -> None:
        """The leader's requests to the controller or their responses are delayed while its followers change."""
        lasts_ms = self._longer_than(self._session_ms)
        controller = self._cluster.controller
        if self._world.rng.random() < 0.5:
            self._slow(leader, controller, lasts_ms)
        else:
            self._cut(leader, controller, min(lasts_ms, self._session_ms))
        for _ in range(self._world.rng.randint(1, 4)):
            self._world.after(self._world.rng.randint(0, lasts_ms), leader.break_links)
        for follower in followers[: self._world.rng.randint(0, 2)]:
            moment_ms = self._world.rng.randint(0, lasts_ms)
            self._world.after(moment_ms, self._world.rng.choice((follower.kill, follower.break_links)))
        if self._world.rng.random() < 0.3:
            self._world.after(self._world.rng.randint(0, lasts_ms), controller.kill)

    def _away_and_back(self, leader: BrokerHost, followers: list[BrokerHost]) -> None:
        """A follower restarts while only the controller can reach the leader, or links to the leader are slow."""
        if not followers:
            return
        follower = followers[0]
        lasts_ms = self._longer_than(self._session_ms)
        if self._world.rng.random() < 0.5:
            self._cut(follower, leader, lasts_ms, hears=False, heard=False)
        else:
            self._slow(follower, leader, lasts_ms)
        self._world.after(self._world.rng.randint(0, lasts_ms // 2), follower.kill)
        if self._world.rng.random() < 0.5:
            self._world.after(lasts_ms + self._world.rng.randint(0, PAUSE_MS_MAX), leader.kill)

    def _slow_clients(self, leader: BrokerHost, followers: list[BrokerHost]) -> None:
        """Requests of clients arrive late, possibly after those sent over another connection."""
        network = self._cluster.network
        network.slow(CLIENTS, leader.name, self._world.rng.choice(SLOW_MS))
        self._world.after(self._longer_than(self._lag_ms), partial(network.slow, CLIENTS, leader.name, None))
        if self._world.rng.random() < 0.5:
            self._world.after(self._world.rng.randint(0, LONGEST_MS // 2), leader.kill)

    # --- building blocks

    def _end(self, leader: BrokerHost, *, at_once: bool | None = None) -> None:
        """End the leader in a random way, now or once it has records that not all in-sync replicas have."""
        rng = self._world.rng
        hang = partial(leader.hang, self._longer_than(self._session_ms))
        end = rng.choice((leader.kill, leader.kill, leader.stop_cleanly, hang))
        if rng.random() < 0.5 if at_once is None else at_once:
            end()
        else:
            leader.at_the_moment(self._has_uncommitted, partial(self._world.after, rng.randint(0, 8), end))

    def _has_uncommitted(self, broker: Broker) -> bool:
        partition = broker.partitions.get(self._tp)
        return partition is not None and partition.is_leader and partition.commit_point() is not None

    def _has_committed_more(self) -> Callable[[Broker], bool]:
        """Whether its high watermark has advanced, no follower knows it yet, and there are unreplicated records."""
        before: list[int] = []

        def condition(broker: Broker) -> bool:
            if not self._has_uncommitted(broker):
                return False
            before.append(broker.partitions[self._tp].high_watermark)
            return before[-1] > before[0]

        return condition

    def _is_full(self, broker: Broker) -> bool:
        """Whether it leads, and all replicas are in sync."""
        partition = broker.partitions.get(self._tp)
        return (
            partition is not None
            and partition.replicas is not None
            and set(partition.assigned) == partition.replicas.isr
        )

    def _is_proposing(self, broker: Broker) -> bool:
        return any(one.replicas is not None and one.replicas.proposed is not None for one in broker.partitions.values())

    def _is_proposing_more(self, broker: Broker) -> bool:
        leading = [one.replicas for one in broker.partitions.values() if one.replicas is not None]
        return any(one.proposed is not None and one.proposed > one.isr for one in leading)

    def _longer_than(self, limit_ms: int) -> int:
        """Usually somewhat more than `limit_ms`, sometimes less, and at most what a run has time for."""
        part = self._world.rng.choice((0.7, 1.1, 1.5))
        return min(int(limit_ms * part) + self._world.rng.randint(0, PAUSE_MS_MAX), LONGEST_MS)

    def _way(self) -> dict[str, bool]:
        return {self._world.rng.choice(("hears", "heard")): True} if self._world.rng.random() < 0.5 else {}

    def _cut(self, broker: BrokerHost, other: NodeHost[Any], lasts_ms: int, **way: bool) -> None:
        way = way or self._way()
        self._cluster.cut(broker, other, **way)
        self._world.after(lasts_ms, partial(self._cluster.heal, broker, other, **way))

    def _slow(self, broker: BrokerHost, other: NodeHost[Any], lasts_ms: int) -> None:
        self._cluster.slow(broker, other, self._world.rng.choice(SLOW_MS))
        self._world.after(lasts_ms, partial(self._cluster.slow, broker, other, None))
