"""One voter of the metadata log: elections, leadership and commitment, as a machine.

                  fetch timeout, or leader's connection lost
    UNATTACHED ------------------------------------------> PROSPECTIVE <----+ election lost
        |    ^                                              |   (pre-vote)  |
        |    | a higher epoch             majority pre-votes|               |
        |    +------------- any ----+                       v               |
        | leader known              |                   CANDIDATE ----------+
        v                           |                       | majority votes
    FOLLOWER -----------------------+                       v
        ^     leader of a higher epoch                   LEADER ---> UNATTACHED: no fetches from a majority

A node that is not among the voters is an observer: it follows the leader, and starts no election. It does grant votes,
because its log may lack the record that makes it a voter; a candidate counts only the votes of its own voter set. A
voter whose removal is not known to be committed still starts elections: it may be the only one with that record (Raft
4.2.2).

Duties of the caller after each `step`:
1. Save `ready.save` and sync it, before anything else.
2. Send `ready.send`, in any order, without waiting; a lost message is sent again after a timeout.
3. If the voter became leader: append the record that begins its epoch, before any other. If it stopped leading: drop
   all uncommitted records.
4. Everything before `high_watermark` is committed and never lost.
5. Step it with `Ticked` at `deadline_ms`, once the responses that the high watermark allows are sent: a leader that
   has removed itself resigns there.
6. Step it with `VotersReplaced` whenever the newest VotersChanged of its log is another one, before anything else.
   Append such a record only while `may_change_voters`, and with one voter more or less.

Sources: Raft (Ongaro and Ousterhout 2014) with fetching and resignation without a majority as in KIP-595, pre-votes of
KIP-996, and a voter set that changes by one voter at a time as in KIP-853. A voter that loses its connection to the
leader requests pre-votes within milliseconds instead of waiting for the fetch timeout; voters that still follow the
leader reject them. So a leader that stops need not send EndQuorumEpoch.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import Enum
from typing import Final
from uuid import UUID

from raylog.config.controller import QuorumTimeouts
from raylog.controller.quorum.election_state import ElectionState
from raylog.controller.quorum.events import (
    BeginEpoch,
    EpochSeen,
    Event,
    Flushed,
    LeaderSeen,
    LogEnd,
    Message,
    PeerLost,
    Ready,
    RequestVote,
    Ticked,
    VoteAnswered,
    VoteRequested,
    VoterFetched,
    VotersReplaced,
)
from raylog.core.errors import InvariantViolation
from raylog.core.ids import NO_BROKER_ID, NO_DIRECTORY_ID, NO_OFFSET, BrokerId, LeaderEpoch, Offset
from raylog.metadata.voters import VoterSet

LOST_LEADER_MS_MAX = 40
"""Voters that have lost their leader request votes after a random part of this time."""
LEASE_FACTOR = 1.5
"""A leader without fetches from a majority for this many fetch timeouts resigns, as in Kafka."""


_NO_VOTERS: Final = VoterSet()


class Role(Enum):
    UNATTACHED = "unattached"
    PROSPECTIVE = "prospective"
    CANDIDATE = "candidate"
    FOLLOWER = "follower"
    LEADER = "leader"


@dataclass(slots=True)
class VoterProgress:
    """The leader's view of another voter."""

    since_ms: int
    """When the leader was elected, or the voter was added."""
    end_offset: Offset = Offset(0)
    """The voter has all records before this offset on disk."""
    fetched_ms: int | None = None
    """Time of its last fetch in this epoch."""
    caught_up_ms: int | None = None
    """When it last was caught up with the leader's log."""
    leader_end_offset: Offset | None = None
    """The end of the leader's log on disk at its last fetch."""
    directory_id: UUID = NO_DIRECTORY_ID
    """That of its last fetch."""


