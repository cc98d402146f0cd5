"""(shell) A partition's shared page: the readable range of its log, for local readers that map the page.

There is one memfd per partition with local readers, created by the first of them. Only the broker writes it; seals
prevent other processes from mapping it writable or resizing it. All words are 8 bytes in native byte order:

```
  word  0          1  ..............................  10   11
      | sequence | the fields of PageSnapshot, in order | checksum |
```

The page is a seqlock: the sequence is odd during an update; a snapshot is valid if it was even and the same before and
after. The checksum covers fields and sequence, which also detects stores that become visible in another order. The
broker writes data to the file before it updates the high watermark on the page.
"""

from __future__ import annotations

import fcntl
import mmap
import os
import struct
from typing import Final, NamedTuple, Self

from crc32c import crc32c

PAGE_BYTES: Final = 4096
SNAPSHOT_TRIES_MAX: Final = 1000
"""Failed attempts before the writer is considered stopped, or dead, in the middle of an update."""

F_SEAL_FUTURE_WRITE: Final = 0x10
"""Linux 5.1: existing writable mappings remain, new ones are not allowed. Not defined in Python 3.11."""

_FIELDS: Final = struct.Struct("10q")
_FIELDS_AT: Final = 8
_SEQUENCE_WORD: Final = 0
_GENERATION_WORD: Final = 6
_CHECKSUM_WORD: Final = 11
_SEED_MASK: Final = 0xFFFFFFFF


class PageSnapshot(NamedTuple):
    """A consistent snapshot of the page's fields."""

    log_start_offset: int
    log_end_offset: int
    high_watermark: int
    last_stable_offset: int
    leader_epoch: int
    generation: int
    """Changes when readable records are truncated: data decoded before the change must not be used."""
    readable_base_offset: int
    """Base offset of the segment with the high watermark; all earlier segments are completely readable."""
    readable_position: int
    """The end of the complete batches below the high watermark in its file. Bytes after it must not be accessed."""
    aborted_upto: int
    """The offset after the newest marker of an aborted transaction; 0 for none. It may be too high."""
    is_open: int = 1
    """0 if the page is no longer updated; open the partition again."""


class SharedPage:
    """The broker's side, from `__init__` to `close`."""

    def __init__(self, snapshot: PageSnapshot) -> None:
        """Raises OSError if the process cannot open more files."""
        self.descriptor = os.memfd_create("raylog-page", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        """A read-only descriptor for readers."""
        try:
            os.ftruncate(self.descriptor, PAGE_BYTES)
            self._memory = mmap.mmap(self.descriptor, PAGE_BYTES)
            seals = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | F_SEAL_FUTURE_WRITE | fcntl.F_SEAL_SEAL
            fcntl.fcntl(self.descriptor, fcntl.F_ADD_SEALS, seals)
        except OSError:
            os.close(self.descriptor)
            raise
        self._words = memoryview(self._memory).cast("q")
        self._fields = memoryview(self._memory)[_FIELDS_AT : _FIELDS_AT + _FIELDS.size]
        self._sequence = 0
        self.publish(snapshot)

    def publish(self, snapshot: PageSnapshot) -> None:
        """Update the page. The data that it makes readable must be in the files."""
        self._snapshot = snapshot
        self._sequence = sequence = self._sequence + 2
        words = self._words
        words[_SEQUENCE_WORD] = sequence - 1
        _FIELDS.pack_into(self._fields, 0, *snapshot)
        words[_CHECKSUM_WORD] = crc32c(self._fields, sequence & _SEED_MASK)
        words[_SEQUENCE_WORD] = sequence

    def close(self) -> None:
        """Mark the page as no longer updated, and close it. Readers keep their mappings."""
        self.publish(self._snapshot._replace(is_open=0))
        self._words.release()
        self._fields.release()
        self._memory.close()
        os.close(self.descriptor)


class PageView:
    """The reader's side: the page of a descriptor received from the broker. Not thread-safe."""

    def __init__(self, descriptor: int) -> None:
        """The caller keeps the descriptor. Raises OSError or ValueError if it is not a page."""
        self._memory = mmap.mmap(descriptor, PAGE_BYTES, prot=mmap.PROT_READ)
        self._words = memoryview(self._memory).cast("q")
        self._fields = memoryview(self._memory)[_FIELDS_AT : _FIELDS_AT + _FIELDS.size]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def snapshot(self) -> PageSnapshot | None:
        """A consistent snapshot; None if the writer has stopped, or died, in the middle of an update."""
        words = self._words
        fields = self._fields
        for _ in range(SNAPSHOT_TRIES_MAX):
            sequence = words[_SEQUENCE_WORD]
            if sequence & 1:
                continue
            copied = bytes(fields)
            checksum = words[_CHECKSUM_WORD]
            if words[_SEQUENCE_WORD] == sequence and crc32c(copied, sequence & _SEED_MASK) == checksum:
                return PageSnapshot._make(_FIELDS.unpack(copied))
        return None

    @property
    def generation(self) -> int:
        """The generation only: a single word, which is faster to read than a snapshot."""
        return self._words[_GENERATION_WORD]

    def close(self) -> None:
        """Can be called twice."""
        self._words.release()
        self._fields.release()
        self._memory.close()
