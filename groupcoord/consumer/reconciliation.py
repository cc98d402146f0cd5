"""One step of a member towards its target assignment.

A member first revokes what it is not to keep, in its old epoch. Then it gets the epoch of the target assignment, and
each partition of it as soon as the previous owner has revoked it. So a partition has one owner at any time.
Source: KIP-848, "Member Assignment (Reconciliation)".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from raylog.groupcoord.consumer.group import Member
from raylog.groupcoord.consumer.records import (
    NO_PARTITIONS,
    MemberState,
    Partitions,
    TopicIdPartition,
)


def reconciled(
    member: Member,
    target: Partitions,
    *,
    assignment_epoch: int,
    owners: Mapping[TopicIdPartition, str],
    owned: Partitions | None,
) -> Member:
    """The member after the step; `member` itself if there is nothing to do.

    `owned` is what it says that it owns; None if it did not say, so that nothing counts as revoked.
    """
    if member.state is MemberState.STABLE and member.member_epoch == assignment_epoch:
        return member
    if member.state is MemberState.UNREVOKED_PARTITIONS and _holds(owned, member.revoking):
        return member
    kept = member.assigned & target
    revoking = member.assigned - kept
    if revoking and _holds(owned, revoking):
        return _with(member, member.member_epoch, MemberState.UNREVOKED_PARTITIONS, kept, revoking)
    wanted = target - kept
    free = frozenset(partition for partition in wanted if partition not in owners)
    state = MemberState.STABLE if free == wanted else MemberState.UNRELEASED_PARTITIONS
    return _with(member, assignment_epoch, state, kept | free, NO_PARTITIONS)


def _holds(owned: Partitions | None, partitions: Partitions) -> bool:
    """Whether the member may still own some of these partitions."""
    return owned is None or not owned.isdisjoint(partitions)


def _with(member: Member, epoch: int, state: MemberState, assigned: Partitions, revoking: Partitions) -> Member:
    return replace(
        member,
        member_epoch=epoch,
        previous_epoch=member.member_epoch,
        state=state,
        assigned=assigned,
        revoking=revoking,
    )
