"""The rows of an Arrow table become batches, without a Python object for each row. Sans-IO."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from raylog.client.errors import SerializationError
from raylog.client.given_values import check_topic_names
from raylog.client.producer.accumulator import ProducerBatch
from raylog.core.errors import ErrorCode, KafkaError
from raylog.protocol.records.builder import BatchBuilder
from raylog.protocol.records.compression import Buffer
from raylog.protocol.records.record_encoding import append_columns

if TYPE_CHECKING:
    import pyarrow as pa

    from raylog.protocol.records.arrow_encoding import Rows

    Table: TypeAlias = pa.Table | pa.RecordBatch

_INT64: Final = "q"


class AppendedRows(NamedTuple):
    """Rows that were appended together."""

    topic: str
    partition: int
    base_offset: int
    """Of the first one; -1 if the broker did not tell."""
    record_count: int


def tables_by_topic(topic: str | None, table: Table) -> list[tuple[str, Table]]:
    """The rows of each topic: all of them for `topic`, else those of each topic in the column of that name.

    Raises KafkaError.
    """
    import pyarrow as pa

    from raylog.protocol.records.arrow_encoding import by_topic

    if not isinstance(table, (pa.Table, pa.RecordBatch)):
        text = f"the rows must be a pyarrow.Table or RecordBatch, not {type(table).__name__}"
        raise SerializationError(text)
    if topic is None:
        return by_topic(table)
    check_topic_names([topic])
    return [(topic, table.drop_columns(["topic"]) if "topic" in table.schema.names else table)]


def appended_rows(batches: Sequence[ProducerBatch]) -> list[AppendedRows]:
    """Where the batches were appended. Raises the KafkaError of one that was not."""
    return [
        AppendedRows(batch.tp.topic, batch.tp.partition, batch.metadata(0, 0).offset, batch.builder.count)
        for whole in batches
        for batch in _parts(whole)
    ]


def _parts(batch: ProducerBatch) -> Iterator[ProducerBatch]:
    if not batch.parts:
        yield batch
    for _, part in batch.parts:
        yield from _parts(part)


class TableAppender:
    """Appends the rows of a table.

    Call `encode_next`, which may run beside the connections, and `append` in turn until it is `finished`.
    """

    def __init__(
        self,
        table: Table,
        *,
        partition_count: int,
        batch_bytes: int,
        record_bytes_max: int,
        choose: Callable[[int], int],
        new_builder: Callable[[], BatchBuilder],
    ) -> None:
        """`choose` returns the partition for this many bytes of rows without key. Raises KafkaError for the columns."""
        from raylog.protocol.records.arrow_encoding import rows_of

        self.batches: list[ProducerBatch] = []
        self.finished = False
        """Whether all rows are appended."""
        self._parts = list(rows_of(table))
        self._partition_count = partition_count
        self._batch_bytes = batch_bytes
        self._record_bytes_max = record_bytes_max
        self._choose = choose
        self._new_builder = new_builder
        self._builders: Iterator[tuple[int, BatchBuilder]] | None = None
        self._next: tuple[int, BatchBuilder] | None = None

    def encode_next(self, wall_ms: int) -> None:
        """Raises KafkaError for a partition that does not exist, and for a row that is too large."""
        if self._builders is None:
            self._builders = self._encoded(wall_ms)
        if self._next is None:
            self._next = next(self._builders, None)
        self.finished = self._next is None

    def append(self, append: Callable[[int, BatchBuilder], ProducerBatch], has_room: Callable[[int], bool]) -> bool:
        """Append the encoded batch; False if there is no memory for it."""
        assert self._next is not None
        partition, builder = self._next
        if not has_room(builder.size_bytes):
            return False
        self._next = None
        self.batches.append(append(partition, builder))
        return True

    def _encoded(self, wall_ms: int) -> Iterator[tuple[int, BatchBuilder]]:
        from raylog.protocol.records.arrow_encoding import by_partition

        for rows in self._parts:
            for partition, count, order in by_partition(rows, self._partition_count, lambda: self._choose(0)):
                at = 0
                while at < count:
                    builder, at = self._batch(rows, order, at, count, wall_ms)
                    chosen = self._choose(builder.size_bytes) if partition is None else partition
                    yield chosen, builder

    def _batch(self, rows: Rows, order: Buffer | None, start: int, end: int, wall_ms: int) -> tuple[BatchBuilder, int]:
        builder = self._new_builder()
        first = start if order is None else memoryview(order).cast("B").cast(_INT64)[start]
        if rows.timestamps is not None:
            wall_ms = memoryview(rows.timestamps).cast("B").cast(_INT64)[first]
        builder.base_timestamp_ms = wall_ms
        stopped, builder.max_timestamp_ms = append_columns(
            builder.body,
            start,
            end,
            order,
            rows.row_count,
            rows.keys,
            rows.values,
            rows.headers,
            rows.timestamps,
            wall_ms,
            self._batch_bytes,
        )
        builder.count = stopped - start
        if len(builder.body) > self._record_bytes_max:
            text = f"a row needs {len(builder.body)} bytes, more than {self._record_bytes_max}"
            raise KafkaError(ErrorCode.MESSAGE_TOO_LARGE, f"{text} (max.request.size or buffer.memory)")
        return builder, stopped
