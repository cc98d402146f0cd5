"""One step of a member of a streams group towards its target assignment.

A member first revokes what it is not to keep, in its old epoch. Then it gets the epoch of the target assignment, and
each task of it as soon as it is free: an active task once no member has it, so that it has one owner at any time; and
any task once no other member of the same process has it, since the members of a process share its state directory.
Source: KIP-1071, "Task reconciliation"; for what it leaves open, the behaviour of Apache Kafka 4.2.
"""

from __future__ import annotations

from dataclasses import replace

from raylog.groupcoord.streams.group import StreamsGroup, StreamsMember
from raylog.groupcoord.streams.records import MemberState
from raylog.groupcoord.streams.tasks import NO_TASKS, TaskId, Tasks


def reconciled(
    group: StreamsGroup, member: StreamsMember, target: Tasks, *, epoch: int, owned: Tasks | None
) -> StreamsMember:
    """The member after the step; `member` itself if there is nothing to do.

    `target` is the member's target assignment of this `epoch`; `owned` is what the member says that it owns, None if
    it did not say, so that nothing counts as revoked.
    """
    if member.state is MemberState.STABLE and member.member_epoch == epoch:
        return member
    old_epoch = member.member_epoch
    if member.state is MemberState.UNREVOKED_TASKS:
        if _holds(owned, member.revoking):
            return member
        old_epoch += 1
    kept = member.assigned & target
    revoking = member.assigned - kept
    if revoking and _holds(owned, revoking):
        return _with(member, old_epoch, MemberState.UNREVOKED_TASKS, kept, revoking, epoch)
    wanted = target - kept
    free = Tasks(
        frozenset(task for task in wanted.active if _is_free(group, member, task, is_active=True)),
        frozenset(task for task in wanted.standby if _is_free(group, member, task, is_active=False)),
        frozenset(task for task in wanted.warmup if _is_free(group, member, task, is_active=False)),
    )
    state = MemberState.STABLE if free == wanted else MemberState.UNRELEASED_TASKS
    return _with(member, epoch, state, kept | free, NO_TASKS, epoch)


def _is_free(group: StreamsGroup, member: StreamsMember, task: TaskId, *, is_active: bool) -> bool:
    process = group.active_process(task)
    if process is not None and (is_active or process == member.process_id):
        return False
    return member.process_id not in group.passive_processes(task)


def _holds(owned: Tasks | None, tasks: Tasks) -> bool:
    """Whether the member may still own some of these tasks."""
    return owned is None or bool(owned & tasks)


def _with(
    member: StreamsMember, member_epoch: int, state: MemberState, assigned: Tasks, revoking: Tasks, target_epoch: int
) -> StreamsMember:
    active = assigned.active | revoking.active
    return replace(
        member,
        member_epoch=member_epoch,
        previous_epoch=member.member_epoch,
        state=state,
        assigned=assigned,
        revoking=revoking,
        epochs={task: member.epochs.get(task, target_epoch) for task in active},
    )
