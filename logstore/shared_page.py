"""(shell) A partition's shared page: how far it may be read, for every process on the node that maps it.

One memfd for each partition that has local readers, made when the first of them opens it. The broker alone writes it;
the seals let nobody else map it writable, nor change its size. All words are 8 bytes in the machine's own order:

```
  word  0          1  ..............................  9    10
      | sequence | the fields of PageSnapshot, in order | checksum |
```

A snapshot is a seqlock's: the sequence is odd while the fields change, and even and unchanged around a good reading.
The checksum covers fields and sequence, so that a machine which shows stores in another order than they were made is
found out as well. Of the order of writes only this matters: data is in the file before the watermark is on the page.
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
"""Readings that may fail in a row before the writer is thought to rest, or to have died, in the middle of a change."""

F_SEAL_FUTURE_WRITE: Final = 0x10
"""Since Linux 5.1: who has it mapped writable goes on writing, nobody else begins to. Python 3.11 has no name for
it."""

_FIELDS: Final = struct.Struct("9q")
_FIELDS_AT: Final = 8
_SEQUENCE_WORD: Final = 0
_GENERATION_WORD: Final = 6
_CHECKSUM_WORD: Final = 10
_SEED_MASK: Final = 0xFFFFFFFF


class PageSnapshot(NamedTuple):
    """What readers are told of one partition, all of it true at one moment."""

    log_start_offset: int
    log_end_offset: int
    high_watermark: int
    last_stable_offset: int
    leader_epoch: int
    generation: int
    """Moves when records that were readable are cut off: what was decoded before it moved must not be used."""
    readable_base_offset: int
    """Base offset of the segment that the high watermark lies in: all of the segments before it may be read."""
    readable_position: int
    """Up to where its file may be read: whole batches below the high watermark. Nothing behind may even be touched."""
    is_open: int = 1
    """0: the partition is served no more by this page. Ask the broker again."""


class SharedPage:
    """The broker's side, from `__init__` to `close`."""

    def __init__(self, snapshot: PageSnapshot) -> None:
        """Raises OSError where the process may open no more files."""
        self.descriptor = os.memfd_create("raylog-page", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        """To be handed to readers: it cannot be written through."""
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
        """Readers see `snapshot` from now on. What it tells of must be in the files already."""
        self._snapshot = snapshot
        self._sequence = sequence = self._sequence + 2
        words = self._words
        words[_SEQUENCE_WORD] = sequence - 1
        _FIELDS.pack_into(self._fields, 0, *snapshot)
        words[_CHECKSUM_WORD] = crc32c(self._fields, sequence & _SEED_MASK)
        words[_SEQUENCE_WORD] = sequence

    def close(self) -> None:
        """Tells the readers to ask again, and lets go of the page; theirs stay mapped, and say so for ever."""
        self.publish(self._snapshot._replace(is_open=0))
        self._words.release()
        self._fields.release()
        self._memory.close()
        os.close(self.descriptor)


class PageView:
    """A reader's side: the page behind a descriptor received from the broker. For one thread."""

    def __init__(self, descriptor: int) -> None:
        """The descriptor stays the caller's. Raises OSError or ValueError when it is no page."""
        self._memory = mmap.mmap(descriptor, PAGE_BYTES, prot=mmap.PROT_READ)
        self._words = memoryview(self._memory).cast("q")
        self._fields = memoryview(self._memory)[_FIELDS_AT : _FIELDS_AT + _FIELDS.size]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def snapshot(self) -> PageSnapshot | None:
        """All fields of one moment; None when the writer rests in the middle of a change, or has died there."""
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
        """That field alone, which is one word: cheaper than a snapshot, and never between two values."""
        return self._words[_GENERATION_WORD]

    def close(self) -> None:
        """Closing twice is allowed."""
        self._words.release()
        self._fields.release()
        self._memory.close()
