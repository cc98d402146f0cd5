"""The metadata log: Kafka's name and id for it, and how its records lie in it."""

from __future__ import annotations

from collections.abc import Iterator
from uuid import UUID

from raylog.controller import records
from raylog.controller.image import MetadataImage
from raylog.controller.records import MetadataRecord
from raylog.controller.topics import METADATA_TOPIC
from raylog.core.ids import LeaderEpoch, Offset, TopicPartition
from raylog.logstore.event_log import EventLog
from raylog.logstore.log import Log
from raylog.logstore.settings import LogSettings
from raylog.protocol.records.reader import read_batches
from raylog.protocol.wire import Buffer

METADATA_PARTITION = TopicPartition(METADATA_TOPIC, 0)
METADATA_TOPIC_ID = UUID(int=1)
"""Kafka's reserved id of the metadata topic."""
METADATA_LOG_SETTINGS = LogSettings(retention_ms=-1, segment_ms=(1 << 63) - 1, max_message_bytes=64 << 20)
"""A decision is one batch: that a broker is fenced which leads a million partitions must find room in it."""


def metadata_event_log(log: Log, leader_epoch: LeaderEpoch, image: MetadataImage) -> EventLog[MetadataRecord]:
    """The log as that of the machine whose state is `image`."""
    return EventLog(
        log,
        leader_epoch,
        encode=lambda record: (None, records.encode(record)),
        decode=lambda _, value: records.decode(value or b""),
        replay=image.replay,
    )


def decode_metadata(batches: Buffer, *, from_offset: Offset) -> Iterator[tuple[Offset, MetadataRecord]]:
    """The records in batches that were fetched, with their offsets. Raises InvariantViolation for a strange one."""
    for record in read_batches(batches, from_offset=from_offset):
        yield Offset(record.offset), records.decode(record.value or b"")
