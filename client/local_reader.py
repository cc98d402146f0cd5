"""(shell) Reads a partition of a broker on this node from the files of its log. Only a new segment, and aborted
transactions in it, take a request.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from functools import partial
from typing import Final, Protocol, Self, TypeVar
from uuid import UUID

from raylog.core.errors import ErrorCode, KafkaError
from raylog.core.ids import ZERO_TOPIC_ID, Offset, TopicPartition
from raylog.logstore.local_log import CHUNK_BYTES, AbortedList, Chunk, LocalLog, SegmentFile
from raylog.logstore.shared_page import PageSnapshot, PageView
from raylog.protocol.local_messages import (
    AbortedListed,
    Answer,
    ClosePartition,
    ListAborted,
    LocateSegment,
    OpenPartition,
    PartitionClosed,
    PartitionOpened,
    Request,
    SegmentLocated,
    unpack_aborted,
)
from raylog.protocol.records.reader import Record, read_batches

A = TypeVar("A", bound=Answer)
UNFINISHED_SECONDS: Final = 0.001
"""How long to wait for a broker that has stopped in the middle of an update of the shared page."""


class Connector(Protocol):
    """What a reader uses of its `LocalBroker`: requests, and waiting for a signal."""

    @property
    def connection(self) -> int: ...

    @property
    def connected(self) -> bool: ...

    def connect_until(self, deadline: float) -> None: ...

    def call(self, request: Request, wanted: type[A], *, descriptors: int = 0) -> tuple[A, tuple[int, ...]]: ...

    def sleep(self, seconds: float, *, unless: Callable[[], bool]) -> None: ...


class LocalPartitionReader:
    """Reads a partition of a broker on this machine from its mapped files.

    Open from `LocalBroker.open` to `close`. Not thread-safe, used by the thread of its broker; a context manager.

    After a restart of the broker it reconnects, reopens the partition and continues at its position. A deleted topic,
    a change of leader, or a deleted offset raise KafkaError.
    """

    def __init__(
        self,
        broker: Connector,
        tp: TopicPartition,
        offset: Offset,
        *,
        committed: bool,
        keep_chunks: bool,
        check_crc: bool,
    ) -> None:
        """Use `LocalBroker.open` instead."""
        self._broker = broker
        self._tp = tp
        self._log = LocalLog(
            str(tp),
            self._locate,
            offset,
            list_aborted=self._list_aborted if committed else None,
            keep_chunks=keep_chunks,
            check_crc=check_crc,
        )
        self._topic_id: UUID | None = None
        self._view: PageView | None = None
        self._handle = 0
        self._connection = 0
        """The number of the connection on which the partition is open."""
        self._open(time.monotonic())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def topic_id(self) -> UUID:
        """Of the topic whose log it reads: zero until that is open."""
        return self._topic_id or ZERO_TOPIC_ID

    @property
    def position(self) -> Offset:
        """The next offset to read."""
        return self._log.position

    def seek(self, offset: int) -> None:
        self._log.seek(Offset(offset))

    def read(self, *, max_bytes: int = CHUNK_BYTES, max_wait_ms: int = 0) -> Chunk | None:
        """The next batches, at most `max_bytes` but at least one; None if there are none within `max_wait_ms`.

        The batches of its aborted transactions must be skipped. Records decoded from a chunk are valid only after
        `accept`; until then the next read returns them again. Raises KafkaError: OFFSET_OUT_OF_RANGE, CORRUPT_MESSAGE,
        NETWORK_EXCEPTION if the broker was not available during the wait, or the reason why it no longer serves the
        partition.
        """
        deadline = time.monotonic() + max_wait_ms / 1000
        was_outdated = False
        while True:
            page: PageSnapshot | None = None
            try:
                page = self.page(deadline)
                chunk = self._log.read(page, max_bytes=max_bytes)
            except KafkaError as error:
                is_lost = error.code == ErrorCode.NETWORK_EXCEPTION and time.monotonic() < deadline
                # A cleaning may have replaced the file that the page refers to before the broker was asked for it.
                is_outdated = not was_outdated and page is not None and self.has_changed(page)
                if not is_lost and not is_outdated:
                    raise
                was_outdated = was_outdated or is_outdated
                continue
            if chunk is not None:
                return chunk
            remaining = max(deadline - time.monotonic(), 0.0)
            self._broker.sleep(remaining, unless=partial(self.has_changed, page))
            if not remaining and self._broker.connected:
                return None

    def accept(self, chunk: Chunk) -> bool:
        """Whether the chunk is valid, because its bytes are still readable. If so, the reader moves past it."""
        return self._view is not None and self._log.accept(chunk, generation=self._view.generation)

    def read_records(self, *, max_bytes: int = CHUNK_BYTES, max_wait_ms: int = 0) -> list[Record]:
        """Like `read`, but returns accepted records; empty if there are none."""
        deadline = time.monotonic() + max_wait_ms / 1000
        while True:
            remaining_ms = max(0, int((deadline - time.monotonic()) * 1000))
            chunk = self.read(max_bytes=max_bytes, max_wait_ms=remaining_ms)
            if chunk is None:
                return []
            records = list(read_batches(chunk.records, from_offset=chunk.start, aborted=chunk.aborted))
            if self.accept(chunk) and records:
                return records

    def page(self, deadline: float = 0.0) -> PageSnapshot:
        """The current shared page of the partition. Raises KafkaError, NETWORK_EXCEPTION only after `deadline`."""
        while True:
            self._open(deadline)
            page = self._snapshot()
            if page is None:
                self._broker.sleep(UNFINISHED_SECONDS, unless=lambda: False)
            elif page.is_open:
                return page
            else:
                self._forget()

    def close(self) -> None:
        """Chunks remain valid. Can be called twice."""
        self._forget()
        self._log.close()

    def has_changed(self, page: PageSnapshot | None) -> bool:
        """Whether there may be something new since this was the shared page."""
        return self._snapshot() != page

    def _snapshot(self) -> PageSnapshot | None:
        return None if self._view is None else self._view.snapshot()

    def _open(self, deadline: float) -> None:
        """Open the partition on the current connection, if it is not. Raises KafkaError."""
        if self._view is not None and self._connection == self._broker.connection and self._broker.connected:
            return
        self._forget()
        if not self._broker.connected:
            self._broker.connect_until(deadline)
        request = OpenPartition(self._tp.topic, self._tp.partition)
        opened, (descriptor,) = self._broker.call(request, PartitionOpened, descriptors=1)
        self._handle, self._connection = opened.handle, self._broker.connection
        try:
            self._view = PageView(descriptor)
        except (OSError, ValueError) as error:
            self._close_handle()
            raise KafkaError(
                ErrorCode.KAFKA_STORAGE_ERROR, f"{self._tp}: cannot map the shared page: {error}"
            ) from error
        finally:
            os.close(descriptor)
        if self._topic_id is None:
            self._topic_id = opened.topic_id
        elif self._topic_id != opened.topic_id:
            self._forget()
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID, f"{self._tp} was deleted and created again")

    def _forget(self) -> None:
        """Close the page and the file: the generations of another page start over."""
        if self._view is None:
            return
        self._view.close()
        self._view = None
        self._log.seek(self._log.position)
        if self._connection == self._broker.connection and self._broker.connected:
            self._close_handle()

    def _close_handle(self) -> None:
        try:
            self._broker.call(ClosePartition(self._handle), PartitionClosed)
        except KafkaError:  # the broker is gone, and its handles are void
            pass

    def _locate(self, offset: int) -> SegmentFile:
        located, (file,) = self._broker.call(LocateSegment(self._handle, offset), SegmentLocated, descriptors=1)
        return SegmentFile(file, located.base_offset, located.position, located.generation)

    def _list_aborted(self, segment: SegmentFile, offset: int, wanted: int) -> AbortedList | None:
        status = os.fstat(segment.descriptor)
        request = ListAborted(self._handle, segment.base_offset, status.st_dev, status.st_ino, offset, wanted)
        try:
            listed, (file,) = self._broker.call(request, AbortedListed, descriptors=1)
        except KafkaError as error:
            if error.code == ErrorCode.RESOURCE_NOT_FOUND:
                return None
            raise
        with open(file, "rb") as content:
            return AbortedList(unpack_aborted(content.read()), listed.upto)
