"""The voters of a cluster: their ids, which differ from those of brokers as in Kafka, and their names as peers."""

from __future__ import annotations

from raylog.core.ids import BrokerId

FIRST_VOTER_ID = BrokerId(1000)
VOTER_COUNTS = (1, 3, 5)
"""An even number would need as many for a majority as the next odd one."""
_PREFIX = "controller-"


def voter_ids(count: int) -> tuple[BrokerId, ...]:
    return tuple(BrokerId(FIRST_VOTER_ID + number) for number in range(count))


def voter_name(voter: BrokerId) -> str:
    """Of a voter, for those who link to it."""
    return f"{_PREFIX}{voter}"


def voter_named(peer: str) -> BrokerId | None:
    """The voter of this name, or None for another peer."""
    return BrokerId(int(peer.removeprefix(_PREFIX))) if peer.startswith(_PREFIX) else None
