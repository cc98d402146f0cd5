"""The voters of the controller quorum: their ids, distinct from those of brokers, their peer names, and sets of them.

A voter is identified by its id and the id of its log directory, its voter key (KIP-853): a controller that has lost its
disk comes back with another directory id, and is another voter. While `kraft.version` is 0 the directory ids of a set
are not known, and zero stands for any of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from uuid import UUID

from raylog.core.ids import NO_DIRECTORY_ID, BrokerId

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


@dataclass(frozen=True, slots=True)
class QuorumVoter:
    """One voter of a set."""

    voter_id: BrokerId
    directory_id: UUID = NO_DIRECTORY_ID
    """Zero: any, as long as `kraft.version` is 0."""
    endpoints: tuple[tuple[str, str, int], ...] = ()
    """(listener name, host, port) of its listeners, for clients: nodes find each other by their names."""

    def __str__(self) -> str:
        return f"{self.voter_id} with directory id {self.directory_id}"

    def matches(self, voter_id: BrokerId, directory_id: UUID) -> bool:
        """Whether this is its key."""
        return self.voter_id == voter_id and self.directory_id in (directory_id, NO_DIRECTORY_ID)


class VoterSet:
    """The voters at one point of the metadata log. Immutable."""

    __slots__ = ("_by_id",)

    def __init__(self, voters: Iterable[QuorumVoter] = ()) -> None:
        self._by_id = {each.voter_id: each for each in sorted(voters, key=lambda each: each.voter_id)}

    @classmethod
    def of_ids(cls, ids: Iterable[BrokerId]) -> VoterSet:
        """A set that does not know the directory ids of its voters."""
        return cls(map(QuorumVoter, ids))

    def __iter__(self) -> Iterator[QuorumVoter]:
        return iter(self._by_id.values())

    def __len__(self) -> int:
        return len(self._by_id)

    def __contains__(self, voter_id: object) -> bool:
        return voter_id in self._by_id

    def __eq__(self, other: object) -> bool:
        return isinstance(other, VoterSet) and self._by_id == other._by_id

    def __hash__(self) -> int:
        return hash(tuple(self))

    def __str__(self) -> str:
        return f"[{', '.join(map(str, self._by_id))}]"

    @property
    def ids(self) -> tuple[BrokerId, ...]:
        return tuple(self._by_id)

    def get(self, voter_id: BrokerId) -> QuorumVoter | None:
        return self._by_id.get(voter_id)

    def has(self, voter_id: BrokerId, directory_id: UUID) -> bool:
        """Whether the node with this id and this log directory is a voter."""
        voter = self._by_id.get(voter_id)
        return voter is not None and voter.matches(voter_id, directory_id)

    def with_voter(self, voter: QuorumVoter) -> VoterSet:
        """The set with this voter, in place of one with its id."""
        return VoterSet({**self._by_id, voter.voter_id: voter}.values())

    def without(self, voter_id: BrokerId) -> VoterSet:
        return VoterSet(each for each in self if each.voter_id != voter_id)
