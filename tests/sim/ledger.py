"""What the controller has committed, read from what its disk would certainly keep: the truth that images are held to.

Nothing may be told to anyone that does not stand here, and nothing that stands here may ever be otherwise.
"""

from __future__ import annotations

from collections.abc import Callable
from uuid import UUID

from raylog.broker.broker import Broker
from raylog.controller.controller import Controller
from raylog.controller.image import MetadataImage
from raylog.controller.metadata_log import METADATA_PARTITION, decode_metadata
from raylog.controller.records import (
    BrokerUnfenced,
    ControlledShutdownBegun,
    IsrChanged,
    LeaderChanged,
    MetadataRecord,
    PartitionCreated,
)
from raylog.core.errors import KafkaError
from raylog.core.ids import NO_BROKER_ID, BrokerId, LeaderEpoch, Offset
from raylog.protocol.records.batch import HEADER_SIZE, BatchHeader, parse_header, verify_crc
from tests.support.sim_disk import SimDisk

Leadership = tuple[UUID, int, LeaderEpoch]
"""(topic id, partition, leader epoch)"""


class MetadataLedger:
    """The records that are durable, in their order, and the image that they make."""

    def __init__(self, disk: SimDisk, log_path: str) -> None:
        self.records: list[MetadataRecord] = []
        self.image = MetadataImage()
        self.leaders: dict[Leadership, BrokerId] = {}
        """Whom each leadership was given to."""
        self.unfenced: set[int] = set()
        """The broker epochs of all that were ever let serve."""
        self.on_unfenced: Callable[[BrokerId, int], None] = lambda broker_id, broker_epoch: None
        """Told of each broker that may lead from now on."""
        self.on_mark: Callable[[str], None] = lambda mark: None
        """Told of what has happened to brokers and the replicas of partitions."""
        self._disk = disk
        self._path = f"{log_path}/{METADATA_PARTITION}/{0:020}.log"
        self._position = 0

    def holds(self, count: int) -> bool:
        """Whether so many records are durable by now."""
        if count > len(self.records):
            self._read_on()
        return count <= len(self.records)

    def check_start(self, controller: Controller) -> None:
        """A new incarnation of the controller knows all that was ever committed, unchanged, and has made it durable."""
        before, self._position, self.records = self.records, 0, []
        self.image, self.leaders = MetadataImage(), {}
        told = self.on_unfenced, self.on_mark
        self.on_unfenced, self.on_mark = lambda broker_id, broker_epoch: None, lambda mark: None
        self._read_on()
        self.on_unfenced, self.on_mark = told
        assert self.records[: len(before)] == before, "what was committed has changed"
        self.check_controller(controller)

    def check_controller(self, controller: Controller) -> None:
        assert self.holds(controller.high_watermark), "told as committed before it was durable"

    def _read_on(self) -> None:
        data = self._disk.durable_bytes(self._path)
        while (batch := _whole_batch(data, self._position)) is not None:
            for offset, record in decode_metadata(batch, from_offset=Offset(len(self.records))):
                assert offset == len(self.records)
                self._take(record)
            self._position += len(batch)

    def _take(self, record: MetadataRecord) -> None:
        self.records.append(record)
        if isinstance(record, (LeaderChanged, IsrChanged)):
            before = self.image.topics_by_id[record.topic_id].partitions[record.partition]
            if isinstance(record, LeaderChanged) and len(before.replicas) > 1 and record.leader != NO_BROKER_ID:
                self.on_mark("another replica leads" if before.leader != NO_BROKER_ID else "the last one in sync leads")
            if record.isr is not None:
                self.on_mark("isr grown" if len(record.isr) > len(before.isr) else "isr shrunk")
        if isinstance(record, ControlledShutdownBegun):
            self.on_mark("controlled shutdown begun")
        self.image.replay(record)
        if isinstance(record, (PartitionCreated, LeaderChanged)) and record.leader != NO_BROKER_ID:
            self.leaders[record.topic_id, record.partition, record.leader_epoch] = record.leader
        if isinstance(record, BrokerUnfenced):
            self.unfenced.add(record.broker_epoch)
            self.on_unfenced(record.broker_id, record.broker_epoch)


class ImageWatch:
    """Holds the image of one incarnation of a broker, and what it leads, against the ledger."""

    def __init__(self, ledger: MetadataLedger) -> None:
        self._ledger = ledger
        self._image = MetadataImage()
        self._next_offset = 0

    def check(self, broker: Broker) -> None:
        if broker.accepting:
            assert broker.lifecycle.broker_epoch in self._ledger.unfenced, "serves before it was let"
        next_offset = broker.follower.next_offset
        if next_offset == self._next_offset:
            return
        assert self._ledger.holds(next_offset), "a broker knows what was never committed"
        for record in self._ledger.records[self._next_offset : next_offset]:
            self._image.replay(record)
        self._next_offset = next_offset
        assert vars(broker.image) == vars(self._image), "an image is no prefix of what was committed"
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
            assert broker.image.topics[tp.topic].topic_id == partition.topic_id, f"{tp} is of another topic"
            assert partition.leader_epoch == image.leader_epoch, f"{tp} is at another leader epoch"
            if partition.is_leader:
                leadership = (partition.topic_id, tp.partition, partition.leader_epoch)
                given_to = self._ledger.leaders.get(leadership)
                assert given_to == broker.identity.node_id, f"{tp} is led by a broker that was not elected"


def _whole_batch(data: bytes, position: int) -> bytes | None:
    """The batch at `position`, or None where there is none, or one that was cut short or damaged."""
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
