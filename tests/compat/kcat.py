"""kcat as Debian packs it: a program, so records go in through its delimiters and come out as its JSON."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Sequence
from itertools import groupby

from tests.compat.row import Row

RUN_SECONDS = 30
RECORD_END, KEY_END = b"\x1e\x1d\x1e", b"\x1f\x1d\x1f"
_DELIVERED = re.compile(r"Message delivered to partition (\d+) \(offset (\d+)\)")


class Kcat:
    name = "kcat"
    sets_timestamps = False

    def __init__(self, bootstrap_servers: str) -> None:
        found = shutil.which("kcat")
        assert found is not None, (
            "kcat is not on PATH (script/setup --kcat installs it): a missing client proves nothing"
        )
        self._program = found
        self._bootstrap_servers = bootstrap_servers

    def why_not(self, row: Row) -> str | None:
        """One switch, -Z, makes null of every empty part of a record."""
        if row.key is None and row.value == b"":
            return "without a key, an empty record is either null or skipped"
        if row.key == b"" and row.value is None:
            return "-Z makes null of the empty key too"
        if any(b"\x00" in (value or b"") for _, value in row.headers):
            return "headers are arguments of the command, which end at the first NUL"
        return None

    def list_topics(self) -> dict[str, int]:
        listed = json.loads(self.run(["-L", "-J"]).stdout)
        return {topic["topic"]: len(topic["partitions"]) for topic in listed["topics"]}

    def produce(self, topic: str, partition: int, rows: Sequence[Row], codec: str) -> list[int]:
        """One run for each stretch of records with the same headers and the same meaning of "empty"."""
        offsets = []
        for (null_for_empty, headers), stretch in groupby(rows, key=lambda row: (_has_null(row), row.headers)):
            arguments = ["-P", "-t", topic, "-p", str(partition), "-vvv"]
            arguments += ["-D", _escaped(RECORD_END), "-K", _escaped(KEY_END)]
            arguments += [] if codec == "none" else ["-z", codec]
            arguments += ["-Z"] if null_for_empty else []
            for name, value in headers:
                arguments += ["-H", name if value is None else f"{name}={value.decode(errors='surrogateescape')}"]
            ran = self.run(arguments, typed=b"".join(_typed(row) + RECORD_END for row in stretch))
            delivered = _DELIVERED.findall(ran.stderr.decode())
            assert all(int(where) == partition for where, _ in delivered)
            offsets += [int(offset) for _, offset in delivered]
        return offsets

    def consume(self, topic: str, partition_count: int) -> list[Row]:
        """Without -G and -p kcat reads all partitions as they are; -e ends at the last of their ends."""
        ran = self.run(["-C", "-t", topic, "-o", "beginning", "-e", "-J"])
        return [_row(line) for line in ran.stdout.splitlines()]

    def run(self, arguments: Sequence[str], *, typed: bytes = b"") -> subprocess.CompletedProcess[bytes]:
        command = [self._program, "-b", self._bootstrap_servers, *arguments]
        ran = subprocess.run(
            command, input=typed, capture_output=True, timeout=RUN_SECONDS, check=False, env={"HOME": "/nonexistent"}
        )
        assert ran.returncode == 0, f"{' '.join(command)}: {ran.stderr.decode(errors='replace')}"
        return ran


def _has_null(row: Row) -> bool:
    return row.value is None


def _typed(row: Row) -> bytes:
    """With a delimiter a key is given, if an empty one; without, there is none."""
    key = b"" if row.key is None else row.key + KEY_END
    value = row.value or b""
    assert RECORD_END not in key + value
    assert KEY_END not in value
    return key + (KEY_END if row.key is None and row.value is None else b"") + value


def _escaped(delimiter: bytes) -> str:
    return "".join(f"\\x{byte:02x}" for byte in delimiter)


def _row(line: bytes) -> Row:
    """kcat writes bytes into its JSON as they are and escapes control characters: Latin-1 gives back every one."""
    found = json.loads(line.decode("latin-1"), strict=False)
    assert found["tstype"] == "create"
    names, values = found.get("headers", [])[::2], found.get("headers", [])[1::2]
    return Row(
        found["partition"],
        found["offset"],
        _bytes(found["key"]),
        _bytes(found["payload"]),
        tuple((name.encode("latin-1").decode(), _bytes(value)) for name, value in zip(names, values, strict=True)),
        found["ts"],
    )


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else text.encode("latin-1")
