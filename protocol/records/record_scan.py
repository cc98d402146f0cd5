"""Checks the encoded records of a batch as Kafka's LogValidator does, without an object per record.

The records may come in pieces of any size, as they are decompressed, so that memory does not depend on their number or
size. The loop exists three times with the same results (`kernel().name` says which one runs): in C, if there was a
compiler when raylog was installed or if it came as a wheel; in numba, if that is installed; otherwise in Python.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from functools import cache
from typing import NamedTuple

from raylog.core.errors import ErrorCode, KafkaError
from raylog.protocol.records import record_scan_loop as loop
from raylog.protocol.records.batch import BatchHeader
from raylog.protocol.records.compression import Buffer

RECORD_ERRORS_MAX = 100
"""The number of refused records that are listed per batch. Clients treat the others as part of a refused batch."""

_STATE = struct.Struct("=14q")
_LARGEST_AND_EVENT = struct.Struct("=qq")
_LARGEST_AT = 8 * loop.LARGEST
_INT64_MIN, _INT64_MAX = -(1 << 63), (1 << 63) - 1

_MALFORMED = {
    loop.BAD_VARINT: "a number has too many bytes",
    loop.BAD_LENGTH: "it is shorter than an empty record",
    loop.BAD_OFFSET: "its offset does not follow that of the record before",
    loop.BAD_FIELD: "a key or value has a negative length",
    loop.BAD_HEADER_COUNT: "its number of headers is impossible",
    loop.BAD_NAME: "a header has no name",
    loop.BAD_SIZE: "its length does not match its content",
    loop.EXCESS: "bytes follow it, although it is the last one",
}


class RecordError(NamedTuple):
    """Why one record is refused, although it is well-formed. `record_index` counts from 0 within the batch."""

    record_index: int
    code: ErrorCode
    message: str


class Kernel(NamedTuple):
    """One of the three loops."""

    name: str
    scan: Callable[[bytearray, Buffer, int], int]
    """Goes on at a position of a piece, with a state as in `record_scan_loop`; returns the position where it ends."""
    records_per_ms: int
    """A cautious estimate, by which callers decide whether to scan on the event loop."""


class RecordScan:
    """The scan of one batch: `feed` each piece of its decompressed records, then `finish`."""

    __slots__ = ("_base_timestamp", "_count", "_range", "_state", "errors")

    def __init__(
        self,
        header: BatchHeader,
        lowest_ms: int = _INT64_MIN,
        highest_ms: int = _INT64_MAX,
        *,
        needs_keys: bool = False,
    ) -> None:
        """Timestamps outside of [lowest_ms, highest_ms] are errors, except -1, which means none."""
        base = header.base_timestamp
        lowest_ms, highest_ms = max(lowest_ms, _INT64_MIN), min(highest_ms, _INT64_MAX)
        self.errors: list[RecordError] = []
        """By index; complete up to RECORD_ERRORS_MAX."""
        self._base_timestamp = base
        self._count = header.record_count
        self._range = (lowest_ms, highest_ms)
        lowest, highest = max(lowest_ms - base, _INT64_MIN), min(highest_ms - base, _INT64_MAX)
        if lowest > _INT64_MAX or highest < _INT64_MIN:  # no difference of 64 bits leads there
            lowest, highest = _INT64_MAX, _INT64_MIN
        none = -1 - base
        self._state = bytearray(
            _STATE.pack(0, 0, 0, 0, 0, 0, -1, self._count, lowest, highest, none, needs_keys, _INT64_MIN, 0)
        )

    @property
    def is_full(self) -> bool:
        """Whether RECORD_ERRORS_MAX errors were found, so that there is no need to go on."""
        return len(self.errors) >= RECORD_ERRORS_MAX

    def feed(self, data: Buffer) -> None:
        """Raises KafkaError(INVALID_RECORD) at the first malformed record. Does nothing once it `is_full`."""
        if self.is_full:
            return
        state, scan = self._state, kernel().scan
        at = scan(state, data, 0)
        while event := _LARGEST_AND_EVENT.unpack_from(state, _LARGEST_AT)[1]:
            self._note(event)
            if self.is_full:
                return
            at = scan(state, data, at)

    def finish(self) -> int:
        """The largest timestamp of the records. Raises KafkaError(INVALID_RECORD) if records are missing."""
        fields = _STATE.unpack(self._state)
        if fields[loop.INDEX] + 1 != self._count or fields[loop.PHASE] or fields[loop.SHIFT] or fields[loop.SKIP]:
            raise _invalid(f"the batch ends within record {fields[loop.INDEX] + 1} of {self._count}")
        return self._base_timestamp + int(fields[loop.LARGEST])

    def _note(self, event: int) -> None:
        index = int(_STATE.unpack(self._state)[loop.INDEX])
        if event == loop.BAD_TIMESTAMP:
            lowest, highest = self._range
            rule = f"the timestamp must be in [{lowest}, {highest}]"
            self.errors.append(RecordError(index, ErrorCode.INVALID_TIMESTAMP, rule))
        elif event == loop.NO_KEY:
            if self.errors and self.errors[-1].record_index == index:
                self.errors.pop()  # a record has one error, and this one comes first, as in Kafka
            self.errors.append(RecordError(index, ErrorCode.INVALID_RECORD, "a compacted topic requires a key"))
        else:
            raise _invalid(f"record {max(index, 0)}: {_MALFORMED[event]}")


def kernel() -> Kernel:
    """The loop in use. It does not change once it is compiled."""
    return _kernel


def compile_kernel() -> Kernel:
    """Use the loop in numba, if it is installed and the one in C is not. Takes a second: for jobs only."""
    global _kernel
    if _kernel is _PYTHON:
        _kernel = _in_numba() or _PYTHON
    return _kernel


@cache
def _in_numba() -> Kernel | None:
    try:
        from raylog.protocol.records.record_scan_numba import scan
    except ImportError:
        return None
    return Kernel("numba", scan, records_per_ms=20_000)


def _in_c() -> Kernel | None:
    try:
        from raylog.protocol.records._record_scan import scan
    except ImportError:
        return None
    return Kernel("C", scan, records_per_ms=20_000)


def _scan_in_python(state: bytearray, data: Buffer, at: int) -> int:
    fields = list(_STATE.unpack(state))
    at = loop.scan(fields, data if isinstance(data, bytes) else bytes(data), at)
    _STATE.pack_into(state, 0, *fields)
    return at


_PYTHON = Kernel("Python", _scan_in_python, records_per_ms=200)
_kernel = _in_c() or _PYTHON


def _invalid(what: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_RECORD, what)
