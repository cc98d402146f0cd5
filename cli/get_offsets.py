"""`raylog get-offsets`: print an offset of each partition (kafka-get-offsets).

The lines are those of Kafka's tool, `topic:partition:offset`. A partition that has no record at the time is left out;
with --json its offset is null:

    [{"topic": "flights", "partition": 0, "offset": 120, "timestamp_ms": null}]

`timestamp_ms` is that of the record at the offset, where a time was asked for.
"""

from __future__ import annotations

import argparse

from raylog.cli.arguments import (
    Subparsers,
    add_bootstrap_server,
    open_client,
    partitions_of,
    topic_and_partitions,
    whole_number,
)
from raylog.cli.output import add_json, show
from raylog.client.admin.partitions import OffsetSpec
from raylog.core.ids import NO_OFFSET, TopicPartition

SPECIAL = {each.name.lower().replace("_", "-"): each for each in OffsetSpec}


def add_to(subparsers: Subparsers) -> None:
    parser = subparsers.add_parser("get-offsets", help="print an offset of each partition of topics")
    parser.add_argument(
        "topics",
        type=topic_and_partitions,
        nargs="*",
        metavar="TOPIC[:0,1,...]",
        help="a topic, or some of its partitions (default: all topics)",
    )
    parser.add_argument(
        "--time",
        type=_time,
        default=OffsetSpec.LATEST,
        metavar="TIME",
        help="latest, the end of the log; earliest, its first offset; max-timestamp, the record with the greatest"
        " timestamp; or milliseconds, the first record at or after them (default: latest)",
    )
    parser.add_argument("--exclude-internal-topics", action="store_true", help="omit the cluster's internal topics")
    add_json(parser)
    add_bootstrap_server(parser)
    parser.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> None:
    with open_client(options) as client:
        internal = {topic.name for topic in client.list_topics() if topic.is_internal}
        wanted = options.topics or [(topic.name, None) for topic in client.list_topics()]
        if options.exclude_internal_topics:
            wanted = [(topic, numbers) for topic, numbers in wanted if topic not in internal]
        offsets = client.list_offsets(dict.fromkeys(partitions_of(client, wanted), options.time))
    found = [_entry(tp, each.offset, each.timestamp_ms) for tp, each in sorted(offsets.items())]
    lines = [f"{each['topic']}:{each['partition']}:{each['offset']}" for each in found if each["offset"] is not None]
    show(options, found, "\n".join(lines))


def _entry(tp: TopicPartition, offset: int, timestamp_ms: int) -> dict[str, object]:
    return {
        "topic": tp.topic,
        "partition": tp.partition,
        "offset": None if offset == NO_OFFSET else offset,
        "timestamp_ms": None if timestamp_ms < 0 else timestamp_ms,
    }


def _time(text: str) -> int:
    """The special times also as Kafka's numbers: -1 latest, -2 earliest, -3 max-timestamp."""
    if text in SPECIAL:
        return SPECIAL[text]
    if text.isdecimal():
        return whole_number(0)(text)
    if text in {str(int(each)) for each in OffsetSpec}:
        return int(text)
    raise argparse.ArgumentTypeError(f"{text!r}: must be {', '.join(SPECIAL)} or milliseconds")
