"""`raylog groups reset-offsets`: set the offsets of a group without members, as Kafka's tools for groups do."""

from __future__ import annotations

import argparse
import csv
import re
import time
from collections.abc import Iterable, Mapping

from raylog.cli.arguments import Subparsers, open_client, partitions_of, timestamp_ms, whole_number
from raylog.cli.columns import columns
from raylog.cli.group_offsets import add_topics, group_named, offsets_at
from raylog.cli.output import add_json, show
from raylog.cli.usage import UsageError
from raylog.client.admin.admin_client import AdminClient
from raylog.client.admin.all_groups import GroupOffset
from raylog.client.admin.groups import CLASSIC, DEAD, SHARE
from raylog.client.admin.partitions import OffsetSpec
from raylog.core.errors import ErrorCode, KafkaError
from raylog.core.ids import NO_OFFSET, TopicPartition

INACTIVE = ("Empty", DEAD)
_DURATION = re.compile(
    r"P(?:([0-9]{1,6})D)?(?:T(?=[0-9])(?:([0-9]{1,9})H)?(?:([0-9]{1,9})M)?(?:([0-9]{1,9}(?:\.[0-9]{1,9})?)S)?)?"
)
DRY_RUN = "This was a dry run; --execute resets the offsets."


def add_reset_to(actions: Subparsers) -> argparse.ArgumentParser:
    """The parser of the command, which has no arguments for the connection yet."""
    reset: argparse.ArgumentParser = actions.add_parser(
        "reset-offsets", help="reset the offsets of a group without members"
    )
    reset.add_argument("group", metavar="GROUP")
    add_topics(reset, required=False)
    reset.add_argument("--all-topics", action="store_true", help="every partition for which the group has an offset")
    target = reset.add_mutually_exclusive_group(required=True)
    target.add_argument("--to-offset", type=whole_number(0), metavar="N")
    target.add_argument("--to-earliest", action="store_true")
    target.add_argument("--to-latest", action="store_true")
    target.add_argument(
        "--to-datetime", type=timestamp_ms, metavar="YYYY-MM-DDTHH:MM:SS", help="UTC unless a time zone is given"
    )
    target.add_argument("--shift-by", type=_number, metavar="N", help="relative to the group's offset; may be negative")
    target.add_argument(
        "--by-duration", type=_duration_ms, metavar="PnDTnHnMnS", help="so long ago, such as PT1H30M or P2D (ISO 8601)"
    )
    target.add_argument(
        "--to-current", action="store_true", help="the group's offset, or the end of the log where there is none"
    )
    target.add_argument("--from-file", type=argparse.FileType(), metavar="CSV", help="lines of topic,partition,offset")
    add_json(reset)
    reset.add_argument(
        "--export", action="store_true", help="print the new offsets as the lines that --from-file reads, and stop"
    )
    way = reset.add_mutually_exclusive_group()
    way.add_argument("--dry-run", action="store_true", help="only print the new offsets (the default)")
    way.add_argument("--execute", action="store_true", help="reset the offsets")
    reset.set_defaults(run=_reset)
    return reset


def _reset(options: argparse.Namespace) -> None:
    with open_client(options) as client:
        group = group_named(client, options.group)
        if group is not None and group.state not in INACTIVE:
            message = (
                f"group {options.group!r} is {group.state}: offsets can be reset only while a group has no members"
            )
            raise KafkaError(ErrorCode.NON_EMPTY_GROUP, message)
        group_type = CLASSIC if group is None else group.type
        wanted = _wanted(client, options, client.list_group_offsets(options.group, group_type))
        _check_existence(client, wanted)
        first = offsets_at(client, dict.fromkeys(wanted, OffsetSpec.EARLIEST))
        end = offsets_at(client, dict.fromkeys(wanted, OffsetSpec.LATEST))
        offsets = {tp: min(max(offset, first[tp]), end[tp]) for tp, offset in sorted(wanted.items())}
        if options.export:
            print("\n".join(f"{tp.topic},{tp.partition},{offset}" for tp, offset in offsets.items()))
            return
        if options.execute and offsets and group is not None and group.type == SHARE:
            client.alter_share_group_offsets(options.group, offsets)
        elif options.execute and offsets:
            client.alter_consumer_group_offsets(options.group, offsets)
    found = [
        {"group": options.group, "topic": tp.topic, "partition": tp.partition, "new_offset": offset}
        for tp, offset in offsets.items()
    ]
    table = columns(["GROUP", "TOPIC", "PARTITION", "NEW-OFFSET"], [list(map(str, each.values())) for each in found])
    show(options, found, table if options.execute else f"{table}\n{DRY_RUN}")


