"""`raylog produce`: write the lines of stdin to a topic, one record each.

Available input is sent without delay, as one batch per partition: a line that is typed does not wait for the next one,
and a file is sent in large batches. The command ends with its input, or at the first line that is rejected; records
that were sent before remain.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections.abc import Iterator
from typing import BinaryIO, NamedTuple

from raylog.cli.arguments import (
    CLIENT_ID,
    Subparsers,
    add_bootstrap_server,
    client_config,
    key_and_value,
    whole_number,
)
from raylog.client.cluster_client import ClusterClient
from raylog.client.partitioner import Partitioner
from raylog.core.errors import ErrorCode, KafkaError
from raylog.core.ids import TopicPartition
from raylog.protocol.records.builder import NewRecord, build_batch
from raylog.protocol.records.compression import Codec

READ_BYTES = 1 << 18
"""Most bytes read from stdin at once, which also limits a batch before compression; topics accept 1 MiB by default."""
LINE_BYTES_MAX = 64 << 20
"""A longer line is rejected, so that it cannot exhaust the memory. No topic accepts a record of that size."""
CREATION_SECONDS = 2.0
"""How long to wait for a topic that the broker creates on first use."""
RETRY_SECONDS = 0.1


class LineFormat(NamedTuple):
    """How a line is split into key, value and headers."""

    key_separator: bytes | None
    null_marker: bytes | None
    headers: tuple[tuple[str, bytes], ...]

    def record(self, line: bytes, line_number: int, timestamp_ms: int) -> NewRecord:
        """Raises KafkaError, which names the line, if the separator is missing."""
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
    parser = subparsers.add_parser("produce", help="write the lines of stdin to a topic, one record each")
    parser.add_argument("topic", metavar="TOPIC")
    add_bootstrap_server(parser)
    parser.add_argument("--key-separator", metavar="TEXT", help="separates the key from the value in each line")
    parser.add_argument("--null-marker", metavar="TEXT", help="a key or value of exactly this text becomes null")
    parser.add_argument("--compression", choices=[codec.name.lower() for codec in Codec], default="none")
    parser.add_argument(
        "--partition",
        type=whole_number(0),
        metavar="N",
        help="default: by the hash of the key, as Kafka's clients do; round-robin for records without a key",
    )
    parser.add_argument(
        "--header",
        type=key_and_value,
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="a header of every record; can be repeated",
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
    with ClusterClient(client_config(options), client_id=CLIENT_ID) as client:
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
            finally:  # send the lines before a rejected one
                for partition, records in batches.items():
                    _send(client, TopicPartition(options.topic, partition), records, codec)
            partitioner.next_batch()


def chunks_of_lines(source: BinaryIO) -> Iterator[list[bytes]]:
    """Lists of the lines that are available, without line ends; the last line may lack its end."""
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
    read1 = getattr(source, "read1", source.read)  # all buffered streams have read1, but typing.BinaryIO does not
    data: bytes = read1(READ_BYTES)
    return data


def _send(client: ClusterClient, tp: TopicPartition, records: list[NewRecord], codec: Codec) -> None:
    """Append the records in order. A batch that is too large for the topic is split, down to single records."""
    try:
        client.produce(tp, build_batch(records, codec=codec))
    except KafkaError as error:
        if error.code != ErrorCode.MESSAGE_TOO_LARGE or len(records) == 1:
            raise
        middle = len(records) // 2
        _send(client, tp, records[:middle], codec)
        _send(client, tp, records[middle:], codec)


def _partition_count(client: ClusterClient, topic: str) -> int:
    """The number of partitions of a topic, which the request may create. Raises KafkaError."""
    deadline = time.monotonic() + CREATION_SECONDS
    while True:
        try:
            return client.view([topic], allow_auto_topic_creation=True).partition_count(topic)
        except KafkaError as error:  # while Kafka creates a topic it reports it as unknown, or without leader
            if not error.code.retriable or time.monotonic() > deadline:
                raise
        time.sleep(RETRY_SECONDS)


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else text.encode()
