"""(shell) Measures reading on the broker's node: `python -m benchmarks.local_reader [--runs 5] [--megabytes 500]`.

Reading with and without checksums, in one thread and from a warm page cache, by CPU time; the time from the broker's
publishing to a sleeping reader of another process that holds the batch; and what publishing costs an append.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import secrets
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from tempfile import TemporaryDirectory
from uuid import UUID, uuid4

import uvloop

from raylog.broker.broker import Broker, BrokerIdentity
from raylog.broker.config import broker_configs
from raylog.broker.listener import BrokerServer, now
from raylog.broker.listeners import plan_listeners
from raylog.broker.local_readers import LocalReader, LocalReaders
from raylog.client.local_broker import open_local
from raylog.core.ids import BrokerId, LeaderEpoch, Offset, TopicPartition
from raylog.logstore.disk import RealDisk
from raylog.logstore.local_log import LocalLog, SegmentFile
from raylog.logstore.log import Log
from raylog.logstore.settings import LogSettings
from raylog.protocol.local_door import VERSION, Hello, OpenPartition
from raylog.protocol.records.builder import NewRecord, build_batch
from raylog.replication.partition import Partition

TP = TopicPartition("bench", 0)
RECORD = os.urandom(1024)
WAKES = 3000
PAUSE_SECONDS = 0.002
"""Between two appends, so that the reader is asleep again."""
PUBLICATIONS = 100_000


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.local_reader", description=__doc__)
    parser.add_argument("--runs", type=int, default=5, help="counted runs; the median is shown")
    parser.add_argument("--megabytes", type=int, default=500, help="size of the log that is read")
    parser.add_argument("--broker", nargs=2, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.broker:
        uvloop.run(_serve(*arguments.broker))
        return 0
    for records in (950, 15):
        _measure_reading(records, arguments.runs, arguments.megabytes)
    _measure_wakes(arguments.runs)
    _measure_publishing(arguments.runs)
    return 0


def _measure_reading(records_per_batch: int, runs: int, megabytes: int) -> None:
    with TemporaryDirectory(prefix="raylog-bench-") as folder:
        settings = LogSettings(segment_bytes=1 << 30, max_message_bytes=2 << 20)
        log = _open(f"{folder}/bench-0", settings)
        batch = build_batch([NewRecord(None, RECORD, 0)] * records_per_batch)
        for _ in range(megabytes * 1_000_000 // len(batch)):
            log.append_as_leader(memoryview(batch), leader_epoch=LeaderEpoch(0), now_ms=0)
        partition = Partition(TP, UUID(int=1), log, LeaderEpoch(0))
        page = partition.publish()

        def locate(offset: int) -> SegmentFile:
            place = partition.locate(Offset(offset))
            return SegmentFile(os.open(place.path, os.O_RDONLY), place.base_offset, place.position, 0)

        for keep_chunks in (False, True):
            for check_crc in (True, False):
                rates = []
                for _ in range(runs + 1):
                    reader = LocalLog("bench", locate, Offset(0), keep_chunks=keep_chunks, check_crc=check_crc)
                    begun = time.process_time()
                    kept = []
                    while (chunk := reader.read(page)) is not None:
                        reader.accept(chunk, generation=0)
                        if keep_chunks:
                            kept.append(chunk)
                    rates.append(log.size_bytes / (time.process_time() - begun) / 1e9)
                    reader.close()
                    del kept, chunk
                how = ("mapped, all kept" if keep_chunks else "read") + (", CRC" if check_crc else "")
                _show(f"batches of {len(batch) / 1024:.0f} KiB, {how}", rates[1:], "GB/s")
        log.abandon()


def _measure_wakes(runs: int) -> None:
    """Both clocks are the system's monotonic one: what one process reads can be held against the other's."""
    p50, p99 = [], []
    for _ in range(runs + 1):
        with TemporaryDirectory(prefix="raylog-bench-") as folder, _broker(folder) as (process, cluster_id):
            local = open_local(cluster_id, 0)
            assert local is not None
            held: list[int] = []
            with local, local.open(TP, 0) as reader:
                assert process.stdin is not None
                process.stdin.write("go\n")
                process.stdin.flush()
                while len(held) < WAKES:
                    chunk = reader.read(max_wait_ms=10_000)
                    at = time.perf_counter_ns()
                    assert chunk is not None
                    assert reader.accept(chunk)
                    held += [at] * (chunk.next_offset - chunk.start)
            assert process.stdout is not None
            published = [int(word) for word in process.stdout.readline().split()]
        waits = sorted((at - since) / 1000 for at, since in zip(held, published, strict=True))
        p50.append(waits[len(waits) // 2])
        p99.append(waits[len(waits) * 99 // 100])
    _show("wake of a sleeping reader, p50", p50[1:], "us")
    _show("wake of a sleeping reader, p99", p99[1:], "us")


def _measure_publishing(runs: int) -> None:
    """Of Partition.publish, the page and the bells, as Broker.partition_changed has it done after an append."""
    with TemporaryDirectory(prefix="raylog-bench-") as folder:
        log = _open(f"{folder}/bench-0", LogSettings())
        partition = Partition(TP, UUID(int=1), log, LeaderEpoch(0))
        readers = LocalReaders(lambda _: partition)
        changed = readers.changed
        _time("publish with no reader", lambda: changed(TP), runs)
        entered = [_enter(readers)]
        _time("publish with 1 reader, awake", lambda: changed(TP), runs)
        entered += [_enter(readers) for _ in range(3)]
        _time("publish with 4 readers, awake", lambda: changed(TP), runs)
        for reader in entered[1:]:
            readers.disconnected(reader)
        bell = entered[0].bell
        armed = memoryview(bell._memory).cast("q")  # type: ignore[union-attr]

        def asleep() -> None:
            armed[0] = 1
            changed(TP)

        _time("publish with 1 reader, asleep", asleep, runs)
        armed.release()
        readers.disconnected(entered[0])
        log.abandon()


def _enter(readers: LocalReaders) -> LocalReader:
    reader = readers.connected(user=0, broker_user=0)
    assert reader is not None
    readers.serve(reader, Hello(VERSION))
    readers.serve(reader, OpenPartition(*TP))
    return reader


def _time(what: str, act: Callable[[], None], runs: int) -> None:
    nanoseconds = []
    for _ in range(runs + 1):
        begun = time.perf_counter_ns()
        for _ in range(PUBLICATIONS):
            act()
        nanoseconds.append((time.perf_counter_ns() - begun) / PUBLICATIONS)
    _show(what, nanoseconds[1:], "ns")


def _open(path: str, settings: LogSettings) -> Log:
    return Log.open(RealDisk(), path, TP, settings, now_ms=0, recovery_point=Offset(0), clean=False)


@contextmanager
def _broker(folder: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    cluster_id = uuid4().hex
    command = [sys.executable, "-m", "benchmarks.local_reader", "--broker", f"{folder}/log", cluster_id]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stdout.readline() == "serving\n"
        yield process, cluster_id
        process.stdin.close()


async def _serve(path: str, cluster_id: str) -> None:
    """A whole broker that appends by itself, now and then, and afterwards tells when it began to publish each
    record."""
    configs = broker_configs({"listeners": "PLAINTEXT://127.0.0.1:0"})
    identity = BrokerIdentity(BrokerId(0), cluster_id, uuid4(), secrets.token_bytes(32))
    broker = Broker(identity, configs, RealDisk(), path, new_id=uuid4, new_nonce=secrets.token_bytes, now=now())
    server = BrokerServer(broker, plan_listeners(configs), on_failure=lambda failure: sys.exit(str(failure)))
    await server.start()
    broker.metadata.create_topic(
        TP.topic,
        topic_id=uuid4(),
        num_partitions=1,
        replication_factor=1,
        assignments=None,
        configs={},
        validate_only=False,
        now_ms=now().wall_ms,
    )
    sys.stdout.write("serving\n")
    sys.stdout.flush()
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.readline)
    partition = broker.partition(TP)
    published = []
    for _ in range(WAKES):
        await asyncio.sleep(PAUSE_SECONDS)
        batch = build_batch([NewRecord(None, RECORD, now().wall_ms)])
        partition.append_as_leader(memoryview(batch), now_ms=now().wall_ms)
        published.append(time.perf_counter_ns())
        broker.partition_changed(TP, len(batch))
    sys.stdout.write(" ".join(map(str, published)) + "\n")
    sys.stdout.flush()
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    await server.stop()


def _show(what: str, figures: list[float], unit: str) -> None:
    print(
        f"{what:48} {statistics.median(figures):10.2f} {unit:5} (of {len(figures)}: {min(figures):.2f} to"
        f" {max(figures):.2f})"
    )


if __name__ == "__main__":
    sys.exit(main())
