"""What the commands for groups have in common: the group, where it stands, and the partitions of their arguments."""

from __future__ import annotations

import argparse
from collections.abc import Mapping

from raylog.cli.arguments import topic_and_partitions
from raylog.client.admin.admin_client import AdminClient
from raylog.client.admin.groups import GroupDescription
from raylog.client.errors import AdminError
from raylog.core.errors import ErrorCode
from raylog.core.ids import TopicPartition


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
    try:
        return client.describe_groups(name)[name]
    except AdminError as error:
        if error.code is not ErrorCode.GROUP_ID_NOT_FOUND:
            raise
    return None


def offsets_at(client: AdminClient, timestamps: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
    """Those of a timestamp, or of an OffsetSpec."""
    return {tp: found.offset for tp, found in client.list_offsets(timestamps).items()}
