"""`raylog produce`: lines of stdin become records.

What stdin has to offer is sent at once, as one batch for each partition: a line typed by a person does not wait for the
next one, and a file goes in large batches. Ends with the input, or at the first line that is refused; what was sent
before stays.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections.abc import Iterator
from typing import BinaryIO, NamedTuple

from raylog.cli.arguments import Subparsers, add_bootstrap_server, key_and_value, open_client, whole_number
from raylog.client.cluster_client import ClusterClient
from raylog.client.partitioner import Partitioner
from raylog.core.errors import ErrorCode, KafkaError
from raylog.core.ids import TopicPartition
from raylog.protocol.records.builder import NewRecord, build_batch
from raylog.protocol.records.compression import Codec

READ_BYTES = 1 << 18
"""Read from stdin at once, and about the largest batch before compression; a topic accepts 1 MiB unless configured."""
LINE_BYTES_MAX = 64 << 20
"""A longer line is refused before it fills the memory; no topic accepts a record of that size."""
CREATION_SECONDS = 2.0
"""How long a topic that the broker creates on first use may take to be there."""
RETRY_SECONDS = 0.1


class LineFormat(NamedTuple):
    """How a line becomes a record."""

    key_separator: bytes | None
    null_marker: bytes | None
    headers: tuple[tuple[str, bytes], ...]

    def record(self, line: bytes, line_number: int, timestamp_ms: int) -> NewRecord:
        """Raises KafkaError, which names the line, where it has no separator."""
        key = None
        if self.key_separator is not None:
            before, separator, line_value = line.partition(self.key_separator)
            if not separator:
                message = f"line {line_number} has no key separator {self.key_separator.decode()!r}"
                raise KafkaError(ErrorCode.INVALID_RECORD, message)
            key, line = self._or_null(before), line_value
        return NewRecord(key, self._or_null(line), timestamp_ms, self.headers)

    def _or_null(self, data: bytes) -> bytes | None:
        return None if data == self.null_marker else data


def add_to(subparsers: Subparsers) -> None:
    parser = subparsers.add_parser("produce", help="write lines of stdin to a topic, one record each")
    parser.add_argument("topic", metavar="TOPIC")
    add_bootstrap_server(parser)
    parser.add_argument("--key-separator", metavar="TEXT", help="what comes before it in a line is the record's key")
    parser.add_argument("--null-marker", metavar="TEXT", help="a key or value of exactly this text becomes null")
    parser.add_argument("--compression", choices=[codec.name.lower() for codec in Codec], default="none")
    parser.add_argument(
        "--partition",
        type=whole_number(0),
        metavar="N",
        help="default: by the hash of the key, as Kafka's clients choose; without a key one after the other",
    )
    parser.add_argument(
        "--header", type=key_and_value, action="append", default=[], metavar="KEY=VALUE", help="for every record"
    )
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> None:
    if options.key_separator == "":
        raise KafkaError(ErrorCode.INVALID_CONFIG, "--key-separator='': must not be empty")
    lines = LineFormat(
        key_separator=_bytes(options.key_separator),
        null_marker=_bytes(options.null_marker),
        headers=tuple((name, value.encode()) for name, value in options.header),
    )
    codec = Codec[options.compression.upper()]
    with open_client(options) as client:
        partition_count = _partition_count(client, options.topic)
        if options.partition is not None and options.partition >= partition_count:
            tp = TopicPartition(options.topic, options.partition)
            raise KafkaError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{tp}: the topic has {partition_count} partition(s)"
            )
        partitioner = Partitioner(partition_count, random.randrange)
        line_number = 0
        for chunk in chunks_of_lines(sys.stdin.buffer):
            batches: dict[int, list[NewRecord]] = {}
            try:
                for line in chunk:
                    line_number += 1
                    record = lines.record(line, line_number, time.time_ns() // 1_000_000)
                    chosen = options.partition
                    if chosen is None:
                        chosen = partitioner.partition_for(record.key)
                    batches.setdefault(chosen, []).append(record)
            finally:  # what stood before a line that is refused is sent
                for partition, records in batches.items():
                    _send(client, TopicPartition(options.topic, partition), records, codec)
            partitioner.next_batch()


def chunks_of_lines(source: BinaryIO) -> Iterator[list[bytes]]:
    """Lists of the lines that were there to be read, without their ends; the last line may lack its own."""
    begun = b""
    while data := _read_available(source):
        *lines, begun = (begun + data).split(b"\n")
        if lines:
            yield lines
        if len(begun) > LINE_BYTES_MAX:
            raise KafkaError(ErrorCode.MESSAGE_TOO_LARGE, f"a line is longer than {LINE_BYTES_MAX} bytes")
    if begun:
        yield [begun]


def _read_available(source: BinaryIO) -> bytes:
    read1 = getattr(source, "read1", source.read)  # every buffered stream has it; typing's BinaryIO does not say so
    data: bytes = read1(READ_BYTES)
    return data


def _send(client: ClusterClient, tp: TopicPartition, records: list[NewRecord], codec: Codec) -> None:
    """Append them in order. A batch that is too large for the topic is halved, down to the record that is."""
    try:
        client.produce(tp, build_batch(records, codec=codec))
    except KafkaError as error:
        if error.code != ErrorCode.MESSAGE_TOO_LARGE or len(records) == 1:
            raise
        middle = len(records) // 2
        _send(client, tp, records[:middle], codec)
        _send(client, tp, records[middle:], codec)


def _partition_count(client: ClusterClient, topic: str) -> int:
    """Of a topic that may be created by asking. Raises KafkaError."""
    deadline = time.monotonic() + CREATION_SECONDS
    while True:
        try:
            return client.view([topic], allow_auto_topic_creation=True).partition_count(topic)
        except KafkaError as error:  # Kafka says at first that a topic is unknown, or has no leader, and creates it
            if not error.code.retriable or time.monotonic() > deadline:
                raise
        time.sleep(RETRY_SECONDS)


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else text.encode()
