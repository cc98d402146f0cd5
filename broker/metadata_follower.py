"""The cluster metadata of this broker: an image that follows the controllers' log by fetching it.

The image is always a prefix of what the controllers have committed. Without an active controller it does not change,
and the broker continues to serve from it.
"""

from __future__ import annotations

from collections.abc import Callable

from raylog.broker.active_controller import ActiveController
from raylog.core.clock import Now
from raylog.core.errors import ErrorCode, InvariantViolation, KafkaError
from raylog.core.ids import BrokerId, LeaderEpoch, Offset
from raylog.metadata.image import MetadataImage
from raylog.metadata.records import MetadataRecord, decode_batches
from raylog.metadata.snapshot import SnapshotDecoder, SnapshotId
from raylog.metadata.snapshot_request import snapshot_request
from raylog.metadata.topic_names import METADATA_TOPIC_ID
from raylog.protocol.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, ReplicaState
from raylog.protocol.messages.fetch_snapshot import FetchSnapshotResponse
from raylog.transport.node import Node
from raylog.transport.peer_link import PeerLink

FETCH_WAIT_MS = 1000
FETCH_BYTES_MAX = 8 << 20
FETCH_ANSWER_MS_MAX = 2000
"""Time limit for a fetch, in addition to its max wait. A slower controller may have been replaced."""
ANSWER_MS_MAX = 5000
"""Time limit for other requests, in addition to their max wait; the link is then closed."""


class MetadataFollower:
    """Fetches whenever its link is ready.

    `on_record` is called for every record after it was replayed, `on_replayed` after all records of a response.
    """

    def __init__(
        self,
        node: Node,
        active: ActiveController,
        *,
        on_record: Callable[[MetadataRecord, Now], None],
        on_replayed: Callable[[Now], None],
    ) -> None:
        self.image = MetadataImage()
        self.next_offset = Offset(0)
        self._identity = node.identity
        self._active = active
        self._snapshot = SnapshotDecoder()
        """The received part of the snapshot that is being fetched."""
        self._on_record = on_record
        self._on_replayed = on_replayed
        self._waiting: list[tuple[int, Callable[[Now], None]]] = []
        self._link = active.new_link(on_ready=self._fetch, on_gone=lambda _: active.try_next_voter())

    def notify_at(self, offset: int, then: Callable[[Now], None], now: Now) -> None:
        """Call `then` once every record up to and including `offset` is replayed: now, or later."""
        if offset < self.next_offset:
            then(now)
        else:
            self._waiting.append((offset, then))

    def catch_up(self, link: PeerLink, then: Callable[[Now], None], now: Now) -> None:
        """Ask over `link` for the end of the log; call `then` once the image has reached it, or the link fails.

        The image then includes the effect of earlier responses over the link: a client finds a topic that it has just
        created.
        """

        def answered(response: FetchResponse, now: Now) -> None:
            high_watermark = response.responses[0].partitions[0].high_watermark if response.responses else 0
            self.notify_at(high_watermark - 1, then, now)

        def failed(_: KafkaError, now: Now) -> None:
            then(now)

        request = self._request(max_wait_ms=0, max_bytes=1)
        link.request(request, answered, failed, now=now, timeout_ms=ANSWER_MS_MAX)

    def _fetch(self, now: Now) -> None:
        self._link.request(
            self._request(max_wait_ms=FETCH_WAIT_MS, max_bytes=FETCH_BYTES_MAX),
            self._fetched,
            lambda _, now: None,  # the link reconnects and fetches again
            now=now,
            timeout_ms=FETCH_WAIT_MS + FETCH_ANSWER_MS_MAX,
        )

    def _request(self, *, max_wait_ms: int, max_bytes: int) -> FetchRequest:
        wanted = FetchPartition(partition=0, fetch_offset=self.next_offset, partition_max_bytes=max_bytes)
        return FetchRequest(
            cluster_id=self._identity.cluster_id,
            max_wait_ms=max_wait_ms,
            min_bytes=1,
            max_bytes=max_bytes,
            topics=[FetchTopic(topic_id=METADATA_TOPIC_ID, partitions=[wanted])],
            replica_state=ReplicaState(replica_id=self._identity.node_id),
        )

    def _fetched(self, response: FetchResponse, now: Now) -> None:
        if response.error_code != ErrorCode.NONE:
            raise KafkaError(response.error_code)  # the link reconnects
        result = response.responses[0].partitions[0]
        if result.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER:
            self._active.follow_hint(BrokerId(result.current_leader.leader_id))
            if self._link.ready:  # else the next connection fetches
                self._fetch(now)
            return
        if result.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            raise InvariantViolation(
                f"the controller's metadata log ends before offset {self.next_offset}, which this broker has"
                " already replayed: it has lost committed records, or belongs to another cluster"
            )
        if result.error_code != ErrorCode.NONE:
            raise KafkaError(result.error_code)
        self._active.found(now)
        snapshot_id = result.snapshot_id
        if snapshot_id.end_offset >= 0:
            self._snapshot = SnapshotDecoder()
            self._fetch_snapshot(SnapshotId(Offset(snapshot_id.end_offset), LeaderEpoch(snapshot_id.epoch)), now)
            return
        for batches in result.records or ():
            for offset, record in decode_batches(batches, from_offset=self.next_offset):
                self.image.replay(record)
                self.next_offset = Offset(offset + 1)
                self._on_record(record, now)
        self._replayed(now)

    def _replayed(self, now: Now) -> None:
        self._on_replayed(now)
        if self.image.voters is not None:
            self._active.replace_voters(self.image.voters.ids)
        self._notify_reached(now)
        self._fetch(now)

    def _notify_reached(self, now: Now) -> None:
        reached = [then for offset, then in self._waiting if offset < self.next_offset]
        self._waiting = [entry for entry in self._waiting if entry[0] >= self.next_offset]
        for then in reached:
            then(now)

    def _fetch_snapshot(self, snapshot: SnapshotId, now: Now) -> None:
        if self.next_offset > 0:
            raise InvariantViolation(
                f"the controller no longer has offset {self.next_offset} of the metadata "
                "log, the next one that this broker"
                " needs: it has to restart, and load a snapshot"
            )
        identity = self._identity
        self._link.request(
            snapshot_request(identity.cluster_id, identity.node_id, snapshot, self._snapshot.size_bytes),
            lambda response, now: self._snapshot_fetched(snapshot, response, now),
            lambda _, now: None,  # the link reconnects and fetches again
            now=now,
            timeout_ms=ANSWER_MS_MAX,
        )

    def _snapshot_fetched(self, snapshot: SnapshotId, response: FetchSnapshotResponse, now: Now) -> None:
        piece = response.topics[0].partitions[0]
        if piece.error_code != ErrorCode.NONE:
            raise KafkaError(piece.error_code)
        self._snapshot.feed(piece.unaligned_records)
        if self._snapshot.size_bytes < piece.size:
            self._fetch_snapshot(snapshot, now)
            return
        self.image, self.next_offset = self._snapshot.finish(), snapshot.end_offset
        self._snapshot = SnapshotDecoder()
        self._replayed(now)
