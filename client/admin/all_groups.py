"""Groups of all types, for a caller that need not know the type: what they are, and where they stand. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from raylog.client.admin.calls import Results, Steps, distinct, named, several
from raylog.client.admin.groups import (
    SHARE,
    GroupDescription,
    describe_consumer_groups,
    list_consumer_group_offsets,
)
from raylog.client.admin.share_groups import describe_share_groups, list_share_group_offsets
from raylog.client.admin.streams_groups import describe_streams_groups
from raylog.client.errors import AdminError
from raylog.core.errors import ErrorCode, KafkaError
from raylog.core.ids import TopicPartition

OTHER_TYPE: Final = frozenset({ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNSUPPORTED_VERSION})
"""Answers for a group that may be of another type."""


class GroupOffset(NamedTuple):
    """Where a group stands in a partition: its committed offset, or the start offset of a share group."""

    offset: int
    lag: int | None
    """In records, if the broker says so: of share groups, whose records are not done in order."""


def describe_groups(
    group_ids: Iterable[str] | str, *, timeout: float | None = None
) -> Steps[dict[str, GroupDescription]]:
    """State and members of each group, of whatever type. One that does not exist fails with GROUP_ID_NOT_FOUND."""
    wanted = left = distinct(several(group_ids), named("group"))
    found: dict[str, GroupDescription] = {}
    failed: dict[str, KafkaError] = {}
    for describe in (describe_consumer_groups, describe_share_groups, describe_streams_groups):
        try:
            found |= yield from describe(left)
            break
        except AdminError as error:
            found |= error.results
            failed = {**error.errors, **failed}
            left = [each for each, reason in error.errors.items() if reason.code in OTHER_TYPE]
        if not left:
            break
    errors = {each: error for each, error in failed.items() if each not in found}
    return Results({each: found[each] for each in wanted if each in found}, errors).checked()


def list_group_offsets(
    group_id: str, group_type: str, *, timeout: float | None = None
) -> Steps[dict[TopicPartition, GroupOffset]]:
    """Of the partitions in which the group stands somewhere."""
    if group_type == SHARE:
        shared = yield from list_share_group_offsets(group_id)
        return {tp: GroupOffset(each.start_offset, each.lag) for tp, each in shared.items() if each is not None}
    found = yield from list_consumer_group_offsets(group_id)
    return {tp: GroupOffset(each.offset, None) for tp, each in found.items() if each is not None}
