"""(shell) Whether rebalances delay producers, and producers heartbeats: with coordinators of their own, and without.

A producer's latency while nothing else happens, and while members join and leave a large group all the time; heartbeats
of a calm group without other load, and while producers write at a rate. The load comes from other processes, which run
on one core of a machine with two: they take half of its CPU time and no more, and what is measured has the other core.
With a coordinator of its own the nodes are apart as on two machines: the coordinator has the core of the storm while
producers are measured, and the brokers have that of the producers while heartbeats are. How much a neighbour on the
other core costs that has nothing to do with raylog is measured too.
"""

from __future__ import annotations

import asyncio
import os
import random
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
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
PRODUCED_PER_SECOND: Final = 3000
"""By the load of producers; the records have 1 KiB."""
PROBE_SECONDS: Final = 0.01
SECONDS: Final = 15.0
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
                calm = _produced(servers)
                with _other_process(_spin):
                    beside = _produced(servers)
                figures += _compared(f"produce beside a busy core, {where}", calm, beside, aim=None)
                with _other_process(_storm, address):
                    stormy = _produced(servers)
                figures += _compared(f"produce while {MEMBERS} members join and leave, {where}", calm, stormy)
                if apart:
                    _use_cores({_LAST}, *brokers)
                    _use_cores({_FIRST}, *apart)
                calm = asyncio.run(_heartbeats(address, f"calm-{coordinators}"))
                with _other_process(_spin):
                    beside = asyncio.run(_heartbeats(address, f"beside-{coordinators}"))
                figures += _compared(f"heartbeats beside a busy core, {where}", calm, beside, aim=None)
                with _other_process(_produce, servers):
                    loaded = asyncio.run(_heartbeats(address, f"loaded-{coordinators}"))
                figures += _compared(f"heartbeats while producers write, {where}", calm, loaded)
    return figures


def _compared(path: str, calm: list[float], loaded: list[float], aim: float | None = RATIO_AIM) -> list[Figure]:
    calm, loaded = sorted(calm), sorted(loaded)
    solid = None if aim is None else RATIO_SOLID
    figures = []
    for percent in (50, 99):
        before, after = percentile(calm, percent), percentile(loaded, percent)
        figures.append(figure(f"{path}: p{percent} of the calm one", "x", [after / before], solid=solid, aim=aim))
        progress(f"{path}: p{percent} {before:.2f} ms, then {after:.2f} ms: {after / before:.2f}x")
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


@contextmanager
def _other_process(load: Callable[..., None], *arguments: str) -> Iterator[None]:
    process: BaseProcess = get_context("spawn").Process(target=_on_last_core, args=(load, *arguments), daemon=True)
    process.start()
    time.sleep(2 * WARM_SECONDS)  # it has imported what it needs, and has begun
    try:
        yield
    finally:
        process.kill()
        process.join()


def _on_last_core(load: Callable[..., None], *arguments: str) -> None:
    _use_cores({_LAST}, os.getpid())
    load(*arguments)


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


def _produced(servers: str) -> list[float]:
    """The milliseconds from each record to its acknowledgement; one at a time, to both brokers in turn."""
    producer = Producer({"bootstrap.servers": servers, "linger.ms": 0, "acks": "1"})
    taken: list[float] = []
    until, sent = time.monotonic() + WARM_SECONDS + SECONDS, 0
    while time.monotonic() < until:
        begun = time.perf_counter()
        producer.produce("probed", b"x" * 1024, partition=sent % 2)
        producer.flush()
        sent += 1
        if until - time.monotonic() < SECONDS:
            taken.append((time.perf_counter() - begun) * 1000)
        time.sleep(PROBE_SECONDS)
    return taken


async def _heartbeats(address: str, group: str) -> list[float]:
    """The milliseconds of heartbeats, once the members have their partitions."""
    members = [ConsumerMember(address, group, "shared", PARTITIONS) for _ in range(CALM_MEMBERS)]
    tasks = [asyncio.create_task(each.run()) for each in members]
    await until_shared(members, tasks, PARTITIONS, timeout_seconds=READY_SECONDS)
    for each in members:
        each.beats.clear()
    await asyncio.sleep(SECONDS)
    beats = [beat for each in members for beat in each.beats]
    for each in members:
        each.stop()
    await asyncio.gather(*tasks)
    return beats


def _spin() -> None:
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
    sent, begun = 0, time.monotonic()
    while True:
        while sent > (time.monotonic() - begun) * PRODUCED_PER_SECOND:
            producer.poll(0.005)
        producer.produce("loaded", b"x" * 1024, partition=sent % 2)
        sent += 1


if __name__ == "__main__":
    for each in measure():
        sys.stdout.write(f"{each.path}: {each.median:.2f}{each.unit} {each.verdict()}\n")
