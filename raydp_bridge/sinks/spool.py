"""(shell) Rows that are kept until their transaction begins: in memory, or in a temporary file if they are many."""

from __future__ import annotations

from collections.abc import Iterator
from tempfile import SpooledTemporaryFile
from types import TracebackType
from typing import Final, Self

import pyarrow as pa

SPOOL_BYTES: Final = 32 << 20


class Spool:
    """Append all, then read, any number of times. A context manager; nothing is left of the file, also after a kill."""

    def __init__(self, memory_bytes: int = SPOOL_BYTES) -> None:
        """More than `memory_bytes` are written to a file in the directory for temporary files (TMPDIR)."""
        self._file = SpooledTemporaryFile(max(1, memory_bytes))  # noqa: SIM115  closed by the block
        self._writer: pa.ipc.RecordBatchStreamWriter | None = None
        self._schema: pa.Schema | None = None
        self._end = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, _: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._file.close()

    def append(self, batch: pa.RecordBatch) -> None:
        """Batches may have different schemas; each change begins another stream in the file."""
        if self._writer is None or not batch.schema.equals(self._schema):
            self._finish()
            self._writer, self._schema = pa.ipc.new_stream(self._file, batch.schema), batch.schema
        self._writer.write_batch(batch)

    def batches(self) -> Iterator[pa.RecordBatch]:
        """In the order in which they were appended; one at a time is in memory."""
        self._finish()
        self._file.seek(0)
        while self._file.tell() < self._end:
            with pa.ipc.open_stream(self._file) as reader:
                yield from reader

    def _finish(self) -> None:
        if self._writer is not None:
            self._writer.close()
            self._writer = None
            self._end = self._file.tell()
