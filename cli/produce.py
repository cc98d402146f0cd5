"""`raylog produce`: write the lines of stdin to a topic, one record each.

Available input is sent without delay, as one batch per partition: a line that is typed does not wait for the next one,
and a file is sent in large batches. The command ends with its input, or at the first line that is rejected; records
that were sent before remain. It prints nothing; with --json, {"topic": "flights", "records": 120} at the end.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections import deque
from collections.abc import Iterator
from typing import BinaryIO, Final, NamedTuple

from raylog.cli.arguments import (
    CLIENT_ID,
    Subparsers,
    add_bootstrap_server,
    client_config,
    key_and_value,
    whole_number,
)
from raylog.cli.output import add_json, show
from raylog.cli.usage import UsageError
from raylog.client.admin.admin_client import admin_client
from raylog.client.admin.calls import ANY_BROKER, ask
from raylog.client.client_config import ClientConfig
from raylog.client.producer.producer import Producer, TableDelivery
from raylog.config.client_network import CLIENT_ID as CLIENT_ID_KEY
from raylog.config.producer import PRODUCER_CONFIG
from raylog.core.errors import ErrorCode, KafkaError
from raylog.core.ids import TopicPartition
from raylog.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from raylog.protocol.records.compression import Codec

READ_BYTES = 1 << 18
"""Most bytes read from stdin at once."""
LINE_BYTES_MAX = 64 << 20
"""A longer line is rejected, so that it cannot exhaust the memory. No topic accepts a record of that size."""
UNCHECKED_CHUNKS = 64
"""How many chunks are sent before the first of them must be acknowledged."""
OWN_SETTINGS: Final = {
    "batch.size": READ_BYTES,
    "buffer.memory": 4 * LINE_BYTES_MAX,
    "max.request.size": 2 * LINE_BYTES_MAX,
    "transactional.id": None,
}
CREATION_SECONDS = 2.0
"""How long to wait for a topic that the broker creates on first use."""
RETRY_SECONDS = 0.1


Record = tuple[bytes | None, bytes | None]
"""Key and value."""


class LineFormat(NamedTuple):
    """How a line is split into key, value and headers."""

    key_separator: bytes | None
    null_marker: bytes | None
    headers: tuple[tuple[str, bytes], ...]

    def records(self, lines: list[bytes], line_number: int) -> tuple[list[Record], KafkaError | None]:
        """Keys and values, up to a line that lacks the separator, and an error that names this line.

        `line_number` is the number of lines before these.
        """
        null = self.null_marker
        if self.key_separator is None:
            return [(None, None if line == null else line) for line in lines], None
        records: list[Record] = []
        for line in lines:
            key, separator, value = line.partition(self.key_separator)
            if not separator:
                number = line_number + len(records) + 1
                message = f"line {number} has no key separator {os.fsdecode(self.key_separator)!r}"
                return records, KafkaError(ErrorCode.INVALID_RECORD, message)
            records.append((None if key == null else key, None if value == null else value))
        return records, None


def add_to(subparsers: Subparsers) -> None:
    parser = subparsers.add_parser(
        "produce", help="write the lines of stdin, which end with LF or CRLF, to a topic, one record each"
    )
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
    add_json(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> None:
    if options.key_separator == "":
        raise UsageError("--key-separator='': must not be empty")
    lines = LineFormat(
        key_separator=_bytes(options.key_separator),
        null_marker=_bytes(options.null_marker),
        headers=tuple((name, os.fsencode(value)) for name, value in options.header),
    )
    config = client_config(options)
    _check_partition(config, options.topic, options.partition)
    given = {CLIENT_ID_KEY.name: CLIENT_ID, **config.keys_of(PRODUCER_CONFIG), **OWN_SETTINGS}
    with Producer(given, compression_type=options.compression) as producer:
        sent: deque[TableDelivery] = deque()
        line_number = appended = 0
        for chunk in chunks_of_lines(sys.stdin.buffer):
            records, rejected = lines.records(chunk, line_number)
            line_number += len(chunk)
            sent.append(producer.send_plain(options.topic, records, headers=lines.headers, partition=options.partition))
            while len(sent) > (0 if rejected else UNCHECKED_CHUNKS):
                appended += _record_count(sent.popleft())
            if rejected is not None:
                raise rejected
        for delivery in sent:
            appended += _record_count(delivery)
    show(options, {"topic": options.topic, "records": appended}, "")


def _record_count(delivery: TableDelivery) -> int:
    """The records that were appended. Waits for them, and raises KafkaError if they were not."""
    return sum(rows.record_count for rows in delivery.result())


def chunks_of_lines(source: BinaryIO) -> Iterator[list[bytes]]:
    """Lists of the lines that are available, without their ends, LF or CRLF; the last line may lack its end."""
    begun = b""
    while data := _read_available(source):
        *lines, begun = (begun + data).split(b"\n")
        if lines:
            yield [line.removesuffix(b"\r") for line in lines]
        if len(begun) > LINE_BYTES_MAX:
            raise KafkaError(ErrorCode.MESSAGE_TOO_LARGE, f"a line is longer than {LINE_BYTES_MAX} bytes")
    if begun:
        yield [begun.removesuffix(b"\r")]


def _read_available(source: BinaryIO) -> bytes:
    read1 = getattr(source, "read1", source.read)  # all buffered streams have read1, but typing.BinaryIO does not
    data: bytes = read1(READ_BYTES)
    return data


def _check_partition(config: ClientConfig, topic: str, partition: int | None) -> None:
    """Wait for a topic, which the request may create. Raises KafkaError, also if it does not have the partition."""
    request = MetadataRequest(topics=(MetadataRequestTopic(name=topic),), allow_auto_topic_creation=True)
    deadline = time.monotonic() + CREATION_SECONDS
    with admin_client(config, client_id=CLIENT_ID) as admin:
        while True:
            found = admin.run(ask(ANY_BROKER, "the topic", lambda _: request, lambda response: response)).topics[0]
            if not found.error_code:
                break
            # while Kafka creates a topic it reports it as unknown, or without leader
            if not found.error_code.retriable or time.monotonic() > deadline:
                raise KafkaError(found.error_code, f"topic {topic!r}: {found.error_code.sentence}")
            time.sleep(RETRY_SECONDS)
    count = len(found.partitions)
    if partition is not None and partition >= count:
        text = f"{TopicPartition(topic, partition)}: the topic has {count} partition(s)"
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, text)


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else os.fsencode(text)
