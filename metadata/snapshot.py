"""A snapshot of the metadata at one offset of its log: records that rebuild the image (KIP-630).

A snapshot is a file `<end offset>-<epoch>.checkpoint` beside the log's segments, as Kafka names it. Its first record
holds the number of the others, which are of the same kinds as in the log.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

import msgpack

from raylog.core.errors import ErrorCode, InvariantViolation, KafkaError
from raylog.core.ids import LeaderEpoch, Offset
from raylog.metadata import records
from raylog.metadata.control_records import KRaftVersionChanged, VotersChanged, decode_control
from raylog.metadata.features import KRAFT_FEATURE
from raylog.metadata.image import MetadataImage, acl_added, token_created
from raylog.metadata.levels import FIRST_LEVEL, METADATA_FEATURE, UnsupportedLevel
from raylog.metadata.records import (
    BrokerConfigsChanged,
    BrokerUnfenced,
    ClientMetricsConfigsChanged,
    ClientQuotaSet,
    ControlledShutdownBegun,
    FeatureLevelChanged,
    GroupConfigsChanged,
    MetadataRecord,
    PartitionCreated,
    ProducerIdsAllocated,
    ReplicasAssignedToDirectory,
    ScramCredentialSet,
    TopicCreated,
    TopicDeleted,
)
from raylog.protocol.records.batch import (
    BATCH_LENGTH_AT,
    BATCH_LENGTH_MIN,
    LOG_OVERHEAD,
    parse_header,
    split_batches,
    verify_crc,
)
from raylog.protocol.records.reader import read_records
from raylog.protocol.wire import Buffer

HEADER_KEY = b"snapshot"
"""Of the first record, whose value is the number of the others."""
ASSIGNED_PER_RECORD = 1000
"""Replicas in one ReplicasAssignedToDirectory of a snapshot: about 20 KiB."""
_NAME = re.compile(r"(\d{20})-(\d{10})\.checkpoint")


class SnapshotId(NamedTuple):
    """A snapshot of the log before `end_offset`, whose last record has `epoch`. Later snapshots compare greater."""

    end_offset: Offset
    epoch: LeaderEpoch

    @property
    def file_name(self) -> str:
        return f"{self.end_offset:020}-{self.epoch:010}.checkpoint"


def snapshot_named(file_name: str) -> SnapshotId | None:
    """The id of the snapshot in a file of this name; None for other files."""
    found = _NAME.fullmatch(file_name)
    return SnapshotId(Offset(int(found[1])), LeaderEpoch(int(found[2]))) if found else None


def records_of(image: MetadataImage) -> Iterator[MetadataRecord]:
    """Records that turn an empty image into this one."""
    if image.metadata_level > FIRST_LEVEL:
        yield FeatureLevelChanged(METADATA_FEATURE, image.metadata_level)
    for feature, level in sorted(image.feature_levels.items()):
        yield KRaftVersionChanged(level) if feature == KRAFT_FEATURE else FeatureLevelChanged(feature, level)
    if image.voters is not None:
        yield VotersChanged(image.voters)
    for topic_id, name in image.deleted_topics.items():
        yield TopicCreated(name, topic_id)
        yield TopicDeleted(topic_id)
    for topic in image.topics.values():
        yield TopicCreated(topic.name, topic.topic_id, tuple(sorted(topic.configs.items())))
        for each in topic.partitions:
            yield PartitionCreated(
                topic.topic_id,
                each.partition,
                each.replicas,
                each.leader,
                each.leader_epoch,
                each.isr,
                adding=each.adding,
                removing=each.removing,
                former=each.former,
                partition_epoch=each.partition_epoch,
                emptied=each.emptied,
            )
    for broker in image.brokers.values():
        yield broker.registration
        broker_id, broker_epoch = broker.registration.broker_id, broker.registration.broker_epoch
        if not broker.fenced:
            yield BrokerUnfenced(broker_id, broker_epoch)
        if broker.shutdown_offset is not None:
            yield ControlledShutdownBegun(broker_id, broker_epoch, broker.shutdown_offset)
    for broker_id, held in image.replica_directories.items():
        for directory_id in dict.fromkeys(held.values()):
            inside = tuple(replica for replica, its in held.items() if its == directory_id)
            for start in range(0, len(inside), ASSIGNED_PER_RECORD):
                yield ReplicasAssignedToDirectory(broker_id, directory_id, inside[start : start + ASSIGNED_PER_RECORD])
    for broker_id, configs in image.broker_configs.items():
        passwords = image.broker_passwords.get(broker_id, {})
        yield BrokerConfigsChanged(broker_id, tuple(sorted(configs.items())), tuple(sorted(passwords.items())))
    for group_id, configs in image.group_configs.items():
        yield GroupConfigsChanged(group_id, tuple(sorted(configs.items())))
    for name, configs in image.client_metrics.items():
        yield ClientMetricsConfigsChanged(name, tuple(sorted(configs.items())))
    if image.next_producer_id:
        yield ProducerIdsAllocated(image.next_producer_id)
    for acl_id, binding in image.acls.entries.items():
        yield acl_added(acl_id, binding)
    for (user, mechanism), credential in image.scram_credentials.items():
        yield ScramCredentialSet(user, mechanism.value, *credential)
    for entity, values in image.client_quotas.entries.items():
        for key, value in values.items():
            yield ClientQuotaSet(entity, key, value)
    for token in image.delegation_tokens.values():
        yield token_created(token)


class SnapshotDecoder:
    """Decodes a snapshot from pieces of any size, each as it arrives.

    Methods raise KafkaError(CORRUPT_MESSAGE) for a file that is not whole, or was changed, and UnsupportedLevel.
    """

    def __init__(self) -> None:
        self.size_bytes = 0
        """Of the pieces so far."""
        self._image = MetadataImage()
        self._tail = bytearray()
        """The beginning of a batch whose rest has not arrived."""
        self._expected = -1
        self._seen = 0

    def feed(self, piece: Buffer) -> None:
        """Decode the batches that are complete with this piece."""
        self.size_bytes += len(piece)
        self._tail += piece
        whole = 0
        while (size := _batch_size(self._tail, whole)) is not None and whole + size <= len(self._tail):
            whole += size
        complete = bytes(memoryview(self._tail)[:whole])
        del self._tail[:whole]
        for position, header in split_batches(complete):
            verify_crc(complete, position, header)
            self._replay(memoryview(complete)[position : position + header.size_bytes])

    def finish(self) -> MetadataImage:
        """The image, after the last piece."""
        if self._tail or self._seen != self._expected:
            raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"a snapshot of {self._expected} records contains {self._seen}")
        return self._image

    def _replay(self, batch: memoryview) -> None:
        header = parse_header(batch)
        for record in read_records(batch, 0, header):
            if record.key == HEADER_KEY and self._expected < 0:
                self._expected = msgpack.unpackb(record.value or b"")
                continue
            self._seen += 1
            try:
                decoded = decode_control(record) if header.is_control else records.decode(record.value or b"")
                self._image.replay(decoded)
            except UnsupportedLevel:
                raise
            except InvariantViolation as error:
                raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"not a snapshot: {error}") from error


def _batch_size(data: bytearray, position: int) -> int | None:
    """The size of the batch at `position`; None if its length has not arrived. Raises CORRUPT_MESSAGE."""
    if len(data) - position < LOG_OVERHEAD:
        return None
    length = int.from_bytes(data[position + BATCH_LENGTH_AT : position + BATCH_LENGTH_AT + 4], "big", signed=True)
    if length < BATCH_LENGTH_MIN:
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"not a snapshot: a batch of {length} bytes")
    return LOG_OVERHEAD + length


def decode_snapshot(data: Buffer) -> MetadataImage:
    """The image of a whole snapshot. Raises the errors of `SnapshotDecoder`."""
    decoder = SnapshotDecoder()
    decoder.feed(data)
    return decoder.finish()
