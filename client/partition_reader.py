"""(shell) Reads a partition continuously from an offset on, by the fastest transport available.

    with PartitionReader(bootstrap_servers, "flights", 3) as reader:
        for record in reader.read_records(max_wait_ms=1000):
            ...

On the leader's node it reads the mapped log files without requests, and the broker wakes a waiting reader some tens of
microseconds after an append. On other nodes, or if the broker does not admit this process, it uses Fetch. If one
transport fails, the reader tries the other.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Literal, Self, TypeVar
from uuid import UUID

from raylog.client.admin.calls import Steps
from raylog.client.admin.partitions import OffsetSpec
from raylog.client.blocking_calls import BlockingCalls, config_of
from raylog.client.client_config import ClientConfig, checked_properties
from raylog.client.cluster_metadata import LocatedPartition
from raylog.client.local_broker import LocalBroker, open_local
from raylog.client.local_reader import LocalPartitionReader
from raylog.client.partition_calls import fetch, locate, offset_for
from raylog.config.client import ISOLATION_LEVEL
from raylog.core.errors import ErrorCode, KafkaError
from raylog.core.ids import Offset, TopicPartition
from raylog.logstore.local_log import Chunk
from raylog.protocol.records.batch import OFFSET_END, MalformedBatch, split_batches, verify_crc
from raylog.protocol.records.isolation import IsolationLevel
from raylog.protocol.records.reader import Record, read_batches, whole_batches

if TYPE_CHECKING:
    import pyarrow as pa

    from raylog.protocol.records.columnar import Columns

log = logging.getLogger("raylog.client")
Decoded = TypeVar("Decoded")
T = TypeVar("T")
CLIENT_ID: Final = "raylog-partition-reader"
CHUNK_BYTES: Final = 1 << 20
FILES_RETRY_SECONDS: Final = 1.0
"""If the files are not available, the reader uses Fetch for this long before it tries them again."""
NOT_RETRIED_OVER_TCP: Final = (ErrorCode.OFFSET_OUT_OF_RANGE, ErrorCode.CORRUPT_MESSAGE, ErrorCode.UNKNOWN_TOPIC_ID)
"""Errors for which the other transport would give the same result."""


def log_malformed(tp: TopicPartition, error: MalformedBatch) -> None:
    """Log that a malformed batch is skipped."""
    log.warning("malformed batch skipped", extra={"tp": str(tp), "reason": error.message})


def _ms_until(deadline: float) -> int:
    return max(0, int((deadline - time.monotonic()) * 1000))


class PartitionReader:
    """Reads one partition without a group, from mapped files where its leader is on this machine.

    Open from `__init__` to `close`; a context manager. Not thread-safe.
    """

    def __init__(
        self,
        bootstrap_servers: str,
        topic: str,
        partition: int,
        *,
        offset: int | Literal["earliest", "latest"] = "earliest",
        isolation_level: IsolationLevel | None = None,
        mapped: bool = True,
        check_crcs: bool = True,
        skip_malformed: bool = False,
        timeout_seconds: float = 30.0,
        client_config: Mapping[str, Any] | None = None,
    ) -> None:
        """`mapped=False` never uses the files. A call retries for `timeout_seconds` if the leader cannot be reached.

        `isolation_level` is that of `client_config` by default, or read_committed: records of aborted transactions are
        skipped, and those from the first open transaction on are read when it has ended.

        `client_config` contains properties of Kafka's Java client, such as security.protocol, with which connections
        are encrypted and log in.

        With `skip_malformed` batches whose records cannot be decoded are skipped, and a warning names their offsets.
        Without it such a batch raises MalformedBatch; `seek(error.next_offset)` goes on behind it.

        Raises KafkaError if the partition does not exist, and ConfigError.
        """
        own = {} if isolation_level is None else {ISOLATION_LEVEL.name: isolation_level}
        config = ClientConfig(bootstrap_servers, checked_properties({**(client_config or {}), **own}))
        given = config_of(config, client_id=CLIENT_ID)
        self._committed = config.reads_committed
        self._user = given.dialer.user
        self._timeout_seconds = timeout_seconds
        self._calls = BlockingCalls(given, topics=[topic])
        self._tp = TopicPartition(topic, partition)
        self._mapped = mapped
        self._check_crcs = check_crcs
        self._on_malformed = partial(log_malformed, self._tp) if skip_malformed else None
        self._topic_id: UUID | None = None
        """That of the topic from which the reader began."""
        self._files: tuple[LocalBroker, LocalPartitionReader] | None = None
        self._files_from = 0.0
        """When to try the files again (monotonic)."""
        try:
            if isinstance(offset, str):
                offset = self._offset_for(OffsetSpec.EARLIEST if offset == "earliest" else OffsetSpec.LATEST)
        except BaseException:
            self._calls.close()
            raise
        self.position = Offset(offset)
        """The next offset to read."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def reads_files(self) -> bool:
        """Whether the last read was from mapped files."""
        return self._files is not None

    def close(self) -> None:
        self._forget_files()
        self._calls.close()

    def seek(self, offset: int) -> None:
        self.position = Offset(offset)
        if self._files is not None:
            self._files[1].seek(offset)

    def read(self, *, max_bytes: int = CHUNK_BYTES, max_wait_ms: int = 0) -> Chunk | None:
        """The next complete batches, at most `max_bytes` but at least one; None if there are none within `max_wait_ms`.

        The first may begin before `chunk.start`, and those of `chunk.aborted` transactions must be skipped. A chunk
        that was fetched is valid until the next read. Records decoded from a chunk are valid only after `accept`; until
        then the next read returns them again. Raises KafkaError: OFFSET_OUT_OF_RANGE, CORRUPT_MESSAGE, or the reason
        why the partition cannot be reached.
        """
        deadline = time.monotonic() + max_wait_ms / 1000
        while True:
            wait_ms = _ms_until(deadline)
            files = self._open_files()
            if files is None:
                return self._fetch(max_bytes, wait_ms)
            try:
                return files.read(max_bytes=max_bytes, max_wait_ms=wait_ms)
            except KafkaError as error:
                self._forget_files()
                if error.code in NOT_RETRIED_OVER_TCP:
                    raise

    def accept(self, chunk: Chunk) -> bool:
        """Whether the chunk is valid, because its bytes are still readable. If so, the reader moves past it."""
        if self._files is not None and not self._files[1].accept(chunk):
            return False
        self.position = chunk.next_offset
        return True

    def read_records(self, *, max_bytes: int = CHUNK_BYTES, max_wait_ms: int = 0) -> list[Record]:
        """Like `read`, but returns accepted records; empty if there are none. Raises MalformedBatch."""

        def decode(chunk: Chunk, end_offset: int) -> list[Record]:
            return list(
                read_batches(
                    chunk.records,
                    from_offset=chunk.start,
                    end_offset=end_offset,
                    on_malformed=self._on_malformed,
                    aborted=chunk.aborted,
                )
            )

        return self._read_decoded(decode, max_bytes, max_wait_ms)

    def read_arrow(
        self, columns: Sequence[str] | None = None, *, max_bytes: int = CHUNK_BYTES, max_wait_ms: int = 0
    ) -> list[pa.RecordBatch]:
        """Like `read_records`, but returns Arrow record batches. Requires the extra `arrow`.

        Keys and values of uncompressed batches are views of the mapped file: they are not copied, and keep the file
        mapped while they exist.
        """
        from raylog.protocol.records.arrow import choose_columns, read_arrow

        chosen = choose_columns(columns)

        def decode(chunk: Chunk, end_offset: int) -> list[pa.RecordBatch]:
            return list(
                read_arrow(
                    chunk.records if self._files is not None else bytes(chunk.records),
                    topic=self._tp.topic,
                    partition=self._tp.partition,
                    columns=chosen,
                    views=True,
                    from_offset=chunk.start,
                    end_offset=end_offset,
                    check_crcs=False,  # the read has verified them
                    on_malformed=self._on_malformed,
                    aborted=chunk.aborted,
                )
            )

        return self._read_decoded(decode, max_bytes, max_wait_ms)

    def read_columns(
        self, columns: Sequence[str], *, max_bytes: int = CHUNK_BYTES, max_wait_ms: int = 0
    ) -> list[Columns]:
        """Like `read_records`, but returns columns, which are valid until the next read. Requires the extra `arrow`."""
        from raylog.protocol.records.columnar import decode_columns

        def decode(chunk: Chunk, end_offset: int) -> list[Columns]:
            return list(
                decode_columns(
                    chunk.records,
                    columns,
                    from_offset=chunk.start,
                    end_offset=end_offset,
                    check_crcs=False,  # the read has verified them
                    on_malformed=self._on_malformed,
                    aborted=chunk.aborted,
                )
            )

        return self._read_decoded(decode, max_bytes, max_wait_ms)

    def end_offset(self) -> Offset:
        """The offset up to which there is something to read now. Raises KafkaError."""
        files = self._open_files()
        if files is not None:
            try:
                page = files.page()
                return Offset(page.last_stable_offset if self._committed else page.high_watermark)
            except KafkaError as error:
                self._forget_files()
                if error.code in NOT_RETRIED_OVER_TCP:
                    raise
        return Offset(self._offset_for(OffsetSpec.LATEST))

    def _read_decoded(
        self, decode: Callable[[Chunk, int], list[Decoded]], max_bytes: int, max_wait_ms: int
    ) -> list[Decoded]:
        """What `decode` makes of the next chunk, or of the part of it before a malformed batch, once it is accepted.

        Chunks without records, as compaction and transactions leave them, are passed over.
        """
        deadline = time.monotonic() + max_wait_ms / 1000
        while (chunk := self.read(max_bytes=max_bytes, max_wait_ms=_ms_until(deadline))) is not None:
            malformed = None
            try:
                decoded = decode(chunk, OFFSET_END)
            except MalformedBatch as error:
                malformed = error
                decoded = decode(chunk, error.base_offset) if error.base_offset > chunk.start else []
            if self.accept(chunk):
                if malformed is not None:
                    self.seek(malformed.base_offset)
                    if not decoded:
                        raise malformed
                if decoded:
                    return decoded
        return []

    # --- the two transports

    def _open_files(self) -> LocalPartitionReader | None:
        """The reader of the leader's files; None if they are not available."""
        if self._files is None and self._mapped and time.monotonic() >= self._files_from:
            self._files_from = time.monotonic() + FILES_RETRY_SECONDS
            leader = self._locate().leader
            broker = open_local(leader.cluster_id, leader.broker_id, user=self._user)
            if broker is not None:
                try:
                    # Arrow's views of a chunk are used after the next read.
                    reader = broker.open(
                        self._tp,
                        self.position,
                        committed=self._committed,
                        keep_chunks=True,
                        check_crc=self._check_crcs,
                    )
                    self._files = broker, reader
                except KafkaError:
                    broker.close()
        return None if self._files is None else self._files[1]

    def _forget_files(self) -> None:
        if self._files is not None:
            broker, reader = self._files
            self._files = None
            self._files_from = time.monotonic() + FILES_RETRY_SECONDS
            broker.close()  # first: the handle ends with the connection, and the broker may not respond
            reader.close()

    def _fetch(self, max_bytes: int, max_wait_ms: int) -> Chunk | None:
        asked = fetch(
            self._tp,
            self._topic_id or self._locate().topic.topic_id,
            self.position,
            max_bytes=max_bytes,
            max_wait_ms=max_wait_ms,
            committed=self._committed,
        )
        batches, aborted = self._run(asked, max_wait_ms / 1000)
        size_bytes, next_offset = whole_batches(batches)
        if not size_bytes:
            return None
        records = batches[:size_bytes]
        if self._check_crcs:
            for position, header in split_batches(records):
                verify_crc(records, position, header)
        return Chunk(records, self.position, Offset(next_offset), 0, aborted)

    def _locate(self) -> LocatedPartition:
        """Raises KafkaError, UNKNOWN_TOPIC_ID if it is another topic than that from which the reader began."""
        located = self._run(locate(self._tp))
        if self._topic_id not in (None, located.topic.topic_id):
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID, f"{self._tp} was deleted and created again")
        self._topic_id = located.topic.topic_id
        return located

    def _offset_for(self, timestamp: int) -> int:
        return self._run(offset_for(self._tp, timestamp, committed=self._committed))

    def _run(self, steps: Steps[T], wait_seconds: float = 0.0) -> T:
        return self._calls.run(steps, self._timeout_seconds + wait_seconds)
