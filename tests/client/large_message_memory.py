"""A process of its own that sends and reads one large message, and refuses to use more memory than is promised.

python -m tests.client.large_message_memory SERVERS TOPIC MEGABYTES SETTING=VALUE...
"""

from __future__ import annotations

import sys
from io import RawIOBase
from pathlib import Path
from typing import Any

from raylog.client.consumer.consumer import Consumer
from raylog.client.producer.producer import Producer

MEGABYTE = 1 << 20
EXTRA_BYTES = 40 * MEGABYTE
"""Room for buffer.memory, fetched batches and what the allocator keeps."""
PATTERN = bytes(range(251)) * (MEGABYTE // 251 + 2)


def memory(field: str) -> int:
    """In bytes: VmRSS and its parts, such as RssAnon, or VmHWM, the peak of VmRSS since it was reset."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(field + ":"):
            return int(line.split()[1]) * 1024
    raise AssertionError(f"/proc/self/status has no {field}")


class Peak:
    """The largest memory of the process above that at the beginning. Files are not mapped meanwhile, so that the
    peak, which the kernel keeps for all memory, is one of RssAnon."""

    def __init__(self) -> None:
        Path("/proc/self/clear_refs").write_text("5")  # VmHWM begins again
        self.start, self.start_of_files = memory("RssAnon"), memory("RssFile") + memory("RssShmem")

    def check(self, what: str, limit: int) -> None:
        peak = max(memory("VmHWM") - self.start_of_files, memory("RssAnon")) - self.start
        text = f"{what}: {peak / MEGABYTE:.0f} MB above the beginning, of {limit / MEGABYTE:.0f} MB allowed"
        sys.stdout.write(text + "\n")
        assert peak <= limit, text


class Generated(RawIOBase):
    """A binary file of this size that is not in memory."""

    def __init__(self, size: int) -> None:
        self.size, self.at = size, 0

    def tell(self) -> int:
        return self.at

    def seek(self, offset: int, whence: int = 0) -> int:
        self.at = offset if whence == 0 else self.size + offset
        return self.at

    def read(self, size: int = -1) -> bytes:
        wanted = min(size, self.size - self.at, MEGABYTE)
        start = self.at % 251
        self.at += wanted
        return PATTERN[start : start + wanted]


def main(servers: str, topic: str, megabytes: int, settings: dict[str, Any]) -> None:
    size = megabytes * MEGABYTE + 17
    common: dict[str, Any] = {"bootstrap_servers": servers, "large_message_enabled": True} | settings
    peak = Peak()
    with Producer(**common, buffer_memory=8 * MEGABYTE) as producer:
        producer.send(topic, Generated(size)).result()
    peak.check("producer", EXTRA_BYTES)
    peak = Peak()
    common |= {"auto_offset_reset": "earliest", "mapped": False, "message_assembler_buffer_capacity": size}
    with Consumer(**common) as consumer:
        consumer.assign([(topic, 0)])
        records: list[Any] = []
        while not records:
            records = consumer.poll(1.0)
    peak.check("consumer", size + EXTRA_BYTES)
    value = records[0].value
    assert len(value) == size
    for at in range(0, size, MEGABYTE):
        piece = value[at : at + MEGABYTE]
        assert piece == PATTERN[at % 251 : at % 251 + len(piece)]


if __name__ == "__main__":
    given = dict(argument.split("=", 1) for argument in sys.argv[4:])
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), given)
