"""`raylog dump-log`: print the contents of the files of a log directory, in the format of kafka-dump-log.

Logs are printed batch by batch, other files as `dump_files` does. A log is read up to the first damaged batch; the
error and its position go to stderr. Files are only read, so the broker may be running; a batch that it is writing then
looks like a truncated one.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, NamedTuple

from raylog.cli import dump_files
from raylog.cli.arguments import Subparsers
from raylog.cli.values import shown
from raylog.core.errors import ErrorCode, KafkaError
from raylog.protocol.records.batch import HEADER_SIZE, BatchHeader, crc_is_valid, parse_header
from raylog.protocol.records.reader import Record, read_records

TIMESTAMP_TYPES = ("CreateTime", "LogAppendTime")


class Batch(NamedTuple):
    """One complete batch of the file."""

    position: int
    header: BatchHeader
    data: bytes


def add_to(subparsers: Subparsers) -> None:
    parser = subparsers.add_parser("dump-log", help="print and check the batches of log files")
    parser.add_argument("files", metavar="FILE", nargs="+", type=Path, help="any file of a log directory")
    parser.add_argument("--records", action="store_true", help="print the records of each batch as well")
    parser.add_argument(
        "--verify",
        action="store_true",
        help="check instead of printing: decode every batch, and compare indexes with their logs",
    )
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> None:
    for path in options.files:
        if path.suffix == ".log":
            _dump(path, records=options.records, verify=options.verify)
        elif options.verify:
            _verify(path)
        else:
            print(f"Dumping {path}")
            for line in dump_files.dump(path):
                print(line)


_INDEX_CHECKS = {
    ".index": dump_files.verify_index,
    ".timeindex": dump_files.verify_time_index,
    ".txnindex": dump_files.verify_transaction_index,
}


def _verify(path: Path) -> None:
    check = _INDEX_CHECKS.get(path.suffix)
    if check is None:
        found = sum(1 for _ in dump_files.dump(path))
    else:
        log = path.with_suffix(".log")
        with log.open("rb") as file:
            found = check(path, [(batch.position, batch.header) for batch in read_log(file, str(log))])
    print(f"{path}: {found} entries, no damage")


def _dump(path: Path, *, records: bool, verify: bool) -> None:
    if not verify:
        print(f"Dumping {path}")
        if path.stem.isdecimal():
            print(f"Log starting offset: {int(path.stem)}")
    batch_count = record_count = 0
    next_offset: int | None = None
    with path.open("rb") as file:
        for batch in read_log(file, str(path)):
            header = batch.header
            if next_offset is not None and header.base_offset < next_offset:
                message = f"the batch begins at offset {header.base_offset}, before the end of the previous one"
                raise _damage(str(path), batch.position, message)
            valid = crc_is_valid(batch.data, 0, header)
            if not verify:
                print(_batch_line(batch, valid=valid))
            if not valid:
                raise _damage(str(path), batch.position, f"the batch at offset {header.base_offset} fails its checksum")
            if records or verify:
                for record in _records_of(batch, str(path)):
                    if not verify:
                        print(_record_line(record, header))
            next_offset = header.next_offset
            batch_count += 1
            record_count += header.record_count
    if verify:
        print(f"{path}: {batch_count} batch(es), {record_count} record(s), next offset {next_offset or 0}, no damage")
    sys.stdout.flush()


def read_log(file: BinaryIO, name: str) -> Iterator[Batch]:
    """The batches in order, unchecked. Raises KafkaError at the first that is truncated or malformed."""
    position = 0
    size = file.seek(0, 2)
    file.seek(0)
    while position < size:
        start = file.read(HEADER_SIZE)
        try:
            header = parse_header(start)
        except KafkaError as error:
            raise _damage(name, position, error.message) from None
        if header.size_bytes > size - position:
            message = f"a batch of {header.size_bytes} bytes is truncated after {size - position}"
            raise _damage(name, position, message)
        yield Batch(position, header, start + file.read(header.size_bytes - HEADER_SIZE))
        position += header.size_bytes


def _records_of(batch: Batch, name: str) -> list[Record]:
    try:
        return read_records(batch.data, 0, batch.header)
    except KafkaError as error:
        raise _damage(name, batch.position, error.message) from None


def _damage(name: str, position: int, what: str) -> KafkaError:
    sys.stdout.flush()  # print the good batches before the error
    return KafkaError(ErrorCode.CORRUPT_MESSAGE, f"{name}: at position {position}: {what}")


def _batch_line(batch: Batch, *, valid: bool) -> str:
    header = batch.header
    fields = {
        "baseOffset": header.base_offset,
        "lastOffset": header.last_offset,
        "count": header.record_count,
        "baseSequence": header.base_sequence,
        "lastSequence": header.last_sequence,
        "producerId": header.producer_id,
        "producerEpoch": header.producer_epoch,
        "partitionLeaderEpoch": header.partition_leader_epoch,
        "isTransactional": _boolean(header.is_transactional),
        "isControl": _boolean(header.is_control),
        "position": batch.position,
        TIMESTAMP_TYPES[header.timestamp_type]: header.max_timestamp,
        "size": header.size_bytes,
        "magic": header.magic,
        "compresscodec": _codec_name(header),
        "crc": header.crc,
        "isvalid": _boolean(valid),
    }
    return " ".join(f"{name}: {value}" for name, value in fields.items())


def _record_line(record: Record, header: BatchHeader) -> str:
    sequence = -1
    if header.base_sequence >= 0:
        sequence = (header.base_sequence + record.offset - header.base_offset) & 0x7FFFFFFF
    fields = {
        "offset": record.offset,
        TIMESTAMP_TYPES[record.timestamp_type]: record.timestamp_ms,
        "keySize": _size(record.key),
        "valueSize": _size(record.value),
        "sequence": sequence,
        "headerKeys": f"[{','.join(shown(name.encode()) for name, _ in record.headers)}]",
        "key": shown(record.key),
        "payload": shown(record.value),
    }
    return "| " + " ".join(f"{name}: {value}" for name, value in fields.items())


def _codec_name(header: BatchHeader) -> str:
    try:
        return header.codec.name.lower()
    except KafkaError:
        return "unknown"


def _size(data: bytes | None) -> int:
    return -1 if data is None else len(data)


def _boolean(value: bool) -> str:
    return "true" if value else "false"
