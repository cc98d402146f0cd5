"""Mutated batches, also those with a correct checksum, are accepted or refused alike by everything that reads them."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

import pytest

from raylog.core.errors import ErrorCode, KafkaError
from raylog.logstore.record_set import CheckedRecordSet, check_record_set
from raylog.logstore.settings import LogSettings
from raylog.protocol.records import record_scan
from raylog.protocol.records.batch import CODEC_MASK, HEADER_SIZE, MalformedBatch, parse_header, write_crc
from raylog.protocol.records.builder import build_batch
from raylog.protocol.records.compression import Codec
from raylog.protocol.records.reader import read_batches
from tests.hostile.record_sets import record_set
from tests.hostile.responses import Learned
from tests.protocol.records.test_record_scan import RECORDS, is_readable, kernels, scanned
from tests.support.forms import by_form
from tests.support.mutations import mutations

NOW_MS = 1_700_000_000_000
MUTATIONS = by_form(400, quick=50, long=20_000)


def with_checksum(batch: bytes) -> bytes:
    """The batch with the length and the checksum that it should have."""
    correct = bytearray(batch)
    correct[8:12] = (len(batch) - 12).to_bytes(4)
    write_crc(correct, 0, len(correct))
    return bytes(correct)


def batches(codec: Codec) -> Iterator[bytes]:
    """Mutated batches of this codec, with a correct checksum."""
    for mutation in mutations(build_batch(RECORDS, codec=codec), MUTATIONS, codec.name):
        if len(mutation) >= HEADER_SIZE and mutation[16] == 2:
            yield with_checksum(mutation)


def is_well_formed(batch: bytes) -> bool:
    try:
        parse_header(batch)
    except KafkaError:
        return False
    return True


def check(record_set: bytes, *, from_client: bool) -> CheckedRecordSet:
    return check_record_set(memoryview(bytearray(record_set)), LogSettings(), now_ms=NOW_MS, from_client=from_client)


def test_the_scan_is_the_same_in_every_language() -> None:
    right = record_scan._kernel
    accepted = 0
    try:
        for batch in batches(Codec.NONE):
            if not is_well_formed(batch):
                continue
            found = []
            for each in kernels():
                record_scan._kernel = each
                found += [scanned(batch), scanned(batch, [3, len(batch) // 2])]
            assert found == found[:1] * len(found), batch.hex()
            header = parse_header(batch)
            if header.record_count == header.last_offset_delta + 1 and not header.attributes & CODEC_MASK:
                assert (found[0].code is ErrorCode.NONE) is is_readable(batch), batch.hex()
            accepted += found[0].code is ErrorCode.NONE
    finally:
        record_scan._kernel = right
    assert accepted > MUTATIONS // 20


@pytest.mark.parametrize("codec", Codec)
def test_what_is_accepted_from_a_client_can_be_read(codec: Codec) -> None:
    accepted, codes = 0, set()
    for batch in batches(codec):
        try:
            checked = check(batch, from_client=True)
        except KafkaError as error:
            codes.add(error.code)
            continue
        accepted += 1
        records = list(read_batches(checked.data))
        assert [record.offset for record in records] == list(range(parse_header(batch).next_offset))
    assert accepted > MUTATIONS // 50
    assert ErrorCode.CORRUPT_MESSAGE not in codes, "is retriable, and the checksums are correct"


@pytest.mark.parametrize("seed", range(by_form(200, quick=20, long=5000)))
def test_a_hostile_record_set_is_accepted_or_refused(seed: int) -> None:
    whole = record_set(Random(seed), Learned(), NOW_MS)
    for data in (whole, *mutations(whole, 5, seed)) if whole else ():
        for from_client in (True, False):
            try:
                checked = check_record_set(
                    memoryview(bytearray(data)), LogSettings(), now_ms=NOW_MS, from_client=from_client
                )
            except KafkaError:
                continue
            if from_client:
                assert list(read_batches(checked.data))
        try:
            for _ in read_batches(data, max_bytes=1 << 22):
                pass
        except (MalformedBatch, KafkaError):
            pass
