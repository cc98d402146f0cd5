"""Snapshots encoded in one go."""

from __future__ import annotations

import random

from raylog.core.ids import LeaderEpoch, Offset
from raylog.metadata.image import MetadataImage
from raylog.metadata.snapshot import SnapshotId
from raylog.metadata.snapshot_writer import SnapshotWriter
from tests.support.sim_disk import SimDisk

ANY = SnapshotId(Offset(7), LeaderEpoch(1))


def encode_snapshot(image: MetadataImage, *, now_ms: int, step_records: int = 1 << 30) -> bytes:
    """The file that a SnapshotWriter leaves."""
    writer = SnapshotWriter(ANY, image, now_ms=now_ms)
    while not writer.step(step_records):
        pass
    disk = SimDisk(random.Random(0))
    disk.mkdir("/log")
    writer.write(disk, "/log")
    return disk.read_file(f"/log/{ANY.file_name}")
