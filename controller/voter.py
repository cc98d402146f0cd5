"""Carries out the decisions of the quorum: saves votes, sends requests to the other voters and fetches from the leader.

An observer, and a voter whose other voters are gone, finds the leader by fetching from each controller that it knows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Protocol

from raylog.config.controller import QuorumTimeouts
from raylog.controller.metadata_log import MetadataLog
from raylog.controller.quorum.events import (
    EpochSeen,
    Event,
    LeaderSeen,
    LogEnd,
    Message,
    PeerLost,
    Ready,
    RequestVote,
    Ticked,
    VoteAnswered,
    VotersReplaced,
)
from raylog.controller.quorum.quorum import Quorum
from raylog.controller.received_snapshot import ReceivedSnapshot
from raylog.controller.voter_levels import VoterLevels
from raylog.controller.voter_links import LinkEvents, VoterLinks
from raylog.core.clock import Now
from raylog.core.errors import ErrorCode, InvariantViolation, KafkaError
from raylog.core.ids import NO_BROKER_ID, BrokerId, LeaderEpoch, Offset
from raylog.metadata.control_records import KRAFT_VERSIONS
from raylog.metadata.snapshot import SnapshotId
from raylog.metadata.snapshot_request import snapshot_request
from raylog.metadata.topic_names import METADATA_PARTITION, METADATA_TOPIC_ID
from raylog.metadata.voters import QuorumVoter
from raylog.protocol.fetch import (
    FetchPartition,
    FetchPartitionResponse,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ReplicaState,
)
from raylog.protocol.messages import begin_quorum_epoch, vote
from raylog.protocol.messages.begin_quorum_epoch import BeginQuorumEpochRequest, BeginQuorumEpochResponse
from raylog.protocol.messages.fetch_snapshot import FetchSnapshotResponse
from raylog.protocol.messages.update_raft_voter import (
    CurrentLeader,
    KRaftVersionFeature,
    Listener,
    UpdateRaftVoterRequest,
    UpdateRaftVoterResponse,
)
from raylog.protocol.messages.vote import VoteRequest, VoteResponse
from raylog.transport.node import Job, Node

FETCH_WAIT_MS_MAX = 500
"""Kafka's limit for a voter's fetch. A quarter of the fetch timeout is used if that is shorter."""
FETCH_BYTES_MAX = 8 << 20
RETRY_MS = 100
"""Backoff before the next fetch when a voter could not write the fetched records or did not get a snapshot."""


class Leadership(Protocol):
    """Callbacks to the controller when its voter becomes leader, and when it stops leading."""

    def leadership_begins(self, now: Now) -> None: ...

    def leadership_ends(self, now: Now) -> None: ...

    def quorum_changed(self) -> None:
        """The leader, the leader epoch or the high watermark has changed."""


class Voter:
    """One voter over its metadata log. The handlers of requests from other voters call `step`."""

    def __init__(
        self,
        node: Node,
        log: MetadataLog,
        *,
        known: Sequence[BrokerId],
        timeouts: QuorumTimeouts,
        jitter_ms: Callable[[int], int],
        leadership: Leadership,
        now: Now,
    ) -> None:
        """`known` are controllers that may know the leader (Kafka's controller.quorum.bootstrap.servers)."""
        self._identity = node.identity
        self._log = log
        self._leadership = leadership
        self._request_ms = timeouts.fetch_timeout_ms
        self._wait_ms = min(timeouts.fetch_timeout_ms // 4, FETCH_WAIT_MS_MAX)
        newest = log.voters.newest
        known_committed = log.next_offset  # a snapshot holds committed records only
        self.quorum = Quorum(
            node.identity.node_id,
            newest.voters,
            log.election_state,
            directory_id=log.directory_id,
            voters_offset=newest.offset,
            voters_before=newest.before,
            high_watermark=known_committed,
            timeouts=timeouts,
            jitter_ms=jitter_ms,
            now_ms=now.monotonic_ms,
        )
        self._known_controllers = [each for each in known if each != node.identity.node_id]
        self._asked = 0
        """How many of the known controllers were asked for the leader."""
        self._fetching: tuple[BrokerId, LeaderEpoch] | None = None
        """The leader and leader epoch of the fetch in flight."""
        self._retry_ms: int | None = None
        self._reporting = False
        self.levels = VoterLevels(node.identity.node_id, timeout_ms=self._request_ms)
        self._node = node
        self._received: ReceivedSnapshot | None = None
        """The snapshot that is being fetched, or was fetched and is not installed yet."""
        self._writing = False
        """Whether a job writes it to the disk: until its end nothing is fetched."""
        self._links = VoterLinks(
            node,
            requests=LinkEvents(ready=self._request_link_ready, lost=self._peer_lost),
            fetches=LinkEvents(ready=lambda _, now: self._fetch(now), lost=self._fetches_lost, gone=self._cannot_fetch),
        )
        self._links.connect(self.quorum.others)

    def step(self, event: Event, now: Now) -> Ready:
        """Pass the event to the quorum and carry out its effects. The event may be answered when this returns."""
        was_leader, before = self.quorum.is_leader, self._known()
        ready = self.quorum.step(event, self._log.flushed_end, now.monotonic_ms)
        if ready.save is not None:
            try:
                self._log.save(ready.save)
            except OSError as error:
                raise InvariantViolation(f"the election state cannot be saved: {error}") from error
        for message in ready.send:
            self._send(message, now)
        if was_leader and not self.quorum.is_leader:
            self._leadership.leadership_ends(now)
        elif not was_leader and self.quorum.is_leader:
            self._leadership.leadership_begins(now)
        if self._known() != before:
            self._leadership.quorum_changed()
        self._fetch(now)
        return ready

    def _known(self) -> tuple[BrokerId, LeaderEpoch, Offset]:
        return self.quorum.leader_id, self.quorum.leader_epoch, self.quorum.high_watermark

    def tick(self, now: Now) -> None:
        if self._retry_ms is not None and now.monotonic_ms >= self._retry_ms:
            self._retry_ms = None
            self._fetch(now)
        if now.monotonic_ms >= self.quorum.deadline_ms:
            self._asked += self.quorum.leader_id == NO_BROKER_ID
            self.step(Ticked(), now)

    def next_deadline_ms(self) -> int:
        return min(self.quorum.deadline_ms, self._retry_ms or self.quorum.deadline_ms)

    # --- links to other controllers

    def _request_link_ready(self, other: BrokerId, now: Now) -> None:
        self.levels.ask(other, self._links.to(other), now)

    def _peer_lost(self, other: BrokerId, now: Now) -> None:
        self.levels.lost(other)
        self.step(PeerLost(other), now)

    def _fetches_lost(self, other: BrokerId, now: Now) -> None:
        if self._fetching is not None and self._fetching[0] == other:
            self._fetching = None
        self.step(PeerLost(other), now)

    def _cannot_fetch(self, other: BrokerId, now: Now) -> None:
        if self.quorum.leader_id == NO_BROKER_ID and other == self._source():
            self._asked += 1
            self._fetch(now)

    def voters_changed(self, now: Now) -> None:
        """To be called after every change of the log: the quorum learns of another newest voter set."""
        newest = self._log.voters.newest
        if (newest.offset, newest.voters) != (self.quorum.voters_offset, self.quorum.voters):
            self.step(VotersReplaced(newest.voters, newest.offset, newest.before), now)
            self._links.keep({*self.quorum.others, *self._known_controllers, self.quorum.leader_id})
            self._links.connect(self.quorum.others)

    def observed(self, other: BrokerId) -> None:
        """Another controller fetches as an observer: connect to it, to learn the levels that it supports."""
        self._links.to(other)

    # --- requests to other voters

    def _send(self, message: Message, now: Now) -> None:
        voter = message.voter
        if isinstance(message, RequestVote):
            wanted = vote.RequestPartitionData(
                replica_epoch=message.leader_epoch,
                replica_id=self._identity.node_id,
                replica_directory_id=self._log.directory_id,
                voter_directory_id=message.directory_id,
                last_offset_epoch=message.log_end.last_epoch,
                last_offset=message.log_end.end_offset,
                pre_vote=message.pre_vote,
            )
            topic = vote.RequestTopicData(topic_name=METADATA_PARTITION.topic, partitions=(wanted,))
            self._links.to(voter).request(
                VoteRequest(cluster_id=self._identity.cluster_id, voter_id=voter, topics=(topic,)),
                lambda response, now: self._vote_answered(message, response, now),
                _ignore,
                now=now,
                timeout_ms=self._request_ms,
            )
            return
        begun = begin_quorum_epoch.RequestPartitionData(
            leader_id=self._identity.node_id, leader_epoch=message.leader_epoch
        )
        begun_topic = begin_quorum_epoch.RequestTopicData(topic_name=METADATA_PARTITION.topic, partitions=(begun,))
        self._links.to(voter).request(
            BeginQuorumEpochRequest(cluster_id=self._identity.cluster_id, voter_id=voter, topics=(begun_topic,)),
            self._epoch_answered,
            _ignore,
            now=now,
            timeout_ms=self._request_ms,
        )

    def _vote_answered(self, asked: RequestVote, response: VoteResponse, now: Now) -> None:
        if response.error_code != ErrorCode.NONE:
            return
        [topic] = response.topics
        [answer] = topic.partitions
        answered = VoteAnswered(
            asked.voter,
            asked.leader_epoch,
            pre_vote=asked.pre_vote,
            granted=answer.vote_granted,
            leader_epoch=LeaderEpoch(answer.leader_epoch),
            leader_id=BrokerId(answer.leader_id),
        )
        self.step(answered, now)

    def _epoch_answered(self, response: BeginQuorumEpochResponse, now: Now) -> None:
        if response.error_code == ErrorCode.NONE:
            [topic] = response.topics
            [answer] = topic.partitions
            self.step(EpochSeen(LeaderEpoch(answer.leader_epoch), BrokerId(answer.leader_id)), now)

    def report(self, own: QuorumVoter, recorded: Callable[[CurrentLeader], None], now: Now) -> None:
        """Report the listeners of this voter to the leader, if it is known and there is not a report on the way.

        `recorded` is called when the leader has them.
        """
        leader_id = self.quorum.leader_id
        if self._reporting or leader_id in (NO_BROKER_ID, own.voter_id):
            return
        self._reporting = True

        def ended(_: object, now: Now) -> None:
            self._reporting = False

        def answered(response: UpdateRaftVoterResponse, now: Now) -> None:
            self._reporting = False
            if response.error_code == ErrorCode.NONE:
                recorded(response.current_leader)

        lowest, highest = KRAFT_VERSIONS
        request = UpdateRaftVoterRequest(
            cluster_id=self._identity.cluster_id,
            current_leader_epoch=self.quorum.leader_epoch,
            voter_id=own.voter_id,
            voter_directory_id=own.directory_id,
            listeners=tuple(Listener(name=name, host=host, port=port) for name, host, port in own.endpoints),
            k_raft_version_feature=KRaftVersionFeature(min_supported_version=lowest, max_supported_version=highest),
        )
        self._links.to(leader_id).request(request, answered, ended, now=now, timeout_ms=self._request_ms)

    # --- following

    def _fetch(self, now: Now) -> None:
        """Fetch from the leader, one fetch at a time: the log, or a snapshot in place of it."""
        leader_id, leader_epoch = self._source(), self.quorum.leader_epoch
        if leader_id in (NO_BROKER_ID, self._identity.node_id) or self._retry_ms is not None:
            return
        link = self._links.fetching_from(leader_id)
        if not link.ready:
            return
        if self._writing or (self._fetching is not None and self._fetching[0] == leader_id):
            return
        self._fetching = fetching = leader_id, leader_epoch
        end = self._log.flushed_end
        wanted = FetchPartition(
            partition=METADATA_PARTITION.partition,
            current_leader_epoch=leader_epoch,
            fetch_offset=end.end_offset,
            last_fetched_epoch=end.last_epoch,
            partition_max_bytes=FETCH_BYTES_MAX,
            high_watermark=self.quorum.high_watermark,
            replica_directory_id=self._log.directory_id,
        )
        request = FetchRequest(
            cluster_id=self._identity.cluster_id,
            replica_id=self._identity.node_id,
            replica_state=ReplicaState(replica_id=self._identity.node_id),
            max_wait_ms=self._wait_ms,
            min_bytes=1,
            max_bytes=FETCH_BYTES_MAX,
            topics=[FetchTopic(topic_id=METADATA_TOPIC_ID, partitions=[wanted])],
        )
        link.request(
            request,
            lambda response, now: self._fetched(fetching, end, response, now),
            lambda _, now: self._fetch_ended(fetching, now),
            now=now,
            timeout_ms=self._wait_ms + self._request_ms,
        )

    def _source(self) -> BrokerId:
        """Where to fetch from: the leader, or a controller that may know it; NO_BROKER_ID: only the others' requests,
        or an election, can tell."""
        quorum = self.quorum
        if quorum.leader_id != NO_BROKER_ID or quorum.is_leader:
            return quorum.leader_id
        if quorum.starts_elections:  # the other voters are asked for their votes
            others = [each for each in self._known_controllers if each not in quorum.voters]
        else:
            others = sorted({*self._known_controllers, *quorum.others})
        return others[self._asked % len(others)] if others else NO_BROKER_ID

    def _fetch_ended(self, fetching: tuple[BrokerId, LeaderEpoch], now: Now) -> None:
        if self._fetching == fetching:
            self._fetching = None

    def _follows(self, fetching: tuple[BrokerId, LeaderEpoch]) -> bool:
        """Whether the leader and the epoch are still those of the fetch."""
        return fetching == (self.quorum.leader_id, self.quorum.leader_epoch)

    def _fetched(self, fetching: tuple[BrokerId, LeaderEpoch], end: LogEnd, response: FetchResponse, now: Now) -> None:
        if response.error_code != ErrorCode.NONE:
            raise KafkaError(response.error_code)  # the link reconnects
        result = response.responses[0].partitions[0]
        if result.error_code == ErrorCode.NONE:
            if self._follows(fetching) and end == self._log.flushed_end:
                self.step(LeaderSeen(*fetching), now)
                if self._write(lambda: self._take(fetching, result, now), now):
                    return
            elif self.quorum.leader_id == NO_BROKER_ID:  # the leader was found
                self._leader_hinted(result, now)
        else:
            self._leader_hinted(result, now)
            if self._follows(fetching):  # it stopped leading, and no new leader is known yet
                self.step(PeerLost(fetching[0]), now)
                self._retry_ms = now.monotonic_ms + RETRY_MS
        self._fetch_ended(fetching, now)
        self._fetch(now)

    def _leader_hinted(self, result: FetchPartitionResponse, now: Now) -> None:
        hint = result.current_leader
        self.step(EpochSeen(LeaderEpoch(hint.leader_epoch), BrokerId(hint.leader_id)), now)
        if self.quorum.leader_id == NO_BROKER_ID:
            self._asked += 1
            self._retry_ms = now.monotonic_ms + RETRY_MS

    def _write(self, write: Callable[[], bool], now: Now) -> bool:
        """The result of `write`; on a full disk False, and the next fetch waits for RETRY_MS."""
        try:
            return write()
        except KafkaError as error:
            if self._log.log.offline_reason is not None:
                raise InvariantViolation(f"fetched records cannot be written: {error.message}") from error
            self._retry_ms = now.monotonic_ms + RETRY_MS
            return False

    def _take(self, fetching: tuple[BrokerId, LeaderEpoch], result: FetchPartitionResponse, now: Now) -> bool:
        """Process a fetch result. Returns whether a snapshot is fetched in place of the log."""
        if result.snapshot_id.end_offset >= 0:
            snapshot = SnapshotId(Offset(result.snapshot_id.end_offset), LeaderEpoch(result.snapshot_id.epoch))
            received = self._received
            if received is not None and received.snapshot == snapshot and received.written:
                self._install(received, now)  # the leader had changed while it was written
                return False
            self._received = received = ReceivedSnapshot(snapshot)
            self._fetch_snapshot(fetching, received, now)
            return True
        if result.diverging_epoch.end_offset >= 0:
            self._truncate(result.diverging_epoch.epoch, Offset(result.diverging_epoch.end_offset))
            self.voters_changed(now)
            return False
        for batches in result.records or ():
            self._log.append_fetched(batches, now_ms=now.wall_ms)
        self.voters_changed(now)
        self.quorum.follower_high_watermark(Offset(result.high_watermark), self._log.flushed_end)
        self._log.replay_upto(self.quorum.high_watermark)
        return False

    def _truncate(self, leader_epoch: int, end_offset: Offset) -> None:
        """Truncate to where this log diverges: in the leader's log `leader_epoch` ends at `end_offset`."""
        mine, my_end = self._log.log.end_offset_for_epoch(LeaderEpoch(leader_epoch))
        cut = min(end_offset, my_end) if mine == leader_epoch else my_end
        if cut < self.quorum.high_watermark:
            raise InvariantViolation(
                f"the leader's log diverges at offset {cut}, before the high watermark "
                f"{self.quorum.high_watermark}: committed records are lost"
            )
        self._log.truncate_to(cut)

    def _fetch_snapshot(self, fetching: tuple[BrokerId, LeaderEpoch], received: ReceivedSnapshot, now: Now) -> None:
        identity = self._identity
        self._links.fetching_from(fetching[0]).request(
            snapshot_request(
                identity.cluster_id,
                identity.node_id,
                received.snapshot,
                len(received.data),
                leader_epoch=fetching[1],
                directory_id=self._log.directory_id,
            ),
            lambda response, now: self._snapshot_fetched(fetching, received, response, now),
            lambda _, now: self._fetch_ended(fetching, now),
            now=now,
            timeout_ms=self._request_ms,
        )

    def _snapshot_fetched(
        self,
        fetching: tuple[BrokerId, LeaderEpoch],
        received: ReceivedSnapshot,
        response: FetchSnapshotResponse,
        now: Now,
    ) -> None:
        if self._follows(fetching):
            self.step(LeaderSeen(*fetching), now)
            piece = response.topics[0].partitions[0] if response.topics else None
            if piece is None or piece.error_code != ErrorCode.NONE or not piece.unaligned_records:
                self._retry_ms = now.monotonic_ms + RETRY_MS  # the leader has a newer one, or cannot read it
            elif self._write(lambda: received.take(piece), now):
                if len(received.data) < piece.size:
                    self._fetch_snapshot(fetching, received, now)
                else:
                    self._writing = True
                    run = partial(self._log.write_fetched_snapshot, received.snapshot, bytes(received.data))
                    self._node.add_job(Job(run, partial(self._snapshot_written, fetching, received)))
                return
        self._fetch_ended(fetching, now)
        self._fetch(now)

    def _snapshot_written(
        self, fetching: tuple[BrokerId, LeaderEpoch], received: ReceivedSnapshot, failure: OSError | None
    ) -> None:
        now = self._node.now
        self._writing = False
        if failure is not None:
            self._retry_ms = now.monotonic_ms + RETRY_MS
        else:
            received.written = True
            if self._follows(fetching):
                self._write(lambda: self._install(received, now), now)
        self._fetch_ended(fetching, now)
        self._fetch(now)

    def _install(self, received: ReceivedSnapshot, now: Now) -> bool:
        self._received = None
        self._log.install(received.snapshot, received.image())
        self.voters_changed(now)
        self.quorum.follower_high_watermark(received.snapshot.end_offset, self._log.flushed_end)
        return True


def _ignore(error: KafkaError, now: Now) -> None:
    """Nothing to do: the quorum sends the request again after its timeout."""
