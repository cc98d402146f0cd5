"""`raylog delete-records`: delete the records before an offset in each partition of a file (kafka-delete-records).

The file has Kafka's format; the offset -1 stands for the high watermark, so that nothing is left:

    {"version": 1, "partitions": [{"topic": "flights", "partition": 0, "offset": 120}]}

With --json an array: [{"topic": "flights", "partition": 0, "low_watermark": 120, "error": null}].
"""

from __future__ import annotations

import argparse
from pathlib import Path

from raylog.cli.arguments import Subparsers, add_bootstrap_server, open_client
from raylog.cli.columns import columns
from raylog.cli.output import add_json, show
from raylog.client.errors import AdminError
from raylog.core.config import INT_MAX, LONG_MAX
from raylog.core.errors import ErrorCode, KafkaError
from raylog.core.ids import TopicPartition
from raylog.core.json_text import field_of, parse_json

VERSION = 1
HIGH_WATERMARK = -1


def add_to(subparsers: Subparsers) -> None:
    parser = subparsers.add_parser("delete-records", help="delete the records before an offset in partitions")
    parser.add_argument(
        "--offset-json-file", type=Path, metavar="FILE", required=True, help="the partitions, and an offset of each"
    )
    add_json(parser)
    add_bootstrap_server(parser)
    parser.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> None:
    offsets = parse_offsets(options.offset_json_file.read_bytes())
    refused: AdminError | None = None
    with open_client(options) as client:
        try:
            low_watermarks = client.delete_records(offsets)
        except AdminError as error:
            if not error.results:
                raise
            refused, low_watermarks = error, error.results
    errors = {} if refused is None else {tp: each.code.name for tp, each in refused.errors.items()}
    found = [
        {"topic": tp.topic, "partition": tp.partition, "low_watermark": low_watermarks.get(tp), "error": errors.get(tp)}
        for tp in sorted(offsets)
    ]
    rows = [["-" if cell is None else str(cell) for cell in each.values()] for each in found]
    show(options, found, columns(["TOPIC", "PARTITION", "LOW-WATERMARK", "ERROR"], rows))
    if refused is not None:
        raise refused


def parse_offsets(text: bytes) -> dict[TopicPartition, int]:
    """The offset of each partition in Kafka's format. Raises KafkaError(INVALID_REQUEST)."""
    try:
        plan = parse_json(text)
        entries = field_of(plan, "partitions", list, at="the document")
        version = plan.get("version", VERSION)
        offsets: dict[TopicPartition, int] = {}
        for number, entry in enumerate(entries):
            at = f"partitions[{number}]"
            topic, partition = field_of(entry, "topic", str, at=at), field_of(entry, "partition", int, at=at)
            offset = field_of(entry, "offset", int, at=at)
            tp = TopicPartition(topic, partition)
            if not 0 <= partition <= INT_MAX or not HIGH_WATERMARK <= offset <= LONG_MAX:
                raise _wrong(f"{tp}: offset {offset} cannot be deleted up to")
            if tp in offsets:
                raise _wrong(f"{tp} is given twice")
            offsets[tp] = offset
    except ValueError as error:
        raise _wrong(f"must be JSON as in kafka-delete-records: {error}") from None
    if version != VERSION:
        raise _wrong(f"version {version!r:.200} is unknown")
    if not offsets:
        raise _wrong("has no partitions")
    return offsets


def _wrong(rule: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, f"--offset-json-file: {rule}")
