"""What happens to machines, disks, clocks and files under a running cluster, each as one function.

A function does the harm to one node of three, waits until the load has gone on without it, and repairs what an operator
would. It raises AssertionError if the node does not say what is wrong.
"""

from __future__ import annotations

import os
import resource
import shutil
import signal
import socket
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from confluent_kafka import KafkaException

from tests.compat.topics import create_topic
from tests.operators.load import Load
from tests.operators.many_bytes import ManyBytes
from tests.support.faulty_calls import FaultyCalls, why_no_faulty_calls
from tests.support.hang import HANG_SECONDS
from tests.support.memory_cgroup import memory_cgroup, why_no_memory_cgroups
from tests.support.node_cluster import NodeCluster
from tests.support.node_process import NodeProcess
from tests.support.own_disk import OwnDisk, own_disk, why_no_disks

HANG = 5.0
"""Seconds; more than twice the session timeout."""
HOURS = 3600
LIMIT_BYTES = 32 << 20
"""Of memory that a node with limited memory may take in addition, page cache included."""
REQUEST_BYTES = 1 << 20
MANY = 100
"""Partitions whose records do not fit into the last block of a file."""
LEADER, FOLLOWER, CONTROLLER = "leader", "follower", "active controller"
SERVERS = (LEADER, FOLLOWER)
ALL = (LEADER, FOLLOWER, CONTROLLER)


@dataclass
class Scene:
    """A cluster under load, and the node to which something happens."""

    cluster: NodeCluster
    calls: Mapping[str, FaultyCalls]
    """By the names of nodes."""
    topic: str
    load: Load
    node: NodeProcess
    role: str
    logged: int = field(init=False)
    """The size of the node's log at the beginning."""
    without_seconds: float = 0.0
    """How long the load needed to go on."""

    def __post_init__(self) -> None:
        self.logged = len(self.node.log())

    @property
    def path(self) -> Path:
        """The directory of the node."""
        return self.node.spec.path

    @property
    def is_controller(self) -> bool:
        return self.node.spec.is_controller

    def go_on(self) -> None:
        """Wait until the load has made progress."""
        self.without_seconds = self.load.until_more()

    def expect(self, message: str) -> None:
        """Wait until the node has logged the message."""
        self.node.wait_until_logged(message, after=self.logged)

    def expect_end(self) -> None:
        """Wait until the controller has ended, as it does if it cannot write a record to its disk."""
        with suppress(KafkaException):  # the next controller makes the topic, or the client gets the error of this one
            create_topic(self.cluster.bootstrap_servers, f"{self.topic}-more", partitions=MANY)
        self.expect("invariant violated")
        self.node.wait()

    def restart(self) -> None:
        self.node.kill()
        self.node.start()
        self.node.wait_until_started()

    def active_segment(self) -> Path:
        return max((self.path / f"{self.topic}-0").glob("*.log"))


# --- processes


def killed(scene: Scene) -> None:
    scene.node.kill()
    scene.go_on()
    scene.restart()


def hangs(scene: Scene) -> None:
    scene.node.signal(signal.SIGSTOP)
    began = time.monotonic()
    scene.go_on()
    time.sleep(max(0.0, HANG - (time.monotonic() - began)))
    scene.node.signal(signal.SIGCONT)


def short_of_memory(scene: Scene) -> None:
    """It may go on or end; Ray restarts it, or an operator."""
    status = Path(f"/proc/{scene.node.pid}/status").read_text().splitlines()
    data_bytes = 1024 * next(int(line.split()[1]) for line in status if line.startswith("VmData:"))
    resource.prlimit(scene.node.pid, resource.RLIMIT_DATA, (data_bytes, data_bytes))
    scene.go_on()
    time.sleep(HANG)
    scene.restart()


def page_cache_limited(scene: Scene) -> None:
    """It writes and reads far more than may be in its page cache."""
    with memory_cgroup() as group:
        try:
            group.limit(LIMIT_BYTES)
            group.add(scene.node.pid)
            many = ManyBytes(scene.cluster.bootstrap_servers, f"{scene.topic}-many", scene.node.spec.node_id)
            many.write(4 * LIMIT_BYTES)
            many.read()
            scene.go_on()
            assert scene.node.running
            assert group.reached
            many.delete()
        finally:
            scene.node.kill()
    scene.restart()


def killed_for_memory(scene: Scene) -> None:
    """By the kernel, since it needs more memory than it may have."""
    with memory_cgroup() as group:
        try:
            group.limit(LIMIT_BYTES)
            group.add(scene.node.pid)
            with _half_requests(scene.node, 2 * LIMIT_BYTES):
                assert scene.node.wait() == -signal.SIGKILL
        finally:
            scene.node.kill()
        assert group.reached
    scene.go_on()
    scene.restart()


