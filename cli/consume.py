"""`raylog consume`: print the records of a topic, in the format of kafka-console-consumer or as JSON lines.

It reads the partitions without a group and commits no offsets. Records are in order within a partition.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from time import monotonic
from typing import Final

from raylog.cli.arguments import CLIENT_ID, Subparsers, add_bootstrap_server, client_config, whole_number
from raylog.cli.values import json_fields
from raylog.client.admin.admin_client import AdminClient, admin_client
from raylog.client.admin.partitions import OffsetSpec
from raylog.client.consumer.consumer import Consumer
from raylog.client.consumer.fetched import ConsumerRecord
from raylog.client.share.acquired import ShareRecord
from raylog.config.client_network import CLIENT_ID as CLIENT_ID_KEY
from raylog.config.consumer import CONSUMER_CONFIG
from raylog.core.config import INT_MAX
from raylog.core.errors import ErrorCode, KafkaError
from raylog.core.ids import TopicPartition
from raylog.protocol.records.batch import MalformedBatch

POLL_RECORDS = 10_000
WAIT_SECONDS = 0.5
STALLED_SECONDS = 30
"""How long reading up to the end may take without a record."""
SPECIAL_OFFSETS = ("earliest", "latest")
OWN_SETTINGS: Final = {"auto.offset.reset": "none", "enable.auto.commit": False, "group.id": None}
TIMESTAMP_TYPES = ("CreateTime", "LogAppendTime")

Part = Callable[[ConsumerRecord | ShareRecord], bytes]


def add_to(subparsers: Subparsers) -> None:
    parser = subparsers.add_parser("consume", help="print the records of a topic")
    parser.add_argument("topic", metavar="TOPIC")
    add_bootstrap_server(parser)
    parser.add_argument("--partition", type=whole_number(0, INT_MAX), metavar="N", help="default: all partitions")
    parser.add_argument(
        "--offset",
        type=_offset,
        default="earliest",
        metavar="OFFSET",
        help="start position: earliest, latest, an offset, or -N for N records before the end (default: %(default)s)",
    )
    parser.add_argument("--max-messages", type=whole_number(0), metavar="N", help="exit after N records")
    parser.add_argument(
        "-e",
        "--exit-at-end",
        action="store_true",
        help="exit after the records that existed at the start, instead of waiting for more",
    )
    parser.add_argument(
        "--isolation-level",
        choices=("read_committed", "read_uncommitted"),
        help="read_committed skips the records of aborted transactions, and waits for open ones to end;"
        " read_uncommitted prints all records (default: isolation.level in --command-config, or read_committed)",
    )
    add_format(parser)
    parser.add_argument(
        "--skip-malformed",
        action="store_true",
        help="skip batches whose records cannot be decoded, and name their offsets on stderr, instead of ending there",
    )
    parser.set_defaults(run=run)


def add_format(parser: argparse.ArgumentParser) -> None:
    """The options that say what is printed of each record."""
    for part in ("timestamp", "partition", "offset", "headers", "key"):
        parser.add_argument(f"--print-{part}", action="store_true")
    parser.add_argument(
        "--key-separator", default="\t", metavar="TEXT", help="separator between the printed parts (default: a tab)"
    )
    parser.add_argument("--json", action="store_true", help="print each record as one line of JSON with all its parts")


def record_format(options: argparse.Namespace) -> Callable[[Iterable[ConsumerRecord | ShareRecord]], bytes]:
    """What is printed of records, by the options of `add_format`."""
    return _as_json if options.json else _TextFormat(options)


def run(options: argparse.Namespace) -> None:
    left = sys.maxsize if options.max_messages is None else options.max_messages
    format_records = record_format(options)
    config = client_config(options, isolation_level=options.isolation_level)
    with admin_client(config, client_id=CLIENT_ID) as admin:
        positions, ends = _range(admin, options, committed=config.reads_committed)
    given = {CLIENT_ID_KEY.name: CLIENT_ID, **config.keys_of(CONSUMER_CONFIG), **OWN_SETTINGS}
    with Consumer(given) as consumer:
        consumer.assign(positions)
        for tp, position in positions.items():
            consumer.seek(tp, position)
        read_at = monotonic()
        while left and (not ends or _is_unfinished(positions, ends)):
            records = _poll(consumer, min(left, POLL_RECORDS), skip=options.skip_malformed)
            if ends:
                positions = {tp: consumer.position(tp) for tp in positions}
                records = before_ends(ends, positions, records)
                read_at = monotonic() if records else read_at
                if monotonic() > read_at + STALLED_SECONDS:
                    raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, f"nothing was read for {STALLED_SECONDS} s")
            sys.stdout.buffer.write(format_records(records))
            sys.stdout.buffer.flush()
            left -= len(records)


def _is_unfinished(positions: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]) -> bool:
    return any(position < ends[tp] for tp, position in positions.items())


def before_ends(
    ends: Mapping[TopicPartition, int], positions: Mapping[TopicPartition, int], records: Sequence[ConsumerRecord]
) -> Sequence[ConsumerRecord]:
    """The records before the ends of their partitions."""
    if all(position <= ends[tp] for tp, position in positions.items()):
        return records
    return [each for each in records if each.offset < ends[TopicPartition(each.topic, each.partition)]]


def _poll(consumer: Consumer, count: int, *, skip: bool) -> Sequence[ConsumerRecord]:
    """The next records. Raises MalformedBatch after those before it, or passes over it."""
    try:
        return consumer.poll(WAIT_SECONDS, max_records=count)
    except MalformedBatch as error:
        if not skip or error.tp is None:
            raise
        print(f"raylog: {error.tp}: skipped: {error.message}", file=sys.stderr)
        consumer.seek(error.tp, error.next_offset)
        return []


def _range(
    admin: AdminClient, options: argparse.Namespace, *, committed: bool
) -> tuple[dict[TopicPartition, int], dict[TopicPartition, int]]:
    """The start and end offsets of each partition; the latter are empty without an end. Raises KafkaError."""
    topic = options.topic
    count = len(admin.describe_topics(topic)[topic].partitions)
    numbers = list(range(count))
    if options.partition is not None:
        if options.partition not in numbers:
            message = f"{TopicPartition(topic, options.partition)}: the topic has {count} partition(s)"
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, message)
        numbers = [options.partition]
    partitions = [TopicPartition(topic, number) for number in numbers]
    earliest = admin.list_offsets(dict.fromkeys(partitions, OffsetSpec.EARLIEST))
    latest = admin.list_offsets(dict.fromkeys(partitions, OffsetSpec.LATEST), read_committed=committed)
    starts = {tp: _start(tp, options.offset, earliest[tp].offset, latest[tp].offset) for tp in partitions}
    return starts, {tp: latest[tp].offset for tp in partitions} if options.exit_at_end else {}


def _start(tp: TopicPartition, offset: str, earliest: int, latest: int) -> int:
    if offset in SPECIAL_OFFSETS:
        return earliest if offset == "earliest" else latest
    number = int(offset)
    if number < 0:
        return max(earliest, latest + number)
    if not earliest <= number <= latest:
        raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE, f"{tp}: offset {number} is outside {earliest} to {latest}")
    return number


class _TextFormat:
    """The format of kafka-console-consumer: the selected parts in its order, then the value, as raw bytes."""

    def __init__(self, options: argparse.Namespace) -> None:
        self._separator: bytes = os.fsencode(options.key_separator)
        chosen: list[tuple[bool, Part]] = [
            (
                options.print_timestamp,
                lambda each: f"{TIMESTAMP_TYPES[each.timestamp_type]}:{each.timestamp_ms}".encode(),
            ),
            (options.print_partition, lambda each: b"Partition:%d" % each.partition),
            (options.print_offset, lambda each: b"Offset:%d" % each.offset),
            (options.print_headers, _headers),
            (options.print_key, lambda each: _or_null(each.key)),
            (True, lambda each: _or_null(each.value)),
        ]
        self._parts = [part for is_chosen, part in chosen if is_chosen]

    def __call__(self, records: Iterable[ConsumerRecord | ShareRecord]) -> bytes:
        separator, parts = self._separator, self._parts
        if len(parts) == 1:  # the value alone, as fast as possible
            lines = [b"null" if each.value is None else each.value for each in records]
        else:
            lines = [separator.join([part(each) for part in parts]) for each in records]
        lines.append(b"")
        return b"\n".join(lines)


def _headers(record: ConsumerRecord | ShareRecord) -> bytes:
    return b",".join(name.encode() + b":" + _or_null(value) for name, value in record.headers) or b"NO_HEADERS"


def _as_json(records: Iterable[ConsumerRecord | ShareRecord]) -> bytes:
    return b"".join(map(_json_line, records))


def _json_line(record: ConsumerRecord | ShareRecord) -> bytes:
    """Bytes that are not UTF-8 are printed as `key_base64` and `value_base64`."""
    line = {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp": record.timestamp_ms,
        "timestamp_type": TIMESTAMP_TYPES[record.timestamp_type],
        **json_fields("key", record.key),
        **json_fields("value", record.value),
        "headers": [{"key": name, **json_fields("value", value)} for name, value in record.headers],
    }
    if isinstance(record, ShareRecord):
        line["delivery_count"] = record.delivery_count
    return json.dumps(line, ensure_ascii=False).encode() + b"\n"


def _or_null(data: bytes | None) -> bytes:
    return b"null" if data is None else data


def _offset(text: str) -> str:
    if text not in SPECIAL_OFFSETS and not text.removeprefix("-").isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r}: must be earliest, latest, an offset, or -N")
    return text
