"""Acknowledged load on one topic and readers of it, in a process of their own; all that happened goes into a ledger.

    python -m tests.operators.load BOOTSTRAP_SERVERS TOPIC LEDGER

Each partition has an idempotent stock producer with acks=all and a consumer that reads along. Ten times a second the
process prints its progress as one line of JSON. When its standard input ends it waits for what is outstanding, reads
each partition from the beginning, and writes the ledger (tests/support/record_ledger.py). The consumers that have read
along must have read the same in the same order.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from select import select
from typing import IO, NamedTuple

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from tests.support.hang import HANG_SECONDS
from tests.support.record_ledger import Ledger

ROOT = Path(__file__).resolve().parent.parent.parent
PARTITIONS = 3
RECORDS_PER_SECOND = 150
"""Of each partition."""
OUTSTANDING_MAX = 200
VALUE_BYTES = 1000
SOCKET_TIMEOUT_MS = 3000
"""A client notices a silent broker only by this timeout, since the connection stays open."""
COMMON = {
    "socket.timeout.ms": SOCKET_TIMEOUT_MS,
    "reconnect.backoff.max.ms": 500,
    "topic.metadata.refresh.interval.ms": 5000,
}


class Progress(NamedTuple):
    """What a load prints."""

    acknowledged: list[int]
    """Records of each partition."""
    worst_ms: list[int]
    """The longest that a record of each partition waited for its acknowledgement, of those since the last line."""
    errors: int


class Load:
    """A running load, seen from the test."""

    def __init__(self, bootstrap_servers: str, topic: str, path: Path, *, prefix: Sequence[str] = ()) -> None:
        self._ledger = path
        command = [*prefix, sys.executable, "-m", "tests.operators.load", bootstrap_servers, topic, str(path)]
        self._process = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self._progress = Progress([0] * PARTITIONS, [0] * PARTITIONS, 0)
        self._worst_ms = [0] * PARTITIONS
        self._thread = threading.Thread(target=self._follow, daemon=True)
        self._thread.start()

    def until_more(self, count: int = 200, *, partitions: Sequence[int] = range(PARTITIONS)) -> float:
        """Wait until each of the partitions has so many more acknowledged; returns the seconds that it took."""
        began = time.monotonic()
        goals = {partition: self._progress.acknowledged[partition] + count for partition in partitions}
        while any(self._progress.acknowledged[partition] < goal for partition, goal in goals.items()):
            assert self._process.poll() is None, "the load has ended"
            assert time.monotonic() < began + HANG_SECONDS, f"no progress: {self._progress}, expected {goals}"
            time.sleep(0.02)
        return time.monotonic() - began

    def take_worst_ms(self) -> int:
        """The longest that a record waited for its acknowledgement, since the last call."""
        return max(self.take_each_worst_ms())

    def take_each_worst_ms(self) -> list[int]:
        """The same of each partition."""
        worst, self._worst_ms = self._worst_ms, [0] * PARTITIONS
        return worst

    def finish(self) -> Ledger:
        """End the load, and check that nothing acknowledged was lost. Raises AssertionError."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        code = self._process.wait(HANG_SECONDS)
        self._close()
        assert code == 0, f"the load ended with {code}"
        with self._ledger.open() as lines:
            ledger = Ledger(lines)
        assert (complaints := ledger.judge(least=1)) == [], complaints
        return ledger

    def abandon(self) -> None:
        self._process.kill()
        self._process.wait()
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._close()

    def _follow(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._progress = Progress(*json.loads(line))
            self._worst_ms = list(map(max, self._worst_ms, self._progress.worst_ms))

    def _close(self) -> None:
        self._thread.join()
        assert self._process.stdout is not None
        self._process.stdout.close()


@contextmanager
def load_on(bootstrap_servers: str, topic: str, path: Path, *, prefix: Sequence[str] = ()) -> Iterator[Load]:
    """A load that has begun; at the end of the block nothing acknowledged may be lost."""
    load = Load(bootstrap_servers, topic, path, prefix=prefix)
    try:
        load.until_more(50)
        load.take_worst_ms()
        yield load
    except BaseException:
        load.abandon()
        raise
    load.finish()


@dataclass
class _PartitionLoad:
    """The producer of one partition."""

    servers: str
    topic: str
    partition: int
    given: int = 0
    sent: list[str] = field(default_factory=list)
    acknowledged: list[tuple[int, str]] = field(default_factory=list)
    errors: list[KafkaError] = field(default_factory=list)
    worst_ms: int = 0

    def __post_init__(self) -> None:
        self.producer = Producer(
            {"bootstrap.servers": self.servers, "enable.idempotence": True, "linger.ms": 5, **COMMON}
        )
        self._due, self._worked = 0.0, time.monotonic()

    def work(self) -> None:
        now = time.monotonic()
        self._due = min(self._due + (now - self._worked) * RECORDS_PER_SECOND, OUTSTANDING_MAX)
        self._worked = now
        while self._due >= 1 and len(self.producer) < OUTSTANDING_MAX:
            value = f"{self.partition}-{self.given}"
            self.given += 1
            self._due -= 1
            self.sent.append(value)
            self.producer.produce(
                self.topic, padded(value), partition=self.partition, on_delivery=partial(self._delivered, now, value)
            )
        self.producer.poll(0)

    def _delivered(self, given: float, value: str, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self.errors.append(error)
            sys.stderr.write(f"not acknowledged: {value}: {error}\n")
            return
        self.worst_ms = max(self.worst_ms, int(1000 * (time.monotonic() - given)))
        offset = message.offset()
        assert offset is not None
        self.acknowledged.append((offset, value))


def padded(value: str) -> bytes:
    return value.encode().ljust(VALUE_BYTES, b".")


def unpadded(value: bytes | None) -> str:
    return (value or b"").rstrip(b".").decode()


def _consumer(servers: str) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": "tests",
            "enable.auto.commit": False,
            "auto.offset.reset": "error",  # an offset that was readable stays readable
            **COMMON,
        }
    )


