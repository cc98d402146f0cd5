"""With its own `compression.type` a topic stores every batch in that codec, and changes nothing else."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from raylog.core.errors import ErrorCode, KafkaError
from raylog.core.ids import Offset
from raylog.logstore.log import Log
from raylog.logstore.record_set import RECOMPRESSED_BYTES_MAX, check_record_set
from raylog.logstore.settings import Compression, LogSettings, MessageTimestampType
from raylog.protocol.records.batch import BatchHeader, parse_header, split_batches, verify_crc, write_crc
from raylog.protocol.records.builder import NewRecord, build_batch
from raylog.protocol.records.compression import Codec
from raylog.protocol.records.reader import Record, read_records
from tests.logstore.batches import EPOCH, NOW, append, batch, marker, new_disk, open_log

RECORDS = [
    NewRecord(b"key", b"value " * 50, NOW - 7, (("name", b"x"), ("null", None))),
    NewRecord(None, b"", NOW - 9),
    NewRecord(b"", None, NOW + 20),
]
NEITHER_LENGTH_NOR_CODEC_NOR_CHECKSUM = {"batch_length": 0, "attributes": 0, "crc": 0}


def log_with(codec: Codec, **settings: object) -> Log:
    return open_log(new_disk(), LogSettings(compression=Compression(codec), **settings))  # type: ignore[arg-type]


def stored(log: Log) -> list[tuple[BatchHeader, list[Record]]]:
    """Each batch, after a look at its checksum."""
    data = log.read(Offset(0), max_bytes=1 << 20, upto=log.log_end_offset).records
    found = []
    for position, header in split_batches(data):
        verify_crc(data, position, header)
        found.append((header, read_records(data, position, header)))
    return found


def refusal(log: Log, record_set: bytes | bytearray) -> ErrorCode:
    """The code with which it refuses, after a look that nothing has changed."""
    before = (log.log_end_offset, log.size_bytes, log.producers.encode_snapshot())
    with pytest.raises(KafkaError) as caught:
        append(log, record_set)
    assert (log.log_end_offset, log.size_bytes, log.producers.encode_snapshot()) == before
    return caught.value.code


@pytest.mark.parametrize("sent", list(Codec))
@pytest.mark.parametrize("wanted", list(Codec))
def test_only_the_compression_changes(sent: Codec, wanted: Codec) -> None:
    log = log_with(wanted)
    batch = build_batch(RECORDS, codec=sent, producer_id=9, producer_epoch=2, base_sequence=0)
    before = parse_header(batch)._replace(partition_leader_epoch=EPOCH)
    records = read_records(batch, 0, before)
    append(log, batch)
    ((header, found),) = stored(log)
    assert (header.codec, found) == (wanted, records)
    blank = NEITHER_LENGTH_NOR_CODEC_NOR_CHECKSUM
    assert header._replace(**blank) == before._replace(**blank)
    assert header.attributes & ~7 == before.attributes & ~7


def test_a_batch_in_the_codec_of_the_topic_is_stored_unchanged() -> None:
    log = log_with(Codec.GZIP)
    log.settings = replace(log.settings, compression=Compression(Codec.GZIP, level=1))
    sent = build_batch(RECORDS, codec=Codec.GZIP)
    append(log, sent)
    piece = log.read(Offset(0), max_bytes=1 << 20, upto=Offset(3)).records
    assert bytes(piece[61:]) == sent[61:]


def test_the_configured_level_is_used() -> None:
    values = [b"flight %d to %d" % (number * number, number % 7) for number in range(3000)]
    sizes = []
    for level in (1, 9):
        log = open_log(new_disk(), LogSettings(compression=Compression(Codec.GZIP, level)))
        append(log, batch(*values))
        sizes.append(log.size_bytes)
    assert sizes[1] < sizes[0]


def test_a_retry_of_a_recompressed_batch_is_recognised() -> None:
    log = log_with(Codec.ZSTD)
    first = append(log, batch(b"a" * 99, b"b", producer=(7, 0, 0)))
    again = append(log, batch(b"a" * 99, b"b", producer=(7, 0, 0)))
    assert (again.first_offset, again.duplicate) == (first.first_offset, True)
    assert append(log, batch(b"c", producer=(7, 0, 2))).first_offset == 2


def test_with_log_append_time_clock_and_codec_are_the_brokers() -> None:
    log = log_with(Codec.SNAPPY, message_timestamp_type=MessageTimestampType.LOG_APPEND_TIME)
    append(log, build_batch(RECORDS, codec=Codec.GZIP), now_ms=NOW + 5)
    ((header, records),) = stored(log)
    assert (header.codec, header.max_timestamp, header.timestamp_type) == (Codec.SNAPPY, NOW + 5, 1)
    assert {record.timestamp_ms for record in records} == {NOW + 5}
    assert log.offset_for_timestamp(NOW + 5, upto=Offset(3)) == (0, NOW + 5, EPOCH)


def test_batches_of_a_transaction_are_recompressed_but_not_its_marker() -> None:
    log = log_with(Codec.ZSTD)
    append(log, batch(b"a" * 99, transactional=True, producer=(7, 0, 0)))
    append(log, marker(7, committed=True), from_client=False)
    shown = [(header.codec, header.is_transactional, header.is_control) for header, _ in stored(log)]
    assert shown == [(Codec.ZSTD, True, False), (Codec.NONE, True, True)]


def test_max_message_bytes_applies_before_and_after() -> None:
    small = batch(b"x" * 5000, codec=Codec.GZIP)
    assert refusal(log_with(Codec.NONE, max_message_bytes=1000), small) is ErrorCode.MESSAGE_TOO_LARGE
    large = batch(b"x" * 5000)
    assert refusal(log_with(Codec.GZIP, max_message_bytes=1000), large) is ErrorCode.MESSAGE_TOO_LARGE


def test_segment_bytes_applies_to_the_stored_size() -> None:
    small = batch(b"x" * 5000, codec=Codec.GZIP)
    assert refusal(log_with(Codec.NONE, segment_bytes=1000), small) is ErrorCode.RECORD_LIST_TOO_LARGE
    append(log_with(Codec.GZIP, segment_bytes=1000), batch(b"x" * 5000))
    assert refusal(log_with(Codec.NONE, segment_bytes=1000), batch(b"x" * 5000)) is ErrorCode.RECORD_LIST_TOO_LARGE


@pytest.mark.parametrize("sent", list(Codec))
def test_records_that_cannot_be_decoded_are_refused(sent: Codec) -> None:
    broken = build_batch(RECORDS, codec=sent)
    del broken[-3:]
    broken[8:12] = (len(broken) - 12).to_bytes(4)
    write_crc(broken, 0, len(broken))
    log = log_with(Codec.LZ4 if sent is not Codec.LZ4 else Codec.ZSTD)
    assert refusal(log, broken) is ErrorCode.INVALID_RECORD


def test_only_valid_records_are_stored() -> None:
    rng = random.Random(5)
    log = log_with(Codec.ZSTD)
    for _ in range(300):
        noise = build_batch(RECORDS)
        noise[61:] = rng.randbytes(len(noise) - 61)
        write_crc(noise, 0, len(noise))
        assert refusal(log, noise) is ErrorCode.INVALID_RECORD


def test_a_decompression_bomb_is_refused() -> None:
    log = log_with(Codec.ZSTD)
    bomb = batch(bytes(RECOMPRESSED_BYTES_MAX), codec=Codec.GZIP)
    assert len(bomb) < 100_000
    assert refusal(log, bomb) is ErrorCode.INVALID_RECORD


def test_the_callers_record_set_is_not_modified() -> None:
    sent = batch(b"a" * 99)
    view = memoryview(bytes(sent))
    to_gzip = LogSettings(compression=Compression(Codec.GZIP))
    data, ((position, header),), _ = check_record_set(view, to_gzip, now_ms=NOW, from_client=True)
    assert (view.tobytes(), position, header.size_bytes) == (bytes(sent), 0, len(data))
