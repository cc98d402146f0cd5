"""(shell) Producers of raylog beside those of confluent-kafka, kafka-python and aiokafka, in turn, on the same broker.

Each run is a process of its own (`client_run`), so that its CPU time is that of one client alone.
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
}
SECONDS_MAX = 120


def measure(bootstrap_servers: str, pid: int, runs: int) -> list[Figure]:
    samples: dict[tuple[int, str, str], list[float]] = defaultdict(list)
    for run in range(runs + 1):
        for size in SIZES:
            speeds = {}
            for client, most in COUNTS.items():
                count = most if client != "raylog send_arrow" else most * SIZES[0] // size
                found = _run(bootstrap_servers, pid, client, size, count)
                speeds[client] = found["per_second"]
                progress(f"run {run}: {client}, {size} B: {found['per_second']:,.0f}/s, {found['cpu_us']:.2f} CPU-us")
                if run:  # the first is for warming up
                    for what, number in found.items():
                        samples[size, client, what].append(number)
            if run:
                samples[size, "raylog", "ratio"].append(speeds["raylog"] / speeds["aiokafka"])
                samples[size, "raylog asyncio", "ratio"].append(speeds["raylog asyncio"] / speeds["aiokafka"])
    figures = []
    for size in SIZES:
        for client in ("raylog", "raylog asyncio"):
            ratios = samples[size, client, "ratio"]
            path = f"{client} send() {size} B relative to aiokafka"
            figures.append(figure(path, "ratio", ratios, solid=2.0, aim=3.0, more_is_better=True))
        for client in COUNTS:
            millions = [number / 1e6 for number in samples[size, client, "per_second"]]
            aims = {"solid": 3.0, "aim": 10.0} if (client, size) == ("raylog send_arrow", 100) else {}
            figures.append(figure(f"{client} {size} B", "M/s", millions, more_is_better=True, **aims))
            figures.append(figure("  CPU of the client", "us/record", samples[size, client, "cpu_us"]))
            figures.append(figure("  CPU of the broker", "us/record", samples[size, client, "broker_us"]))
    return figures


def _run(bootstrap_servers: str, pid: int, client: str, size: int, count: int) -> dict[str, float]:
    topic = f"clients-{client.replace(' ', '-')}"
    command = [sys.executable, "-m", "benchmarks.client_run", client, bootstrap_servers, topic, str(size), str(count)]
    before = cpu_seconds(pid)
    done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS_MAX, check=False)
    if done.returncode:
        raise RuntimeError(f"{client} failed:\n{done.stderr}")
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    found["broker_us"] = (cpu_seconds(pid) - before) / count * 1e6
    admin = AdminClient({"bootstrap.servers": bootstrap_servers})
    admin.delete_topics([topic])[topic].result()
    return found
