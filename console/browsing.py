"""Which records the page of messages shows: where reading begins, what matches, and where it goes on. Pure."""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from raylog.client.consumer.fetched import ConsumerRecord
from raylog.console.fields import Fields
from raylog.core.ids import TopicPartition

COUNT_DEFAULT: Final = 50
COUNT_MAX: Final = 500
NEWEST_READ_MAX: Final = 5_000
"""Records that are read to show the newest ones of all partitions."""
SCANNED_MAX: Final = 50_000
"""Records that one request looks through."""
BYTES_MAX: Final = 4 << 20
"""Of the keys, values and headers that one request returns."""
NEWEST, EARLIEST, OFFSET, TIME, POSITIONS = "newest", "earliest", "offset", "time", "positions"
STARTS: Final = {name: name for name in (NEWEST, EARLIEST, OFFSET, TIME, POSITIONS)}
AT_END: Final = -1
"""The position of a partition whose offsets are not known yet: its end, once they are."""
_HEX_MARK: Final = "0x"

Bounds = Mapping[TopicPartition, tuple[int, int]]
"""The first offset and the end of each partition."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """What the page asks for."""

    topic: str
    partition: int | None
    start: str
    at: int
    """The offset, or the time in milliseconds."""
    positions: Mapping[int, int]
    count: int
    key: bytes | None
    """Only records with this key."""
    contains: bytes
    """Only records whose key or value has this text, in any case of ASCII letters."""

    @classmethod
    def of(cls, fields: Fields) -> Wanted:
        """Raises KafkaError."""
        start = fields.choice("from", STARTS, NEWEST)
        partition = fields.number("partition", -1, most=1 << 31)
        key = fields.text("key", "")
        return cls(
            fields.text("topic", characters_max=249),
            None if partition < 0 else partition,
            start,
            fields.number("at") if start in (OFFSET, TIME) else 0,
            _positions(fields) if start == POSITIONS else {},
            fields.number("count", COUNT_DEFAULT, least=1, most=COUNT_MAX),
            _key(fields, key) if key else None,
            fields.text("contains", "").lower().encode(),
        )

    @property
    def filters(self) -> bool:
        return self.key is not None or bool(self.contains)


def starts(wanted: Wanted, bounds: Bounds, at_time: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
    """Where to begin in each partition that has something to read. `at_time` lacks those without a later record."""
    newest = min(wanted.count, max(1, NEWEST_READ_MAX // max(1, len(bounds))))
    if wanted.filters:
        newest = max(newest, NEWEST_READ_MAX // max(1, len(bounds)))
    found = {}
    for tp, (first, end) in bounds.items():
        if wanted.start == NEWEST:
            start = end - newest
        elif wanted.start == EARLIEST:
            start = first
        elif wanted.start == OFFSET:
            start = wanted.at
        elif wanted.start == TIME:
            start = at_time.get(tp, end)
        else:
            start = _position(wanted, tp.partition, first, end)
        found[tp] = min(max(start, first), end)
    return found


def _position(wanted: Wanted, partition: int, first: int, end: int) -> int:
    """A partition that has no position is a new one, unless none has."""
    position = wanted.positions.get(partition, first if wanted.positions else AT_END)
    return end if position == AT_END else position


@dataclass(slots=True)
class Scan:
    """Takes records as they are read, until it has enough of them.

    Where the newest are asked for, all are read, and as many of the newest are kept as the count and BYTES_MAX permit;
    else the first ones, and reading stops behind the last of them.
    """

    wanted: Wanted
    positions: dict[TopicPartition, int]
    """Where to go on."""
    ends: Mapping[TopicPartition, int]
    scanned: int = 0
    size_bytes: int = 0
    found: list[ConsumerRecord] = field(default_factory=list)
    """In the order of their times."""
    dropped: tuple[int, int, int] | None = None
    """The order of the newest record that was dropped: none of those before it is kept."""

    @property
    def is_full(self) -> bool:
        if self.wanted.start != NEWEST and (len(self.found) >= self.wanted.count or self.size_bytes >= BYTES_MAX):
            return True
        return self.scanned >= SCANNED_MAX

    @property
    def is_complete(self) -> bool:
        """Whether every partition was read up to where it ended when the request came."""
        return all(self.positions[tp] >= end for tp, end in self.ends.items())

    def take(self, record: ConsumerRecord) -> bool:
        """Whether it was looked at; one that was not is the first to be read the next time."""
        if self.is_full:
            return False
        self.scanned += 1
        self.positions[TopicPartition(record.topic, record.partition)] = record.offset + 1
        if matches(record, self.wanted) and (self.dropped is None or _order(record) > self.dropped):
            insort(self.found, record, key=_order)
            self.size_bytes += _size_bytes(record)
            if self.wanted.start == NEWEST:
                self._drop_oldest()
        return True

    def _drop_oldest(self) -> None:
        while len(self.found) > self.wanted.count or (self.size_bytes > BYTES_MAX and len(self.found) > 1):
            oldest = self.found.pop(0)
            self.size_bytes -= _size_bytes(oldest)
            self.dropped = _order(oldest)

    def positions_of(self, partitions: Iterable[TopicPartition]) -> dict[int, int]:
        """Where to go on in each of the partitions. One that had no offsets, such as those of a broker that is down,
        stays where it was, so that none of its records is missing later."""
        former = self.wanted.positions
        return {tp.partition: self.positions.get(tp, former.get(tp.partition, AT_END)) for tp in partitions}

    def shown(self) -> list[ConsumerRecord]:
        """Newest first where the newest are asked for, else in the order of their times."""
        return self.found[::-1] if self.wanted.start == NEWEST else self.found


def matches(record: ConsumerRecord, wanted: Wanted) -> bool:
    if wanted.key is not None and record.key != wanted.key:
        return False
    needle = wanted.contains
    if not needle:
        return True
    return needle in (record.value or b"").lower() or needle in (record.key or b"").lower()


def _size_bytes(record: ConsumerRecord) -> int:
    headers = sum(len(name) + len(value or b"") for name, value in record.headers)
    return len(record.key or b"") + len(record.value or b"") + headers


def _order(record: ConsumerRecord) -> tuple[int, int, int]:
    return record.timestamp_ms, record.partition, record.offset


def _positions(fields: Fields) -> dict[int, int]:
    """`0:120,1:7`."""
    found = {}
    for each in fields.texts("positions", entries_max=10_000):
        partition, _, offset = each.partition(":")
        own = Fields({"partition": partition, "offset": offset})
        found[own.number("partition", most=1 << 31)] = own.number("offset", least=AT_END)
    return found


def _key(fields: Fields, key: str) -> bytes:
    if not key.startswith(_HEX_MARK):
        return key.encode()
    return from_hex(fields, "key", key[len(_HEX_MARK) :])


def from_hex(fields: Fields, name: str, text: str) -> bytes:
    """Raises KafkaError."""
    try:
        return bytes.fromhex(text)
    except ValueError:
        raise fields.refused(name, "must be pairs of hexadecimal digits") from None
