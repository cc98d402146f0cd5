"""A snapshot of the metadata that a voter receives from the leader."""

from __future__ import annotations

from raylog.metadata.image import MetadataImage
from raylog.metadata.snapshot import SnapshotDecoder, SnapshotId
from raylog.protocol.messages.fetch_snapshot import ResponsePartitionSnapshot


class ReceivedSnapshot:
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
