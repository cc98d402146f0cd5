"""What one stock client writes, in any codec, every stock client reads back equal: keys, values, nulls, headers, order."""

from __future__ import annotations

import time
from functools import cache
from pathlib import Path

import pytest

from tests.compat.clients import CLIENTS
from tests.compat.kcat import Kcat
from tests.compat.row import CODECS, Client, Row
from tests.compat.stored import stored_batches

pytestmark = pytest.mark.compat

PARTITIONS = 3
NEW_YEAR_MS = 1_357_000_000_000
EVERY_BYTE = bytes(range(256))
COMPRESSIBLE_BYTES = 1000
"""A batch that holds more than this of our text shrinks in every codec; a smaller one may be stored as it is."""


def chunks_of(partition: int) -> list[list[Row]]:
    """Records for one partition, to be written in several goes."""
    plain: list[tuple[bytes | None, bytes | None]] = [
        (b"key", b"value"),
        (None, b"no key"),
        (b"", b"an empty key"),
        (b"no value", None),
        (b"an empty value", b""),
        (None, None),
        (b"", b""),
        (b"", None),
        (None, b""),
        (EVERY_BYTE, EVERY_BYTE[::-1]),
        ("ключ".encode(), "値".encode()),
        (b"\xff\xfe", b"\x00\n\r\n\x00"),
    ]
    odd = [Row(partition, 0, key, value, (), NEW_YEAR_MS - number) for number, (key, value) in enumerate(plain)]
    odd.append(Row(partition, 0, b"text", b"the quick brown fox " * 100, (), 1))
    headers: list[tuple[tuple[str, bytes | None], ...]] = [
        (("one", b"1"),),
        (("twice", b"first"), ("twice", b"second"), ("once", b"")),
        (("null", None), ("имя", "значение".encode())),
        (("binary", b"\xff\x80\x01"), ("long", b"h" * 300)),
        (("nul", b"a\x00b"),),
        (),
    ]
    odd += [
        Row(partition, 0, b"h%d" % number, b"with headers " * 100, each, NEW_YEAR_MS + number)
        for number, each in enumerate(headers)
    ]
    many = [
        Row(partition, 0, b"%06d" % number, b"flight %d of %d, " % (number, partition) * 15, (), NEW_YEAR_MS + number)
        for number in range(300)
    ]
    large = [Row(partition, 0, None, b"".join(b"%d bottles, " % number for number in range(8000)), (), NEW_YEAR_MS)]
    return [odd, many, large, odd[::-1]]


class Written:
    """A topic that one client has filled; the last of its partitions stays empty."""

    def __init__(self, writer: Client, codec: str, log_path: Path) -> None:
        self.topic = f"from-{writer.name}-{codec}"
        self.expected: list[Row] = []
        since_ms = time.time_ns() // 1_000_000
        for partition in range(PARTITIONS - 1):
            offset = 0
            for chunk in chunks_of(partition):
                rows = [row for row in chunk if writer.why_not(row) is None]
                offsets = writer.produce(self.topic, partition, rows, codec)
                assert offsets == list(range(offset, offset + len(rows)))
                offset += len(rows)
                self.expected += [row._replace(offset=number) for row, number in zip(rows, offsets, strict=True)]
        until_ms = time.time_ns() // 1_000_000
        self.batches = [
            batch for partition in range(PARTITIONS) for batch in stored_batches(log_path, self.topic, partition)
        ]
        if not writer.sets_timestamps:
            chosen = {(row.partition, row.offset): row.timestamp_ms for batch in self.batches for row in batch.rows}
            self.expected = [row._replace(timestamp_ms=chosen[row[:2]]) for row in self.expected]
            assert all(since_ms <= (row.timestamp_ms or 0) <= until_ms for row in self.expected)