@contextmanager
def _half_requests(node: NodeProcess, size_bytes: int) -> Iterator[None]:
    """Connections from which the node has received so much of requests that it waits for their ends."""
    with ExitStack() as stack:
        for _ in range(size_bytes // REQUEST_BYTES):
            with suppress(ConnectionError):  # it is killed
                connection = stack.enter_context(
                    socket.create_connection((node.spec.host, node.spec.port), HANG_SECONDS)
                )
                connection.sendall((REQUEST_BYTES + 1).to_bytes(4) + b"1" * REQUEST_BYTES)
        yield


# --- files


def directory_deleted(scene: Scene) -> None:
    shutil.rmtree(scene.path)
    scene.expect("log directory offline")
    scene.go_on()
    scene.restart()


def partition_deleted(scene: Scene) -> None:
    shutil.rmtree(scene.path / f"{scene.topic}-0")
    scene.expect("log offline")
    scene.go_on()
    scene.restart()


def segment_truncated(scene: Scene) -> None:
    os.truncate(scene.active_segment(), 1000)
    scene.expect("log offline")
    scene.go_on()
    scene.restart()


def segment_deleted(scene: Scene) -> None:
    scene.active_segment().unlink()
    scene.expect("log offline")
    scene.go_on()
    scene.restart()


def checkpoints_emptied(scene: Scene) -> None:
    """Found by the next start, after a kill."""
    scene.node.kill()
    for path in scene.path.glob("*checkpoint"):
        os.truncate(path, 0)
    for path in (scene.path / f"{scene.topic}-0").glob("leader-epoch-checkpoint"):
        os.truncate(path, 0)
    scene.go_on()
    scene.restart()


# --- disks


@contextmanager
def _own_disk(scene: Scene) -> Iterator[OwnDisk]:
    """The node runs on a disk of its own. At the end it runs as before, on the directory of the beginning."""
    scene.node.stop()
    with own_disk(Path(f"{scene.path}.image"), scene.path) as disk:
        try:
            scene.node.prefix = disk.prefix
            scene.node.start()
            scene.node.wait_until_started()
            scene.cluster.wait_until_healthy(scene.topic)
            _take_role(scene)
            yield disk
        finally:
            scene.node.kill()
            scene.node.prefix = ()
    scene.node.start()
    scene.node.wait_until_started()


def _take_role(scene: Scene) -> None:
    """After the restart another node leads. It gives way, and the next one, until it is the turn of this node."""
    while scene.role == CONTROLLER and (active := scene.cluster.active_controller()) is not scene.node:
        _give_way(scene, active)
    if scene.role == LEADER:
        for other in scene.cluster.brokers:
            if scene.cluster.leader(scene.topic) is scene.node:
                return
            if other is not scene.node:
                _give_way(scene, other)


def _give_way(scene: Scene, other: NodeProcess) -> None:
    other.kill()
    scene.load.until_more(50)
    other.start()
    other.wait_until_started()
    scene.cluster.wait_until_healthy(scene.topic)


def disk_read_only(scene: Scene) -> None:
    with _own_disk(scene) as disk:
        disk.fail()
        if scene.is_controller:
            scene.expect_end()
        else:
            scene.expect("offline")
        scene.go_on()


def disk_full(scene: Scene) -> None:
    """It is filled and emptied again; the broker needs no restart for that. A leader refuses records meanwhile."""
    with _own_disk(scene) as disk:
        disk.fill()
        if scene.is_controller:
            scene.expect_end()
            scene.go_on()
            return
        if scene.role != LEADER:
            scene.go_on()
        time.sleep(HANG)
        scene.expect("disk full, writes refused")
        disk.empty()
        scene.cluster.wait_until_healthy(scene.topic)


def sync_fails(scene: Scene) -> None:
    part = "__cluster_metadata" if scene.is_controller else scene.topic
    scene.calls[scene.node.spec.name].set(failing_syncs=1, path=f"{scene.node.spec.name}/{part}")
    if scene.is_controller:
        scene.expect_end()
    else:
        scene.expect("log offline")
    scene.go_on()
    scene.restart()


def disk_slow(scene: Scene) -> None:
    calls = scene.calls[scene.node.spec.name]
    calls.set(sync_ms=1000, write_ms=30, path=scene.node.spec.name)
    scene.go_on()
    time.sleep(HANG)
    calls.set()


# --- clocks


def clock_jumps(scene: Scene) -> None:
    """Forward, back to before the beginning, and right again, by hours, with some seconds in between."""
    calls = scene.calls[scene.node.spec.name]
    for hours in (5, -5, 0):
        calls.set(clock_offset_seconds=hours * HOURS)
        scene.go_on()
        time.sleep(1)


def all_clocks_jump(scene: Scene) -> None:
    for hours in (5, -5, 0):
        for calls in scene.calls.values():
            calls.set(clock_offset_seconds=hours * HOURS)
        scene.go_on()
        time.sleep(1)


class Fault(NamedTuple):
    """One of them, and when it can be tried."""

    run: Callable[[Scene], None]
    roles: tuple[str, ...] = ALL
    why_not: Callable[[], str] = str
    """Why this machine cannot do it; empty if it can."""
    usual: tuple[str, ...] = ()
    """The roles for which the usual form of the tests tries it."""

    @property
    def name(self) -> str:
        return self.run.__name__.replace("_", " ")


FAULTS = (
    Fault(killed),
    Fault(hangs),
    Fault(short_of_memory),
    Fault(page_cache_limited, SERVERS, why_not=why_no_memory_cgroups, usual=(LEADER,)),
    Fault(killed_for_memory, SERVERS, why_not=why_no_memory_cgroups),
    Fault(directory_deleted, SERVERS, usual=(LEADER,)),
    Fault(partition_deleted, SERVERS),
    Fault(segment_truncated, SERVERS),
    Fault(segment_deleted, SERVERS),
    Fault(checkpoints_emptied, SERVERS),
    Fault(disk_read_only, why_not=why_no_disks),
    Fault(disk_full, why_not=why_no_disks),
    Fault(sync_fails, why_not=why_no_faulty_calls),
    Fault(disk_slow, why_not=why_no_faulty_calls),
    Fault(clock_jumps, why_not=why_no_faulty_calls),
    Fault(all_clocks_jump, (LEADER,), why_not=why_no_faulty_calls),
)
