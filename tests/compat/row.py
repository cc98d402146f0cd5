"""A record as every client can tell of it, whatever it calls its parts; and the codecs of Kafka by their names."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple, Protocol


class Row(NamedTuple):
    """`timestamp_ms` is None in a record still to be written, where the client or the broker is to choose it."""

    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    timestamp_ms: int | None = None


CODECS: Final = ("none", "gzip", "snappy", "lz4", "zstd")


class Client(Protocol):
    """A stock client with its default settings; made for one cluster by its bootstrap address."""

    name: str
    sets_timestamps: bool
    """Whether a record can be given its timestamp."""

    def __init__(self, bootstrap_servers: str) -> None: ...

    def why_not(self, row: Row) -> str | None:
        """Why this client cannot write such a record; None where it can."""

    def list_topics(self) -> dict[str, int]:
        """Partitions by topic."""

    def produce(self, topic: str, partition: int, rows: Sequence[Row], codec: str) -> list[int]:
        """Write the rows in order, wait for all of them; the acknowledged offsets (-1: no answer was wanted)."""

    def consume(self, topic: str, partition_count: int) -> list[Row]:
        """Every record from the beginning to the end of each partition, assigned by hand, in the order of arrival."""
