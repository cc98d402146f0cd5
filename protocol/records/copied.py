"""A batch of one log that is sent to another: its records stay as they are encoded, compressed ones included."""

from __future__ import annotations

from raylog.core.ids import NO_LEADER_EPOCH, NO_PRODUCER_EPOCH, NO_PRODUCER_ID, NO_SEQUENCE
from raylog.protocol.records.batch import (
    CODEC_MASK,
    CONTROL_BIT,
    DELETE_HORIZON_BIT,
    HEADER_SIZE,
    LOG_APPEND_TIME_BIT,
    TRANSACTIONAL_BIT,
    BatchHeader,
    rebuilt,
)
from raylog.protocol.records.builder import BatchBuilder
from raylog.protocol.records.compression import Buffer, Codec

_NOT_SENT = LOG_APPEND_TIME_BIT | CONTROL_BIT | DELETE_HORIZON_BIT


def can_be_copied(header: BatchHeader) -> bool:
    """Whether a producer may send the records of the batch as they are encoded.

    Not with gaps between offsets, with timestamps that the records themselves do not have, with a base timestamp that
    stands for something else (a delete horizon), without records, or of a control batch.
    """
    return 0 < header.record_count == header.last_offset_delta + 1 and not header.attributes & _NOT_SENT


class CopiedBatch(BatchBuilder):
    """Takes no more records. The payload is kept as a view until `release`, and copied by `build`."""

    __slots__ = ("_header", "_payload")

    def __init__(self, batch: Buffer, header: BatchHeader) -> None:
        """`batch` is the whole batch, with the header, that `can_be_copied`; its checksum is not verified here."""
        super().__init__()
        self.count = header.record_count
        self.base_timestamp_ms, self.max_timestamp_ms = header.base_timestamp, header.max_timestamp
        self._header = header
        self._payload = memoryview(batch)[HEADER_SIZE : header.size_bytes]

    @property
    def size_bytes(self) -> int:
        return len(self._payload)

    @property
    def codec(self) -> Codec:
        """That of the records. Raises CORRUPT_MESSAGE for an unknown number."""
        return self._header.codec

    def release(self) -> bytearray:
        self._payload = memoryview(b"")
        return super().release()

    def build(
        self,
        *,
        base_offset: int = 0,
        codec: Codec = Codec.NONE,
        producer_id: int = NO_PRODUCER_ID,
        producer_epoch: int = NO_PRODUCER_EPOCH,
        base_sequence: int = NO_SEQUENCE,
        leader_epoch: int = NO_LEADER_EPOCH,
        timestamp_type: int = 0,
        transactional: bool = False,
        control: bool = False,
    ) -> bytearray:
        """The batch of this producer, with a new checksum, in its own codec whichever is given."""
        assert not timestamp_type
        assert not control
        attributes = self._header.attributes & CODEC_MASK
        header = self._header._replace(
            base_offset=base_offset,
            partition_leader_epoch=leader_epoch,
            attributes=attributes | TRANSACTIONAL_BIT if transactional else attributes,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            base_sequence=base_sequence,
        )
        return rebuilt(header, self._payload)
