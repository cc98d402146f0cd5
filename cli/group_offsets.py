"""What the commands for groups have in common: the group, where it stands, and the partitions of their arguments."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import NamedTuple

from raylog.cli.arguments import topic_and_partitions
from raylog.client.admin.admin_client import AdminClient
from raylog.client.admin.groups import SHARE, GroupDescription
from raylog.client.errors import AdminError
from raylog.core.errors import ErrorCode
from raylog.core.ids import TopicPartition


class GroupOffset(NamedTuple):
    """Where a group stands in a partition: its committed offset, or the start offset of a share group."""

    offset: int
    lag: int | None
    """In records, if the broker says so."""


def add_topics(parser: argparse.ArgumentParser, *, required: bool) -> None:
    """`--topic`, for `partitions_of`."""
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


def group_named(client: AdminClient, name: str) -> GroupDescription | None:
    """A group of any type; None if there is none of this name."""
    for describe in (client.describe_consumer_groups, client.describe_share_groups, client.describe_streams_groups):
        try:
            return describe(name)[name]
        except AdminError as error:
            if error.code not in (ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNSUPPORTED_VERSION):
                raise
    return None


def current_offsets(
    client: AdminClient, group: GroupDescription | None, name: str
) -> dict[TopicPartition, GroupOffset]:
    """Of the partitions in which the group stands somewhere. Without members and offsets a group does not exist."""
    if group is not None and group.type == SHARE:
        shared = client.list_share_group_offsets(name)
        return {tp: GroupOffset(each.start_offset, each.lag) for tp, each in shared.items() if each is not None}
    found = client.list_consumer_group_offsets(name)
    return {tp: GroupOffset(each.offset, None) for tp, each in found.items() if each is not None}


def offsets_at(client: AdminClient, timestamps: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
    """Those of a timestamp, or of an OffsetSpec."""
    return {tp: found.offset for tp, found in client.list_offsets(timestamps).items()}
