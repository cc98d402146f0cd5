"""(shell) The cost of many partitions: restart time after a kill, and CPU and memory of an idle broker.

Ray restarts the killed broker, which checks every log and serves once all partitions have a leader. The same is
measured without partitions: the difference is the cost of the logs.
"""

from __future__ import annotations

import os
import signal
import time
from functools import partial
from tempfile import TemporaryDirectory

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

import raylog
from benchmarks.figures import Figure, anonymous_megabytes, cpu_seconds, figure, progress, timed
from benchmarks.turns import longest_turn

TOPIC = "many"
PARTITIONS = 1000
RECORDS = 10
"""In each partition, each a batch of its own."""
VALUE = os.urandom(1024)
IDLE_SECONDS = 10.0
SETTLE_SECONDS = 2.0
ROUND_SECONDS = 0.02
TIMEOUT_SECONDS = 120.0
RUNNING = "running"


def measure(runs: int, folder: str | None) -> list[Figure]:
    figures = []
    for partitions in (0, PARTITIONS):
        with (
            TemporaryDirectory(prefix="raylog-bench-", dir=folder) as data_dir,
            raylog.start(f"bench-partitions-{partitions}", data_dir=f"{data_dir}/data") as cluster,
        ):
            admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers, "log_level": 0})
            if partitions:
                created = timed(partial(_create, admin))
                figures.append(figure(f"creation of a topic with {PARTITIONS:,} partitions", "s", [created]))
                figures.append(longest_turn(cluster))
                _fill(cluster.bootstrap_servers)
            wall, cpu, idle, memory = [], [], [], []
            for _ in range(runs):
                seconds, pid = _kill_and_wait(cluster, admin, partitions)
                wall.append(seconds)
                cpu.append(cpu_seconds(pid))
                idle.append(_idle_cpu_percent(pid))
                memory.append(anonymous_megabytes(pid))
            figures += [
                figure(f"killed broker serves {partitions:,} partitions again", "s", wall),
                figure("  its CPU until then", "s", cpu),
                figure(f"idle CPU of a broker with {partitions:,} partitions", "%", idle, solid=3.0, aim=1.0),
                figure("  its memory (RssAnon)", "MB", memory),
            ]
            progress(" | ".join(f"{each.path.strip()}: {each.median:.2f} {each.unit}" for each in figures[-4:]))
    return figures


def _create(admin: AdminClient) -> None:
    admin.create_topics([NewTopic(TOPIC, PARTITIONS)])[TOPIC].result()


def _fill(servers: str) -> None:
    producer = Producer({"bootstrap.servers": servers, "batch.num.messages": 1, "linger.ms": 0})
    for _ in range(RECORDS):
        for partition in range(PARTITIONS):
            producer.produce(TOPIC, VALUE, partition=partition)
        producer.flush()


def _kill_and_wait(cluster: raylog.Cluster, admin: AdminClient, partitions: int) -> tuple[float, int]:
    """(seconds until the broker served every partition again, its new process)."""
    killed = cluster.status()[0].pid
    begun = time.perf_counter()
    os.kill(killed, signal.SIGKILL)
    while True:
        (broker,) = cluster.status()
        if broker.state == RUNNING and broker.pid != killed and _led(admin) == partitions:
            return time.perf_counter() - begun, broker.pid
        if time.perf_counter() - begun > TIMEOUT_SECONDS:
            raise TimeoutError(f"the broker did not come back within {TIMEOUT_SECONDS} s")
        time.sleep(ROUND_SECONDS)


def _led(admin: AdminClient) -> int:
    """How many partitions have a leader."""
    topics = admin.list_topics(timeout=TIMEOUT_SECONDS).topics.values()
    return sum(partition.leader >= 0 for topic in topics for partition in topic.partitions.values())


def _idle_cpu_percent(pid: int) -> float:
    """CPU seconds in a hundred seconds of rest."""
    time.sleep(SETTLE_SECONDS)
    before, begun = cpu_seconds(pid), time.perf_counter()
    time.sleep(IDLE_SECONDS)
    return 100 * (cpu_seconds(pid) - before) / (time.perf_counter() - begun)