class Quorum:
    """`step` processes every event, with the end of this voter's own log and the time."""

    def __init__(
        self,
        node_id: BrokerId,
        voters: VoterSet,
        state: ElectionState,
        *,
        directory_id: UUID,
        voters_offset: Offset = NO_OFFSET,
        voters_before: VoterSet = _NO_VOTERS,
        high_watermark: Offset,
        timeouts: QuorumTimeouts,
        jitter_ms: Callable[[int], int],
        now_ms: int,
    ) -> None:
        """`state` was saved by the last incarnation. `jitter_ms(n)` returns a random number from 0 to n inclusive."""
        self.node_id = node_id
        self.directory_id = directory_id
        self.voters = voters
        self.voters_offset = voters_offset
        """The offset of the record that holds the voters; -1 if they are those of the configuration."""
        self._voters_before = voters_before
        self.state = replace(state, leader_id=NO_BROKER_ID)
        self.role = Role.UNATTACHED
        self.high_watermark = high_watermark
        """Everything before it is known to be committed. Never decreases."""
        self.epoch_start_offset = Offset(0)
        """On the leader: the offset of the record that begins its epoch."""
        self.progress: dict[BrokerId, VoterProgress] = {}
        """On the leader: the progress of the other voters."""
        self.deadline_ms = now_ms + (jitter_ms(LOST_LEADER_MS_MAX) if self.others else 0)
        """When the next Ticked is due."""
        self._timeouts = timeouts
        self._jitter_ms = jitter_ms
        self._granted: set[BrokerId] = set()
        self._refused: set[BrokerId] = set()
        self._leader_lost = False
        """Whether the connection to the leader broke after the leader's last message."""
        self._last_contact_ms: int | None = None
        """Time of the leader's last message. None if only other nodes have reported this leader: it may be gone."""
        self._saved = state
        self._send: list[Message] = []

    @property
    def leader_epoch(self) -> LeaderEpoch:
        return self.state.leader_epoch

    @property
    def leader_id(self) -> BrokerId:
        """NO_BROKER_ID while no leader is known in this epoch."""
        return self.state.leader_id

    @property
    def is_leader(self) -> bool:
        return self.role is Role.LEADER

    @property
    def has_committed_in_epoch(self) -> bool:
        """Whether this voter leads and has committed a record of its epoch: then its high watermark is up to date."""
        return self.is_leader and self.high_watermark > self.epoch_start_offset

    @property
    def is_voter(self) -> bool:
        """Whether this node, with its log directory, is one of the voters; otherwise it is an observer."""
        return self.voters.has(self.node_id, self.directory_id)

    @property
    def starts_elections(self) -> bool:
        """Whether it is a voter, or its removal is not known to be committed."""
        return self.is_voter or (not self.voters_committed and self._voters_before.has(self.node_id, self.directory_id))

    @property
    def voters_committed(self) -> bool:
        """Whether the voter set is known to be committed."""
        return self.voters_offset < self.high_watermark

    @property
    def may_change_voters(self) -> bool:
        """Whether the leader may append another voter set: the last one is committed, and a record of its epoch.

        Without the latter two leaders could each commit a change with disjoint majorities (Ongaro 2015).
        """
        return self.has_committed_in_epoch and self.voters_committed and self.is_voter

    @property
    def majority(self) -> int:
        return len(self.voters) // 2 + 1

    @property
    def others(self) -> list[BrokerId]:
        return [voter for voter in self.voters.ids if voter != self.node_id]

    def step(self, event: Event, log_end: LogEnd, now_ms: int) -> Ready:
        """Process one event. `log_end` is the end of this voter's log on disk."""
        granted = False
        match event:
            case Ticked():
                self._tick(log_end, now_ms)
            case VoteRequested():
                granted = self._vote_requested(event, log_end, now_ms)
            case VoteAnswered():
                self._vote_answered(event, log_end, now_ms)
            case LeaderSeen():
                if event.leader_epoch >= self.leader_epoch and event.leader_id != self.node_id:
                    self._follow(event.leader_id, event.leader_epoch, now_ms)
                    self._last_contact_ms = now_ms
            case EpochSeen():
                self._epoch_seen(event.leader_epoch, event.leader_id, now_ms)
            case PeerLost():
                self._peer_lost(event.voter, now_ms)
            case VoterFetched():
                self._voter_fetched(event, log_end, now_ms)
            case Flushed():
                self._commit(log_end, now_ms)
            case VotersReplaced():
                self._replace_voters(event, now_ms)
        sent, self._send = tuple(self._send), []
        saved = None
        if self.state != self._saved:
            saved = self._saved = self.state
        return Ready(saved, sent, granted)

    def follower_high_watermark(self, high_watermark: Offset, log_end: LogEnd) -> None:
        """Advance the high watermark to the leader's, but not beyond the end of this voter's log."""
        if not self.is_leader:
            self.high_watermark = max(self.high_watermark, min(high_watermark, log_end.end_offset))

    # --- time

    def _tick(self, log_end: LogEnd, now_ms: int) -> None:
        if now_ms < self.deadline_ms:
            return
        if self.is_leader:
            self._check_lease(now_ms)
        elif not self.starts_elections:
            self._forget_leader(now_ms)
        elif self.role is Role.CANDIDATE:
            self._back_off(now_ms)
        else:
            self._request_pre_votes(log_end, now_ms)

    def _back_off(self, now_ms: int) -> None:
        """The election was lost. Retry after a random backoff, so that candidates do not split the votes again."""
        self.role = Role.UNATTACHED
        self.deadline_ms = now_ms + self._jitter_ms(self._timeouts.election_backoff_ms_max)

    # --- elections

    def _request_pre_votes(self, log_end: LogEnd, now_ms: int) -> None:
        """Request pre-votes: a voter that cannot win must not raise the epoch and disrupt the others (KIP-996)."""
        self.role = Role.PROSPECTIVE
        self._campaign(log_end, now_ms, pre_vote=True)

    def _campaign(self, log_end: LogEnd, now_ms: int, *, pre_vote: bool) -> None:
        self._granted, self._refused = {self.node_id} if self.is_voter else set(), set()
        self.deadline_ms = now_ms + self._timeouts.election_timeout_ms + self._jitter_ms(LOST_LEADER_MS_MAX)
        self._send += [
            RequestVote(each.voter_id, self.leader_epoch, log_end, pre_vote, each.directory_id)
            for each in self.voters
            if each.voter_id != self.node_id
        ]
        self._count_votes(log_end, now_ms)

    def _count_votes(self, log_end: LogEnd, now_ms: int) -> None:
        if len(self._granted) >= self.majority:
            if self.role is Role.PROSPECTIVE:
                self._enter(LeaderEpoch(self.leader_epoch + 1), voted_for=self.node_id, directory_id=self.directory_id)
                self.role = Role.CANDIDATE
                self._campaign(log_end, now_ms, pre_vote=False)
            else:
                self._become_leader(log_end, now_ms)
        elif len(self._refused) > len(self.voters) - self.majority:
            if self.role is Role.CANDIDATE:
                self._back_off(now_ms)
            else:
                self._wait_for_leader(now_ms)

    def _wait_for_leader(self, now_ms: int) -> None:
        """The others follow a leader or have more complete logs: wait before the next attempt."""
        self.role = Role.FOLLOWER if self.leader_id != NO_BROKER_ID else Role.UNATTACHED
        wait_ms = self._timeouts.election_timeout_ms
        self.deadline_ms = now_ms + wait_ms // 2 + self._jitter_ms(wait_ms)

    def _vote_requested(self, event: VoteRequested, log_end: LogEnd, now_ms: int) -> bool:
        if event.leader_epoch < self.leader_epoch:
            return False
        if event.leader_epoch > self.leader_epoch:
            self._adopt_epoch(event.leader_epoch, now_ms)
        up_to_date = event.log_end >= log_end
        if event.pre_vote:
            granted = up_to_date and not self._has_live_leader(now_ms)
            if (
                granted
                and self.role is Role.PROSPECTIVE
                and (event.log_end > log_end or event.candidate < self.node_id)
            ):
                self._wait_for_leader(now_ms)  # of two concurrent candidates only one continues
            return granted
        free = self.state.may_vote_for(event.candidate, event.directory_id)
        if not (up_to_date and free and self.leader_id == NO_BROKER_ID):
            return False
        self.state = replace(self.state, voted_for=event.candidate, voted_directory=event.directory_id)
        if self.role is Role.PROSPECTIVE:  # one candidate is enough
            self.role = Role.UNATTACHED
        self.deadline_ms = now_ms + self._timeouts.election_timeout_ms + self._jitter_ms(LOST_LEADER_MS_MAX)
        return True

    def _has_live_leader(self, now_ms: int) -> bool:
        if self.is_leader:
            return True
        if self.leader_id == NO_BROKER_ID or self._leader_lost or self._last_contact_ms is None:
            return False
        return now_ms - self._last_contact_ms < self._timeouts.fetch_timeout_ms

    def _vote_answered(self, event: VoteAnswered, log_end: LogEnd, now_ms: int) -> None:
        self._epoch_seen(event.leader_epoch, event.leader_id, now_ms)
        asking = Role.PROSPECTIVE if event.pre_vote else Role.CANDIDATE
        if self.role is not asking or event.asked_epoch != self.leader_epoch:
            return  # the response to an earlier election
        if event.voter not in self.voters:
            return
        (self._granted if event.granted else self._refused).add(event.voter)
        self._count_votes(log_end, now_ms)

    # --- following

    def _epoch_seen(self, leader_epoch: LeaderEpoch, leader_id: BrokerId, now_ms: int) -> None:
        """Adopt a higher epoch or a new leader. A leader that is already known does not reset the fetch timeout."""
        if leader_epoch < self.leader_epoch or leader_id == self.node_id:
            return
        if leader_id != NO_BROKER_ID and (leader_epoch > self.leader_epoch or self.leader_id == NO_BROKER_ID):
            self._follow(leader_id, leader_epoch, now_ms)
        elif leader_epoch > self.leader_epoch:
            self._adopt_epoch(leader_epoch, now_ms)

    def _follow(self, leader_id: BrokerId, leader_epoch: LeaderEpoch, now_ms: int) -> None:
        if leader_epoch == self.leader_epoch and self.leader_id not in (NO_BROKER_ID, leader_id):
            raise InvariantViolation(f"epoch {leader_epoch} has two leaders, {self.leader_id} and {leader_id}")
        if leader_epoch > self.leader_epoch:
            self._enter(leader_epoch)
        self.state = replace(self.state, leader_id=leader_id)
        self.role = Role.FOLLOWER
        self._leader_lost = False
        self._last_contact_ms = None
        self.deadline_ms = now_ms + self._timeouts.fetch_timeout_ms

    def _adopt_epoch(self, leader_epoch: LeaderEpoch, now_ms: int) -> None:
        """Another voter is in a higher epoch, whose leader is not known yet."""
        self._enter(leader_epoch)
        self.role = Role.UNATTACHED
        self.deadline_ms = now_ms + self._timeouts.election_timeout_ms + self._jitter_ms(LOST_LEADER_MS_MAX)

    def _enter(
        self,
        leader_epoch: LeaderEpoch,
        *,
        voted_for: BrokerId = NO_BROKER_ID,
        directory_id: UUID = NO_DIRECTORY_ID,
    ) -> None:
        self.state = ElectionState(leader_epoch, NO_BROKER_ID, voted_for, directory_id)
        self.progress = {}

    def _peer_lost(self, voter: BrokerId, now_ms: int) -> None:
        if self.role is Role.FOLLOWER and voter == self.leader_id and not self._leader_lost:
            self._leader_lost = True
            self.deadline_ms = min(self.deadline_ms, now_ms + self._jitter_ms(LOST_LEADER_MS_MAX))

    def _forget_leader(self, now_ms: int) -> None:
        """An observer without a message from its leader for so long asks the controllers that it knows for another."""
        self.role = Role.UNATTACHED
        self.state = replace(self.state, leader_id=NO_BROKER_ID)
        self.deadline_ms = now_ms + self._timeouts.fetch_timeout_ms

    # --- the voter set

    def _replace_voters(self, event: VotersReplaced, now_ms: int) -> None:
        self.voters, self.voters_offset, self._voters_before = event.voters, event.offset, event.before
        if self.is_leader:
            known = self.progress
            self.progress = {voter: known.get(voter) or VoterProgress(now_ms) for voter in self.others}
        elif self.role in (Role.PROSPECTIVE, Role.CANDIDATE):
            self._back_off(now_ms)  # the votes were those of other voters

    # --- leading

    def _become_leader(self, log_end: LogEnd, now_ms: int) -> None:
        self.role = Role.LEADER
        self.state = replace(self.state, leader_id=self.node_id)
        self.epoch_start_offset = log_end.end_offset
        self.progress = {voter: VoterProgress(now_ms) for voter in self.others}
        self._check_lease(now_ms)

    def _check_lease(self, now_ms: int) -> None:
        """Notify voters that have not fetched yet. Resign if no majority has fetched within the lease, or once this
        leader is not among the committed voters any more."""
        if not self.is_voter and self.voters_committed:
            self._resign(now_ms)
            return
        lease_ms = int(LEASE_FACTOR * self._timeouts.fetch_timeout_ms)
        fetch_times_ms = sorted((self._last_fetch_ms(voter) for voter in self.others), reverse=True)
        needed = self.majority - self.is_voter
        if needed and now_ms - fetch_times_ms[needed - 1] >= lease_ms:
            self._resign(now_ms)
            return
        silent = [voter for voter, progress in self.progress.items() if progress.fetched_ms is None]
        self._send += [BeginEpoch(voter, self.leader_epoch) for voter in silent]
        self.deadline_ms = now_ms + self._timeouts.fetch_timeout_ms // 4

    def _last_fetch_ms(self, voter: BrokerId) -> int:
        """Time of the voter's last fetch in this epoch; before the first one, when the leader began to count it."""
        progress = self.progress[voter]
        return progress.since_ms if progress.fetched_ms is None else progress.fetched_ms

    def _resign(self, now_ms: int) -> None:
        """The epoch continues without a leader: no other voter can have been elected in it."""
        self.role = Role.UNATTACHED
        self.state = replace(self.state, leader_id=NO_BROKER_ID)
        self.progress = {}
        self.deadline_ms = now_ms + self._timeouts.election_timeout_ms + self._jitter_ms(LOST_LEADER_MS_MAX)

    def _voter_fetched(self, event: VoterFetched, log_end: LogEnd, now_ms: int) -> None:
        progress = self.progress.get(event.voter)
        if progress is None or not self.voters.has(event.voter, event.directory_id):
            return
        progress.directory_id = event.directory_id
        progress.end_offset = event.end_offset
        if event.end_offset >= log_end.end_offset:
            progress.caught_up_ms = now_ms
        elif progress.leader_end_offset is not None and event.end_offset >= progress.leader_end_offset:
            progress.caught_up_ms = progress.fetched_ms  # in a log that grows all the time it may never be at the end
        progress.leader_end_offset = log_end.end_offset
        progress.fetched_ms = now_ms
        self._commit(log_end, now_ms)

    def _commit(self, log_end: LogEnd, now_ms: int) -> None:
        """Records that a majority has on disk are committed, once one of this epoch is among them (Raft 5.4.2).

        A leader that is removing itself does not count (Raft 4.2.2).
        """
        if not self.is_leader:
            return
        own = [log_end.end_offset] if self.is_voter else []
        ends = sorted([*own, *(each.end_offset for each in self.progress.values())], reverse=True)
        committed = ends[self.majority - 1]
        if committed > self.epoch_start_offset:
            self.high_watermark = max(self.high_watermark, committed)
            if not self.is_voter and self.voters_committed:
                self.deadline_ms = now_ms
