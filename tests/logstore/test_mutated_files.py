"""Mutations of any file of a log directory are repaired or reported, and no wrong record is served."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from uuid import UUID

import pytest

from raylog.core.errors import ErrorCode, KafkaError
from raylog.core.ids import BrokerId, Offset, TopicPartition
from raylog.logstore import transaction_index
from raylog.logstore.checkpoint import (
    MetaProperties,
    decode_clean_shutdown,
    decode_offsets,
    decode_pairs,
    decode_partition_metadata,
    encode_clean_shutdown,
    encode_offsets,
    encode_pairs,
    encode_partition_metadata,
)
from raylog.logstore.leader_epochs import LeaderEpochs
from raylog.logstore.offset_index import OffsetIndex
from raylog.logstore.producer_state import ProducerState
from raylog.logstore.time_index import TimeIndex
from raylog.protocol.records.batch import HEADER_SIZE, LOG_OVERHEAD, crc_is_valid, parse_header
from tests.logstore.batches import NOW
from tests.logstore.test_damage import check, files, names, written
from tests.logstore.test_power_cuts import ROOT, open_dir
from tests.support.forms import by_form
from tests.support.mutations import mutations

MUTATIONS = by_form(1000, quick=300, long=100_000)
FILE_MUTATIONS = by_form(6, quick=2, long=500)
"""Of each file of a whole directory."""
INT64_MAX = (1 << 63) - 1
OFFSETS = encode_offsets({TopicPartition("a", 0): Offset(0), TopicPartition("b", 12): Offset(34_567_890)})


def offsets_are_valid(found: dict[TopicPartition, Offset]) -> bool:
    return all(0 <= tp.partition < 1 << 31 and 0 <= offset <= INT64_MAX for tp, offset in found.items())


def pairs_are_valid(found: list[tuple[int, int]]) -> bool:
    return all(0 <= epoch < 1 << 31 and 0 <= start <= INT64_MAX for epoch, start in found)


READERS: dict[str, tuple[bytes, Callable[[bytes], object]]] = {
    "offset checkpoint": (OFFSETS, lambda data: offsets_are_valid(decode_offsets(data))),
    "leader epochs": (encode_pairs([(1, 0), (3, 500), (4, 9_999)]), lambda data: pairs_are_valid(decode_pairs(data))),
    "leader epochs in order": (encode_pairs([(1, 0), (3, 500)]), lambda data: LeaderEpochs.decode(data) is not None),
    "meta.properties": (
        MetaProperties("Y2x1c3Rlcg", BrokerId(3), UUID(int=7)).encode(),
        lambda data: 0 <= MetaProperties.decode(data).node_id < 1 << 31,
    ),
    "partition.metadata": (encode_partition_metadata(UUID(int=7)), lambda data: decode_partition_metadata(data).bytes),
    "clean shutdown": (encode_clean_shutdown(42), lambda data: -1 <= decode_clean_shutdown(data) <= INT64_MAX),
    "offset index": (bytes(range(64)), lambda data: OffsetIndex.decode(data, log_size=1 << 40) is not None),
    "time index": (bytes(range(72)), lambda data: TimeIndex.decode(data) is not None),
    "transaction index": (bytes(34) * 3, lambda data: list(transaction_index.decode(data)) is not None),
}


@pytest.mark.parametrize("name", READERS)
def test_a_reader_returns_a_possible_value_or_raises_value_error(name: str) -> None:
    intact, read = READERS[name]
    assert read(intact)
    for mutation in mutations(intact, MUTATIONS, name):
        try:
            assert read(mutation), mutation
        except ValueError:
            pass


def test_a_snapshot_of_producers_has_a_checksum_for_all_of_it() -> None:
    disk, _ = written(clean=True)
    [*_, path] = [path for path in files(disk) if path.endswith(".snapshot")]
    intact = disk.read_file(path)
    assert len(ProducerState.decode_snapshot(intact, now_ms=NOW))
    for mutation in mutations(intact, MUTATIONS, "snapshot"):
        with pytest.raises(ValueError, match=r"."):
            ProducerState.decode_snapshot(mutation, now_ms=NOW)


def test_a_time_index_that_points_beyond_the_log_is_rebuilt() -> None:
    """Else no record has the wanted timestamp."""
    disk, values = written(clean=True)
    for path in [path for path in files(disk) if path.endswith(".timeindex")]:
        damaged = deepcopy(disk)
        damaged.overwrite(path, NOW.to_bytes(8) + (1000).to_bytes(4))
        check(open_dir(damaged, NOW), values, path)


@pytest.mark.parametrize("clean", [True, False])
def test_a_directory_with_a_mutated_file(clean: bool) -> None:
    disk, values = written(clean=clean)
    refused = 0
    for path in files(disk):
        intact = disk.read_file(path)
        for mutation in mutations(intact, FILE_MUTATIONS, path) if intact else ():
            if path.endswith(".log") and not offsets_agree(intact, mutation):
                continue
            if path.endswith(".txnindex") and begins_elsewhere(intact, mutation):
                continue
            damaged = deepcopy(disk)
            damaged.overwrite(path, mutation)
            try:
                log_dir = open_dir(damaged, NOW)
            except KafkaError as error:
                names(error, ErrorCode.KAFKA_STORAGE_ERROR, ROOT)
                assert not path.endswith((".index", ".timeindex", ".txnindex", ".snapshot", "checkpoint")), path
                refused += 1
                continue
            check(log_dir, values, path)
    assert refused


def begins_elsewhere(intact: bytes, mutation: bytes) -> bool:
    """Whether an entry of the transaction index has another first offset, where an earlier transaction may begin.

    The file has no checksum, so this cannot be detected without reading the whole log.
    """
    try:
        firsts = [entry.first_offset for entry in transaction_index.decode(mutation)]
    except ValueError:
        return False
    return firsts != [entry.first_offset for entry in transaction_index.decode(intact)]


def offsets_agree(intact: bytes, mutation: bytes) -> bool:
    """Whether each sound batch still has its offset, which the checksum does not cover."""
    offsets = dict(sound_batches(intact))
    return all(offsets.get(crc, offset) == offset for crc, offset in sound_batches(mutation))


def sound_batches(data: bytes) -> list[tuple[int, int]]:
    """(checksum, base offset) of each batch that has its checksum, wherever it is."""
    found = []
    for at in range(len(data) - HEADER_SIZE):
        if data[at + 16] == 2:
            try:
                header = parse_header(data, at)
            except KafkaError:
                continue
            if at + LOG_OVERHEAD + header.batch_length <= len(data) and crc_is_valid(data, at, header):
                found.append((header.crc, header.base_offset))
    return found
