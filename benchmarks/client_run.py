"""(shell) One client sends records, in a process of its own: its records per second and CPU time per record, as JSON.

`python -m benchmarks.client_run CLIENT SERVERS TOPIC BYTES COUNT`
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
import sys
import time
from collections.abc import Callable
from typing import Final

BATCH_BYTES: Final = 131_072
BUFFER_BYTES: Final = 32 << 20
RECORD_BYTES: Final = 16
"""More than a record needs besides its value."""
IN_FLIGHT: Final = 5
ERROR_CODE_AT: Final = 28
"""In a Produce response with one partition."""


def _raylog(servers: str, topic: str, value: bytes) -> tuple[Callable[[int], None], Callable[[], object]]:
    import raylog

    producer = raylog.Producer(
        bootstrap_servers=servers, acks=1, linger_ms=5, batch_size=BATCH_BYTES, buffer_memory=BUFFER_BYTES
    )

    def send(count: int) -> None:
        for _ in range(count):
            producer.send(topic, value)

    return send, producer.flush


def _confluent(servers: str, topic: str, value: bytes) -> tuple[Callable[[int], None], Callable[[], object]]:
    from confluent_kafka import Producer

    producer = Producer(
        {
            "bootstrap.servers": servers,
            "acks": "1",
            "linger.ms": 5,
            "batch.size": BATCH_BYTES,
            "queue.buffering.max.messages": 1_000_000,
            "queue.buffering.max.kbytes": BUFFER_BYTES >> 10,
        }
    )

    def send(count: int) -> None:
        for _ in range(count):
            while True:
                try:
                    producer.produce(topic, value)
                    break
                except BufferError:
                    producer.poll(0.1)

    return send, producer.flush


def _kafka_python(servers: str, topic: str, value: bytes) -> tuple[Callable[[int], None], Callable[[], object]]:
    from kafka import KafkaProducer

    producer = KafkaProducer(bootstrap_servers=servers, acks=1, linger_ms=5, batch_size=BATCH_BYTES)

    def send(count: int) -> None:
        for _ in range(count):
            producer.send(topic, value)

    return send, producer.flush


def _raylog_arrow(servers: str, topic: str, value: bytes) -> tuple[Callable[[int], None], Callable[[], object]]:
    import pyarrow as pa

    import raylog

    producer = raylog.Producer(
        bootstrap_servers=servers, acks=1, batch_size=BATCH_BYTES * 8, buffer_memory=BUFFER_BYTES
    )
    rows = pa.table({"value": pa.array([value] * 100_000)})

    def send(count: int) -> None:
        for _ in range(0, count, len(rows)):
            producer.send_arrow(topic, rows if count >= len(rows) else rows[:count])

    return send, producer.flush


def _encoded(servers: str, topic: str, value: bytes) -> tuple[Callable[[int], None], Callable[[], object]]:
    """One request again and again by a bare socket: the broker is all that this measures."""
    import raylog
    from raylog.protocol.framing import frame
    from raylog.protocol.header import encode_request
    from raylog.protocol.produce import ProducePartition, ProduceRequest, ProduceTopic
    from raylog.protocol.records.builder import NewRecord, build_batch

    with raylog.Producer(bootstrap_servers=servers) as producer:
        producer.send(topic, value).result()
    with raylog.AdminClient(bootstrap_servers=servers) as admin:
        topic_id = admin.describe_topics(topic)[topic].topic_id
    records = BATCH_BYTES * 8 // (len(value) + RECORD_BYTES)
    batch = ProducePartition(index=0, records=memoryview(build_batch([NewRecord(None, value, 0)] * records)))
    request = ProduceRequest(acks=1, timeout_ms=30_000, topics=[ProduceTopic(topic_id=topic_id, partitions=[batch])])
    encoded = b"".join(frame(encode_request(request, api_version=13, correlation_id=0, client_id="benchmark")))
    host, _, port = servers.rpartition(":")
    connection = socket.create_connection((host, int(port)))
    received = connection.makefile("rb")

    def send(count: int) -> None:
        requests, sent = max(1, count // records), 0
        for answered in range(requests):
            while sent < min(requests, answered + IN_FLIGHT):
                connection.sendall(encoded)
                sent += 1
            response = received.read(int.from_bytes(received.read(4)))
            if response[ERROR_CODE_AT : ERROR_CODE_AT + 2] != bytes(2):
                raise RuntimeError(f"the broker refuses the batch: {response!r}")

    return send, lambda: None


async def _raylog_async(servers: str, topic: str, value: bytes, count: int) -> tuple[float, float]:
    import raylog

    async with raylog.AsyncProducer(
        bootstrap_servers=servers, acks=1, linger_ms=5, batch_size=BATCH_BYTES, buffer_memory=BUFFER_BYTES
    ) as producer:
        await producer.send_and_wait(topic, value)
        begun, before = time.perf_counter(), cpu_of_this_process()
        for _ in range(count):
            await producer.send(topic, value)
        await producer.flush()
        return time.perf_counter() - begun, cpu_of_this_process() - before


async def _aiokafka(servers: str, topic: str, value: bytes, count: int) -> tuple[float, float]:
    from aiokafka import AIOKafkaProducer

    async with AIOKafkaProducer(bootstrap_servers=servers, acks=1, linger_ms=5, max_batch_size=BATCH_BYTES) as producer:
        await producer.send_and_wait(topic, value)
        begun, before = time.perf_counter(), cpu_of_this_process()
        for _ in range(count):
            await producer.send(topic, value)
        await producer.flush()
        return time.perf_counter() - begun, cpu_of_this_process() - before


def cpu_of_this_process() -> float:
    used = os.times()
    return used.user + used.system


BLOCKING: Final = {
    "raylog": _raylog,
    "raylog send_arrow": _raylog_arrow,
    "encoded batches": _encoded,
    "confluent-kafka": _confluent,
    "kafka-python": _kafka_python,
}
ASYNC: Final = {"raylog asyncio": _raylog_async, "aiokafka": _aiokafka}


def main(client: str, servers: str, topic: str, size: int, count: int) -> None:
    value = os.urandom(size)
    if client in ASYNC:
        elapsed, used = asyncio.run(ASYNC[client](servers, topic, value, count))
    else:
        send, flush = BLOCKING[client](servers, topic, value)
        send(1)
        flush()
        begun, before = time.perf_counter(), cpu_of_this_process()
        send(count)
        flush()
        elapsed, used = time.perf_counter() - begun, cpu_of_this_process() - before
    print(json.dumps({"per_second": count / elapsed, "cpu_us": used / count * 1e6}))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]), int(sys.argv[5]))
