"""The contents of the files of a log directory other than `.log`: indexes, snapshots, checkpoints and metadata.

Each kind of file has a function that returns its lines, in the format of kafka-dump-log if that supports it. Errors
name the file and the position of the damage. `verify_index` and `verify_time_index` check an index against its log.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

from raylog.core.errors import ErrorCode, KafkaError
from raylog.logstore import offset_index, time_index, transaction_index
from raylog.logstore.checkpoint import (
    CLEAN_SHUTDOWN_FILE,
    HIGH_WATERMARK_FILE,
    LEADER_EPOCH_FILE,
    LOG_START_OFFSET_FILE,
    META_PROPERTIES_FILE,
    PARTITION_METADATA_FILE,
    RECOVERY_POINT_FILE,
    MetaProperties,
    decode_clean_shutdown,
    decode_offsets,
    decode_partition_metadata,
    encode_uuid,
)
from raylog.logstore.leader_epochs import LeaderEpochs
from raylog.logstore.producer_state import AbortedTransaction, ProducerState
from raylog.protocol.records.batch import BatchHeader

Batches = Iterable[tuple[int, BatchHeader]]
"""(position, header) of each batch of the log."""


def dump(path: Path) -> Iterator[str]:
    """The lines of any file except a log. Raises KafkaError that names file, position and damage, and OSError."""
    lines = _BY_NAME.get(path.name) or _BY_SUFFIX.get(path.suffix)
    if lines is None:
        known = ", ".join([".log", *_BY_SUFFIX, *_BY_NAME])
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"{path}: must be one of {known}")
    try:
        yield from lines(path)
    except (ValueError, UnicodeDecodeError) as error:
        raise damage(path, 0, str(error)) from None


def verify_index(path: Path, batches: Batches) -> int:
    """The number of entries checked. Raises KafkaError for the first that does not point to the batch of its offset."""
    headers = dict(batches)
    entries = list(_index_entries(path))
    for at, (offset, position) in enumerate(entries):
        header = headers.get(position)
        if header is None:
            raise damage(path, at * offset_index.ENTRY_SIZE, f"no batch begins at position {position} of the log")
        if not header.base_offset <= offset <= header.last_offset:
            what = f"offset {offset} is not in the batch of {header.base_offset} to {header.last_offset}"
            raise damage(path, at * offset_index.ENTRY_SIZE, what)
    return len(entries)


def verify_time_index(path: Path, batches: Batches) -> int:
    """The same for a time index: no batch up to an entry's offset may have a later timestamp than the entry."""
    entries = list(_time_entries(path))
    headers = [header for _, header in batches]
    for at, (timestamp_ms, offset) in enumerate(entries):
        newer = [h for h in headers if h.last_offset <= offset and h.max_timestamp > timestamp_ms]
        if newer:
            later = newer[0].base_offset
            what = f"timestamp {timestamp_ms} up to offset {offset}, but the batch at offset {later} is newer"
            raise damage(path, at * time_index.ENTRY_SIZE, what)
        if not any(header.base_offset <= offset <= header.last_offset for header in headers):
            raise damage(path, at * time_index.ENTRY_SIZE, f"no batch of the log contains offset {offset}")
    return len(entries)


def verify_transaction_index(path: Path, batches: Batches) -> int:
    """The same for a transaction index: each entry must end at a control batch of its producer."""
    markers = {header.base_offset: header.producer_id for _, header in batches if header.is_control}
    entries = list(_aborted(path))
    for aborted in entries:
        if markers.get(aborted.last_offset) != aborted.producer_id:
            what = f"offset {aborted.last_offset} is not a marker of producer {aborted.producer_id}"
            raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"{path}: {what}")
    return len(entries)


def damage(path: Path, position: int, what: str) -> KafkaError:
    return KafkaError(ErrorCode.CORRUPT_MESSAGE, f"{path}: at position {position}: {what}")


def _index(path: Path) -> Iterator[str]:
    for offset, position in _index_entries(path):
        yield f"offset: {offset} position: {position}"


def _index_entries(path: Path) -> Iterator[tuple[int, int]]:
    data, base_offset = _entries(path, offset_index.ENTRY_SIZE)
    before = -1
    for at in range(0, len(data), offset_index.ENTRY_SIZE):
        relative, position = int.from_bytes(data[at : at + 4]), int.from_bytes(data[at + 4 : at + 8])
        if relative <= before:
            raise damage(path, at, f"offset {base_offset + relative} does not follow {base_offset + before}")
        before = relative
        yield base_offset + relative, position


def _time_index(path: Path) -> Iterator[str]:
    for timestamp_ms, offset in _time_entries(path):
        yield f"timestamp: {timestamp_ms} offset: {offset}"


