"""The events that a quorum voter processes, and the effects that it returns."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias
from uuid import UUID

from raylog.controller.quorum.election_state import ElectionState
from raylog.core.ids import NO_DIRECTORY_ID, BrokerId, LeaderEpoch, Offset
from raylog.metadata.voters import VoterSet


class LogEnd(NamedTuple):
    """The end of a log. In this order the greater log holds all committed records that the other holds (Raft 5.4.1)."""

    last_epoch: LeaderEpoch
    """The leader epoch of the last record; 0 for an empty log."""
    end_offset: Offset


# --- events


@dataclass(frozen=True, slots=True)
class Ticked:
    """Time has passed."""


@dataclass(frozen=True, slots=True)
class VoteRequested:
    """A candidate requests this voter's vote in `leader_epoch`; with `pre_vote`, asks whether it would be granted."""

    candidate: BrokerId
    leader_epoch: LeaderEpoch
    log_end: LogEnd
    """The end of the candidate's log."""
    pre_vote: bool
    directory_id: UUID = NO_DIRECTORY_ID
    """That of the candidate."""


@dataclass(frozen=True, slots=True)
class VoteAnswered:
    """A voter's response to a vote request for `asked_epoch`, with the leader and epoch that it knows."""

    voter: BrokerId
    asked_epoch: LeaderEpoch
    pre_vote: bool
    granted: bool
    leader_epoch: LeaderEpoch
    leader_id: BrokerId


@dataclass(frozen=True, slots=True)
class LeaderSeen:
    """A message from the leader of `leader_epoch`: BeginQuorumEpoch or a fetch response."""

    leader_id: BrokerId
    leader_epoch: LeaderEpoch


@dataclass(frozen=True, slots=True)
class EpochSeen:
    """Another voter is in `leader_epoch`; the leader that it knows there, or NO_BROKER_ID."""

    leader_epoch: LeaderEpoch
    leader_id: BrokerId


@dataclass(frozen=True, slots=True)
class PeerLost:
    """A connection to this voter broke or could not be established: its process may have ended."""

    voter: BrokerId


@dataclass(frozen=True, slots=True)
class VoterFetched:
    """On the leader: this voter has all records before `end_offset` on disk, and its log matches up to there."""

    voter: BrokerId
    end_offset: Offset
    directory_id: UUID = NO_DIRECTORY_ID


@dataclass(frozen=True, slots=True)
class Flushed:
    """On the leader: its own log is on disk up to its end."""


@dataclass(frozen=True, slots=True)
class VotersReplaced:
    """The newest VotersChanged of this voter's log is another one now: it was appended, or others were truncated.

    It applies at once, committed or not (Raft 4.1).
    """

    voters: VoterSet
    offset: Offset
    """That of the record; -1 if the log has none, and the voters are those of the configuration."""
    before: VoterSet = field(default_factory=VoterSet)
    """The voters before it, if the log still has them."""


Event: TypeAlias = (
    Ticked | VoteRequested | VoteAnswered | LeaderSeen | EpochSeen | PeerLost | VoterFetched | Flushed | VotersReplaced
)

# --- effects


@dataclass(frozen=True, slots=True)
class RequestVote:
    """Request the vote of `voter`, for a candidate whose log ends at `log_end`."""

    voter: BrokerId
    leader_epoch: LeaderEpoch
    log_end: LogEnd
    pre_vote: bool
    directory_id: UUID = NO_DIRECTORY_ID
    """That of the voter: another directory's vote would not count."""


@dataclass(frozen=True, slots=True)
class BeginEpoch:
    """Notify `voter` that this voter is the leader."""

    voter: BrokerId
    leader_epoch: LeaderEpoch


Message: TypeAlias = RequestVote | BeginEpoch


@dataclass(frozen=True, slots=True)
class Ready:
    """The effects of an event, to be carried out in this order: save, send; then check role and high watermark."""

    save: ElectionState | None = None
    """Must be on disk before a message is sent or the event is answered."""
    send: tuple[Message, ...] = ()
    granted: bool = False
    """For a VoteRequested: whether the vote is granted."""
