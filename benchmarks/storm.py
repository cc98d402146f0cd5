"""(shell) Whether rebalances delay producers, and producers heartbeats: with coordinators of their own, and without.

A producer's latency while nothing else happens, and while members join and leave a large group all the time; heartbeats
of a calm group without other load, and while producers write at a rate. The load comes from other processes, which run
on one core of a machine with two: they take half of its CPU time and no more, and what is measured has the other core.
With a coordinator of its own the nodes are apart as on two machines: the coordinator has the core of the storm while
producers are measured, and the brokers have that of the producers while heartbeats are.

Calm and loaded phases alternate with the same connections and members, since latencies differ more between two groups
than between two loads. A third phase tells what any busy neighbour costs on that machine, raylog's or not.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from enum import Enum
from multiprocessing import get_context
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Final

from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

import raylog
from benchmarks.figures import Figure, figure, percentile, progress
from benchmarks.group_members import Connection, ConsumerMember, until_shared
from raylog.actors.cluster import cluster_status
from raylog.protocol.messages.find_coordinator import FindCoordinatorRequest

MEMBERS: Final = 500
"""Of the group that does not come to rest."""
CHANGES_PER_SECOND: Final = 40
"""Half of them join, half of them leave."""
CALM_MEMBERS: Final = 50
PARTITIONS: Final = 100
PRODUCED_PER_SECOND: Final = 9000
"""By the load of producers; the records have 1 KiB."""
PROBE_SECONDS: Final = 0.01
ROUNDS: Final = 5
SECONDS: Final = 5.0
"""Of each phase in each round, once it has settled."""
SETTLE_SECONDS: Final = 2.0
WARM_SECONDS: Final = 5.0
READY_SECONDS: Final = 60.0
COORDINATOR_IDS: Final = 2000
_FIRST: Final = 0
_LAST: Final = (os.cpu_count() or 1) - 1
RATIO_AIM: Final = 1.2
RATIO_SOLID: Final = 2.0
CONFIG: Final = {
    "group.consumer.heartbeat.interval.ms": 1000,
    "group.consumer.min.heartbeat.interval.ms": 1000,
    "offsets.topic.num.partitions": 1,
    "default.replication.factor": 1,
}


class Phase(Enum):
    CALM = "calm"
    BUSY_CORE = "a program that has nothing to do with raylog uses the other core"
    LOADED = "loaded"


def measure() -> list[Figure]:
    figures: list[Figure] = []
    for coordinators, where in ((1, "a coordinator of its own"), (0, "coordinators in brokers")):
        with raylog.start(
            "bench-storm", brokers=2, group_coordinators=coordinators, transaction_coordinators=0, config=CONFIG
        ) as cluster:
            servers = cluster.bootstrap_servers
            admin = AdminClient({"bootstrap.servers": servers})
            topics = {"probed": 2, "shared": PARTITIONS, "loaded": 2}
            for created in admin.create_topics([NewTopic(*each, 1) for each in topics.items()]).values():
                created.result()
            address = _coordinator(servers, own=coordinators > 0)
            status = cluster_status(cluster.name)
            brokers, apart = [each.pid for each in status.brokers], [each.pid for each in status.coordinators]
            with _on_first_core():
                if apart:
                    _use_cores({_FIRST}, *brokers)
                    _use_cores({_LAST}, *apart)
                with closing(Neighbours(_storm, address)) as others:
                    taken = _produced(servers, others.phases())
                    figures += _compared("produce", f"{MEMBERS} members join and leave", where, taken, others)
                if apart:
                    _use_cores({_LAST}, *brokers)
                    _use_cores({_FIRST}, *apart)
                with closing(Neighbours(_produce, servers)) as others:
                    taken = asyncio.run(_heartbeats(address, others.phases()))
                    figures += _compared("heartbeats", "producers write", where, taken, others)
    return figures


def _compared(
    measured: str, load: str, where: str, taken: dict[Phase, list[float]], others: Neighbours
) -> list[Figure]:
    figures = []
    for phase, what in ((Phase.BUSY_CORE, "a program uses the other core"), (Phase.LOADED, load)):
        path = f"{measured} while {what}, {where}"
        solid, aim = (RATIO_SOLID, RATIO_AIM) if phase is Phase.LOADED else (None, None)
        for percent in (50, 99):
            before, after = (percentile(sorted(taken[each]), percent) for each in (Phase.CALM, phase))
            ratio = after / before
            figures.append(figure(f"{path}: p{percent} of the calm one", "x", [ratio], solid=solid, aim=aim))
            progress(f"{path}: p{percent} {before:.2f} ms, then {after:.2f} ms: {ratio:.2f}x")
        figures.append(figure("  use of the other core", "x", [others.use(phase)]))
        progress(f"{path}: {others.use(phase):.0%} of the other core, {others.use(Phase.CALM):.0%} in calm")
    return figures


def _coordinator(servers: str, *, own: bool) -> str:
    """The address of the group coordinator, once it is the one that is wanted."""
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "first"})
    consumer.subscribe(["probed"])  # creates __consumer_offsets
    consumer.poll(WARM_SECONDS)
    consumer.close()

    async def find() -> str:
        connection, deadline = await Connection.open(servers.partition(",")[0]), time.monotonic() + READY_SECONDS
        while True:
            found = await connection.call(FindCoordinatorRequest(coordinator_keys=("any",)))
            node = found.coordinators[0]
            if node.node_id >= 0 and (node.node_id >= COORDINATOR_IDS) is own:
                connection.close()
                return f"{node.host}:{node.port}"
            assert time.monotonic() < deadline, found
            await asyncio.sleep(0.5)

    return asyncio.run(find())


class Neighbours:
    """The load, and a program that has nothing to do with raylog: both on the last core, and stopped between phases."""

    def __init__(self, load: Callable[[str], None], address: str) -> None:
        self._processes = {Phase.LOADED: _on_last_core(load, address), Phase.BUSY_CORE: _on_last_core(_spin, address)}
        self._used = {phase: [0, 0] for phase in Phase}
        time.sleep(2 * WARM_SECONDS)  # they have imported what they need, and have begun
        self._signal(signal.SIGSTOP, *Phase)

    def phases(self) -> Iterator[Phase]:
        """Each in turn, ROUNDS times."""
        for _ in range(ROUNDS):
            for phase in Phase:
                self._signal(signal.SIGCONT, phase)
                before = _jiffies(_LAST)
                yield phase
                for number, (was, now) in enumerate(zip(before, _jiffies(_LAST), strict=True)):
                    self._used[phase][number] += now - was
                self._signal(signal.SIGSTOP, phase)

    def use(self, phase: Phase) -> float:
        """The share of the last core's time that was used in the phase, by whatever runs there."""
        busy, all_of_it = self._used[phase]
        return busy / all_of_it

    def close(self) -> None:
        for process in self._processes.values():
            process.kill()
            process.join()

    def _signal(self, number: signal.Signals, *phases: Phase) -> None:
        for phase in phases:
            process = self._processes.get(phase)
            if process is not None and process.pid is not None:
                os.kill(process.pid, number)


