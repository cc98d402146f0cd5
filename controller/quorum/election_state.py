"""The durable state of a voter: its epoch, its vote in that epoch, and the leader. Kafka's `quorum-state` file.

A voter that kept it in memory only could vote twice in one epoch, so it is saved before any message depends on it.
"""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass
from uuid import UUID

from raylog.core.ids import NO_BROKER_ID, NO_DIRECTORY_ID, BrokerId, LeaderEpoch

QUORUM_STATE_FILE = "quorum-state"
_VERSION = 1
_INT32_MAX = (1 << 31) - 1
_NO_DIRECTORY = "A" * 22
"""Zero, in base64."""


@dataclass(frozen=True, slots=True)
class ElectionState:
    """Ids are NO_BROKER_ID if no leader is known or no vote was granted."""

    leader_epoch: LeaderEpoch = LeaderEpoch(0)
    leader_id: BrokerId = NO_BROKER_ID
    voted_for: BrokerId = NO_BROKER_ID
    voted_directory: UUID = NO_DIRECTORY_ID
    """The log directory of the candidate that the vote was granted to; zero if it is not known."""

    def may_vote_for(self, candidate: BrokerId, directory_id: UUID) -> bool:
        """Whether the vote of this epoch is free, or was granted to this candidate."""
        if self.voted_for == NO_BROKER_ID:
            return True
        return self.voted_for == candidate and self.voted_directory in (directory_id, NO_DIRECTORY_ID)

    def encode(self) -> bytes:
        """Kafka's format since KIP-853."""
        fields = {
            "leaderId": self.leader_id,
            "leaderEpoch": self.leader_epoch,
            "votedId": self.voted_for,
            "votedDirectoryId": base64.urlsafe_b64encode(self.voted_directory.bytes).decode().rstrip("="),
            "data_version": _VERSION,
        }
        return json.dumps(fields).encode()

    @classmethod
    def decode(cls, data: bytes) -> ElectionState:
        """Raises ValueError for anything that `encode` does not write."""
        try:
            fields = json.loads(data)
            version, *numbers = (fields[name] for name in ("data_version", "leaderEpoch", "leaderId", "votedId"))
            directory = fields.get("votedDirectoryId", _NO_DIRECTORY)
            voted_directory = UUID(bytes=base64.urlsafe_b64decode(f"{directory}=="))
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise ValueError(f"not a quorum-state file: {data[:80]!r}") from error
        if version != _VERSION:
            raise ValueError(f"data_version={version}: must be {_VERSION}")
        if not all(type(number) is int and NO_BROKER_ID <= number <= _INT32_MAX for number in numbers):
            raise ValueError(f"epoch, leader and vote must be integers of 32 bits: {data[:80]!r}")
        epoch, leader_id, voted_for = numbers
        if epoch < 0:
            raise ValueError(f"epoch {epoch} is negative")
        return cls(LeaderEpoch(epoch), BrokerId(leader_id), BrokerId(voted_for), voted_directory)
