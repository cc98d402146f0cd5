"""A process that reads partitions from their files and checks everything: a reader of
tests/broker/test_local_torture.py.

    python -m tests.support.torture_reader CLUSTER_ID TOPIC PARTITIONS NATURE PROGRESS SEEN

Partitions with an even number it maps, the others it reads. It writes its positions to the file PROGRESS, 8 bytes a
partition, for the test to look at. When a line `end end ...` comes on stdin it reads up to these offsets, checks that
it holds nothing any more, and writes what it has seen to the file SEEN: partition, offset and checksum of the value
of each record.
"""

from __future__ import annotations

import mmap
import os
import random
import select
import struct
import sys
from pathlib import Path
from zlib import crc32

from raylog.client.local_broker import LocalBroker, open_local
from raylog.client.local_reader import LocalPartitionReader
from raylog.core.errors import ErrorCode, KafkaError
from raylog.core.ids import TopicPartition
from raylog.logstore.local_log import CHUNK_BYTES, Chunk
from raylog.protocol.records.reader import read_batches

ROW = struct.Struct("=iqI")
"""Partition, offset, checksum of the value."""
NATURES = ("eager", "dainty", "forgetful", "restless")
"""Reads all there is and sleeps; one batch at a time and never sleeps; begins again and again; knocks again and
again."""
HELD_MAX = 20
WAIT_MS = 200


def payload(partition: int, number: int, size: int) -> bytes:
    """A value from which the reader can tell that it is complete."""
    body = b"%d %d " % (partition, number) + b"." * size
    return b"%08x %b" % (crc32(body), body)


def check_payload(value: bytes, partition: int) -> None:
    assert int(value[:8], 16) == crc32(value[9:]), "a torn value"
    assert value[9:].startswith(b"%d " % partition)


class TortureReader:
    def __init__(self, cluster_id: str, topic: str, partitions: int, nature: str, progress: Path) -> None:
        self.cluster_id = cluster_id
        self.tps = [TopicPartition(topic, number) for number in range(partitions)]
        self.nature = nature
        self.rng = random.Random(nature)
        with open(progress, "r+b") as file:
            self.progress = mmap.mmap(file.fileno(), 8 * partitions)
        self.words = memoryview(self.progress).cast("q")
        self.seen: list[dict[int, int]] = [{} for _ in self.tps]
        self.held: list[tuple[Chunk, int]] = []
        self.readers: list[LocalPartitionReader] = []
        self.local: LocalBroker | None = None
        self.knock([0] * partitions)

    def knock(self, positions: list[int]) -> None:
        """Comes in, over a connection of its own."""
        if self.local is not None:
            self.local.close()
        while True:
            self.local = open_local(self.cluster_id, 0)
            if self.local is None:
                continue
            try:
                fresh = [
                    self.local.open(tp, position, keep_chunks=tp.partition % 2 == 0)
                    for tp, position in zip(self.tps, positions, strict=True)
                ]
            except KafkaError as error:
                if error.code != ErrorCode.NETWORK_EXCEPTION:
                    raise
                self.local.close()
                continue
            for reader in self.readers:
                reader.close()
            self.readers = fresh
            return

    def run(self) -> None:
        while not select.select([sys.stdin], [], [], 0)[0]:
            for number in range(len(self.tps)):
                self.turn(number)
        ends = [int(word) for word in sys.stdin.readline().split()]
        for number, end in enumerate(ends):
            while self.readers[number].position < end:
                self.read(number, max_bytes=CHUNK_BYTES)
            assert self.readers[number].position == end

    def turn(self, number: int) -> None:
        match self.nature:
            case "eager":
                self.read(number, max_bytes=CHUNK_BYTES)
            case "dainty":
                self.read(number, max_bytes=1, max_wait_ms=0)
            case "forgetful":
                self.read(number, max_bytes=100_000)
                if self.rng.random() < 0.02:
                    self.readers[number].seek(0)
            case "restless":
                self.read(number, max_bytes=self.rng.choice((1, 10_000, CHUNK_BYTES)))
                if self.rng.random() < 0.05:
                    self.knock([reader.position for reader in self.readers])

    def read(self, number: int, *, max_bytes: int, max_wait_ms: int = WAIT_MS) -> None:
        reader = self.readers[number]
        start = reader.position
        try:
            chunk = reader.read(max_bytes=max_bytes, max_wait_ms=max_wait_ms)
            if chunk is None:
                return
            self.take(number, chunk)
        except KafkaError as error:
            if error.code == ErrorCode.OFFSET_OUT_OF_RANGE:
                self.skip_what_was_deleted(reader)
            elif error.code != ErrorCode.NETWORK_EXCEPTION:
                raise
            return
        assert start < reader.position
        self.words[number] = reader.position

    def take(self, number: int, chunk: Chunk) -> None:
        reader, seen = self.readers[number], self.seen[number]
        expected = int(chunk.start)
        for record in read_batches(chunk.records, from_offset=chunk.start):
            assert record.offset == expected, f"offset {record.offset} where {expected} should be"
            assert record.value is not None
            check_payload(record.value, number)
            checksum = crc32(record.value)
            assert seen.setdefault(record.offset, checksum) == checksum, f"another record at offset {record.offset}"
            expected += 1
        assert expected == chunk.next_offset
        if not reader.accept(chunk):
            raise AssertionError("a generation has moved, and nothing was ever cut off")
        try:
            assert chunk.next_offset <= reader.page().high_watermark, "records above the watermark"
        except KafkaError as error:
            if error.code != ErrorCode.NETWORK_EXCEPTION:
                raise
        if self.rng.random() < 0.05:  # some are kept, and must not change even if the file is deleted
            self.held = [*self.held[1 - HELD_MAX :], (chunk, crc32(chunk.records))]
        if self.held:
            held, checksum = self.rng.choice(self.held)
            assert crc32(held.records) == checksum, "a mapping has changed"

    def skip_what_was_deleted(self, reader: LocalPartitionReader) -> None:
        try:
            page = reader.page()
        except KafkaError as error:
            if error.code != ErrorCode.NETWORK_EXCEPTION:
                raise
            return
        assert reader.position < page.log_start_offset, f"{reader.position} is lost, the page says {page}"
        reader.seek(page.log_start_offset)

    def finish(self, seen: Path) -> None:
        assert self.local is not None
        for reader in self.readers:
            reader.close()
        self.local.close()
        self.held.clear()
        self.words.release()
        self.progress.close()
        files = [file for file in Path("/proc/self/fd").iterdir() if int(file.name) > 2 and os.path.lexists(file)]
        left = [os.readlink(file) for file in files]
        maps = [
            line for line in Path("/proc/self/maps").read_text().splitlines() if ".log" in line or "raylog-" in line
        ]
        assert not left, left
        assert not maps, maps
        with open(seen, "wb") as file:
            for number, rows in enumerate(self.seen):
                for offset, checksum in rows.items():
                    file.write(ROW.pack(number, offset, checksum))


def _main() -> None:
    cluster_id, topic, partitions, nature, progress, seen = sys.argv[1:]
    reader = TortureReader(cluster_id, topic, int(partitions), nature, Path(progress))
    reader.run()
    reader.finish(Path(seen))


if __name__ == "__main__":
    _main()
