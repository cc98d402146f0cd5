"""The compiled code, which walks over many batches at once, and Python clean every log to the same bytes."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from raylog.core.errors import KafkaError
from raylog.logstore.cleaner import CleanerBuffers, CleaningPlan, clean
from raylog.logstore.log import Log
from raylog.logstore.settings import MessageTimestampType
from raylog.protocol.records import compaction
from raylog.protocol.records.batch import HEADER_SIZE, split_batches, write_crc
from raylog.protocol.records.compression import Codec
from tests.logstore.batches import PATH, new_disk
from tests.logstore.test_cleaning import SECRET, SETTINGS, Writer, open_log, run_cleaning
from tests.support.forms import by_form
from tests.support.mutations import EDGES, mutated
from tests.support.sim_disk import SimDisk

pytestmark = pytest.mark.skipif(compaction.compiled is None, reason="there is no compiled code")
LOGS = by_form(80, quick=20, long=3000)
MOSTLY_PLAIN = [*[Codec.NONE] * 12, *Codec]


@pytest.mark.parametrize("seed", range(LOGS))
def test_both_write_the_same_files(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = random.Random(seed)
    disk = new_disk(seed)
    log, plan, buffers = dirty_log(disk, rng)
    compare(disk, plan, buffers, monkeypatch)
    log.abandon()


@pytest.mark.parametrize("seed", range(LOGS))
def test_both_refuse_the_same_damage(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The damaged batches have valid checksums, so that their records are read."""
    rng = random.Random(seed)
    disk = new_disk(seed)
    log, plan, buffers = dirty_log(disk, rng)
    for segment in rng.sample(plan.segments, k=min(2, len(plan.segments))):
        path = f"{PATH}/{segment.base_offset:020d}.log"
        disk.overwrite(path, damaged(disk.read_file(path), rng))
    compare(disk, plan, buffers, monkeypatch)
    log.abandon()


def dirty_log(disk: SimDisk, rng: random.Random) -> tuple[Log, CleaningPlan, CleanerBuffers]:
    """A log, part of which may be clean, and a plan to clean it."""
    settings = replace(
        SETTINGS,
        segment_bytes=rng.choice([500, 2000, 6000]),
        index_interval_bytes=rng.choice([0, 150, 400]),
        delete_retention_ms=rng.choice([0, 400]),
        message_timestamp_type=rng.choice(list(MessageTimestampType)),
    )
    codecs, transactions = rng.choice([(MOSTLY_PLAIN, True), ([Codec.NONE], False)])
    log = open_log(disk, settings)
    producers = [-1, 1, 2, 3] if transactions else [-1, 1, 4, 5]
    writer = Writer(log, rng, codecs=codecs, producers=producers, tick_ms=rng.choice([1, 1000]))
    for number in range(rng.choice([1, 2])):
        if number:
            run_cleaning(writer.log, disk, now_ms=writer.clock_ms)
        for _ in range(rng.randrange(10, 120)):
            writer.step()
        writer.log.roll(writer.clock_ms)
    writer.end_all()
    writer.log.roll(writer.clock_ms)
    writer.log.flush()
    found = writer.log.cleanable(limit=writer.log.log_end_offset, now_ms=writer.clock_ms)
    assert found is not None
    plan = writer.log.plan_cleaning(found, now_ms=writer.clock_ms, secret=SECRET)
    keys = rng.choice([3, 8, 1000])
    io_bytes = rng.choice([200, 700, 1 << 16])
    return writer.log, plan, CleanerBuffers(24 * keys, io_bytes, 0.9, io_bytes_per_second=1e12)


def damaged(data: bytes, rng: random.Random) -> bytes:
    parts = []
    for position, header in split_batches(data):
        batch = data[position : position + header.size_bytes]
        if rng.random() < 0.1:
            kept = rng.choice([0, 21, HEADER_SIZE])
            if rng.random() < 0.5:
                batch = batch[:kept] + mutated(batch[kept:], rng)
            if rng.random() < 0.9 and len(batch) >= HEADER_SIZE:
                changed = bytearray(batch)
                changed[8:12] = (len(batch) - 12).to_bytes(4)
                if rng.random() < 0.5:
                    field = rng.choice([0, 27])  # base offset or timestamp
                    changed[field : field + 8] = rng.choice(EDGES[8])
                write_crc(changed, 0, len(changed))
                batch = bytes(changed)
        parts.append(batch)
    return b"".join(parts)


def compare(disk: SimDisk, plan: CleaningPlan, buffers: CleanerBuffers, monkeypatch: pytest.MonkeyPatch) -> None:
    in_c = outcome(disk, plan, buffers)
    monkeypatch.setattr(compaction, "compiled", None)
    assert outcome(disk, plan, buffers) == in_c


def outcome(disk: SimDisk, plan: CleaningPlan, buffers: CleanerBuffers) -> object:
    try:
        cleaned = clean(disk, plan, buffers)
    except KafkaError as error:
        return error.code, error.message
    names = [name for name in disk.listdir(PATH) if name.endswith(".cleaned")]
    return cleaned, {name: disk.read_file(f"{PATH}/{name}") for name in names}
