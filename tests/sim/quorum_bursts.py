"""Bursts of faults where a quorum is weakest: at the active controller, at elections, and at lagging voters.

Each burst picks the current leader of the metadata log. It ends all of its faults within `LONGEST_MS`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from raylog.controller.controller import Controller
from raylog.controller.quorum.quorum import LEASE_FACTOR, Role
from raylog.core.ids import NO_BROKER_ID
from tests.sim.bursts import LONGEST_MS, PAUSE_MS_MAX, SLOW_MS
from tests.sim.cluster import SimCluster
from tests.sim.controller_host import ControllerHost


class QuorumBursts:
    """The bursts of one cluster with several controllers. `some` runs a random one."""

    def __init__(self, cluster: SimCluster, config: Mapping[str, str]) -> None:
        self._cluster = cluster
        self._world = cluster.world
        self._fetch_ms = int(config["controller.quorum.fetch.timeout.ms"])
        self._election_ms = int(config["controller.quorum.election.timeout.ms"])
        self._kinds: tuple[Callable[[ControllerHost, list[ControllerHost]], None], ...] = (
            self._active_cut_off,
            self._active_cut_off,
            self._killed_mid_append,
            self._killed_mid_append,
            self._active_hung,
            self._all_lose_power,
            self._behind_when_active_dies,
            self._behind_when_active_dies,
            self._hear_in_one_direction,
            self._killed_mid_election,
            self._killed_mid_election,
            self._torn_apart,
            self._one_leader_after_the_other,
        )

    def some(self) -> None:
        rng = self._world.rng
        active = self._cluster.controller
        standbys = [host for host in self._cluster.controllers if host is not active]
        kind = rng.choice(self._kinds)
        self._world.marks[f"quorum burst: {kind.__name__.strip('_').replace('_', ' ')}"] += 1
        kind(active, rng.sample(standbys, len(standbys)))

    # --- the kinds

    def _active_cut_off(self, active: ControllerHost, standbys: list[ControllerHost]) -> None:
        """The active controller is cut off from one or all others, in one or both directions, until it resigns or
        nearly so."""
        lasts_ms = self._longer_than(int(LEASE_FACTOR * self._fetch_ms))
        for standby in standbys[: self._world.rng.choice((1, len(standbys), len(standbys)))]:
            self._cut(active, standby, lasts_ms)

    def _killed_mid_append(self, active: ControllerHost, standbys: list[ControllerHost]) -> None:
        """The active controller fails with records that no majority has, one standby further behind than the other."""
        rng = self._world.rng
        for standby in standbys[: rng.randint(0, len(standbys))]:
            self._slow(active, standby, self._longer_than(self._fetch_ms))
        end = partial(self._world.after, rng.choice((0, 0, 2, 8)), active.kill)
        active.at_the_moment(_has_uncommitted, end)

    def _active_hung(self, active: ControllerHost, standbys: list[ControllerHost]) -> None:
        """The active controller hangs, mostly with uncommitted records, until another is elected; then it continues."""
        hang = partial(active.hang, self._longer_than(self._fetch_ms))
        if self._world.rng.random() < 0.3:
            hang()
        else:
            active.at_the_moment(_has_uncommitted, hang)

    def _all_lose_power(self, active: ControllerHost, standbys: list[ControllerHost]) -> None:
        """All controllers lose power at once, at a random time or when there are uncommitted records."""

        def power_cut() -> None:
            for host in (active, *standbys):
                host.kill(power_cut=True)

        if self._world.rng.random() < 0.3:
            power_cut()
        else:
            active.at_the_moment(_has_uncommitted, power_cut)

    def _behind_when_active_dies(self, active: ControllerHost, standbys: list[ControllerHost]) -> None:
        """One standby was cut off for a while. Then the active controller fails; the other standby fails or is slow."""
        rng = self._world.rng
        behind, *others = standbys
        lasts_ms = self._longer_than(self._fetch_ms)
        self._cut(behind, active, lasts_ms, hears=False, heard=False)
        end = active.kill if rng.random() < 0.7 else partial(active.hang, self._longer_than(self._fetch_ms))
        self._world.after(lasts_ms - rng.randint(0, min(PAUSE_MS_MAX, lasts_ms)), end)
        for other in others:
            if rng.random() < 0.5:
                self._world.after(lasts_ms + rng.randint(0, PAUSE_MS_MAX), other.kill)
            else:
                self._slow(other, behind, 2 * lasts_ms)

    def _hear_in_one_direction(self, active: ControllerHost, standbys: list[ControllerHost]) -> None:
        """Most pairs of controllers are cut in one direction."""
        hosts = [active, *standbys]
        for number, host in enumerate(hosts):
            for other in hosts[number + 1 :]:
                if self._world.rng.random() < 0.7:
                    way = {self._world.rng.choice(("hears", "heard")): True}
                    self._cut(host, other, self._longer_than(self._fetch_ms), **way)

    def _killed_mid_election(self, active: ControllerHost, standbys: list[ControllerHost]) -> None:
        """A controller fails just after granting a vote or winning an election, and is soon back."""
        rng = self._world.rng
        for standby in standbys:
            moment = rng.choice((_has_voted, _has_voted, _campaigns, _has_uncommitted))
            standby.at_the_moment(moment, partial(self._world.after, rng.randint(0, 4), standby.kill))
        if rng.random() < 0.5:
            active.kill()
        else:
            for standby in standbys:
                self._cut(active, standby, self._longer_than(self._fetch_ms))

    def _torn_apart(self, active: ControllerHost, standbys: list[ControllerHost]) -> None:
        """The active controller fails; messages between the others are slow, and both become candidates."""
        lasts_ms = self._longer_than(self._election_ms)
        one, *others = standbys
        for other in others:
            self._slow(one, other, lasts_ms)
        if self._world.rng.random() < 0.5:
            active.kill()
        else:
            for standby in standbys:
                self._slow(active, standby, lasts_ms)
                active.break_links()
                standby.break_links()

    def _one_leader_after_the_other(self, active: ControllerHost, standbys: list[ControllerHost]) -> None:
        """Each newly elected leader fails before all of its records are committed."""
        for host in (active, *standbys):
            delay_ms = self._world.rng.choice((0, 0, 3, 10))
            host.at_the_moment(_has_uncommitted, partial(self._world.after, delay_ms, host.kill))

    # --- building blocks

    def _longer_than(self, limit_ms: int) -> int:
        """Usually somewhat more than `limit_ms`, sometimes less, and at most what a run has time for."""
        part = self._world.rng.choice((0.7, 1.1, 1.5))
        return min(int(limit_ms * part) + self._world.rng.randint(0, PAUSE_MS_MAX), LONGEST_MS)

    def _cut(self, one: ControllerHost, other: ControllerHost, lasts_ms: int, **way: bool) -> None:
        rng = self._world.rng
        if not way and rng.random() < 0.5:
            way = {rng.choice(("hears", "heard")): True}
        self._cluster.cut(one, other, **way)
        self._world.after(lasts_ms, partial(self._cluster.heal, one, other, **way))

    def _slow(self, one: ControllerHost, other: ControllerHost, lasts_ms: int) -> None:
        self._cluster.slow(one, other, self._world.rng.choice(SLOW_MS))
        self._world.after(lasts_ms, partial(self._cluster.slow, one, other, None))


def _has_uncommitted(controller: Controller) -> bool:
    return controller.is_active and not controller.all_committed


def _has_voted(controller: Controller) -> bool:
    state = controller.quorum.state
    return state.voted_for != NO_BROKER_ID and state.leader_id == NO_BROKER_ID


def _campaigns(controller: Controller) -> bool:
    return controller.quorum.role is Role.CANDIDATE
