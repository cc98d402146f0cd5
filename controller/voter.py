"""Carries out the decisions of the quorum: saves votes, sends requests to the other voters and fetches from the leader.

There are two links to each other voter: votes must not wait behind a fetch that the leader has parked.
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
)
from raylog.controller.quorum.quorum import Quorum
from raylog.controller.voter_levels import VoterLevels
from raylog.core.clock import Now
from raylog.core.errors import ErrorCode, InvariantViolation, KafkaError
from raylog.core.ids import BrokerId, LeaderEpoch, Offset
from raylog.metadata.image import MetadataImage
from raylog.metadata.snapshot import SnapshotDecoder, SnapshotId
from raylog.metadata.snapshot_request import snapshot_request
from raylog.metadata.topic_names import METADATA_PARTITION, METADATA_TOPIC_ID
from raylog.metadata.voters import voter_name
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
from raylog.protocol.messages.fetch_snapshot import FetchSnapshotResponse, ResponsePartitionSnapshot
from raylog.protocol.messages.vote import VoteRequest, VoteResponse
from raylog.transport.node import Job, Node
from raylog.transport.peer_link import PeerLink

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
        voters: Sequence[BrokerId],
        *,
        timeouts: QuorumTimeouts,
        jitter_ms: Callable[[int], int],
        leadership: Leadership,
        now: Now,
    ) -> None:
        self._identity = node.identity
        self._log = log
        self._leadership = leadership
        self._request_ms = timeouts.fetch_timeout_ms
        self._wait_ms = min(timeouts.fetch_timeout_ms // 4, FETCH_WAIT_MS_MAX)
        known_committed = log.next_offset  # a snapshot holds committed records only
        self.quorum = Quorum(
            node.identity.node_id,
            voters,
            log.election_state,
            high_watermark=known_committed,
            timeouts=timeouts,
            jitter_ms=jitter_ms,
            now_ms=now.monotonic_ms,
        )
        self._request_links: dict[BrokerId, PeerLink] = {}
        self._fetches: dict[BrokerId, PeerLink] = {}
        self._fetching: tuple[BrokerId, LeaderEpoch] | None = None
        """The leader and leader epoch of the fetch in flight."""
        self._retry_ms: int | None = None
        self.levels = VoterLevels(node.identity.node_id, self.quorum.others, timeout_ms=self._request_ms)
        self._node = node
        self._received: _ReceivedSnapshot | None = None
        """The snapshot that is being fetched, or was fetched and is not installed yet."""
        self._writing = False
        """Whether a job writes it to the disk: until its end nothing is fetched."""
        for voter in self.quorum.others:
            self._request_links[voter] = self._link_to(node, voter, self._request_link_ready, self._peer_lost)
            self._fetches[voter] = self._link_to(node, voter, lambda _, now: self._fetch(now), self._fetches_lost)

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
            self.step(Ticked(), now)

    def next_deadline_ms(self) -> int:
        return min(self.quorum.deadline_ms, self._retry_ms or self.quorum.deadline_ms)

    # --- requests to other voters

    def _link_to(
        self,
        node: Node,
        voter: BrokerId,
        ready: Callable[[BrokerId, Now], None],
        lost: Callable[[BrokerId, Now], None],
    ) -> PeerLink:
        return node.new_link(
            voter_name(voter), on_ready=lambda now: ready(voter, now), on_lost=lambda now: lost(voter, now)
        )

    def _request_link_ready(self, voter: BrokerId, now: Now) -> None:
        self.levels.ask(voter, self._request_links[voter], now)

    def _peer_lost(self, voter: BrokerId, now: Now) -> None:
        self.levels.lost(voter)
        self.step(PeerLost(voter), now)

    def _fetches_lost(self, voter: BrokerId, now: Now) -> None:
        if self._fetching is not None and self._fetching[0] == voter:
            self._fetching = None
        self.step(PeerLost(voter), now)

    def _send(self, message: Message, now: Now) -> None:
        voter = message.voter
        if isinstance(message, RequestVote):
            wanted = vote.RequestPartitionData(
                replica_epoch=message.leader_epoch,
                replica_id=self._identity.node_id,
                replica_directory_id=self._log.directory_id,
                last_offset_epoch=message.log_end.last_epoch,
                last_offset=message.log_end.end_offset,
                pre_vote=message.pre_vote,
            )
            topic = vote.RequestTopicData(topic_name=METADATA_PARTITION.topic, partitions=(wanted,))
            self._request_links[voter].request(
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
        self._request_links[voter].request(
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

    # --- following

    def _fetch(self, now: Now) -> None:
        """Fetch from the leader, one fetch at a time: the log, or a snapshot in place of it."""
        leader_id, leader_epoch = self.quorum.leader_id, self.quorum.leader_epoch
        link = self._fetches.get(leader_id)
        if link is None or not link.ready or self._retry_ms is not None:
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
        else:
            hint = result.current_leader
            self.step(EpochSeen(LeaderEpoch(hint.leader_epoch), BrokerId(hint.leader_id)), now)
            if self._follows(fetching):  # it stopped leading, and no new leader is known yet
                self.step(PeerLost(fetching[0]), now)
                self._retry_ms = now.monotonic_ms + RETRY_MS
        self._fetch_ended(fetching, now)
        self._fetch(now)

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
                self._install(received)  # the leader had changed while it was written
                return False
            self._received = received = _ReceivedSnapshot(snapshot)
            self._fetch_snapshot(fetching, received, now)
            return True
        if result.diverging_epoch.end_offset >= 0:
            self._truncate(result.diverging_epoch.epoch, Offset(result.diverging_epoch.end_offset))
            return False
        for batches in result.records or ():
            self._log.append_fetched(batches, now_ms=now.wall_ms)
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

    def _fetch_snapshot(self, fetching: tuple[BrokerId, LeaderEpoch], received: _ReceivedSnapshot, now: Now) -> None:
        identity = self._identity
        self._fetches[fetching[0]].request(
            snapshot_request(identity.cluster_id, identity.node_id, received.snapshot, len(received.data)),
            lambda response, now: self._snapshot_fetched(fetching, received, response, now),
            lambda _, now: self._fetch_ended(fetching, now),
            now=now,
            timeout_ms=self._request_ms,
        )

    def _snapshot_fetched(
        self,
        fetching: tuple[BrokerId, LeaderEpoch],
        received: _ReceivedSnapshot,
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
        self, fetching: tuple[BrokerId, LeaderEpoch], received: _ReceivedSnapshot, failure: OSError | None
    ) -> None:
        now = self._node.now
        self._writing = False
        if failure is not None:
            self._retry_ms = now.monotonic_ms + RETRY_MS
        else:
            received.written = True
            if self._follows(fetching):
                self._write(lambda: self._install(received), now)
        self._fetch_ended(fetching, now)
        self._fetch(now)

    def _install(self, received: _ReceivedSnapshot) -> bool:
        self._received = None
        self._log.install(received.snapshot, received.image())
        self.quorum.follower_high_watermark(received.snapshot.end_offset, self._log.flushed_end)
        return True


class _ReceivedSnapshot:
    """A snapshot that arrives in pieces; each is decoded when it arrives."""

    def __init__(self, snapshot: SnapshotId) -> None:
        self.snapshot = snapshot
        self.data = bytearray()
        self.written = False
        """Whether all of it is in its file."""
        self._decoder = SnapshotDecoder()
        self._image: MetadataImage | None = None

    def take(self, piece: ResponsePartitionSnapshot) -> bool:
        """Raises KafkaError(CORRUPT_MESSAGE)."""
        self.data += piece.unaligned_records
        self._decoder.feed(piece.unaligned_records)
        if len(self.data) >= piece.size:
            self._image = self._decoder.finish()
        return True

    def image(self) -> MetadataImage:
        """After the last piece."""
        assert self._image is not None
        return self._image


def _ignore(error: KafkaError, now: Now) -> None:
    """Nothing to do: the quorum sends the request again after its timeout."""
