"""`raylog groups`: list, describe and delete consumer groups, and reset or delete offsets (kafka-consumer-groups).

With --json, `describe` prints an array of objects:

    {"group": "g", "state": "Stable", "type": "consumer", "protocol_type": "consumer", "protocol": "uniform",
     "group_epoch": 3, "target_assignment_epoch": 3,
     "members": [{"id": "...", "instance_id": null, "client_id": "...", "host": "/127.0.0.1",
                  "partitions": [{"topic": "flights", "partition": 0}], "epoch": 3, "is_classic": false,
                  "target_partitions": [{"topic": "flights", "partition": 0}]}],
     "partitions": [{"topic": "flights", "partition": 0, "current_offset": 5, "log_end_offset": 7, "lag": 2,
                     "member_id": "..."}]}

Unknown values are null: the offset of a partition without a commit, the member of a partition that is not assigned, and
the epochs of groups whose members assign the partitions (type classic).
"""

from __future__ import annotations

import argparse
import csv
import json
import re
import time
from collections.abc import Iterable, Mapping
from typing import Any

from raylog.cli.arguments import (
    Subparsers,
    add_bootstrap_server,
    open_client,
    partitions_of,
    timestamp_ms,
    topic_and_partitions,
    whole_number,
)
from raylog.cli.columns import columns
from raylog.cli.output import add_json, progress, show
from raylog.client.admin.admin_client import AdminClient
from raylog.client.admin.groups import DEAD
from raylog.client.admin.partitions import OffsetSpec
from raylog.client.errors import AdminError
from raylog.core.errors import ErrorCode, KafkaError
from raylog.core.ids import NO_OFFSET, TopicPartition

UNKNOWN = "-"
INACTIVE = ("Empty", DEAD)
_DURATION = re.compile(
    r"P(?:([0-9]{1,6})D)?(?:T(?=[0-9])(?:([0-9]{1,9})H)?(?:([0-9]{1,9})M)?(?:([0-9]{1,9}(?:\.[0-9]{1,9})?)S)?)?"
)
DRY_RUN = "This was a dry run; --execute resets the offsets."


