"""Checkpoint files, which are replaced as a whole, in Kafka's text formats. Encoding and decoding are pure.

A malformed file raises ValueError; callers can continue without it.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from dataclasses import dataclass
from uuid import UUID

from raylog.core.ids import BrokerId, Offset, TopicPartition
from raylog.logstore.disk import Disk

RECOVERY_POINT_FILE = "recovery-point-offset-checkpoint"
HIGH_WATERMARK_FILE = "replication-offset-checkpoint"
LOG_START_OFFSET_FILE = "log-start-offset-checkpoint"
CLEANER_OFFSET_FILE = "cleaner-offset-checkpoint"
"""The offset up to which each log is compacted. Written by Kafka; empty until the first compaction."""
META_PROPERTIES_FILE = "meta.properties"
PARTITION_METADATA_FILE = "partition.metadata"
CLEAN_SHUTDOWN_FILE = ".kafka_cleanshutdown"
LEADER_EPOCH_FILE = "leader-epoch-checkpoint"

TEMPORARY_SUFFIX = ".tmp"
"""Suffix of a file that will be renamed to its final name. Recovery deletes files that a crash leaves behind."""
_VERSION = 0


def write_file_atomically(disk: Disk, path: str, data: bytes) -> None:
    """On return, `path` durably contains `data`. After a crash it contains either the old or the new content."""
    temporary = path + TEMPORARY_SUFFIX
    if disk.exists(temporary):
        disk.unlink(temporary)
    handle = disk.open(temporary, create=True)
    try:
        disk.pwrite(handle, data, 0)
        disk.fsync(handle)
    finally:
        disk.close(handle)
    disk.rename(temporary, path)
    disk.fsync_dir(path.rpartition("/")[0])


def encode_offsets(offsets: Mapping[TopicPartition, Offset]) -> bytes:
    """The text of an offset checkpoint: version, number of lines, then lines "topic partition offset"."""
    lines = [f"{topic} {partition} {offset}" for (topic, partition), offset in sorted(offsets.items())]
    return "\n".join([str(_VERSION), str(len(lines)), *lines, ""]).encode()


def decode_offsets(data: bytes) -> dict[TopicPartition, Offset]:
    offsets: dict[TopicPartition, Offset] = {}
    for line in _checkpoint_lines(data):
        topic, partition, offset = line.split(" ")
        if int(offset) < 0:
            raise ValueError(f"{line!r}: an offset cannot be negative")
        offsets[TopicPartition(topic, int(partition))] = Offset(int(offset))
    return offsets


def encode_pairs(pairs: list[tuple[int, int]]) -> bytes:
    """The text of `leader-epoch-checkpoint`: version, number of lines, then lines "epoch start_offset"."""
    lines = [f"{first} {second}" for first, second in pairs]
    return "\n".join([str(_VERSION), str(len(lines)), *lines, ""]).encode()


def decode_pairs(data: bytes) -> list[tuple[int, int]]:
    pairs = []
    for line in _checkpoint_lines(data):
        first, second = line.split(" ")
        pairs.append((int(first), int(second)))
    return pairs


def _checkpoint_lines(data: bytes) -> list[str]:
    lines = data.decode().splitlines()
    if len(lines) < 2 or int(lines[0]) != _VERSION or int(lines[1]) != len(lines) - 2:
        raise ValueError("must have version 0 and as many lines as it declares")
    return lines[2:]


@dataclass(frozen=True, slots=True)
class MetaProperties:
    """The identity of a log directory: `meta.properties`, version 1 (KRaft)."""

    cluster_id: str
    node_id: BrokerId
    directory_id: UUID

    def encode(self) -> bytes:
        return (
            "#\n"
            f"cluster.id={self.cluster_id}\n"
            f"directory.id={encode_uuid(self.directory_id)}\n"
            f"node.id={self.node_id}\n"
            "version=1\n"
        ).encode()

    @classmethod
    def decode(cls, data: bytes) -> MetaProperties:
        """Raises ValueError for another version or a missing key."""
        values: dict[str, str] = {}
        for line in data.decode().splitlines():
            key, separator, value = line.strip().partition("=")
            if separator and not key.startswith(("#", "!")):
                values[key.strip()] = value.strip().replace("\\", "")  # Java escapes ":" and "=" in values
        if values.get("version") != "1":
            raise ValueError(f"version={values.get('version')!r}: must be 1")
        missing = [key for key in ("cluster.id", "node.id", "directory.id") if key not in values]
        if missing:
            raise ValueError(f"{missing[0]} is missing")
        return cls(values["cluster.id"], BrokerId(int(values["node.id"])), decode_uuid(values["directory.id"]))


def encode_partition_metadata(topic_id: UUID) -> bytes:
    return f"version: 0\ntopic_id: {encode_uuid(topic_id)}".encode()


def decode_partition_metadata(data: bytes) -> UUID:
    lines = dict(line.partition(": ")[::2] for line in data.decode().splitlines())
    if lines.get("version") != "0" or "topic_id" not in lines:
        raise ValueError("not a version 0 file with a topic_id")
    return decode_uuid(lines["topic_id"])


def encode_clean_shutdown(broker_epoch: int) -> bytes:
    """The marker of a clean shutdown. It contains the broker epoch (KIP-966), so that it cannot hide a later crash."""
    return json.dumps({"version": 0, "brokerEpoch": broker_epoch}, separators=(",", ":")).encode()


def decode_clean_shutdown(data: bytes) -> int:
    """The broker epoch, -1 if the file has none (older Kafka versions write an empty file)."""
    try:
        return int(json.loads(data)["brokerEpoch"])
    except (ValueError, TypeError, KeyError, OverflowError, RecursionError):
        return -1


def encode_uuid(identity: UUID) -> str:
    """A UUID in Kafka's text format: URL-safe base64 without padding, 22 characters."""
    return base64.urlsafe_b64encode(identity.bytes).decode().rstrip("=")


def decode_uuid(text: str) -> UUID:
    try:
        return UUID(bytes=base64.urlsafe_b64decode(text + "=="))
    except ValueError:
        raise ValueError(f"{text!r} is not a 22-character UUID") from None
