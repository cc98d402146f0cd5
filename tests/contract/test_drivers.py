"""Every driver (shell, simulator, unit tests) carries out a node's effects in order, and reports their results."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from uuid import UUID

import pytest

from raylog.config.network import ConnectionLimits, SocketOptions
from raylog.config.table import broker_configs
from raylog.core.clock import Now
from raylog.core.errors import InvariantViolation
from raylog.core.ids import BrokerId
from raylog.transport.endpoints import Endpoint
from raylog.transport.listeners import plan_listeners
from raylog.transport.node import Effects, Job, Node, NodeIdentity
from raylog.transport.server import NodeServer, no_peers
from raylog.transport.system_time import now as real_now
from tests.sim.network import Network
from tests.sim.node_host import NodeHost
from tests.sim.world import World
from tests.support.direct_link import settle

IDENTITY = NodeIdentity(BrokerId(0), "cluster", UUID(int=7), b"s" * 32)
LIMITS = ConnectionLimits(1 << 20, connections_max=9, connections_per_host_max=9, idle_ms=-1)
PATIENCE_MS = 10_000


class Probe(Node):
    """Notes what happens to it, in order. `then` is what it does at its first tick."""

    def __init__(self, now: Now, then: Callable[[Probe], None]) -> None:
        super().__init__(IDENTITY, LIMITS, new_nonce=bytes, now=now)
        self.seen: list[str] = []
        self.done = False
        self._then: Callable[[Probe], None] | None = then
        self.add_periodic_task(1, self._begin, now)

    def _begin(self, now: Now) -> None:
        then, self._then = self._then, None
        if then is not None:
            then(self)

    def take_effects(self) -> Effects:
        effects = super().take_effects()
        self.seen += ["effects taken"] if effects.jobs else []
        return effects

    def job(self, name: str, *, error: Exception | None = None) -> None:
        def run() -> None:
            self.seen.append(f"{name} runs")
            if error is not None:
                raise error

        def ended(failure: OSError | None) -> None:
            self.seen.append(f"{name} ended: {failure}")
            self.done = True

        self.add_job(Job(run, ended))


Drive = Callable[[Callable[[Probe], None]], Probe]
"""Runs a probe under a driver until it is done. Raises InvariantViolation where that ends the node."""


def under_the_shell(then: Callable[[Probe], None]) -> Probe:
    async def run() -> Probe:
        node = Probe(real_now(), then)
        failures: list[BaseException] = []
        [listener, *_] = plan_listeners(broker_configs({"listeners": "PLAINTEXT://127.0.0.1:0"}))
        server = NodeServer(node, [listener], options=SocketOptions(), resolve=no_peers, on_failure=failures.append)
        await server.start()
        try:
            for _ in range(PATIENCE_MS):
                if node.done or failures:
                    break
                await asyncio.sleep(0.001)
        finally:
            await server.stop()
        if failures:
            raise failures[0]
        return node

    return asyncio.run(run())


class ProbeHost(NodeHost[Probe]):
    def __init__(self, world: World, then: Callable[[Probe], None]) -> None:
        super().__init__(Network(world), "probe", power_cuts=False)
        self._then = then
        self.listeners = []

    def make(self, now: Now) -> Probe:
        return Probe(now, self._then)

    def endpoints(self) -> dict[str, Endpoint]:
        return {}


def under_the_simulator(then: Callable[[Probe], None]) -> Probe:
    world = World(1)
    host = ProbeHost(world, then)
    host.start()
    node = host.node
    assert node is not None
    world.run(until=lambda: node.done, limit_ms=PATIENCE_MS)
    return node


def under_a_unit_test(then: Callable[[Probe], None]) -> Probe:
    node = Probe(Now(0, 0), then)
    for ms in range(PATIENCE_MS):
        if node.done:
            break
        if ms >= node.next_tick_ms():
            node.tick(Now(ms, ms))
        settle(node, Now(ms, ms))
    return node


@pytest.fixture(params=[under_the_shell, under_the_simulator, under_a_unit_test], ids=lambda each: each.__name__)
def drive(request: pytest.FixtureRequest) -> Drive:
    found: Drive = request.param
    return found


def test_a_job_runs_after_the_effects_are_taken_and_its_end_is_an_event(drive: Drive) -> None:
    node = drive(lambda probe: probe.job("job"))
    assert node.seen == ["effects taken", "job runs", "job ended: None"]


def test_an_os_error_is_the_result_of_a_job(drive: Drive) -> None:
    node = drive(lambda probe: probe.job("job", error=OSError(28, "No space left on device")))
    assert node.seen[-1] == "job ended: [Errno 28] No space left on device"


def test_another_exception_in_a_job_ends_the_node(drive: Drive) -> None:
    with pytest.raises(InvariantViolation, match="a job failed"):
        drive(lambda probe: probe.job("job", error=ValueError("a bug")))


def test_jobs_added_by_the_end_of_a_job_are_run(drive: Drive) -> None:
    def then(probe: Probe) -> None:
        def first_ended(_: OSError | None) -> None:
            probe.seen.append("first ended")
            probe.job("second")

        probe.add_job(Job(lambda: probe.seen.append("first runs"), first_ended))

    node = drive(then)
    assert [each for each in node.seen if each != "effects taken"] == [
        "first runs",
        "first ended",
        "second runs",
        "second ended: None",
    ]


def test_steps_are_repeated_until_they_are_done(drive: Drive) -> None:
    def then(probe: Probe) -> None:
        def step(_: Now) -> bool:
            probe.seen.append("step")
            probe.done = len(probe.seen) == 5
            return not probe.done

        probe.add_steps(step)

    assert drive(then).seen == ["step"] * 5
