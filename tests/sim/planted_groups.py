"""Mistakes in groups whose coordinator assigns, of all kinds, that their simulations must find."""

from __future__ import annotations

from typing import Any, Final

from raylog.broker.share import share_partition
from raylog.broker.share.share_partition import SharePartition
from raylog.groupcoord.consumer import groups
from raylog.groupcoord.streams import reconciliation
from raylog.protocol.share import AcknowledgeType
from tests.sim.planting import Planted, Replacement


def _releases_for_all() -> list[Replacement]:
    def release(self: Any, member_id: str, *, orderly: bool) -> Any:
        limits = self._limits()
        decide = lambda run: share_partition._decision(AcknowledgeType.RELEASE, run, limits)  # noqa: E731
        return self._end_acquisitions(lambda run: True, decide)

    return [(SharePartition, "release", release)]


def _release_is_final() -> list[Replacement]:
    right = share_partition._decision

    def decision(kind: AcknowledgeType, run: Any, limits: Any) -> Any:
        return right(AcknowledgeType.ACCEPT if kind is AcknowledgeType.RELEASE else kind, run, limits)

    return [(share_partition, "_decision", decision)]


def _no_owners() -> list[Replacement]:
    right = vars(groups)["reconciled"]

    def reconciled(member: Any, target: Any, **named: Any) -> Any:
        return right(member, target, **{**named, "owners": {}})

    return [(groups, "reconciled", reconciled)]


def _no_task_owners() -> list[Replacement]:
    return [(reconciliation, "_is_free", lambda *_, **__: True)]


SHARE_FAULTS: Final = (
    Planted(
        "released-for-all",
        "When the session of one member ends, the records of all members are released.",
        _releases_for_all,
        2,
        "has acquired what",
    ),
    Planted(
        "release-is-final",
        "A record that is released, or whose lock times out, is not delivered again.",
        _release_is_final,
        0,
        "and never accepted",
    ),
)
CONSUMER_FAULTS: Final = (
    Planted(
        "owners-ignored",
        "A member gets a partition before its former owner has revoked it.",
        _no_owners,
        0,
        "is owned by",
    ),
)
STREAMS_FAULTS: Final = (
    Planted(
        "task-owners-ignored",
        "A member gets a task before its former owner has revoked it.",
        _no_task_owners,
        0,
        "is owned by",
    ),
)