def _jiffies(core: int) -> tuple[int, int]:
    """What a core has worked, and all of its time, since the machine started (proc(5), /proc/stat)."""
    line = next(each for each in Path("/proc/stat").read_text().splitlines() if each.startswith(f"cpu{core} "))
    user, nice, system, idle, waiting, *others = map(int, line.split()[1:])
    busy = user + nice + system + sum(others)
    return busy, busy + idle + waiting


def _on_last_core(load: Callable[[str], None], address: str) -> BaseProcess:
    process: BaseProcess = get_context("spawn").Process(target=_run_on_last_core, args=(load, address), daemon=True)
    process.start()
    return process


def _run_on_last_core(load: Callable[[str], None], address: str) -> None:
    _use_cores({_LAST}, os.getpid())
    load(address)


@contextmanager
def _on_first_core() -> Iterator[None]:
    before = os.sched_getaffinity(0)
    _use_cores({_FIRST}, os.getpid())
    try:
        yield
    finally:
        _use_cores(before, os.getpid())


def _use_cores(cores: set[int], *pids: int) -> None:
    """For all threads of these processes, and those that they start later."""
    for pid in pids:
        for thread in Path(f"/proc/{pid}/task").iterdir():
            os.sched_setaffinity(int(thread.name), cores)


def _produced(servers: str, phases: Iterator[Phase]) -> dict[Phase, list[float]]:
    """The milliseconds from each record to its acknowledgement; one at a time, to both brokers in turn."""
    producer = Producer({"bootstrap.servers": servers, "linger.ms": 0, "acks": "1"})
    taken: dict[Phase, list[float]] = {phase: [] for phase in Phase}
    sent = 0
    for phase in phases:
        until = time.monotonic() + SETTLE_SECONDS + SECONDS
        while (left := until - time.monotonic()) > 0:
            begun = time.perf_counter()
            producer.produce("probed", b"x" * 1024, partition=sent % 2)
            producer.flush()
            sent += 1
            if left < SECONDS:
                taken[phase].append((time.perf_counter() - begun) * 1000)
            time.sleep(PROBE_SECONDS)
    return taken


