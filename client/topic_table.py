"""(shell) The latest value of each key of a topic, kept up to date: what a compacted topic is for.

    with raylog.read_table("users", bootstrap_servers=servers) as users:
        users[b"alice"]            # the value; a Mapping of bytes to bytes
        users.to_arrow()           # a pyarrow.Table, one row for each key
        users.refresh()            # reads what is new

A process on a leader's node reads its mapped files, others use Fetch, as `PartitionReader` does.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Self
from uuid import UUID

from raylog.client.admin.topics import describe_topics
from raylog.client.blocking_calls import BlockingCalls, config_of
from raylog.client.client_config import ClientConfig
from raylog.client.partition_reader import PartitionReader
from raylog.core.errors import ConfigError, ErrorCode, KafkaError
from raylog.protocol.records.isolation import IsolationLevel
from raylog.protocol.records.key_table import RECORD_COLUMNS, TABLE_COLUMNS, KeyTable, new_key_table

if TYPE_CHECKING:
    import pyarrow as pa

log = logging.getLogger("raylog.client")
CLIENT_ID: Final = "raylog-topic-table"
READ_BYTES: Final = 4 << 20
PARTITIONS_CHECKED_SECONDS: Final = 1.0
"""How often a refresh asks for new partitions, and whether the topic was created again."""
TIMEOUT_SECONDS: Final = 30.0
WAIT_MS: Final = 100
"""How long a waiting refresh waits for one partition before it looks at the others."""
BEGIN_AGAIN: Final = (ErrorCode.OFFSET_OUT_OF_RANGE, ErrorCode.UNKNOWN_TOPIC_ID)

BEGINS_MAX: Final = 3
"""How often one refresh begins again: retention may be faster than the reader."""


def read_table(
    topic: str,
    *,
    bootstrap_servers: str | None = None,
    client_config: Mapping[str, Any] | None = None,
    isolation_level: IsolationLevel | None = None,
    skip_malformed: bool = False,
) -> TopicTable:
    """The latest value of each key of `topic`, as of now; `refresh` brings it up to date.

    The arguments are those of `read_dataset` and `PartitionReader`. Requires the extra `arrow`; with numba (the extra
    `fast`) it is several times as fast. Raises ConfigError, and KafkaError if the topic does not exist.
    """
    config = ClientConfig.of(bootstrap_servers, client_config, isolation_level=isolation_level)
    table = TopicTable(config, topic, skip_malformed=skip_malformed)
    try:
        table.refresh()
    except BaseException:
        table.close()
        raise
    return table


class TopicTable(Mapping[bytes, bytes]):
    """A view of a topic in this process, from `read_table` to `close`; a context manager. Not thread-safe.

    A tombstone removes its key; a record without a key is left out and counted. Keys belong to partitions: if records
    of one key are in several, the one that was read last counts. If records that were not read yet were deleted by
    retention, if the log was truncated, or if the topic was created again, the next refresh reads everything again, so
    that no key stays that a reader from the start would not find. Deletions are seen for `delete.retention.ms` only: a
    table that is refreshed less often may keep keys that were deleted.
    """

    def __init__(self, config: ClientConfig, topic: str, *, skip_malformed: bool) -> None:
        """Use `read_table` instead."""
        self._config = config
        self._topic = topic
        self._skip_malformed = skip_malformed
        self._calls = BlockingCalls(config_of(config, client_id=CLIENT_ID), waits_for_brokers=False)
        self._table = _empty_table()
        self._readers: list[PartitionReader] = []
        """By partition."""
        self._topic_id: UUID | None = None
        self._checked_at = -PARTITIONS_CHECKED_SECONDS
        """When partitions were last asked for (monotonic)."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """The content stays. Can be called twice."""
        self._close_readers()
        self._calls.close()

    def refresh(self, *, max_wait_ms: int = 0) -> int:
        """Read all records that are new when it is called, and return their number.

        If there are none, it waits up to `max_wait_ms` for the first. Raises KafkaError, NETWORK_EXCEPTION for example;
        the table then has a part of what is new, and the next call goes on.
        """
        deadline = time.monotonic() + max_wait_ms / 1000
        begins_left = BEGINS_MAX
        while True:
            try:
                self._check_partitions()
                count = sum(self._read(number) for number in range(len(self._readers)))
                if not count:
                    count = self._wait(deadline)
            except KafkaError as error:
                if error.code not in BEGIN_AGAIN or not begins_left:
                    raise
                begins_left -= 1
                log.warning("table read again", extra={"topic": self._topic, "reason": error.message})
                self._begin_again()
                continue
            if count or time.monotonic() >= deadline:
                return count

    @property
    def records_without_key(self) -> int:
        """The number of records that were left out since they have no key."""
        return self._table.without_key

    def to_arrow(self, columns: Sequence[str] | None = None) -> pa.Table:
        """A copy as a pyarrow.Table, one row for each key, in no particular order.

        `columns` are among key, value, partition, offset and timestamp, all of them by default. Raises ConfigError.
        """
        chosen = TABLE_COLUMNS if columns is None else tuple(columns)
        if isinstance(columns, str) or not chosen or len(set(chosen)) < len(chosen) or set(chosen) - set(TABLE_COLUMNS):
            raise ConfigError(f"columns={columns!r}: must be a list of different ones of {', '.join(TABLE_COLUMNS)}")
        return self._table.to_arrow(chosen)

    def __len__(self) -> int:
        return len(self._table)

    def __iter__(self) -> Iterator[bytes]:
        return self._table.keys()

    def __getitem__(self, key: bytes) -> bytes:
        value = self._table.get(key)
        if value is None:
            raise KeyError(key)
        return value

    # Internals

    def _check_partitions(self) -> None:
        """Open readers of new partitions. Raises UNKNOWN_TOPIC_ID if the topic was created again."""
        if time.monotonic() - self._checked_at < PARTITIONS_CHECKED_SECONDS:
            return
        found = self._calls.run(describe_topics(self._topic), TIMEOUT_SECONDS)[self._topic]
        if self._topic_id not in (None, found.topic_id):
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID, f"{self._topic} was deleted and created again")
        self._topic_id = found.topic_id
        while len(self._readers) < len(found.partitions):
            self._readers.append(
                PartitionReader(
                    self._config.bootstrap_servers,
                    self._topic,
                    len(self._readers),
                    skip_malformed=self._skip_malformed,
                    client_config=self._config.properties,
                )
            )
        self._checked_at = time.monotonic()

    def _read(self, partition: int) -> int:
        """Read what the partition has now."""
        reader = self._readers[partition]
        end_offset = reader.end_offset()
        if end_offset < reader.position:
            what = f"{self._topic}-{partition} was truncated to {end_offset}, below {reader.position}"
            raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE, what)
        count = 0
        while reader.position < end_offset:
            before = reader.position
            count += self._apply(partition)
            if reader.position == before:
                break
        return count

    def _wait(self, deadline: float) -> int:
        """Wait for a part of the time in each partition; ends with the first that has records."""
        for partition in range(len(self._readers)):
            wait_ms = min(WAIT_MS, int((deadline - time.monotonic()) * 1000))
            if wait_ms <= 0:
                break
            if count := self._apply(partition, max_wait_ms=wait_ms):
                return count
        return 0

    def _apply(self, partition: int, *, max_wait_ms: int = 0) -> int:
        reader = self._readers[partition]
        count = 0
        for records in reader.read_columns(RECORD_COLUMNS, max_bytes=READ_BYTES, max_wait_ms=max_wait_ms):
            without_key = self._table.without_key
            self._table.update(records, partition)
            count += records.row_count
            if not without_key < self._table.without_key:
                continue
            if not without_key:
                log.warning("records without key left out", extra={"topic": self._topic, "partition": partition})
        return count

    def _begin_again(self) -> None:
        self._close_readers()
        self._table = _empty_table()
        self._topic_id = None
        self._checked_at = -PARTITIONS_CHECKED_SECONDS

    def _close_readers(self) -> None:
        for reader in self._readers:
            reader.close()
        self._readers.clear()


def _empty_table() -> KeyTable:
    return new_key_table(int.from_bytes(os.urandom(8)) >> 1)
