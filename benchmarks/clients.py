"""(shell) raylog's producers and consumers beside those of confluent-kafka, kafka-python and aiokafka, in turn, on the
same broker.

Each run is a process of its own (`client_run`, `consumer_run`), so that its CPU time is that of one client alone.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections import defaultdict

from confluent_kafka.admin import AdminClient

from benchmarks.figures import Figure, cpu_seconds, figure, progress

SIZES = (100, 1024)
COUNTS = {
    "raylog": 300_000,
    "raylog asyncio": 300_000,
    "aiokafka": 100_000,
    "kafka-python": 50_000,
    "confluent-kafka": 300_000,
    "raylog send_arrow": 5_000_000,
    "encoded batches": 5_000_000,
}
LARGE_COUNTS = ("raylog send_arrow", "encoded batches")
"""Of these, fewer records if they are larger."""
READ_TOPIC = "clients-read"
READ_BYTES = 100
READ_COUNT = 2_000_000
READ_COUNTS = {
    "raylog poll, files": READ_COUNT,
    "raylog poll, wire": READ_COUNT,
    "raylog poll_arrow, files": READ_COUNT,
    "raylog poll_arrow, wire": READ_COUNT,
    "confluent-kafka consume": READ_COUNT,
    "aiokafka getmany": READ_COUNT // 10,
    "kafka-python poll": READ_COUNT // 10,
}
SECONDS_MAX = 120


def measure(bootstrap_servers: str, pid: int, runs: int) -> list[Figure]:
    return [*_producers(bootstrap_servers, pid, runs), *_consumers(bootstrap_servers, runs)]


def _producers(bootstrap_servers: str, pid: int, runs: int) -> list[Figure]:
    samples: dict[tuple[int, str, str], list[float]] = defaultdict(list)
    for run in range(runs + 1):
        for size in SIZES:
            speeds = {}
            for client, most in COUNTS.items():
                count = most * SIZES[0] // size if client in LARGE_COUNTS else most
                found = _run(bootstrap_servers, pid, client, size, count)
                speeds[client] = found["per_second"]
                progress(f"run {run}: {client}, {size} B: {found['per_second']:,.0f}/s, {found['cpu_us']:.2f} CPU-us")
                if run:  # the first is for warming up
                    for what, number in found.items():
                        samples[size, client, what].append(number)
            if run:
                samples[size, "raylog", "ratio"].append(speeds["raylog"] / speeds["aiokafka"])
                samples[size, "raylog asyncio", "ratio"].append(speeds["raylog asyncio"] / speeds["aiokafka"])
                samples[size, "raylog send_arrow", "ratio"].append(
                    speeds["raylog send_arrow"] / speeds["encoded batches"]
                )
    figures = []
    for size in SIZES:
        for client in ("raylog", "raylog asyncio"):
            ratios = samples[size, client, "ratio"]
            path = f"{client} send() {size} B relative to aiokafka"
            figures.append(figure(path, "ratio", ratios, solid=2.0, aim=3.0, more_is_better=True))
        ratios = samples[size, "raylog send_arrow", "ratio"]
        path = f"raylog send_arrow {size} B relative to the broker's limit"
        figures.append(figure(path, "ratio", ratios, solid=0.7, aim=0.9, more_is_better=True))
        for client in COUNTS:
            millions = [number / 1e6 for number in samples[size, client, "per_second"]]
            figures.append(figure(f"{client} {size} B", "M/s", millions, more_is_better=True))
            figures.append(figure("  CPU of the client", "us/record", samples[size, client, "cpu_us"]))
            figures.append(figure("  CPU of the broker", "us/record", samples[size, client, "broker_us"]))
    return figures


def _consumers(bootstrap_servers: str, runs: int) -> list[Figure]:
    """Of records of 100 bytes, in batches of 128 KiB."""
    command = ["raylog send_arrow", bootstrap_servers, READ_TOPIC, str(READ_BYTES), str(READ_COUNT)]
    _output([sys.executable, "-m", "benchmarks.client_run", *command])
    samples: dict[tuple[str, str], list[float]] = defaultdict(list)
    for run in range(runs + 1):
        for client, count in READ_COUNTS.items():
            command = [client, bootstrap_servers, READ_TOPIC, str(count)]
            found = _output([sys.executable, "-m", "benchmarks.consumer_run", *command])
            progress(f"run {run}: {client}: {found['per_second']:,.0f}/s, {found['cpu_us']:.2f} CPU-us")
            if run:
                for what, number in found.items():
                    samples[client, what].append(number)
    figures = []
    ours, theirs = samples["raylog poll, wire", "per_second"], samples["confluent-kafka consume", "per_second"]
    ratios = [own / other for own, other in zip(ours, theirs, strict=True)]
    figures.append(
        figure("poll() relative to confluent-kafka", "ratio", ratios, solid=0.7, aim=1.0, more_is_better=True)
    )
    for client in READ_COUNTS:
        millions = [number / 1e6 for number in samples[client, "per_second"]]
        figures.append(figure(f"{client} {READ_BYTES} B", "M/s", millions, more_is_better=True))
        figures.append(figure("  CPU of the client", "us/record", samples[client, "cpu_us"]))
    return figures


def _run(bootstrap_servers: str, pid: int, client: str, size: int, count: int) -> dict[str, float]:
    topic = f"clients-{client.replace(' ', '-')}"
    command = [sys.executable, "-m", "benchmarks.client_run", client, bootstrap_servers, topic, str(size), str(count)]
    before = cpu_seconds(pid)
    found = _output(command)
    found["broker_us"] = (cpu_seconds(pid) - before) / count * 1e6
    admin = AdminClient({"bootstrap.servers": bootstrap_servers})
    admin.delete_topics([topic])[topic].result()
    return found


def _output(command: list[str]) -> dict[str, float]:
    done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS_MAX, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)} failed:\n{done.stderr}")
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found