def _wanted(
    client: AdminClient, options: argparse.Namespace, current: Mapping[TopicPartition, GroupOffset]
) -> Mapping[TopicPartition, int]:
    """The offset that the options ask for in each partition, not yet limited to its log.

    Raises KafkaError and UsageError.
    """
    if options.from_file is not None:
        listed = _read_file(options.from_file)
        if not (options.topics or options.all_topics):
            return listed
        chosen = set(partitions_of(client, options.topics)) if options.topics else listed.keys()
        return {tp: offset for tp, offset in listed.items() if tp in chosen}
    if bool(options.topics) == options.all_topics:
        raise UsageError("either --topic or --all-topics is required")
    partitions = partitions_of(client, options.topics) if options.topics else list(current)
    if options.shift_by is not None:
        for tp in partitions:
            if tp not in current:
                raise KafkaError(ErrorCode.INVALID_REQUEST, f"{tp}: the group has no offset there to shift")
        return {tp: current[tp].offset + options.shift_by for tp in partitions}
    if options.to_offset is not None:
        return dict.fromkeys(partitions, options.to_offset)
    if options.to_current:
        ends = offsets_at(client, dict.fromkeys([tp for tp in partitions if tp not in current], OffsetSpec.LATEST))
        return {tp: current[tp].offset if tp in current else ends.get(tp, 0) for tp in partitions}
    since_ms = options.to_datetime
    if options.by_duration is not None:
        since_ms = max(int(time.time() * 1000) - options.by_duration, 0)
    if since_ms is not None:
        found = offsets_at(client, dict.fromkeys(partitions, since_ms))
        late = offsets_at(client, {tp: OffsetSpec.LATEST for tp, offset in found.items() if offset == NO_OFFSET})
        return {**found, **late}  # the log end offset where no record has this timestamp or a later one
    special = OffsetSpec.EARLIEST if options.to_earliest else OffsetSpec.LATEST
    return offsets_at(client, dict.fromkeys(partitions, special))


def _check_existence(client: AdminClient, partitions: Iterable[TopicPartition]) -> None:
    """Raises KafkaError for a partition that does not exist."""
    wanted = sorted(partitions)
    known = client.describe_topics(dict.fromkeys(tp.topic for tp in wanted))
    for tp in wanted:
        if tp.partition >= len(known[tp.topic].partitions):
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"partition {tp} does not exist")


def _read_file(lines: Iterable[str]) -> dict[TopicPartition, int]:
    """`topic,partition,offset` in each line. Raises KafkaError."""
    offsets = {}
    reader = csv.reader(lines)
    try:
        for number, row in enumerate(reader, start=1):
            if not row:
                continue
            if len(row) != 3 or not (row[1].strip().isdecimal() and row[2].strip().isdecimal()):
                raise KafkaError(ErrorCode.INVALID_REQUEST, f"line {number}: must be topic,partition,offset")
            offsets[TopicPartition(row[0].strip(), int(row[1]))] = int(row[2])
    except csv.Error as error:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"line {reader.line_num}: {error}") from None
    return offsets


# --- argument types


def _duration_ms(text: str) -> int:
    match = _DURATION.fullmatch(text)
    if match is None or not any(match.groups()):
        raise argparse.ArgumentTypeError(f"{text!r}: must be like PT1H30M or P2D")
    days, hours, minutes, seconds = (float(part or 0) for part in match.groups())
    return int(1000 * (86_400 * days + 3600 * hours + 60 * minutes + seconds))


def _number(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r}: must be a whole number") from None
