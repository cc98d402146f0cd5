"""(shell) One client reads a partition, in a process of its own: records per second and CPU time per record, as JSON.

`python -m benchmarks.consumer_run CLIENT SERVERS TOPIC COUNT`
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any, Final

from benchmarks.client_run import cpu_of_this_process

WAIT_SECONDS: Final = 30.0
RECORDS_MAX: Final = 10_000
PARTITION_BYTES_MAX: Final = 4 << 20


def _raylog(servers: str, topic: str, *, mapped: bool, arrow: bool) -> tuple[Callable[[], int], Callable[[], object]]:
    import raylog

    consumer = raylog.Consumer(
        bootstrap_servers=servers,
        mapped=mapped,
        auto_offset_reset="earliest",
        max_partition_fetch_bytes=PARTITION_BYTES_MAX,
    )
    consumer.assign([(topic, 0)])

    def read() -> int:
        if arrow:
            return sum(batch.num_rows for batch in consumer.poll_arrow(WAIT_SECONDS, columns=["value"]))
        return len(consumer.poll(WAIT_SECONDS, max_records=RECORDS_MAX))

    return read, partial(consumer.seek, (topic, 0), 0)


def _confluent(servers: str, topic: str) -> tuple[Callable[[], int], Callable[[], object]]:
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": "bench",
            "enable.auto.commit": False,
            "fetch.message.max.bytes": PARTITION_BYTES_MAX,
            "queued.min.messages": 1_000_000,
        }
    )
    start = TopicPartition(topic, 0, 0)
    consumer.assign([start])
    return lambda: len(consumer.consume(RECORDS_MAX, WAIT_SECONDS)), partial(consumer.assign, [start])


def _kafka_python(servers: str, topic: str) -> tuple[Callable[[], int], Callable[[], object]]:
    from kafka import KafkaConsumer, TopicPartition

    consumer: Any = KafkaConsumer(bootstrap_servers=servers, max_partition_fetch_bytes=PARTITION_BYTES_MAX)
    start = TopicPartition(topic, 0)
    consumer.assign([start])
    consumer.seek(start, 0)

    def read() -> int:
        found = consumer.poll(timeout_ms=int(1000 * WAIT_SECONDS), max_records=RECORDS_MAX)
        return sum(map(len, found.values()))

    return read, partial(consumer.seek, start, 0)


async def _aiokafka(servers: str, topic: str, count: int) -> tuple[float, float]:
    from aiokafka import AIOKafkaConsumer, TopicPartition

    consumer = AIOKafkaConsumer(bootstrap_servers=servers, max_partition_fetch_bytes=PARTITION_BYTES_MAX)
    await consumer.start()
    start = TopicPartition(topic, 0)
    consumer.assign([start])
    consumer.seek(start, 0)
    await consumer.getmany(timeout_ms=1000, max_records=1)
    consumer.seek(start, 0)
    begun, before, read = time.perf_counter(), cpu_of_this_process(), 0
    while read < count:
        found = await consumer.getmany(timeout_ms=int(1000 * WAIT_SECONDS), max_records=RECORDS_MAX)
        read += sum(map(len, found.values()))
    elapsed, used = time.perf_counter() - begun, cpu_of_this_process() - before
    await consumer.stop()
    return elapsed / read, used / read


BLOCKING: Final[dict[str, Callable[[str, str], tuple[Callable[[], int], Callable[[], object]]]]] = {
    "raylog poll, files": partial(_raylog, mapped=True, arrow=False),
    "raylog poll, wire": partial(_raylog, mapped=False, arrow=False),
    "raylog poll_arrow, files": partial(_raylog, mapped=True, arrow=True),
    "raylog poll_arrow, wire": partial(_raylog, mapped=False, arrow=True),
    "confluent-kafka consume": _confluent,
    "kafka-python poll": _kafka_python,
}


def main(client: str, servers: str, topic: str, count: int) -> None:
    if client == "aiokafka getmany":
        elapsed, used = asyncio.run(_aiokafka(servers, topic, count))
    else:
        read, rewind = BLOCKING[client](servers, topic)
        read()  # connects, and compiles what is compiled
        rewind()
        begun, before, done = time.perf_counter(), cpu_of_this_process(), 0
        while done < count:
            found = read()
            assert found, f"nothing within {WAIT_SECONDS} s"
            done += found
        elapsed, used = (time.perf_counter() - begun) / done, (cpu_of_this_process() - before) / done
    print(json.dumps({"per_second": 1 / elapsed, "cpu_us": used * 1e6}), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]))
