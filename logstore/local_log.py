"""Reads a partition's segment files in another process than the broker's, up to the limit in the shared page.

The reader takes a snapshot of the page and returns a chunk of complete batches, or None if there is nothing new. It
accesses no byte after the snapshot's readable position, and maps no more than the page that contains it, since the
broker may be writing there, or may truncate the file.

```
   closed segments: all of it      the watermark's segment              later segments
  [ batch | batch | batch ]  ...  [ batch | batch | ......... ]  ...   not at all
                                                   ^ readable_position
```

Under read_committed chunks end at the last stable offset, and each names the aborted transactions among its batches,
which its user skips (protocol/records/isolation.py). The broker has their list, and the page the offset from which on
there are none. A list belongs to a file: a reader whose file was replaced by a cleaning goes on with the list that it
has got for that file, and goes on in the new file if it has none.

A chunk is valid only after `accept`, which the caller calls after using or decoding it. It returns False if the
generation has changed because readable records were truncated. Until then `read` returns the same chunk again.

Chunks are views of memory that holds a part of the file, either read or mapped, and that exists as long as a chunk
refers to it. Measured with checksums and a warm cache: chunks that are used and dropped take 1 s of CPU per 8.5 GB if
read, per 5.7 GB if mapped, because of page faults. Chunks that are kept take 1 s per 2.2 GB if read, since each needs
new memory. So only callers that keep chunks use a mapping, and only they can get a SIGBUS from a truncated file.
"""

from __future__ import annotations

import mmap
import os
import struct
from collections.abc import Callable
from typing import Final, NamedTuple

from crc32c import crc32c

from raylog.core.errors import ErrorCode, KafkaError
from raylog.core.ids import Offset
from raylog.logstore.shared_page import PageSnapshot
from raylog.protocol.local_messages import AbortedInFile
from raylog.protocol.records.batch import ATTRIBUTES_AT, BATCH_LENGTH_MIN, HEADER_SIZE, LOG_OVERHEAD, MAGIC, OFFSET_END
from raylog.protocol.records.isolation import Aborted

CHUNK_BYTES: Final = 1 << 20
PIECE_BYTES_MIN: Final = 64 << 10
KEPT_PIECE_BYTES_MAX: Final = 256 << 10
"""If chunks are kept, larger parts are mapped. Measured: reading this much takes 12 us, mapping it 22 us."""

_BATCH: Final = struct.Struct(">qi4xbI2xi")
"""Base offset, batch length, magic, checksum, last offset delta."""


class SegmentFile(NamedTuple):
    """A segment file located by the broker. The reader owns its descriptor and closes it."""

    descriptor: int
    base_offset: int
    position: int
    """The position of the batch that contains the requested offset, or of the next one."""
    generation: int


class AbortedList(NamedTuple):
    """The aborted transactions with records below `upto` in one file, from the offset on that was asked for."""

    transactions: list[AbortedInFile]
    upto: int


ListAborted = Callable[[SegmentFile, int, int], AbortedList | None]
"""Asks the broker for the list of a file from an offset on, at least up to another one. None if the file is no longer
that of its segment."""


class Chunk(NamedTuple):
    """Complete batches that may be read, from the one that contains `start`, which may begin before it."""

    records: memoryview
    """Read-only; valid as long as it exists."""
    start: Offset
    next_offset: Offset
    generation: int
    aborted: tuple[Aborted, ...] = ()
    """The aborted transactions among the batches, which a reader under read_committed skips."""


_NO_LIST: Final = AbortedList([], 0)


