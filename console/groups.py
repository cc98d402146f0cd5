"""(shell) Groups: list and describe them with their lag, reset their offsets, delete them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from typing import Any, Final

from raylog.client.admin.groups import GroupListing
from raylog.client.group_offsets import OffsetAndMetadata
from raylog.console import lag
from raylog.console.fields import Fields
from raylog.console.paging import Paging
from raylog.console.series import Series, pause_ms
from raylog.console.topic_rows import led
from raylog.console.visitor import DETAIL_SECONDS, Visitor, if_permitted, of_those_that_answer
from raylog.core.errors import ErrorCode, KafkaError
from raylog.core.ids import TopicPartition
from raylog.transport.system_time import now

SHIFT_MAX: Final = 1 << 53
ID_CHARACTERS_MAX: Final = 32_767


async def list_groups(visitor: Visitor, fields: Fields) -> Any:
    """A page of the groups; `lags`: with the lag of each. `spark`: only those that show the positions of queries."""
    listed = await of_those_that_answer(visitor.admin.list_consumer_groups(timeout=DETAIL_SECONDS))
    if fields.flag("spark"):
        listed = [each for each in listed if each.group_id.startswith(lag.SPARK_PREFIX)]
    page = Paging.of(fields, ("name", "state")).page(listed, _id, {"state": lambda each: each.state})
    found: dict[str, Mapping[TopicPartition, lag.Lag]] = {}
    if fields.flag("lags"):
        wanted = [each.group_id for each in page.items if each.type != "share"]
        committed = dict(
            zip(wanted, await asyncio.gather(*(_committed(visitor, name) for name in wanted)), strict=True)
        )
        ends = await _ends(visitor, {tp for offsets in committed.values() for tp in offsets or ()})
        found = {name: lag.lags(offsets, ends) for name, offsets in committed.items() if offsets is not None}

    def row(each: GroupListing) -> dict[str, Any]:
        own = found.get(each.group_id)
        return {
            "name": each.group_id,
            "state": each.state,
            "type": each.type or "classic",
            "protocol_type": each.protocol_type,
            "lag": None if own is None else lag.total(own),
            "topics": None if own is None else sorted({tp.topic for tp in own}),
        }

    return page.shown(row)


async def describe_group(visitor: Visitor, fields: Fields) -> Any:
    """A group, its members and partitions, and its lag over the time in which this session has looked at it."""
    began_ms = now().monotonic_ms
    name = _name(fields)
    group = (await visitor.admin.describe_consumer_groups(name))[name]
    committed = await visitor.admin.list_consumer_group_offsets(name)
    owned = {tp for member in group.members for tp in member.partitions}
    found = lag.lags(committed, await _ends(visitor, owned | committed.keys()), group.members)
    series = visitor.lags.get(name) or visitor.lags.put(name, Series())
    series.add(now().wall_ms, lag.total(found))
    took_ms = now().monotonic_ms - began_ms
    return {**lag.group_row(group, found), "points": series.shown(), "next_ms": pause_ms(took_ms)}


async def reset_offsets(visitor: Visitor, fields: Fields) -> Any:
    """Commit other offsets for a group without members, for its topics or for one; with `dry_run` only say which."""
    name = _name(fields)
    way = fields.choice("to", lag.WAYS)
    least = -SHIFT_MAX if way == lag.SHIFT else 0
    at = fields.number("at", least=least) if way in (lag.OFFSET, lag.TIME, lag.SHIFT) else 0
    committed = {tp: each.offset for tp, each in (await _committed_of(visitor, name)).items()}
    topic = fields.text("topic", "")
    if topic:
        described = await visitor.admin.describe_topics(topic)
        partitions = led(described.values())
    else:
        partitions = list(committed)
    if not partitions:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"group {name!r} has no committed offsets: name a topic")
    bounds = await visitor.bounds(sorted(partitions))
    if silent := sorted(set(partitions) - bounds.keys()):
        raise KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, f"{silent[0]}: its leader does not answer")
    at_time = {}
    if way == lag.TIME:
        found = await visitor.admin.list_offsets(dict.fromkeys(partitions, at))
        at_time = {tp: each.offset for tp, each in found.items() if each.offset >= 0}
    offsets = lag.new_offsets(way, at, bounds, committed, at_time)
    if not fields.flag("dry_run"):
        await visitor.admin.alter_consumer_group_offsets(name, offsets)
    return [
        {"topic": tp.topic, "partition": tp.partition, "before": committed.get(tp), "offset": offset}
        for tp, offset in offsets.items()
    ]


async def delete_group(visitor: Visitor, fields: Fields) -> Any:
    name = _name(fields)
    await visitor.admin.delete_consumer_groups(name)
    return {"name": name}


def _id(group: GroupListing) -> str:
    return group.group_id


def _name(fields: Fields) -> str:
    return fields.text("name", characters_max=ID_CHARACTERS_MAX)


async def _committed(visitor: Visitor, name: str) -> dict[TopicPartition, OffsetAndMetadata | None] | None:
    """None if it is not known."""
    return await if_permitted(visitor.admin.list_consumer_group_offsets(name, timeout=DETAIL_SECONDS))


async def _committed_of(visitor: Visitor, name: str) -> dict[TopicPartition, OffsetAndMetadata]:
    found = await visitor.admin.list_consumer_group_offsets(name)
    return {tp: each for tp, each in found.items() if each is not None}


async def _ends(visitor: Visitor, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
    """Of those that have a leader, and that the identity may see."""
    known = led((await visitor.topics()).values())
    return await visitor.ends(set(partitions).intersection(known))
