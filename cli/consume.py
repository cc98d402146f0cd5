"""`raylog consume`: print the records of a topic, in the format of kafka-console-consumer or as JSON lines.

It reads the partitions without a group and commits no offsets. Records are in order within a partition.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from functools import partial

from raylog.cli.arguments import CLIENT_ID, Subparsers, add_bootstrap_server, client_config, whole_number
from raylog.cli.values import json_fields
from raylog.client.cluster_client import EARLIEST_OFFSET, LATEST_OFFSET, ClusterClient, Fetched
from raylog.core.errors import ErrorCode, KafkaError
from raylog.core.ids import TopicPartition
from raylog.protocol.records.batch import MalformedBatch, OnMalformed
from raylog.protocol.records.reader import Record, read_batches, whole_batches

FETCH_BYTES = 1 << 20
WAIT_MS = 500
"""How long one pass over all partitions waits for new records."""
SPECIAL_OFFSETS = {"earliest": EARLIEST_OFFSET, "latest": LATEST_OFFSET}
TIMESTAMP_TYPES = ("CreateTime", "LogAppendTime")

Format = Callable[[TopicPartition, Record], bytes]


def add_to(subparsers: Subparsers) -> None:
    parser = subparsers.add_parser("consume", help="print the records of a topic")
    parser.add_argument("topic", metavar="TOPIC")
    add_bootstrap_server(parser)
    parser.add_argument("--partition", type=whole_number(0), metavar="N", help="default: all partitions")
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
    for part in ("timestamp", "partition", "offset", "headers", "key"):
        parser.add_argument(f"--print-{part}", action="store_true")
    parser.add_argument(
        "--key-separator", default="\t", metavar="TEXT", help="separator between the printed parts (default: a tab)"
    )
    parser.add_argument(
        "--skip-malformed",
        action="store_true",
        help="skip batches whose records cannot be decoded, and name their offsets on stderr, instead of ending there",
    )
    parser.add_argument("--json", action="store_true", help="print each record as one line of JSON with all its parts")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> None:
    left = sys.maxsize if options.max_messages is None else options.max_messages
    format_record = _as_json if options.json else _TextFormat(options)
    config = client_config(options, isolation_level=options.isolation_level)
    committed = config.reads_committed
    with ClusterClient(config, client_id=CLIENT_ID) as client:
        positions, ends = _range(client, options, committed=committed)
        found = True
        while positions and left:
            # Without waiting while there are records; otherwise each partition waits for its share of the time.
            max_wait_ms = 0 if found else WAIT_MS // len(positions)
            found = False
            for tp in list(positions):
                if positions[tp] >= ends.get(tp, sys.maxsize):
                    del positions[tp]
                    continue
                fetched = client.fetch(
                    tp, positions[tp], max_bytes=FETCH_BYTES, max_wait_ms=max_wait_ms, committed=committed
                )
                if not fetched.batches:
                    continue
                found = True
                skip = partial(_report_skipped, tp) if options.skip_malformed else None
                left -= _print(fetched, tp, positions[tp], ends.get(tp, sys.maxsize), left, format_record, skip)
                _, following = whole_batches(fetched.batches)
                if following <= positions[tp]:
                    raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"{tp}: cannot read a batch at offset {positions[tp]}")
                positions[tp] = following
                if not left:
                    break
            sys.stdout.buffer.flush()


def _print(
    fetched: Fetched,
    tp: TopicPartition,
    position: int,
    end: int,
    count_max: int,
    format_record: Format,
    on_malformed: OnMalformed | None,
) -> int:
    """The number of records printed. Raises MalformedBatch after the records before it."""
    write = sys.stdout.buffer.write
    count = 0
    batches, aborted = fetched
    for record in read_batches(
        batches, from_offset=position, end_offset=end, on_malformed=on_malformed, aborted=aborted
    ):
        if count == count_max:
            break
        write(format_record(tp, record))
        count += 1
    return count


def _report_skipped(tp: TopicPartition, error: MalformedBatch) -> None:
    print(f"raylog: {tp}: skipped: {error.message}", file=sys.stderr)


def _range(
    client: ClusterClient, options: argparse.Namespace, *, committed: bool
) -> tuple[dict[TopicPartition, int], dict[TopicPartition, int]]:
    """The start and end offsets of each partition; the latter are empty without an end. Raises KafkaError."""
    topic = options.topic
    numbers = sorted(partition.partition_index for partition in client.view([topic]).topic(topic).partitions)
    if options.partition is not None:
        if options.partition not in numbers:
            message = f"{TopicPartition(topic, options.partition)}: the topic has {len(numbers)} partition(s)"
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, message)
        numbers = [options.partition]
    positions: dict[TopicPartition, int] = {}
    ends: dict[TopicPartition, int] = {}
    for tp in (TopicPartition(topic, number) for number in numbers):
        earliest = client.offset_for(tp, EARLIEST_OFFSET)
        latest = client.offset_for(tp, LATEST_OFFSET, committed=committed)
        positions[tp] = _start(tp, options.offset, earliest, latest)
        if options.exit_at_end:
            ends[tp] = latest
    return positions, ends


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
        self._options = options
        self._separator: bytes = options.key_separator.encode()

    def __call__(self, tp: TopicPartition, record: Record) -> bytes:
        options = self._options
        parts: list[bytes] = []
        if options.print_timestamp:
            parts.append(f"{TIMESTAMP_TYPES[record.timestamp_type]}:{record.timestamp_ms}".encode())
        if options.print_partition:
            parts.append(f"Partition:{tp.partition}".encode())
        if options.print_offset:
            parts.append(f"Offset:{record.offset}".encode())
        if options.print_headers:
            headers = [name.encode() + b":" + _or_null(value) for name, value in record.headers]
            parts.append(b",".join(headers) or b"NO_HEADERS")
        if options.print_key:
            parts.append(_or_null(record.key))
        parts.append(_or_null(record.value))
        return self._separator.join(parts) + b"\n"


def _as_json(tp: TopicPartition, record: Record) -> bytes:
    """Bytes that are not UTF-8 are printed as `key_base64` and `value_base64`."""
    line = {
        "topic": tp.topic,
        "partition": tp.partition,
        "offset": record.offset,
        "timestamp": record.timestamp_ms,
        "timestamp_type": TIMESTAMP_TYPES[record.timestamp_type],
        **json_fields("key", record.key),
        **json_fields("value", record.value),
        "headers": [{"key": name, **json_fields("value", value)} for name, value in record.headers],
    }
    return json.dumps(line, ensure_ascii=False).encode() + b"\n"


def _or_null(data: bytes | None) -> bytes:
    return b"null" if data is None else data


def _offset(text: str) -> str:
    if text not in SPECIAL_OFFSETS and not text.removeprefix("-").isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r}: must be earliest, latest, an offset, or -N")
    return text