class LocalLog:
    """A reader of one partition, from `__init__` to `close`. Not thread-safe."""

    def __init__(
        self,
        name: str,
        locate: Callable[[int], SegmentFile],
        start: Offset,
        *,
        list_aborted: ListAborted | None = None,
        keep_chunks: bool = False,
        check_crc: bool = True,
    ) -> None:
        """`locate` asks the broker for the segment of an offset; `read` raises its errors. `name` is used in errors.
        Without `list_aborted` it reads uncommitted.

        `keep_chunks` optimizes for callers that keep many chunks at a time, as views in Arrow columns.
        """
        self.position = start
        """The next offset to read."""
        self._name = name
        self._locate = locate
        self._list_aborted = list_aborted
        self._aborted = _NO_LIST
        """What the broker has last said of the current file."""
        self._keep_chunks = keep_chunks
        self._check_crc = check_crc
        self._segment: SegmentFile | None = None
        self._at = 0
        """The position of the next batch in the segment file."""
        self._lowest = 0
        """The lowest base offset that the next batch may have."""
        self._given: Chunk | None = None
        """The last chunk, until it is accepted or the reader seeks."""
        self._after_given = 0
        """The position after that chunk."""
        self._buffer = memoryview(b"")
        """A part of the file that begins at a batch boundary. It ends at one if it is mapped; if it was read, it may
        end inside a batch."""
        self._buffer_at = 0
        """The position of that part in the file."""

    def read(self, page: PageSnapshot, *, max_bytes: int = CHUNK_BYTES) -> Chunk | None:
        """The next batches, at most `max_bytes` but at least one; None if the page shows none that may be read.

        Raises OFFSET_OUT_OF_RANGE outside [log start, high watermark], CORRUPT_MESSAGE for batches that fail their
        checksum or are not in order, KAFKA_STORAGE_ERROR if the file cannot be read up to the readable position.
        """
        if not page.log_start_offset <= self.position <= page.high_watermark:
            bounds = f"[{page.log_start_offset}, {page.high_watermark}]"
            what = f"{self._name}: offset {self.position} is not in {bounds}"
            raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE, what)
        stable_upto = OFFSET_END
        if self._list_aborted is not None and page.last_stable_offset < page.high_watermark:
            stable_upto = page.last_stable_offset
        if self.position >= min(stable_upto, page.high_watermark):
            return None
        segment = self._segment
        if segment is None or segment.generation != page.generation:
            segment = self._enter_segment()
        entered = replaced = False
        while True:
            if segment.generation != page.generation:
                return None  # the broker is ahead of this snapshot
            end = self._readable_end(segment, page)
            if self._at < end:
                chunk = self._chunk(segment, end, max_bytes, stable_upto)
                if chunk is None:
                    return None
                if chunk.next_offset > page.high_watermark:
                    raise self._corrupt(f"a batch that ends at {chunk.next_offset}, above {page.high_watermark}")
                if self._list_aborted is None or self.position >= page.aborted_upto:
                    self._given = chunk
                    return chunk
                if chunk.next_offset > self._aborted.upto:
                    listed = self._list_aborted(segment, chunk.start, chunk.next_offset)
                    if listed is None:
                        if replaced:
                            raise self._unreadable(segment, "the broker has another file")
                        segment, replaced = self._enter_segment(), True
                        continue
                    self._aborted = listed
                self._given = chunk._replace(aborted=self._aborted_in(chunk))
                return self._given
            if segment.base_offset >= page.readable_base_offset:
                return None
            if entered:
                raise self._corrupt(f"segment {segment.base_offset} does not contain offset {self.position}")
            # Its base offset may be lower: compaction replaces several segments by one.
            segment, entered = self._enter_segment(), True

    def accept(self, chunk: Chunk, *, generation: int) -> bool:
        """Whether `chunk` is valid in the page's current generation; if so, the reader moves past it.

        If it is not, because of the generation or because it is not the last chunk, the reader does not move.
        """
        if chunk is not self._given or chunk.generation != generation:
            return False
        self._given = None
        self.position = self._lowest = chunk.next_offset
        self._at = self._after_given
        return True

    def seek(self, offset: Offset) -> None:
        """Set the position of the next read."""
        self._leave_segment()
        self.position = offset

    def close(self) -> None:
        """Existing views remain valid. Can be called twice."""
        self._leave_segment()

    # Internals

    def _enter_segment(self) -> SegmentFile:
        self._leave_segment()
        self._segment = segment = self._locate(self.position)
        self._at = segment.position
        self._lowest = 0
        return segment

    def _leave_segment(self) -> None:
        self._buffer = memoryview(b"")
        self._given = None
        self._aborted = _NO_LIST
        if self._segment is not None:
            os.close(self._segment.descriptor)
            self._segment = None

    def _readable_end(self, segment: SegmentFile, page: PageSnapshot) -> int:
        if segment.base_offset == page.readable_base_offset:
            return page.readable_position
        if segment.base_offset > page.readable_base_offset:
            return 0
        return os.fstat(segment.descriptor).st_size  # final, since it was closed before the page was published

    def _aborted_in(self, chunk: Chunk) -> tuple[Aborted, ...]:
        return tuple(
            Aborted(producer_id, first_offset)
            for producer_id, first_offset, last_offset in self._aborted.transactions
            if last_offset >= chunk.start and first_offset < chunk.next_offset
        )

    def _chunk(self, segment: SegmentFile, end: int, max_bytes: int, stable_upto: int) -> Chunk | None:
        """The next batches of the file that begin below `stable_upto`; None if there are none."""
        piece_bytes = max(max_bytes, PIECE_BYTES_MIN)
        while True:
            first = self._at - self._buffer_at
            limit = min(end - self._buffer_at, len(self._buffer))
            if 0 <= first < limit:
                found = self._whole_batches(first, limit, end - self._buffer_at, max_bytes, stable_upto)
                if found is None:
                    return None
                stop, next_offset = found
                if stop > first:
                    self._after_given = self._buffer_at + stop
                    records = self._buffer[first:stop]
                    return Chunk(records, self.position, Offset(next_offset), segment.generation)
                if first == 0:  # the part does not contain a complete batch
                    piece_bytes = 2 * limit
            self._load(segment, end, piece_bytes)

    def _load(self, segment: SegmentFile, end: int, piece_bytes: int) -> None:
        """Load the file up to `end` (mapped), or a part of it from the current position (read) into the buffer."""
        wanted = end - self._at
        if self._keep_chunks and wanted > KEPT_PIECE_BYTES_MAX:
            self._buffer, self._buffer_at = memoryview(self._map(segment, end)), 0
        else:
            piece = self._pread(segment, wanted if self._keep_chunks else min(wanted, piece_bytes))
            self._buffer, self._buffer_at = memoryview(piece), self._at

    def _map(self, segment: SegmentFile, end: int) -> mmap.mmap:
        try:
            return mmap.mmap(segment.descriptor, end, prot=mmap.PROT_READ)
        except ValueError:  # mmap checks the size of the file
            raise self._unreadable(segment, "the file is shorter than the page says") from None
        except OSError as error:
            raise self._unreadable(segment, str(error)) from error

    def _pread(self, segment: SegmentFile, size_bytes: int) -> bytes:
        try:
            data = os.pread(segment.descriptor, size_bytes, self._at)
        except OSError as error:
            raise self._unreadable(segment, str(error)) from error
        if len(data) < size_bytes:
            raise self._unreadable(segment, "the file is shorter than the page says")
        return data

    def _whole_batches(
        self, first: int, limit: int, end: int, max_bytes: int, stable_upto: int
    ) -> tuple[int, int] | None:
        """(end of the last complete batch before `limit`, next offset); None if the first one is not stable.

        The readable part extends to `end`, where a batch must end. All are positions in the buffer.
        """
        buffer = self._buffer
        unpack = _BATCH.unpack_from
        checked = self._check_crc
        lowest = self._lowest
        next_offset = self.position
        wrong = ""
        at = first
        while at < limit:
            if limit - at < HEADER_SIZE:
                if end - at < HEADER_SIZE:
                    wrong = f"the {end - at} bytes after offset {next_offset} are not a batch"
                break
            base_offset, length, magic, crc, delta = unpack(buffer, at)
            following = at + length + LOG_OVERHEAD
            if (
                length < BATCH_LENGTH_MIN
                or following > end
                or magic != MAGIC
                or base_offset < lowest
                or base_offset + delta < next_offset
            ):
                wrong = f"no complete batch follows offset {next_offset}"
                break
            if base_offset >= stable_upto:
                if at == first:
                    return None
                break
            if following > limit or (following - first > max_bytes and at > first):
                break
            if checked and crc32c(buffer[at + ATTRIBUTES_AT : following]) != crc:
                wrong = f"the batch at offset {base_offset} fails its checksum"
                break
            at = following
            lowest = next_offset = base_offset + delta + 1
        if wrong and at == first:  # batches before it are good, and are returned first
            raise self._corrupt(wrong)
        return at, next_offset

    def _corrupt(self, what: str) -> KafkaError:
        return KafkaError(ErrorCode.CORRUPT_MESSAGE, f"{self._name}: {what}")

    def _unreadable(self, segment: SegmentFile, why: str) -> KafkaError:
        what = f"{self._name}: cannot read segment {segment.base_offset}: {why}"
        return KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, what)
