"""The records that the controllers have committed: the reference for images and logs.

No node may reveal records that are not in the ledger, and no entry may ever change. Records are added when a voter
first considers them committed, and must then be durable on a majority of the disks.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from uuid import UUID

from raylog.broker.broker import Broker
from raylog.controller.controller import Controller
from raylog.controller.metadata_log import MetadataLog
from raylog.controller.quorum.election_state import ElectionState
from raylog.core.errors import KafkaError
from raylog.core.ids import NO_BROKER_ID, BrokerId, LeaderEpoch, Offset
from raylog.metadata.image import MetadataImage
from raylog.metadata.records import (
    BrokerUnfenced,
    ControlledShutdownBegun,
    ControllerElected,
    IsrChanged,
    LeaderChanged,
    MetadataRecord,
    PartitionCreated,
    ReplicasChanged,
    decode_batches,
)
from raylog.metadata.snapshot import SnapshotId, decode_snapshot, snapshot_named
from raylog.metadata.topic_names import METADATA_PARTITION
from raylog.protocol.records.batch import HEADER_SIZE, BatchHeader, parse_header, verify_crc
from tests.support.sim_disk import SimDisk

Leadership = tuple[UUID, int, LeaderEpoch]
"""(topic id, partition, leader epoch)"""
READ_BYTES = 1 << 20


class MetadataLedger:
    """The records that are committed, in their order, and the image that they make."""

    def __init__(self) -> None:
        self.records: list[MetadataRecord] = []
        self.image = MetadataImage()
        self.leaders: dict[Leadership, BrokerId] = {}
        """The leader in each leader epoch of a partition."""
        self.controllers: dict[LeaderEpoch, BrokerId] = {}
        """The leader of the metadata log in each epoch."""
        self._committed_in: dict[LeaderEpoch, int] = {}
        """The end of the committed log in each epoch."""
        self._election_states: dict[BrokerId, ElectionState] = {}
        """The election state that each voter revealed last: it must still have it after a restart."""
        self.unfenced: set[int] = set()
        """The broker epochs of all brokers that were ever unfenced."""
        self.durable_of: Callable[[BrokerId], DurableLog]
        """The log of a controller."""
        self.on_unfenced: Callable[[BrokerId, int], None] = lambda broker_id, broker_epoch: None
        """Called for each broker that is unfenced."""
        self.on_mark: Callable[[str], None] = lambda mark: None
        """Called for notable events of brokers and replicas."""

    def committed(self, log: MetadataLog, upto: Offset, voters: Sequence[BrokerId]) -> None:
        """A controller considers everything before `upto` committed, by its voter set."""
        if upto <= len(self.records):
            return
        first = Offset(len(self.records))
        for record in _records(log, first, upto):
            self._take(record)
        self._committed_in[log.epoch_before(upto)] = upto  # what a leader commits ends with a record of its own
        durable = [voter for voter in voters if self.durable_of(voter).holds(self.records, upto)]
        assert len(durable) > len(voters) // 2, f"{upto} is considered committed, but is on only {len(durable)} disk(s)"

    def leads(self, leader_epoch: LeaderEpoch, voter: BrokerId) -> None:
        known = self.controllers.setdefault(leader_epoch, voter)
        assert known == voter, f"epoch {leader_epoch} of the metadata log has two leaders, {known} and {voter}"

    def committed_before(self, leader_epoch: LeaderEpoch) -> int:
        """The offset below which a leader elected in this epoch must have all records (Raft 5.4.3).

        This may be below the committed end: a candidate may learn late that it was elected, when others lead in higher
        epochs.
        """
        return max((upto for epoch, upto in self._committed_in.items() if epoch < leader_epoch), default=0)

    def votes(self, voter: BrokerId, state: ElectionState, *, came_back: bool) -> None:
        """A voter has revealed this state, or with `came_back` has read it from its disk."""
        before = self._election_states.get(voter, state)
        known = (before.leader_epoch, before.voted_for) if before.voted_for != NO_BROKER_ID else before.leader_epoch
        if came_back:
            assert state.leader_epoch >= before.leader_epoch, f"voter {voter} has lost epoch {known}"
        if state.leader_epoch == before.leader_epoch and before.voted_for != NO_BROKER_ID:
            forgotten = "has lost" if came_back else "has changed"
            assert state.voted_for == before.voted_for, f"voter {voter} {forgotten} its vote {known}"
        self._election_states[voter] = state

    def disk_lost(self, voter: BrokerId) -> None:
        """Its votes are lost with it, but count only for the directory that is gone."""
        self._election_states.pop(voter, None)

    def image_at(self, upto: int) -> MetadataImage:
        """The image of all records before `upto`."""
        image = MetadataImage()
        for record in self.records[:upto]:
            image.replay(record)
        return image

    def _take(self, record: MetadataRecord) -> None:
        self.records.append(record)
        if isinstance(record, (LeaderChanged, IsrChanged)):
            before = self.image.topics_by_id[record.topic_id].partitions[record.partition]
            if isinstance(record, LeaderChanged) and len(before.replicas) > 1 and record.leader != NO_BROKER_ID:
                self.on_mark("another replica leads" if before.leader != NO_BROKER_ID else "the last one in sync leads")
            if record.isr is not None:
                self.on_mark("isr grown" if len(record.isr) > len(before.isr) else "isr shrunk")
            deposed = before.leader in self.image.active
            if deposed and isinstance(record, LeaderChanged) and record.leader == before.replicas[0]:
                self.on_mark("preferred leader elected")
        if isinstance(record, ReplicasChanged):
            self.on_mark(self._reassigned(record))
        if isinstance(record, ControllerElected):
            self.on_mark("controller elected")
        if isinstance(record, ControlledShutdownBegun):
            self.on_mark("controlled shutdown begun")
        self.image.replay(record)
        if isinstance(record, PartitionCreated | LeaderChanged | ReplicasChanged) and record.leader != NO_BROKER_ID:
            self.leaders[record.topic_id, record.partition, record.leader_epoch] = record.leader
        if isinstance(record, BrokerUnfenced):
            self.unfenced.add(record.broker_epoch)
            self.on_unfenced(record.broker_id, record.broker_epoch)

    def _reassigned(self, record: ReplicasChanged) -> str:
        before = self.image.topics_by_id[record.topic_id].partitions[record.partition]
        if record.adding or record.removing:
            return "reassignment replaced" if before.is_reassigning else "reassignment begun"
        if not before.is_reassigning:
            return "reassignment completed at once"
        completed = set(record.replicas) == set(before.replicas) - set(before.removing)
        cancelled = set(record.replicas) == set(before.replicas) - set(before.adding)
        return f"reassignment {'completed' if completed else 'cancelled' if cancelled else 'replaced'}"


class DurableLog:
    """The durable part of the metadata log on one disk. Read incrementally while the log only grows."""

    def __init__(self, disk: SimDisk, log_path: str) -> None:
        self._disk = disk
        self._directory = f"{log_path}/{METADATA_PARTITION}"
        self.forget()

    def forget(self) -> None:
        """The log may have been truncated or replaced."""
        self._segment = -1
        self._position = 0
        self._records: list[MetadataRecord] = []
        self._first = 0
        """The offset of the first of `_records`; a snapshot holds the earlier ones."""

    def holds(self, expected: Sequence[MetadataRecord], upto: int) -> bool:
        """Whether this log holds all expected records before `upto`."""
        if self._first + len(self._records) < upto:
            self._read_on()
        end = self._first + len(self._records)
        if end < upto:
            return False
        tail = max(self._first, upto - 50)  # earlier records were checked when they were committed
        return self._records[tail - self._first : upto - self._first] == list(expected[tail:upto])

    def _read_on(self) -> None:
        names = self._disk.durable_names(self._directory)
        bases = sorted(int(name.removesuffix(".log")) for name in names if name.endswith(".log"))
        if self._segment not in bases:
            self.forget()  # it was deleted, perhaps before it was read to its end
        if self._segment < 0 and bases:
            snapshots = [each for each in map(snapshot_named, names) if each is not None]
            self._first = bases[0]
            covered = bases[0] == 0 or any(self._covers(each) for each in snapshots)
            assert covered, "the log does not begin at offset 0, and no snapshot covers the records before it"
            self._segment = bases[0]
        while self._segment in bases:
            data = self._disk.durable_bytes(f"{self._directory}/{self._segment:020}.log")
            while (batch := _whole_batch(data, self._position)) is not None:
                end = Offset(self._first + len(self._records))
                for offset, record in decode_batches(batch, from_offset=end):
                    if offset == end:
                        self._records.append(record)
                        end = Offset(end + 1)
                self._position += len(batch)
            following = [base for base in bases if base > self._segment]
            if not following or following[0] != self._first + len(self._records):
                return
            self._segment, self._position = following[0], 0

    def _covers(self, snapshot: SnapshotId) -> bool:
        if snapshot.end_offset < self._first:
            return False
        decode_snapshot(self.snapshot(snapshot))
        return True

    def snapshot(self, snapshot: SnapshotId) -> bytes:
        return self._disk.durable_bytes(f"{self._directory}/{snapshot.file_name}")


class VoterWatch:
    """Compares the log and the image of one incarnation of a controller with the ledger."""

    def __init__(self, ledger: MetadataLedger, durable: DurableLog) -> None:
        self._ledger = ledger
        self._durable = durable
        self._checked = 0
        """The offset up to which its log was compared."""
        self._led_epoch = -1
        self._generation = 0
        self._end_offset = 0
        self._state: ElectionState | None = None
        self._snapshots: list[SnapshotId] = []

    def check(self, controller: Controller) -> None:
        quorum, log, ledger = controller.quorum, controller.metadata_log, self._ledger
        if quorum.state != self._state:
            ledger.votes(quorum.node_id, quorum.state, came_back=self._state is None)
            self._state = quorum.state
        if log.log.generation != self._generation:
            self._generation = log.log.generation
            self._durable.forget()
            if log.end_offset < self._end_offset:
                ledger.on_mark("metadata log cut")
            elif log.start_offset == log.end_offset > self._end_offset:
                ledger.on_mark("snapshot installed")
        self._end_offset = log.end_offset
        if quorum.is_leader and quorum.leader_epoch != self._led_epoch:
            self._led_epoch = quorum.leader_epoch
            ledger.leads(quorum.leader_epoch, quorum.node_id)
            ledger.on_mark("led the metadata log")
            former = ledger.committed_before(quorum.leader_epoch)
            assert log.end_offset > former, "the new leader's log lacks committed records"
            self._compare(log, former)
        if quorum.high_watermark > len(ledger.records):
            last = log.snapshots[-1].end_offset if log.snapshots else 0  # a leader may have died in writing it
            known = quorum.is_leader or quorum.high_watermark <= last
            assert known, f"a standby considers {quorum.high_watermark} committed, but no leader has"
            written = log.epoch_before(quorum.high_watermark)
            own = not quorum.is_leader or written == quorum.leader_epoch
            assert own, f"records of epoch {written} were committed by count in epoch {quorum.leader_epoch}"
        ledger.committed(log, quorum.high_watermark, quorum.voters.ids)
        self._compare(log, quorum.high_watermark)
        what = "decided" if quorum.is_leader else "committed"
        upto = log.end_offset if quorum.is_leader else quorum.high_watermark
        assert log.next_offset == upto, f"the image is at offset {log.next_offset}, but {what} is {upto}"
        if log.snapshots != self._snapshots:
            self._look_at_snapshots(log)

    def _look_at_snapshots(self, log: MetadataLog) -> None:
        """New snapshots must hold exactly the committed records before their end offset."""
        for snapshot in log.snapshots:
            if snapshot not in self._snapshots:
                known = len(self._ledger.records)
                assert snapshot.end_offset <= known, (
                    f"a snapshot covers offsets up to {snapshot.end_offset}, but only {known} is committed"
                )
                image = decode_snapshot(self._durable.snapshot(snapshot))
                expected = self._ledger.image_at(snapshot.end_offset)
                assert vars(image) == vars(expected), (
                    f"the snapshot at {snapshot.end_offset} differs from the committed records"
                )
        self._snapshots = list(log.snapshots)

    def _compare(self, log: MetadataLog, upto: int) -> None:
        first = max(self._checked, log.start_offset)
        if upto > first:
            found = list(_records(log, Offset(first), Offset(upto)))
            assert found == self._ledger.records[first:upto], f"committed records have changed, from offset {first} on"
            self._checked = upto


class ImageWatch:
    """Compares the image and the leaderships of one incarnation of a broker with the ledger."""

    def __init__(self, ledger: MetadataLedger) -> None:
        self._ledger = ledger
        self._image = MetadataImage()
        self._next_offset = 0

    def check(self, broker: Broker) -> None:
        if broker.accepting:
            assert broker.lifecycle.broker_epoch in self._ledger.unfenced, (
                "a broker serves clients before it was unfenced"
            )
        next_offset = broker.follower.next_offset
        if next_offset == self._next_offset:
            return
        assert next_offset <= len(self._ledger.records), "a broker has uncommitted metadata records"
        for record in self._ledger.records[self._next_offset : next_offset]:
            self._image.replay(record)
        self._next_offset = next_offset
        assert vars(broker.image) == vars(self._image), "an image is not a prefix of the committed metadata"
        self._check_leaders(broker)

    def _check_leaders(self, broker: Broker) -> None:
        for topic in broker.image.topics.values():
            for shown in topic.partitions:
                assert shown.leader == NO_BROKER_ID or shown.leader in broker.image.alive, (
                    "led by a broker that is gone"
                )
        for tp, partition in broker.partitions.items():
            image = broker.image.partition(tp)
            assert image is not None
            assert broker.image.topics[tp.topic].topic_id == partition.topic_id, f"{tp} has another topic id"
            assert partition.leader_epoch == image.leader_epoch, f"{tp} has another leader epoch"
            if partition.is_leader:
                leadership = (partition.topic_id, tp.partition, partition.leader_epoch)
                given_to = self._ledger.leaders.get(leadership)
                assert given_to == broker.identity.node_id, f"{tp} is led by a broker that was not elected"


def _records(log: MetadataLog, first: Offset, upto: Offset) -> list[MetadataRecord]:
    found: list[MetadataRecord] = []
    position = first
    while position < upto:
        piece = log.log.read(position, max_bytes=READ_BYTES, upto=upto)
        found += [record for _, record in decode_batches(piece.records, from_offset=position)]
        position = piece.next_offset
    return found


def _whole_batch(data: bytes, position: int) -> bytes | None:
    """The batch at `position`, or None if there is none or it is truncated or damaged."""
    if len(data) - position < HEADER_SIZE:
        return None
    try:
        header: BatchHeader = parse_header(data, position)
        batch = data[position : position + header.size_bytes]
        if len(batch) < header.size_bytes:
            return None
        verify_crc(batch, 0, header)
    except KafkaError:
        return None
    return batch
