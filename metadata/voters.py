"""The voters of the controller quorum: their ids, distinct from those of brokers, and their peer names."""

from __future__ import annotations

from raylog.core.ids import BrokerId

FIRST_VOTER_ID = BrokerId(1000)
VOTER_COUNTS = (1, 3, 5)
"""An even number of voters tolerates no more failures than the odd number below it."""
_PREFIX = "controller-"


def voter_ids(count: int) -> tuple[BrokerId, ...]:
    return tuple(BrokerId(FIRST_VOTER_ID + number) for number in range(count))


def voter_name(voter: BrokerId) -> str:
    """The name by which other nodes connect to the voter."""
    return f"{_PREFIX}{voter}"


def voter_named(peer: str) -> BrokerId | None:
    """The voter with this peer name; None if it is another kind of node."""
    return BrokerId(int(peer.removeprefix(_PREFIX))) if peer.startswith(_PREFIX) else None
