"""Fetch (key 1) on a controller, internal: the metadata log, for the other voters and for observers.

Serves one partition, under Kafka's topic id, without sessions. Waits up to max_wait_ms for changes (KIP-595). Observers
get committed records; voters get all records on this disk, and their fetch offset tells what is on theirs. A fetch from
before the log start offset, or one that may diverge there, gets the id of the snapshot to fetch (KIP-630). A controller
that does not lead responds with the leader, once it is known.
"""

from __future__ import annotations

from dataclasses import replace as _with
from typing import TYPE_CHECKING
from uuid import UUID

from raylog.controller.quorum.events import EpochSeen, VoterFetched
from raylog.core.errors import ErrorCode, KafkaError
from raylog.core.ids import NO_BROKER_ID, NO_DIRECTORY_ID, BrokerId, LeaderEpoch, Offset
from raylog.metadata.topic_names import METADATA_PARTITION, METADATA_TOPIC_ID
from raylog.protocol.fetch import (
    EpochEndOffset,
    FetchPartition,
    FetchPartitionResponse,
    FetchRequest,
    FetchResponse,
    FetchTopicResponse,
    SnapshotId,
)
from raylog.protocol.leader_hint import LeaderIdAndEpoch

if TYPE_CHECKING:
    from raylog.controller.services import ControllerServices
    from raylog.transport.exchange import Exchange


def handle(controller: ControllerServices, exchange: Exchange, request: FetchRequest) -> FetchResponse | None:
    if request.cluster_id not in (None, controller.identity.cluster_id):
        return FetchResponse(error_code=ErrorCode.INCONSISTENT_CLUSTER_ID)
    wanted = [(topic.topic_id, each) for topic in request.topics for each in topic.partitions]
    if len(wanted) != 1 or wanted[0][0] != METADATA_TOPIC_ID or wanted[0][1].partition != 0:
        return FetchResponse(error_code=ErrorCode.INVALID_REQUEST)
    replica_id = BrokerId(request.replica_id)
    directory_id = wanted[0][1].replica_directory_id
    if _is_other_voter(controller, replica_id, directory_id):
        _voter_fetched(controller, exchange, replica_id, wanted[0][1])
    fetch = DelayedMetadataFetch(controller, exchange, request, wanted[0][1], replica_id)
    response = fetch.read()
    result = response.responses[0].partitions[0]
    if result.error_code == ErrorCode.NONE and not fetch.from_voter and replica_id != NO_BROKER_ID:
        controller.observers.fetched(
            replica_id,
            fetch.start,
            leader_end_offset=controller.metadata_log.end_offset,
            now=exchange.now,
            directory_id=directory_id,
        )
        if directory_id != NO_DIRECTORY_ID:
            controller.voter.observed(replica_id)
    ready = request.max_wait_ms <= 0 or fetch.has_changes(result)
    if ready:
        return response
    exchange.wait_for(fetch, [METADATA_PARTITION])
    return None


def _is_other_voter(controller: ControllerServices, replica_id: BrokerId, directory_id: UUID) -> bool:
    return replica_id != controller.identity.node_id and controller.quorum.voters.has(replica_id, directory_id)


def _voter_fetched(controller: ControllerServices, exchange: Exchange, voter: BrokerId, wanted: FetchPartition) -> None:
    """Record the voter's progress, if its log is a prefix of this one."""
    quorum = controller.quorum
    if wanted.current_leader_epoch > quorum.leader_epoch:
        controller.voter.step(EpochSeen(LeaderEpoch(wanted.current_leader_epoch), NO_BROKER_ID), exchange.now)
    elif quorum.is_leader and wanted.current_leader_epoch == quorum.leader_epoch:
        end_offset = Offset(wanted.fetch_offset)
        has_position = wanted.last_fetched_epoch >= 0 or end_offset == 0
        if has_position and not _needs_snapshot(controller, wanted) and _diverging(controller, wanted) is None:
            controller.voter.step(VoterFetched(voter, end_offset, wanted.replica_directory_id), exchange.now)


def _needs_snapshot(controller: ControllerServices, wanted: FetchPartition) -> bool:
    """Whether this log starts too late to tell if the voter's log is a prefix of it, as in Kafka (KIP-630).

    A log that starts at 0 has nothing before it, and may have no snapshot.
    """
    log = controller.metadata_log
    epoch_before = log.epoch_before(log.start_offset)
    return (
        wanted.fetch_offset < log.start_offset
        or 0 <= wanted.last_fetched_epoch < epoch_before
        or (wanted.fetch_offset == log.start_offset > 0 and 0 <= wanted.last_fetched_epoch != epoch_before)
    )


