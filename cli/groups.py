"""`raylog groups`: list, describe and delete groups, and reset or delete their offsets.

It does for groups of all types what kafka-groups, kafka-consumer-groups, kafka-share-groups and kafka-streams-groups
do.

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

Members of streams groups (type streams) have "tasks" and "target_tasks" as well, by kind:
{"active": ["0_1"], "standby": [], "warmup": []}. Their partitions are those that their active tasks read.

The offset of a share group (type share) is its start offset: the first record that is not done. Its partitions
belong to no member alone. Its lag counts the records from there on that are not done; a broker without version 1 of
DescribeShareGroupOffsets does not know it, and then all of them.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable, Sequence, Set
from typing import Any

from raylog.cli.arguments import (
    Subparsers,
    add_bootstrap_server,
    open_client,
    partitions_of,
)
from raylog.cli.columns import columns
from raylog.cli.group_offsets import add_topics, group_named, offsets_at
from raylog.cli.output import add_json, progress, show
from raylog.cli.reset_offsets import add_reset_to
from raylog.cli.values import printable
from raylog.client.admin.admin_client import AdminClient
from raylog.client.admin.all_groups import GroupOffset
from raylog.client.admin.groups import CLASSIC, CONSUMER, SHARE, STREAMS
from raylog.client.admin.partitions import OffsetSpec
from raylog.client.errors import AdminError
from raylog.core.errors import ErrorCode, KafkaError
from raylog.core.ids import TopicPartition

UNKNOWN = "-"
TYPES = (CLASSIC, CONSUMER, SHARE, STREAMS)


def add_to(subparsers: Subparsers) -> None:
    parser = subparsers.add_parser(
        "groups", help="list, describe and delete groups of all types, and reset their offsets"
    )
    actions = parser.add_subparsers(title="actions", metavar="ACTION", required=True)

    listing = actions.add_parser("list", help="print the names of all groups")
    listing.add_argument("--state", action="store_true", help="also print the state of each group")
    listing.add_argument("--verbose", action="store_true", help="print type, protocol and state of each group")
    listing.add_argument(
        "--type",
        choices=TYPES,
        action="append",
        default=[],
        dest="types",
        help="only groups of this type; can be repeated",
    )
    add_json(listing)
    listing.set_defaults(run=_list)

    describe = actions.add_parser("describe", help="print members, offsets and lag")
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

    reset = add_reset_to(actions)

    forget = actions.add_parser("delete-offsets", help="delete the offsets of a group for some topics")
    forget.add_argument("group", metavar="GROUP")
    add_topics(forget, required=True)
    add_json(forget)
    forget.set_defaults(run=_delete_offsets)

    for action in (listing, describe, delete, reset, forget):
        add_bootstrap_server(action)


def _list(options: argparse.Namespace) -> None:
    with open_client(options) as client:
        found = client.list_groups(types=options.types)
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
        text = "\n".join(printable(each.group_id) for each in found)
    show(options, listed, text)


# --- describe


def _describe(options: argparse.Namespace) -> None:
    with open_client(options) as client:
        names = options.groups or [group.group_id for group in client.list_groups()]
        led = _led_partitions(client)
        described = []
        for name in names:
            try:
                described.append(_description(client, name, led))
            except KafkaError as error:
                if options.groups or error.code is not ErrorCode.GROUP_ID_NOT_FOUND:
                    raise  # else it was deleted after it was listed
    if options.json:
        print(json.dumps(described))
    elif options.state:
        print(_states(described, verbose=options.verbose))
    elif options.members:
        print(_members(described, verbose=options.verbose))
    else:
        print("\n\n".join(_table(group) for group in described))


def _description(client: AdminClient, name: str, led: Set[TopicPartition]) -> dict[str, Any]:
    group = group_named(client, name)
    if group is None:
        raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"group {name!r} does not exist")
    owners = {tp: member.member_id for member in group.members for tp in member.partitions}
    current = client.list_group_offsets(name, group.type)
    shown = owners.keys() | current.keys()
    if group.type == SHARE:
        owners = {}
    ends = offsets_at(client, dict.fromkeys(led & shown, OffsetSpec.LATEST))
    if group.type == STREAMS:  # a task reads only topics that have its partition
        shown = current.keys() | ends.keys()
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
                **({} if member.tasks is None else {"tasks": member.tasks, "target_tasks": member.target_tasks}),
            }
            for member in group.members
        ],
        "partitions": [_partition(tp, current.get(tp), ends.get(tp), owners.get(tp)) for tp in sorted(shown)],
    }


def _shown(partitions: Iterable[TopicPartition]) -> list[dict[str, Any]]:
    return [{"topic": tp.topic, "partition": tp.partition} for tp in partitions]


def _partition(
    tp: TopicPartition, current: GroupOffset | None, log_end_offset: int | None, member_id: str | None
) -> dict[str, Any]:
    offset, lag = current or (None, None)
    if lag is None and offset is not None and log_end_offset is not None:
        lag = log_end_offset - offset
    return {
        "topic": tp.topic,
        "partition": tp.partition,
        "current_offset": offset,
        "log_end_offset": log_end_offset,
        "lag": lag,
        "member_id": member_id,
    }


def _led_partitions(client: AdminClient) -> set[TopicPartition]:
    """Those that have a leader, and so a log end offset."""
    return {
        TopicPartition(name, each.partition)
        for name, topic in client.describe_topics().items()
        for each in topic.partitions
        if each.leader is not None
    }


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
                row += [each["epoch"], _assigned(each, "")]
                row += [group["target_assignment_epoch"], _assigned(each, "target_"), upgraded]
            rows.append(row)
    return columns(titles, _cells(rows)) if rows else "No members."


def _assigned(member: dict[str, Any], which: str) -> str | None:
    """The tasks of a member of a streams group, or the partitions of another one."""
    tasks = member.get(f"{which}tasks")
    if tasks is None:
        return _by_topic(member[f"{which}partitions"])
    return ";".join(f"{kind}:{','.join(names)}" for kind, names in tasks.items() if names) or None


def _by_topic(partitions: Iterable[dict[str, Any]]) -> str | None:
    """As kafka-consumer-groups shows an assignment: topic:0,1;other:2."""
    numbers: dict[str, list[str]] = {}
    for each in partitions:
        numbers.setdefault(each["topic"], []).append(str(each["partition"]))
    return ";".join(f"{topic}:{','.join(numbers[topic])}" for topic in sorted(numbers)) or None


def _cells(rows: Iterable[Iterable[Any]]) -> list[list[str]]:
    return [[UNKNOWN if cell in (None, "") else str(cell) for cell in row] for row in rows]


def _table(group: dict[str, Any]) -> str:
    head = f"group {printable(group['group'])} ({group['state']}, {len(group['members'])} members)"
    if group["type"] == SHARE:
        return f"{head}\n{_start_offsets(group['partitions'])}"
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


def _start_offsets(partitions: Sequence[dict[str, Any]]) -> str:
    """Of a share group, whose members are shown by --members."""
    if not partitions:
        return "no start offsets"
    names = ("topic", "partition", "current_offset", "log_end_offset", "lag")
    rows = [[each[name] for name in names] for each in partitions]
    return columns(["TOPIC", "PARTITION", "START-OFFSET", "LOG-END-OFFSET", "LAG"], _cells(rows))


# --- delete


def _delete(options: argparse.Namespace) -> None:
    with open_client(options) as client:
        for name in options.groups:
            client.delete_consumer_groups(name)
            progress(options)(f"Deleted group {name}.")
    show(options, {"deleted": options.groups}, "")


def _delete_offsets(options: argparse.Namespace) -> None:
    with open_client(options) as client:
        group = group_named(client, options.group)
        if group is not None and group.type == SHARE:
            _delete_start_offsets(client, options)
            return
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


def _delete_start_offsets(client: AdminClient, options: argparse.Namespace) -> None:
    """Those of a share group, for whole topics."""
    topics = [topic for topic, _ in options.topics]
    if any(numbers is not None for _, numbers in options.topics):
        text = f"{options.group!r} is a share group: its offsets can be deleted for whole topics only"
        raise KafkaError(ErrorCode.INVALID_REQUEST, text)
    client.delete_share_group_offsets(options.group, topics)
    rows = [[topic, "deleted"] for topic in topics]
    found = [{"topic": topic, "partition": None, "status": status} for topic, status in rows]
    show(options, found, columns(["TOPIC", "STATUS"], rows))