def _messages(consumer: Consumer) -> list[Message]:
    """The next messages. A consumer tells also of connections and leaders that are lost, and goes on by itself."""
    messages = []
    for message in consumer.consume(500, timeout=0.05):
        error = message.error()
        if error is None:
            messages.append(message)
        elif error.code() == KafkaError._AUTO_OFFSET_RESET or error.fatal():
            raise KafkaException(error)
    return messages


def _record(message: Message) -> tuple[int, str]:
    offset = message.offset()
    assert offset is not None
    return offset, unpadded(message.value())


def _bounds(consumer: Consumer, tp: TopicPartition) -> tuple[int, int] | None:
    """The first and the next offset; None if the broker that was asked has just been fenced."""
    try:
        return consumer.get_watermark_offsets(tp, timeout=HANG_SECONDS)
    except KafkaException:
        return None


def _read_all(servers: str, topic: str, partition: int) -> list[tuple[int, str]]:
    consumer = _consumer(servers)
    try:
        tp = TopicPartition(topic, partition, OFFSET_BEGINNING)
        deadline = time.monotonic() + HANG_SECONDS
        while (bounds := _bounds(consumer, tp)) is None:
            assert time.monotonic() < deadline
            time.sleep(0.1)
        low, high = bounds
        consumer.assign([tp])
        found: list[tuple[int, str]] = []
        while len(found) < high - low:
            assert time.monotonic() < deadline, f"{len(found)} records of {low} to {high}"
            found += map(_record, _messages(consumer))
        return found
    finally:
        consumer.close()


def _read_along(servers: str, topic: str, stop: threading.Event, found: dict[int, list[tuple[int, str]]]) -> None:
    consumer = _consumer(servers)
    consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING) for partition in range(PARTITIONS)])
    while not stop.is_set():
        for message in _messages(consumer):
            number = message.partition()
            assert number is not None
            found[number].append(_record(message))
    consumer.close()


def _main() -> int:
    servers, topic, path = sys.argv[1:]
    loads = [_PartitionLoad(servers, topic, partition) for partition in range(PARTITIONS)]
    along: dict[int, list[tuple[int, str]]] = {partition: [] for partition in range(PARTITIONS)}
    failures: list[BaseException] = []
    stop = threading.Event()
    reader = threading.Thread(target=_noting(failures, partial(_read_along, servers, topic, stop, along)))
    reader.start()
    printed = 0.0
    try:
        while not _has_ended(sys.stdin):
            for load in loads:
                load.work()
            time.sleep(0.005)
            if time.monotonic() - printed > 0.1:
                printed = time.monotonic()
                counts = [len(load.acknowledged) for load in loads]
                _print(Progress(counts, [load.worst_ms for load in loads], sum(len(load.errors) for load in loads)))
                for load in loads:
                    load.worst_ms = 0
        left = [load.producer.flush(HANG_SECONDS) for load in loads]
        found = {load.partition: _read_all(servers, topic, load.partition) for load in loads}
        deadline = time.monotonic() + HANG_SECONDS
        while any(len(along[number]) < len(read) for number, read in found.items()):
            if failures or time.monotonic() > deadline:
                break
            time.sleep(0.01)
    finally:
        stop.set()
        reader.join()
    complaints = [f"the consumer failed: {failure!r}" for failure in failures]
    complaints += [f"{count} records are still outstanding" for count in left if count]
    with Path(path).open("w") as ledger:
        for load in loads:
            number = load.partition
            read = found[number]
            if along[number] != read:
                what = f"the consumer read {len(along[number])} records, and there are {len(read)}"
                complaints.append(f"partition {number}: {what}, or others in another order")
            lines: list[list[object]] = [["sent", number, value] for value in load.sent]
            lines += [["acknowledged", number, offset, value] for offset, value in load.acknowledged]
            lines += [["read", number, offset, value] for offset, value in read]
            ledger.writelines(json.dumps(line) + "\n" for line in lines)
    for complaint in complaints:
        sys.stderr.write(f"{complaint}\n")
    return 1 if complaints else 0


def _noting(failures: list[BaseException], act: Callable[[], None]) -> Callable[[], None]:
    def run() -> None:
        try:
            act()
        except BaseException as error:
            failures.append(error)

    return run


def _has_ended(stream: IO[str]) -> bool:
    readable, _, _ = select([stream], [], [], 0)
    return bool(readable) and not os.read(stream.fileno(), 1)


def _print(progress: Progress) -> None:
    sys.stdout.write(json.dumps(progress) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(_main())