def _diverging(controller: ControllerServices, wanted: FetchPartition) -> EpochEndOffset | None:
    """Where a voter must truncate its log because it diverges from this one; None if it does not."""
    log = controller.metadata_log
    if wanted.last_fetched_epoch < 0 or wanted.fetch_offset == 0:
        return None
    if wanted.fetch_offset == log.start_offset and wanted.last_fetched_epoch == log.epoch_before(log.start_offset):
        return None
    epoch, end_offset = log.log.end_offset_for_epoch(LeaderEpoch(wanted.last_fetched_epoch))
    if epoch == wanted.last_fetched_epoch and wanted.fetch_offset <= end_offset:
        return None
    return EpochEndOffset(epoch=epoch, end_offset=end_offset)


class DelayedMetadataFetch:
    """A fetch that waits for more records, or for a leader."""

    def __init__(
        self,
        controller: ControllerServices,
        exchange: Exchange,
        request: FetchRequest,
        wanted: FetchPartition,
        replica_id: BrokerId,
    ) -> None:
        self._controller = controller
        self._exchange = exchange
        self._wanted = wanted
        self._replica_id = replica_id
        self._max_bytes = request.max_bytes
        self._served = self._serves()
        """Whether this controller could serve the fetch when it arrived; if not, becoming able to is news."""
        self.start = Offset(wanted.fetch_offset)
        self.deadline_ms = exchange.now.monotonic_ms + request.max_wait_ms

    @property
    def from_voter(self) -> bool:
        """Whether the replica is another voter; an observer becomes one while its fetch waits."""
        return _is_other_voter(self._controller, self._replica_id, self._wanted.replica_directory_id)

    def try_complete(self, grown_bytes: int) -> bool:
        response = self.read()
        has_changes = self.has_changes(response.responses[0].partitions[0])
        if has_changes:
            self._exchange.answer(response)
        return has_changes

    def complete(self) -> None:
        self._exchange.answer(self.read())

    def has_changes(self, result: FetchPartitionResponse) -> bool:
        """Whether the response contains something new for its receiver."""
        if result.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER and not self.from_voter:
            return result.current_leader.leader_id != NO_BROKER_ID
        return (
            bool(result.records)
            or result.error_code != ErrorCode.NONE
            or result.snapshot_id.end_offset >= 0
            or result.diverging_epoch.end_offset >= 0
            or (self.from_voter and result.high_watermark > self._wanted.high_watermark)
            or (self._serves() and not self._served)
        )

    def read(self) -> FetchResponse:
        topic = FetchTopicResponse(topic_id=METADATA_TOPIC_ID, partitions=[self._read()])
        return FetchResponse(responses=[topic])

    def _serves(self) -> bool:
        """Whether this controller leads; for observers it must also have committed a record of its epoch."""
        quorum = self._controller.quorum
        return quorum.is_leader if self.from_voter else quorum.has_committed_in_epoch

    def _read(self) -> FetchPartitionResponse:
        quorum, log = self._controller.quorum, self._controller.metadata_log
        current = LeaderIdAndEpoch(leader_id=quorum.leader_id, leader_epoch=quorum.leader_epoch)
        asked_epoch = self._wanted.current_leader_epoch
        if not quorum.is_leader:
            return _refused(ErrorCode.NOT_LEADER_OR_FOLLOWER, current)
        if 0 <= asked_epoch != quorum.leader_epoch:
            code = ErrorCode.FENCED_LEADER_EPOCH
            return _refused(code if asked_epoch < quorum.leader_epoch else ErrorCode.UNKNOWN_LEADER_EPOCH, current)
        high_watermark = quorum.high_watermark
        if not self._serves():  # a removed voter may have fetched records that are not committed
            known = min(self.start, high_watermark)
            return FetchPartitionResponse(partition_index=0, high_watermark=known, records=())
        answer = FetchPartitionResponse(
            partition_index=0,
            high_watermark=high_watermark,
            last_stable_offset=high_watermark,
            log_start_offset=log.start_offset,
            records=(),
            current_leader=current,
        )
        if self.start < 0:
            return _refused(ErrorCode.OFFSET_OUT_OF_RANGE, current)
        if _needs_snapshot(self._controller, self._wanted):
            latest = log.snapshots[-1]
            return _with(answer, snapshot_id=SnapshotId(end_offset=latest.end_offset, epoch=latest.epoch))
        diverging = _diverging(self._controller, self._wanted)
        if diverging is not None:
            return _with(answer, diverging_epoch=diverging)
        upto = log.log.recovery_point if self.from_voter else high_watermark
        try:
            piece = log.log.read(self.start, max_bytes=self._max_bytes, upto=upto)
        except KafkaError as error:
            return _refused(error.code, current)
        return _with(answer, records=(piece.records,) if piece.records else ())


def _refused(code: ErrorCode, current: LeaderIdAndEpoch) -> FetchPartitionResponse:
    return FetchPartitionResponse(partition_index=0, error_code=code, records=(), current_leader=current)