async def _heartbeats(address: str, phases: Iterator[Phase]) -> dict[Phase, list[float]]:
    """The milliseconds of heartbeats, once the members have their partitions."""
    members = [ConsumerMember(address, "calm", "shared", PARTITIONS) for _ in range(CALM_MEMBERS)]
    tasks = [asyncio.create_task(each.run()) for each in members]
    await until_shared(members, tasks, PARTITIONS, timeout_seconds=READY_SECONDS)
    taken: dict[Phase, list[float]] = {phase: [] for phase in Phase}
    for phase in phases:
        await asyncio.sleep(SETTLE_SECONDS)
        for each in members:
            each.beats.clear()
        await asyncio.sleep(SECONDS)
        taken[phase] += [beat for each in members for beat in each.beats]
    for each in members:
        each.stop()
    await asyncio.gather(*tasks)
    return taken


def _spin(_: str) -> None:
    while True:
        pass


def _storm(address: str) -> None:
    asyncio.run(_join_and_leave(address))


async def _join_and_leave(address: str) -> None:
    rng, members = random.Random(0), dict[ConsumerMember, asyncio.Task[None]]()
    while True:
        if len(members) < MEMBERS and (rng.random() < 0.5 or len(members) < MEMBERS // 2):
            made = ConsumerMember(address, "stormy", "shared", PARTITIONS)
            members[made] = asyncio.create_task(made.run())
        elif members:
            gone = rng.choice(list(members))
            gone.stop()
            await members.pop(gone)
        await asyncio.sleep(1 / CHANGES_PER_SECOND)


def _produce(servers: str) -> None:
    producer = Producer({"bootstrap.servers": servers, "linger.ms": 5, "acks": "1"})
    sent, due, worked = 0, 0.0, time.monotonic()
    while True:
        now = time.monotonic()
        due += min(now - worked, 0.1) * PRODUCED_PER_SECOND  # nothing is made up for after a pause
        worked = now
        while due >= 1 and len(producer) < PRODUCED_PER_SECOND:  # a second's records wait at most
            producer.produce("loaded", b"x" * 1024, partition=sent % 2)
            sent, due = sent + 1, due - 1
        producer.poll(0.005)


if __name__ == "__main__":
    for each in measure():
        sys.stdout.write(f"{each.path}: {each.median:.2f}{each.unit} {each.verdict()}\n")
