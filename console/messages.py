"""(shell) Messages: browse the records of a topic, follow new ones, and write one."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any, Final

from raylog.client.consumer.fetched import ConsumerRecord
from raylog.console.avro_schema import CHARACTERS_MAX as SCHEMA_CHARACTERS_MAX
from raylog.console.avro_schema import decoder
from raylog.console.browsing import TIME, Bounds, Scan, Wanted, from_hex, starts
from raylog.console.fields import Fields
from raylog.console.topic_rows import led
from raylog.console.value_formats import AUTO, AVRO, FORMATS, HEX, AvroDecoder, shown
from raylog.console.visitor import Visitor, what_succeeded
from raylog.core.errors import ErrorCode, KafkaError
from raylog.core.ids import TopicPartition
from raylog.transport.system_time import now

log = logging.getLogger("raylog.console")
PREVIEW_CHARACTERS: Final = 4_000
WHOLE_CHARACTERS: Final = 2 << 20
HEADERS_SHOWN: Final = 50
HEADER_NAME_CHARACTERS: Final = 200
SCAN_MS_MAX: Final = 5_000
WAIT_MS_MAX: Final = 5_000
POLL_SECONDS: Final = 0.5
POLL_RECORDS: Final = 1_000
VALUE_CHARACTERS_MAX: Final = 1 << 20
READER: Final = {"fetch.max.bytes": 8 << 20, "max.partition.fetch.bytes": 1 << 20, "fetch.max.wait.ms": 200}
ISOLATION: Final = {"read_committed": "read_committed", "read_uncommitted": "read_uncommitted"}


async def browse(visitor: Visitor, fields: Fields) -> Any:
    """Records from where the page asks, with the positions to go on from.

    With `wait_ms` it waits so long for a record that is not there yet, which is how the page follows a topic.
    """
    wanted = Wanted.of(fields)
    isolation = fields.choice("isolation", ISOLATION, "read_committed")
    wait_ms = fields.number("wait_ms", 0, most=WAIT_MS_MAX)
    show = _Show.of(fields)
    asked, partitions = await _partitions(visitor, wanted)
    committed = isolation == "read_committed"
    bounds = await visitor.bounds(partitions, committed=committed)
    scan = Scan(wanted, starts(wanted, bounds, await _at_time(visitor, wanted, partitions)), _ends(bounds))
    if not scan.is_complete or wait_ms:
        async with visitor.readers:
            await _read(visitor, scan, isolation, now().monotonic_ms + (wait_ms or SCAN_MS_MAX), follows=wait_ms > 0)
    return {
        "records": [show.record(each, PREVIEW_CHARACTERS) for each in scan.shown()],
        "positions": {str(partition): offset for partition, offset in scan.positions_of(asked).items()},
        "ends": {str(tp.partition): end for tp, (_, end) in bounds.items()},
        "scanned": scan.scanned,
        "complete": scan.is_complete,
        "without_leader": len(asked) - len(bounds),
    }


async def whole_record(visitor: Visitor, fields: Fields) -> Any:
    """One record, with more of its value."""
    offset = fields.number("offset")
    given = {"topic": fields.text("topic"), "partition": fields.number("partition"), "from": "offset", "at": offset}
    wanted = Wanted.of(Fields({**given, "count": 1}))
    show = _Show.of(fields)
    _, partitions = await _partitions(visitor, wanted)
    bounds = await visitor.bounds(partitions)
    scan = Scan(wanted, starts(wanted, bounds, {}), _ends(bounds))
    if not scan.is_complete:
        async with visitor.readers:
            await _read(visitor, scan, "read_uncommitted", now().monotonic_ms + SCAN_MS_MAX, follows=False)
    if not scan.found or scan.found[0].offset != offset:
        raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE, f"offset {offset} has no record")
    return show.record(scan.found[0], WHOLE_CHARACTERS)


async def produce(visitor: Visitor, fields: Fields) -> Any:
    """Write one record to a topic that exists; returns where it is."""
    topic = fields.text("topic", characters_max=249)
    partition = fields.number("partition", -1, most=1 << 31)
    headers = [(each.text("name"), _bytes(each, "value", "format")) for each in fields.objects("headers")]
    key, value = _bytes(fields, "key", "key_format"), _bytes(fields, "value", "value_format")
    await visitor.admin.describe_topics(topic)
    async with visitor.producer() as producer:
        delivery = await producer.send(
            topic, value, key, headers=headers, partition=None if partition < 0 else partition
        )
        metadata = await delivery
    return {"partition": metadata.partition, "offset": metadata.offset}


class _Show:
    """How the page wants keys and values."""

    def __init__(self, key_format: str, value_format: str, avro: AvroDecoder | None) -> None:
        self._key_format = key_format
        self._value_format = value_format
        self._avro = avro

    @classmethod
    def of(cls, fields: Fields) -> _Show:
        """Raises KafkaError."""
        key, value = fields.choice("key_format", FORMATS, AUTO), fields.choice("value_format", FORMATS, AUTO)
        schema = fields.text("schema", "", characters_max=SCHEMA_CHARACTERS_MAX)
        return cls(key, value, decoder(schema) if schema and AVRO in (key, value) else None)

    def record(self, record: ConsumerRecord, characters_max: int) -> dict[str, Any]:
        return {
            "partition": record.partition,
            "offset": record.offset,
            "timestamp_ms": record.timestamp_ms,
            "timestamp_type": "LogAppendTime" if record.timestamp_type else "CreateTime",
            "key": self._shown(record.key, self._key_format, characters_max),
            "value": self._shown(record.value, self._value_format, characters_max),
            "headers": [
                {
                    "name": name[:HEADER_NAME_CHARACTERS],
                    "value": self._shown(value, AUTO, PREVIEW_CHARACTERS // 4),
                }
                for name, value in record.headers[:HEADERS_SHOWN]
            ],
            "more_headers": max(0, len(record.headers) - HEADERS_SHOWN),
        }

    def _shown(self, value: bytes | None, wanted: str, characters_max: int) -> dict[str, Any]:
        try:
            return shown(value, wanted, characters_max=characters_max, avro=self._avro).answer()
        except Exception:  # one value must not fail the page of all others
            log.exception("value not decoded", extra={"format": wanted})
            return shown(value, HEX, characters_max=characters_max).answer()


async def _partitions(visitor: Visitor, wanted: Wanted) -> tuple[list[TopicPartition], list[TopicPartition]]:
    """Those that are asked for, and of them those that have a leader. Raises KafkaError if there is no such topic or
    partition."""
    topic = (await visitor.admin.describe_topics(wanted.topic))[wanted.topic]
    readable = led([topic])
    if wanted.partition is None:
        return [TopicPartition(topic.name, each.partition) for each in topic.partitions], readable
    tp = TopicPartition(wanted.topic, wanted.partition)
    if tp not in readable:
        known = wanted.partition < len(topic.partitions)
        code = ErrorCode.LEADER_NOT_AVAILABLE if known else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        raise KafkaError(code, f"{tp}: {code.sentence}")
    return [tp], [tp]


def _ends(bounds: Bounds) -> dict[TopicPartition, int]:
    return {tp: end for tp, (_, end) in bounds.items()}


async def _at_time(visitor: Visitor, wanted: Wanted, partitions: list[TopicPartition]) -> Mapping[TopicPartition, int]:
    if wanted.start != TIME or not partitions:
        return {}
    found, _ = await what_succeeded(visitor.admin.list_offsets(dict.fromkeys(partitions, wanted.at)))
    return {tp: each.offset for tp, each in found.items() if each.offset >= 0}


async def _read(visitor: Visitor, scan: Scan, isolation: str, deadline_ms: int, *, follows: bool) -> None:
    """Until the scan has what it wants, the time is over, or, if it `follows`, there was something."""
    reading = {tp: at for tp, at in scan.positions.items() if follows or at < scan.ends[tp]}
    consumer = visitor.consumer(**{**READER, "isolation.level": isolation})
    try:
        consumer.assign(reading)
        for tp, at in reading.items():
            consumer.seek(tp, at)
        while not scan.is_full and now().monotonic_ms < deadline_ms:
            taken = await consumer.poll(POLL_SECONDS, max_records=POLL_RECORDS)
            if all(scan.take(record) for record in taken):
                for tp in reading:  # markers and aborted records take offsets too
                    scan.positions[tp] = max(scan.positions[tp], await consumer.position(tp))
            if (follows and scan.found) or (not follows and scan.is_complete):
                return
    finally:
        await consumer.close()


def _bytes(fields: Fields, name: str, format_name: str) -> bytes | None:
    """Raises KafkaError."""
    chosen = fields.choice(format_name, {"text": "text", "hex": "hex", "null": "null"}, "text")
    if chosen == "null":
        return None
    text = fields.text(name, "", characters_max=VALUE_CHARACTERS_MAX)
    return from_hex(fields, name, text) if chosen == "hex" else text.encode()
