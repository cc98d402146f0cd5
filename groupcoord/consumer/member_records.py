"""The records of one member, and those that replace or delete it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from raylog.groupcoord.consumer import records
from raylog.groupcoord.consumer.draft import Draft
from raylog.groupcoord.consumer.group import Member
from raylog.groupcoord.consumer.heartbeat import Heartbeat
from raylog.groupcoord.consumer.records import (
    NO_PARTITIONS,
    ConsumerRecordDeleted,
    MemberAssigned,
    MemberState,
    MemberSubscribed,
    MemberTargeted,
)


def subscription_of(group_id: str, member: Member, request: Heartbeat | None = None) -> MemberSubscribed:
    """The record of the member's subscription, with what the heartbeat changes in it."""
    known = MemberSubscribed(
        group_id,
        member.member_id,
        member.instance_id,
        member.rack_id,
        member.client_id,
        member.client_host,
        member.topic_names,
        member.topic_regex,
        member.rebalance_timeout_ms,
        member.server_assignor,
        member.classic,
    )
    if request is None:
        return known
    return replace(
        known,
        instance_id=_either(request.instance_id, known.instance_id),
        rack_id=_either(request.rack_id, known.rack_id),
        client_id=request.client_id,
        client_host=request.client_host,
        topic_names=known.topic_names if request.topic_names is None else tuple(sorted(set(request.topic_names))),
        topic_regex=known.topic_regex if request.topic_regex is None else request.topic_regex or None,
        rebalance_timeout_ms=(
            known.rebalance_timeout_ms if request.rebalance_timeout_ms == -1 else request.rebalance_timeout_ms
        ),
        server_assignor=_either(request.server_assignor, known.server_assignor),
        classic=None,
    )


def _either(said: str | None, known: str | None) -> str | None:
    return known if said is None else said


def assignment_of(group_id: str, member: Member) -> MemberAssigned:
    return MemberAssigned(
        group_id,
        member.member_id,
        member.member_epoch,
        member.previous_epoch,
        member.state,
        member.assigned,
        member.revoking,
    )


def replace_static(draft: Draft, old: Member, member_id: str) -> None:
    """A new process takes over what a static member had."""
    group = draft.group
    target = group.target.get(old.member_id, NO_PARTITIONS)
    delete_member(draft, old.member_id)
    new = replace(
        old,
        member_id=member_id,
        member_epoch=0,
        previous_epoch=0,
        state=MemberState.STABLE,
        revoking=NO_PARTITIONS,
        classic=None,
    )
    draft.add(subscription_of(group.group_id, new))
    draft.add(MemberTargeted(group.group_id, member_id, target))
    draft.add(assignment_of(group.group_id, new))


def delete_member(draft: Draft, member_id: str) -> None:
    for kind in records.OF_MEMBER:
        draft.add(ConsumerRecordDeleted(draft.group.group_id, kind, member_id))


def drop_regexes(draft: Draft, used: Iterable[str]) -> None:
    for regex in sorted(draft.group.regexes.keys() - set(used)):
        draft.add(ConsumerRecordDeleted(draft.group.group_id, records.REGULAR_EXPRESSION, regex))
