"""What a voter is told, and what it wants done about it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from raylog.controller.quorum.election_state import ElectionState
from raylog.core.ids import BrokerId, LeaderEpoch, Offset


class LogEnd(NamedTuple):
    """Where a log ends: compared like this, the greater one has all that a majority may have committed (Raft 5.4.1)."""

    last_epoch: LeaderEpoch
    """Of its last record; 0 in an empty log."""
    end_offset: Offset


# --- events


@dataclass(frozen=True, slots=True)
class Ticked:
    """Time has passed."""


@dataclass(frozen=True, slots=True)
class VoteRequested:
    """A candidate asks for this voter's vote in `leader_epoch`; before an election, whether it would have it at all."""

    candidate: BrokerId
    leader_epoch: LeaderEpoch
    log_end: LogEnd
    """Of the candidate."""
    pre_vote: bool


@dataclass(frozen=True, slots=True)
class VoteAnswered:
    """What a voter has made of this one's request for its vote in `asked_epoch`, and whom it knows as leader."""

    voter: BrokerId
    asked_epoch: LeaderEpoch
    pre_vote: bool
    granted: bool
    leader_epoch: LeaderEpoch
    leader_id: BrokerId


@dataclass(frozen=True, slots=True)
class LeaderHeard:
    """The leader of `leader_epoch` has spoken: it began its epoch, or answered a fetch."""

    leader_id: BrokerId
    leader_epoch: LeaderEpoch


@dataclass(frozen=True, slots=True)
class EpochSeen:
    """Someone is in `leader_epoch`, and knows of this leader there, or of none."""

    leader_epoch: LeaderEpoch
    leader_id: BrokerId


@dataclass(frozen=True, slots=True)
class PeerLost:
    """A connection to this voter broke, or could not be made: its process may have ended."""

    voter: BrokerId


@dataclass(frozen=True, slots=True)
class VoterFetched:
    """To the leader: this voter has everything before `end_offset` on its disk, and agrees with the log up to there."""

    voter: BrokerId
    end_offset: Offset


@dataclass(frozen=True, slots=True)
class Flushed:
    """To the leader: its own log is on disk up to its end."""


Event: TypeAlias = Ticked | VoteRequested | VoteAnswered | LeaderHeard | EpochSeen | PeerLost | VoterFetched | Flushed

# --- effects


@dataclass(frozen=True, slots=True)
class RequestVote:
    """Ask `voter` for its vote, for a log that ends at `log_end`."""

    voter: BrokerId
    leader_epoch: LeaderEpoch
    log_end: LogEnd
    pre_vote: bool


@dataclass(frozen=True, slots=True)
class BeginEpoch:
    """Tell `voter` that this one leads."""

    voter: BrokerId
    leader_epoch: LeaderEpoch


Message: TypeAlias = RequestVote | BeginEpoch


@dataclass(frozen=True, slots=True)
class Ready:
    """What an event has led to, to be done in this order: save, send; then look at the role and the high watermark."""

    save: ElectionState | None = None
    """To be on disk before a message is sent, or the event answered."""
    send: tuple[Message, ...] = ()
    granted: bool = False
    """To a VoteRequested: whether the vote is given."""