def add_to(subparsers: Subparsers) -> None:
    parser = subparsers.add_parser("groups", help="list, describe and delete consumer groups, and reset their offsets")
    actions = parser.add_subparsers(title="actions", metavar="ACTION", required=True)

    listing = actions.add_parser("list", help="print the names of all groups")
    listing.add_argument("--state", action="store_true", help="also print the state of each group")
    listing.add_argument("--verbose", action="store_true", help="print type, protocol and state of each group")
    add_json(listing)
    listing.set_defaults(run=_list)

    describe = actions.add_parser("describe", help="print members, committed offsets and lag")
    describe.add_argument("groups", metavar="GROUP", nargs="*", help="default: all groups")
    what = describe.add_mutually_exclusive_group()
    what.add_argument("--members", action="store_true", help="print the members, without offsets")
    what.add_argument("--state", action="store_true", help="print the state of each group, without offsets")
    describe.add_argument(
        "--verbose", action="store_true", help="with --members and --state: also epochs and assignments"
    )
    describe.add_argument("--json", action="store_true", help="print one JSON array")
    describe.set_defaults(run=_describe)

    delete = actions.add_parser("delete", help="delete groups without members, and their offsets")
    delete.add_argument("groups", metavar="GROUP", nargs="+")
    add_json(delete)
    delete.set_defaults(run=_delete)

    reset = actions.add_parser("reset-offsets", help="reset the offsets of a group without members")
    reset.add_argument("group", metavar="GROUP")
    _add_topics(reset, required=False)
    reset.add_argument("--all-topics", action="store_true", help="every partition with a committed offset")
    target = reset.add_mutually_exclusive_group(required=True)
    target.add_argument("--to-offset", type=whole_number(0), metavar="N")
    target.add_argument("--to-earliest", action="store_true")
    target.add_argument("--to-latest", action="store_true")
    target.add_argument(
        "--to-datetime", type=timestamp_ms, metavar="YYYY-MM-DDTHH:MM:SS", help="UTC unless a time zone is given"
    )
    target.add_argument(
        "--shift-by", type=_number, metavar="N", help="relative to the committed offset; may be negative"
    )
    target.add_argument(
        "--by-duration", type=_duration_ms, metavar="PnDTnHnMnS", help="so long ago, such as PT1H30M or P2D (ISO 8601)"
    )
    target.add_argument(
        "--to-current", action="store_true", help="the committed offset, or the end of the log where there is none"
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

    forget = actions.add_parser("delete-offsets", help="delete the offsets of a group for some topics")
    forget.add_argument("group", metavar="GROUP")
    _add_topics(forget, required=True)
    add_json(forget)
    forget.set_defaults(run=_delete_offsets)

    for action in (listing, describe, delete, reset, forget):
        add_bootstrap_server(action)


def _add_topics(parser: argparse.ArgumentParser, *, required: bool) -> None:
    parser.add_argument(
        "--topic",
        type=topic_and_partitions,
        action="append",
        default=[],
        required=required,
        dest="topics",
        metavar="NAME[:0,1,...]",
        help="a topic, or some of its partitions; can be repeated",
    )


def _list(options: argparse.Namespace) -> None:
    with open_client(options) as client:
        found = client.list_consumer_groups()
    listed = [
        {"group": each.group_id, "type": each.type, "protocol_type": each.protocol_type, "state": each.state}
        for each in found
    ]
    if options.verbose:
        rows = [list(each.values()) for each in listed]
        text = columns(["GROUP", "TYPE", "PROTOCOL", "STATE"], [[cell or UNKNOWN for cell in row] for row in rows])
    elif options.state:
        text = columns(["GROUP", "STATE"], [[each.group_id, each.state] for each in found])
    else:
        text = "\n".join(each.group_id for each in found)
    show(options, listed, text)


# --- describe


def _describe(options: argparse.Namespace) -> None:
    with open_client(options) as client:
        names = options.groups or [group.group_id for group in client.list_consumer_groups()]
        described = [_description(client, name) for name in names]
    if options.json:
        print(json.dumps(described))
    elif options.state:
        print(_states(described, verbose=options.verbose))
    elif options.members:
        print(_members(described, verbose=options.verbose))
    else:
        print("\n\n".join(_table(group) for group in described))


def _description(client: AdminClient, name: str) -> dict[str, Any]:
    try:
        group = client.describe_consumer_groups(name)[name]
    except AdminError as error:
        if error.code is ErrorCode.GROUP_ID_NOT_FOUND:
            raise KafkaError(error.code, f"group {name!r} does not exist") from None
        raise
    owners = {tp: member.member_id for member in group.members for tp in member.partitions}
    committed = _committed(client, name)
    ends = _log_end_offsets(client, owners.keys() | committed.keys())
    return {
        "group": name,
        "state": group.state,
        "type": group.type,
        "protocol_type": group.protocol_type,
        "protocol": group.protocol,
        "group_epoch": group.group_epoch,
        "target_assignment_epoch": group.target_assignment_epoch,
        "members": [
            {
                "id": member.member_id,
                "instance_id": member.group_instance_id,
                "client_id": member.client_id,
                "host": member.host,
                "partitions": _shown(member.partitions),
                "epoch": member.member_epoch,
                "is_classic": member.is_classic,
                "target_partitions": _shown(member.target_partitions),
            }
            for member in group.members
        ],
        "partitions": [
            _partition(tp, committed.get(tp), ends.get(tp), owners.get(tp))
            for tp in sorted(owners.keys() | committed.keys())
        ],
    }


def _shown(partitions: Iterable[TopicPartition]) -> list[dict[str, Any]]:
    return [{"topic": tp.topic, "partition": tp.partition} for tp in partitions]


def _partition(
    tp: TopicPartition, current_offset: int | None, log_end_offset: int | None, member_id: str | None
) -> dict[str, Any]:
    return {
        "topic": tp.topic,
        "partition": tp.partition,
        "current_offset": current_offset,
        "log_end_offset": log_end_offset,
        "lag": None if current_offset is None or log_end_offset is None else log_end_offset - current_offset,
        "member_id": member_id,
    }


def _committed(client: AdminClient, group: str) -> dict[TopicPartition, int]:
    found = client.list_consumer_group_offsets(group)
    return {tp: committed.offset for tp, committed in found.items() if committed is not None}


def _log_end_offsets(client: AdminClient, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
    """Of the partitions that exist and have a leader."""
    led = {
        TopicPartition(name, each.partition)
        for name, topic in client.describe_topics().items()
        for each in topic.partitions
        if each.leader is not None
    }
    return _offsets(client, dict.fromkeys(led.intersection(partitions), OffsetSpec.LATEST))


def _offsets(client: AdminClient, timestamps: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
    return {tp: found.offset for tp, found in client.list_offsets(timestamps).items()}


def _states(groups: Iterable[dict[str, Any]], *, verbose: bool) -> str:
    titles = ["GROUP", "TYPE", "ASSIGNMENT-STRATEGY", "STATE", "#MEMBERS"]
    rows = [[each["group"], each["type"], each["protocol"], each["state"], len(each["members"])] for each in groups]
    if verbose:
        titles += ["GROUP-EPOCH", "TARGET-ASSIGNMENT-EPOCH"]
        for row, each in zip(rows, groups, strict=True):
            row += [each["group_epoch"], each["target_assignment_epoch"]]
    return columns(titles, _cells(rows))


def _members(groups: Iterable[dict[str, Any]], *, verbose: bool) -> str:
    titles = ["GROUP", "CONSUMER-ID", "HOST", "CLIENT-ID", "#PARTITIONS"]
    if verbose:
        titles += ["CURRENT-EPOCH", "CURRENT-ASSIGNMENT", "TARGET-EPOCH", "TARGET-ASSIGNMENT", "UPGRADED"]
    rows = []
    for group in groups:
        for each in group["members"]:
            row = [group["group"], each["id"], each["host"], each["client_id"], len(each["partitions"])]
            if verbose:
                upgraded = None if each["is_classic"] is None else str(not each["is_classic"]).lower()
                row += [each["epoch"], _by_topic(each["partitions"])]
                row += [group["target_assignment_epoch"], _by_topic(each["target_partitions"]), upgraded]
            rows.append(row)
    return columns(titles, _cells(rows)) if rows else "No members."


def _by_topic(partitions: Iterable[dict[str, Any]]) -> str | None:
    """As kafka-consumer-groups shows an assignment: topic:0,1;other:2."""
    numbers: dict[str, list[str]] = {}
    for each in partitions:
        numbers.setdefault(each["topic"], []).append(str(each["partition"]))
    return ";".join(f"{topic}:{','.join(numbers[topic])}" for topic in sorted(numbers)) or None


def _cells(rows: Iterable[Iterable[Any]]) -> list[list[str]]:
    return [[UNKNOWN if cell in (None, "") else str(cell) for cell in row] for row in rows]


def _table(group: dict[str, Any]) -> str:
    head = f"group {group['group']} ({group['state']}, {len(group['members'])} members)"
    members = {member["id"]: member for member in group["members"]}
    idle: dict[str, Any] = dict.fromkeys(("topic", "partition", "current_offset", "log_end_offset", "lag"))
    busy = {partition["member_id"] for partition in group["partitions"]}
    rows = [*group["partitions"], *({**idle, "member_id": name} for name in members if name not in busy)]
    if not rows:
        return f"{head}\nno committed offsets"
    cells = []
    for row in rows:
        member = members.get(row["member_id"], {})
        shown = [*(row[name] for name in idle), row["member_id"], member.get("host"), member.get("client_id")]
        cells.append([UNKNOWN if cell is None else str(cell) for cell in shown])
    titles = [
        "TOPIC",
        "PARTITION",
        "CURRENT-OFFSET",
        "LOG-END-OFFSET",
        "LAG",
        "CONSUMER-ID",
        "HOST",
        "CLIENT-ID",
    ]
    return f"{head}\n{columns(titles, cells)}"


# --- delete


def _delete(options: argparse.Namespace) -> None:
    with open_client(options) as client:
        for name in options.groups:
            client.delete_consumer_groups(name)
            progress(options)(f"Deleted group {name}.")
    show(options, {"deleted": options.groups}, "")


def _delete_offsets(options: argparse.Namespace) -> None:
    with open_client(options) as client:
        wanted = partitions_of(client, options.topics)
        codes = dict.fromkeys(wanted, ErrorCode.NONE)
        try:
            client.delete_consumer_group_offsets(options.group, codes)
        except AdminError as error:
            if not error.errors:
                raise
            codes.update({tp: each.code for tp, each in error.errors.items()})
    found = [
        {"topic": tp.topic, "partition": tp.partition, "status": code.name if code else "deleted"}
        for tp, code in sorted(codes.items())
    ]
    rows = [list(map(str, each.values())) for each in found]
    show(options, found, columns(["TOPIC", "PARTITION", "STATUS"], rows))
    for tp, code in sorted(codes.items()):
        if code != ErrorCode.NONE:
            raise KafkaError(code, f"{tp}: {code.sentence}")


# --- reset


def _reset(options: argparse.Namespace) -> None:
    with open_client(options) as client:
        state = _state(client, options.group)
        if state not in INACTIVE:
            message = f"group {options.group!r} is {state}: offsets can be reset only while a group has no members"
            raise KafkaError(ErrorCode.NON_EMPTY_GROUP, message)
        wanted = _wanted(client, options)
        _check_existence(client, wanted)
        first = _offsets(client, dict.fromkeys(wanted, OffsetSpec.EARLIEST))
        end = _offsets(client, dict.fromkeys(wanted, OffsetSpec.LATEST))
        offsets = {tp: min(max(offset, first[tp]), end[tp]) for tp, offset in sorted(wanted.items())}
        if options.export:
            print("\n".join(f"{tp.topic},{tp.partition},{offset}" for tp, offset in offsets.items()))
            return
        if options.execute and offsets:
            client.alter_consumer_group_offsets(options.group, offsets)
    found = [
        {"group": options.group, "topic": tp.topic, "partition": tp.partition, "new_offset": offset}
        for tp, offset in offsets.items()
    ]
    table = columns(["GROUP", "TOPIC", "PARTITION", "NEW-OFFSET"], [list(map(str, each.values())) for each in found])
    show(options, found, table if options.execute else f"{table}\n{DRY_RUN}")


def _state(client: AdminClient, group: str) -> str:
    """Dead if the group does not exist."""
    try:
        return client.describe_consumer_groups(group)[group].state
    except AdminError as error:
        if error.code is ErrorCode.GROUP_ID_NOT_FOUND:
            return DEAD
        raise


def _wanted(client: AdminClient, options: argparse.Namespace) -> Mapping[TopicPartition, int]:
    """The offset that the options ask for in each partition, not yet limited to its log. Raises KafkaError."""
    if options.from_file is not None:
        listed = _read_file(options.from_file)
        if not (options.topics or options.all_topics):
            return listed
        chosen = set(partitions_of(client, options.topics)) if options.topics else listed.keys()
        return {tp: offset for tp, offset in listed.items() if tp in chosen}
    if bool(options.topics) == options.all_topics:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "either --topic or --all-topics is required")
    committed = _committed(client, options.group)
    partitions = partitions_of(client, options.topics) if options.topics else list(committed)
    if options.shift_by is not None:
        for tp in partitions:
            if tp not in committed:
                raise KafkaError(ErrorCode.INVALID_REQUEST, f"{tp}: has no committed offset to shift")
        return {tp: committed[tp] + options.shift_by for tp in partitions}
    if options.to_offset is not None:
        return dict.fromkeys(partitions, options.to_offset)
    if options.to_current:
        ends = _offsets(client, dict.fromkeys([tp for tp in partitions if tp not in committed], OffsetSpec.LATEST))
        return {tp: committed.get(tp, ends.get(tp, 0)) for tp in partitions}
    since_ms = options.to_datetime
    if options.by_duration is not None:
        since_ms = max(int(time.time() * 1000) - options.by_duration, 0)
    if since_ms is not None:
        found = _offsets(client, dict.fromkeys(partitions, since_ms))
        late = _offsets(client, {tp: OffsetSpec.LATEST for tp, offset in found.items() if offset == NO_OFFSET})
        return {**found, **late}  # the log end offset where no record has this timestamp or a later one
    special = OffsetSpec.EARLIEST if options.to_earliest else OffsetSpec.LATEST
    return _offsets(client, dict.fromkeys(partitions, special))


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
    for number, row in enumerate(csv.reader(lines), start=1):
        if not row:
            continue
        if len(row) != 3 or not (row[1].strip().isdecimal() and row[2].strip().isdecimal()):
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"line {number}: must be topic,partition,offset")
        offsets[TopicPartition(row[0].strip(), int(row[1]))] = int(row[2])
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
