"""(shell) Groups: list and describe them with their lag, reset their offsets, delete them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from typing import Any, Final

from raylog.client.admin.all_groups import GroupOffset
from raylog.client.admin.groups import SHARE, STREAMS, GroupListing
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
    listed = await of_those_that_answer(visitor.admin.list_groups(timeout=DETAIL_SECONDS))
    if fields.flag("spark"):
        listed = [each for each in listed if each.group_id.startswith(lag.SPARK_PREFIX)]
    page = Paging.of(fields, ("name", "state")).page(listed, _id, {"state": lambda each: each.state})
    found: dict[str, Mapping[TopicPartition, lag.Lag]] = {}
    if fields.flag("lags"):
        known = await asyncio.gather(*(_offsets(visitor, each) for each in page.items))
        offsets = {each.group_id: own for each, own in zip(page.items, known, strict=True) if own is not None}
        ends = await _ends(visitor, {tp for own in offsets.values() for tp in own})
        found = {name: lag.lags(own, ends) for name, own in offsets.items()}

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
    group = (await visitor.admin.describe_groups(name))[name]
    offsets = await visitor.admin.list_group_offsets(name, group.type)
    owned = {tp for member in group.members for tp in member.partitions}
    ends = await _ends(visitor, owned | offsets.keys())
    if group.type == STREAMS:  # a task reads only those of its topics that have its partition
        owned &= ends.keys()
    found = lag.lags(offsets, ends, owned)
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
    group = (await visitor.admin.describe_groups(name))[name]
    committed = {tp: each.offset for tp, each in (await visitor.admin.list_group_offsets(name, group.type)).items()}
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
        if group.type == SHARE:
            await visitor.admin.alter_share_group_offsets(name, offsets)
        else:
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


async def _offsets(visitor: Visitor, group: GroupListing) -> dict[TopicPartition, GroupOffset] | None:
    """None if they are not known."""
    return await if_permitted(visitor.admin.list_group_offsets(group.group_id, group.type, timeout=DETAIL_SECONDS))


async def _ends(visitor: Visitor, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
    """Of those that have a leader, and that the identity may see."""
    known = led((await visitor.topics()).values())
    return await visitor.ends(set(partitions).intersection(known))
