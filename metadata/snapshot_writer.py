"""Writes a snapshot of the metadata without stopping its node: encoded in bounded steps, then written off the loop."""

from __future__ import annotations

from itertools import islice
from typing import Final

import msgpack

from raylog.logstore.checkpoint import write_file_atomically
from raylog.logstore.disk import Disk
from raylog.metadata import records
from raylog.metadata.control_records import ControlRecord
from raylog.metadata.image import MetadataImage
from raylog.metadata.snapshot import HEADER_KEY, SnapshotId, records_of
from raylog.protocol.records.builder import NewRecord, build_batch

BATCH_RECORDS: Final = 1000


class SnapshotWriter:
    """One snapshot: `step` until it returns True, then `write`, once.

    The image may go on changing: the writer holds a copy as of its making, which shares what never changes. The copy
    takes about a microsecond for each topic.
    """

    def __init__(self, snapshot: SnapshotId, image: MetadataImage, *, now_ms: int) -> None:
        self.snapshot = snapshot
        self.size_bytes = 0
        """Of what is encoded so far."""
        self._now_ms = now_ms
        self._records = records_of(image.copy())
        self._count = 0
        self._batches: list[bytes | bytearray] = []
        self._batch: list[NewRecord] = []
        self._control: list[ControlRecord] = []

    def step(self, records_max: int) -> bool:
        """Encode up to so many records; whether all are encoded. Not to be called again once it has returned True."""
        batch = self._batch
        taken = 0
        for record in islice(self._records, records_max):
            taken += 1
            if isinstance(record, ControlRecord):
                self._control.append(record)
                continue
            batch.append(NewRecord(None, records.encode(record), self._now_ms))
            if len(batch) == BATCH_RECORDS:
                self._close_batch()
                batch = self._batch
        self._count += taken
        if taken == records_max:
            return False
        if batch:
            self._close_batch()
        if self._control:
            self._batches.insert(0, records.batch_of(self._control, now_ms=self._now_ms))
            self.size_bytes += len(self._batches[0])
        header = build_batch([NewRecord(HEADER_KEY, msgpack.packb(self._count), self._now_ms)])
        self._batches.insert(0, header)
        self.size_bytes += len(header)
        return True

    def write(self, disk: Disk, directory: str) -> None:
        """Blocks: the file is durable when it returns. Touches nothing of the image. Raises OSError."""
        write_file_atomically(disk, f"{directory}/{self.snapshot.file_name}", b"".join(self._batches))

    def _close_batch(self) -> None:
        encoded = build_batch(self._batch)
        self._batches.append(encoded)
        self.size_bytes += len(encoded)
        self._batch = []
