"""(shell) The time from send() in one Ray actor to the record in another on the same machine."""

from __future__ import annotations

import time
from typing import Any, Final

import ray

import raylog
from benchmarks.figures import Figure, figure, percentile, progress

TOPIC: Final = "clients-latency"
RECORDS: Final = 2_000
RATES: Final = (200, 1_000)
VALUE_BYTES: Final = 100
AIM_MS: Final = 0.5


class Sender:
    def __init__(self, servers: str) -> None:
        self._producer = raylog.Producer(bootstrap_servers=servers, acks=1, linger_ms=0)
        self._producer.send(TOPIC, b"").result()

    def send(self, rate: int, count: int) -> None:
        due = time.monotonic()
        for _ in range(count):
            due += 1 / rate
            time.sleep(max(0.0, due - time.monotonic()))
            self._producer.send(TOPIC, time.monotonic_ns().to_bytes(VALUE_BYTES))
        self._producer.flush()


class Receiver:
    def __init__(self, servers: str, *, mapped: bool) -> None:
        self._consumer = raylog.Consumer(bootstrap_servers=servers, mapped=mapped)

    def begin(self) -> None:
        """At the end of the topic."""
        self._consumer.assign([(TOPIC, 0)])
        self._consumer.seek_to_end()
        self._consumer.position((TOPIC, 0))
        self._consumer.poll(0.2)

    def receive(self, count: int) -> list[float]:
        """Of each record, the milliseconds since it was sent."""
        found: list[float] = []
        while len(found) < count:
            records = self._consumer.poll(10.0)
            arrived = time.monotonic_ns()  # one clock for all processes of a machine
            found += [(arrived - int.from_bytes(record.value)) / 1e6 for record in records]
        return found


def measure(servers: str, runs: int) -> list[Figure]:
    figures = []
    actor: Any = ray.remote(num_cpus=0)
    sender = actor(Sender).remote(servers)
    for mapped, way in ((True, "mapped files"), (False, "the wire")):
        receiver = actor(Receiver).remote(servers, mapped=mapped)
        for rate in RATES:
            halves, tails = [], []
            for run in range(runs):
                ray.get(receiver.begin.remote())
                received = receiver.receive.remote(RECORDS)
                ray.get(sender.send.remote(rate, RECORDS))
                latencies = sorted(ray.get(received))
                halves.append(percentile(latencies, 50))
                tails.append(percentile(latencies, 99))
                progress(f"run {run}: by {way} at {rate}/s: {halves[-1]:.2f} ms, p99 {tails[-1]:.2f} ms")
            path = f"send() to poll() of another actor, {way}, {rate}/s: p50"
            solid, aim = (2 * AIM_MS, AIM_MS) if mapped else (None, None)
            figures.append(figure(path, "ms", halves, solid=solid, aim=aim))
            figures.append(figure("  p99", "ms", tails))
    return figures