def _time_entries(path: Path) -> Iterator[tuple[int, int]]:
    data, base_offset = _entries(path, time_index.ENTRY_SIZE)
    before = -1
    for at in range(0, len(data), time_index.ENTRY_SIZE):
        timestamp_ms, relative = time_index.decode_entry(data[at : at + time_index.ENTRY_SIZE])
        if timestamp_ms <= before:
            raise damage(path, at, f"timestamp {timestamp_ms} does not follow {before}")
        before = timestamp_ms
        yield timestamp_ms, base_offset + relative


def _entries(path: Path, entry_size: int) -> tuple[bytes, int]:
    """The file without the zeros that Kafka preallocates, and the base offset from its name."""
    if not path.stem.isdecimal():
        raise damage(path, 0, "the file name is not an offset")
    data = path.read_bytes()
    if len(data) % entry_size:
        raise damage(path, len(data) - len(data) % entry_size, f"an entry of {entry_size} bytes is truncated")
    count = len(data) // entry_size
    while count > 1 and not any(data[(count - 1) * entry_size : count * entry_size]):
        count -= 1
    return data[: count * entry_size], int(path.stem)


def _transaction_index(path: Path) -> Iterator[str]:
    for one in _aborted(path):
        yield (
            f"version: 0 producerId: {one.producer_id} firstOffset: {one.first_offset} "
            f"lastOffset: {one.last_offset} lastStableOffset: {one.last_stable_offset}"
        )


def _aborted(path: Path) -> Iterator[AbortedTransaction]:
    """Raises KafkaError with the position of an entry that cannot be decoded, or is out of order."""
    data = path.read_bytes()
    before = -1
    for at in range(0, len(data), transaction_index.ENTRY_SIZE):
        try:
            [one] = transaction_index.decode(data[at : at + transaction_index.ENTRY_SIZE])
        except ValueError as error:
            raise damage(path, at, str(error)) from None
        if one.last_offset <= before:
            raise damage(path, at, f"last offset {one.last_offset} does not follow {before}")
        before = one.last_offset
        yield one


def _snapshot(path: Path) -> Iterator[str]:
    state = ProducerState.decode_snapshot(path.read_bytes(), now_ms=0)
    for producer_id, entry in state.producers().items():
        last = entry.batches[-1] if entry.batches else None
        fields: Mapping[str, int] = {
            "producerId": producer_id,
            "producerEpoch": entry.producer_epoch,
            "coordinatorEpoch": entry.coordinator_epoch,
            "currentTxnFirstOffset": state.open_transaction(producer_id),
            "firstSequence": last.first_sequence if last else -1,
            "lastSequence": last.last_sequence if last else -1,
            "lastOffset": last.last_offset if last else -1,
            "offsetDelta": last.offset_delta if last else 0,
            "timestamp": last.timestamp_ms if last else -1,
        }
        yield " ".join(f"{name}: {value}" for name, value in fields.items())


def _leader_epochs(path: Path) -> Iterator[str]:
    for epoch, start_offset in LeaderEpochs.decode(path.read_bytes()).entries:
        yield f"leaderEpoch: {epoch} startOffset: {start_offset}"


def _offsets(path: Path) -> Iterator[str]:
    for tp, offset in decode_offsets(path.read_bytes()).items():
        yield f"{tp}: {offset}"


def _partition_metadata(path: Path) -> Iterator[str]:
    yield f"topicId: {encode_uuid(decode_partition_metadata(path.read_bytes()))}"


def _meta_properties(path: Path) -> Iterator[str]:
    meta = MetaProperties.decode(path.read_bytes())
    yield f"clusterId: {meta.cluster_id} nodeId: {meta.node_id} directoryId: {encode_uuid(meta.directory_id)}"


def _clean_shutdown(path: Path) -> Iterator[str]:
    yield f"brokerEpoch: {decode_clean_shutdown(path.read_bytes())}"


_BY_SUFFIX: Mapping[str, Callable[[Path], Iterator[str]]] = {
    ".index": _index,
    ".timeindex": _time_index,
    ".txnindex": _transaction_index,
    ".snapshot": _snapshot,
}
_BY_NAME: Mapping[str, Callable[[Path], Iterator[str]]] = {
    LEADER_EPOCH_FILE: _leader_epochs,
    PARTITION_METADATA_FILE: _partition_metadata,
    META_PROPERTIES_FILE: _meta_properties,
    RECOVERY_POINT_FILE: _offsets,
    HIGH_WATERMARK_FILE: _offsets,
    LOG_START_OFFSET_FILE: _offsets,
    CLEAN_SHUTDOWN_FILE: _clean_shutdown,
}
