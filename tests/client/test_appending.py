"""The quick way of `send` in C does what the one in Python does, and leaves alone what that one does not take."""

from __future__ import annotations

import gc
import sys
import threading
from collections.abc import Callable
from time import time_ns
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raylog.client.producer import appending
from raylog.client.producer.accumulator import ProducerBatch, RecordAccumulator
from raylog.client.producer.core import ProducerCore
from raylog.client.producer.delivery import RECORD_OVERHEAD_BYTES, ProducerRecord
from raylog.client.producer.producer import Delivery
from raylog.protocol.records.batch import HEADER_SIZE
from tests.client.test_network_client import shown
from tests.client.test_sender import NOW, made, on_delivery

pytestmark = pytest.mark.skipif(appending.compiled is None, reason="raylog was installed without a compiler")

ENDS = threading.Condition()


def core_of(**settings: str) -> ProducerCore:
    core = made(linger_ms="1000", **settings)
    core.network.metadata.answered(shown([1], partitions=3), NOW)
    return core


def quick_send(core: ProducerCore, clock: Callable[[], int] = lambda: 7_000_000, lock: Any = None) -> Any:
    return core.open_batches.quick_send(Delivery, ENDS, clock, lock)


def state(core: ProducerCore) -> list[Any]:
    """All that appending a record changes."""
    spread: Any = core._spread
    sticky = spread.sticky("t")
    batches = [
        (
            str(batch.tp),
            batch.number,
            batch.size_bytes,
            batch.callbacks,
            batch.builder.count,
            batch.builder.base_timestamp_ms,
            batch.builder.max_timestamp_ms,
            bytes(batch.builder.body),
        )
        for batch in core.sender.unfinished
    ]
    return [core.accumulator.used_bytes, sticky.current, sticky.current_bytes, batches]


RECORDS = st.tuples(
    st.sampled_from(["t", "t", "t", "other"]),
    st.none() | st.binary(max_size=400),
    st.none() | st.binary(max_size=20),
    st.booleans(),
    st.integers(0, 5_000),
    st.booleans(),
)
"""Topic, value, key, whether there is a callback, the time in ms, and whether the last batch lingers no more."""


@given(
    st.lists(RECORDS, max_size=60),
    st.sampled_from([500, 2_000, 100_000]),
    st.sampled_from([1_200, 10_000]),
    st.booleans(),
)
def test_it_does_the_same(records: list[Any], batch_size: int, buffer_memory: int, ignore_keys: bool) -> None:
    settings = {
        "batch_size": str(batch_size),
        "buffer_memory": str(buffer_memory),
        "partitioner_ignore_keys": str(ignore_keys).lower(),
        "max_request_size": "1000",
    }
    ours, theirs = core_of(**settings), core_of(**settings)
    time = SimpleNamespace(ms=0)
    send = quick_send(ours, lambda: time.ms * 1_000_000)
    for topic, value, key, told, time.ms, closes in records:
        callback = on_delivery if told else None
        delivery = send(topic, value, key, callback)
        batch = theirs.open_batches.append(topic, value, key, time.ms, (), callback)
        assert (delivery is None) == (batch is None)
        if batch is not None:
            assert delivery._batch.number == batch.number
            assert (delivery._index, delivery._timestamp_ms) == (batch.builder.count - 1, time.ms)
            assert delivery._ends is ENDS
        elif topic == "t":
            record = ProducerRecord(topic, key, value, (), None, time.ms, callback)
            assert (ours.try_append(record, NOW) is None) == (theirs.try_append(record, NOW) is None)
        assert state(ours) == state(theirs)
        if closes:
            for core in (ours, theirs):
                for last in list(core.sender.unfinished)[-1:]:
                    last.closed = True


def opened(**settings: str) -> tuple[ProducerCore, ProducerBatch]:
    core = core_of(**settings)
    core.try_append(ProducerRecord("t", None, b"v", (), None, 0), NOW)
    (batch,) = core.sender.unfinished
    return core, batch


@pytest.mark.parametrize(
    ("topic", "value", "key"),
    [
        (7, b"v", None),
        ([], b"v", None),
        (None, b"v", None),
        ("t", "text", None),
        ("t", b"v", "text"),
        ("t", bytearray(b"v"), None),
        ("t", memoryview(b"v"), None),
        ("t", 5, None),
        ("absent", b"v", None),
    ],
)
def test_other_records_are_left_to_the_caller(topic: Any, value: Any, key: Any) -> None:
    core, _ = opened()
    before = state(core)
    assert quick_send(core)(topic, value, key, None) is None
    assert state(core) == before


@pytest.mark.parametrize("way", ["C", "Python"])
def test_a_record_that_would_fill_the_batch_or_exceed_the_memory_is_left_to_the_caller(way: str) -> None:
    def appended(core: ProducerCore, value: bytes) -> bool:
        if way == "C":
            return quick_send(core)("t", value, None, None) is not None
        return core.open_batches.append("t", value, None, 7) is not None

    core, batch = opened(batch_size="500")
    fills = 500 - batch.size_bytes - RECORD_OVERHEAD_BYTES
    assert not appended(core, bytes(fills))
    assert appended(core, bytes(fills - 1))
    core, batch = opened(batch_size="5000", buffer_memory="1000")
    fits = 1000 - core.accumulator.used_bytes - RECORD_OVERHEAD_BYTES
    assert not appended(core, bytes(fits + 1))
    assert appended(core, bytes(fits))


def test_a_closed_producer_takes_nothing() -> None:
    core, _ = opened()
    send = quick_send(core)
    assert send("t", b"v", None, None) is not None
    core.close()
    assert send("t", b"v", None, None) is None


def test_a_batch_whose_memory_is_in_use_is_left_as_it_is() -> None:
    core, batch = opened()
    before = state(core)
    lock = threading.Lock()
    for each in (None, lock):
        with memoryview(batch.builder.body), pytest.raises(BufferError):
            quick_send(core, lock=each)("t", b"v", None, on_delivery)
    assert state(core) == before
    assert not lock.locked()


def test_errors_of_clock_and_lock_change_nothing() -> None:
    def broken() -> int:
        raise OSError("no clock")

    core, _ = opened()
    before = state(core)
    with pytest.raises(OSError, match="no clock"):
        quick_send(core, broken)("t", b"v", None, None)
    with pytest.raises(AttributeError):
        quick_send(core, lock=object())("t", b"v", None, None)
    with pytest.raises(TypeError):
        quick_send(core)("t", b"v")
    assert state(core) == before


def test_the_lock_is_held_and_released() -> None:
    core, _ = opened()
    calls: list[str] = []
    lock = SimpleNamespace(acquire=lambda: calls.append("acquire"), release=lambda: calls.append("release"))
    send = quick_send(core, lock=lock)
    send("t", b"v", None, None)
    send("absent", b"v", None, None)
    assert calls == ["acquire", "release"] * 2


def test_it_is_made_for_these_classes_only() -> None:
    core, _ = opened()

    class NoSlots:
        _batch = 1

    with pytest.raises(TypeError, match="is not a slot"):
        core.open_batches.quick_send(NoSlots, ENDS, time_ns)
    with pytest.raises(TypeError, match="is missing"):
        appending.compiled.QuickSend((), {}, core.accumulator, 1, ENDS, time_ns, None)
    with pytest.raises(TypeError, match="not a class"):
        appending.compiled.QuickSend((1,) * 6, {}, core.accumulator, 1, ENDS, time_ns, None)
    with pytest.raises(TypeError, match="not an accumulator"):
        appending.compiled.QuickSend((RecordAccumulator,) * 6, {}, object(), 1, ENDS, time_ns, None)


def test_it_keeps_no_memory() -> None:
    """Sending a second time as often leaves no more blocks of memory than the first time."""
    core, batch = opened()
    send = quick_send(core, time_ns)
    count = 1000

    def blocks_after_sending() -> int:
        for _ in range(count):
            send("t", b"v", b"key", on_delivery)
            send("t", b"v", None, None)
            send("absent", b"v", None, None)
            send("t", 5, None, None)
        batch.callbacks.clear()
        del batch.builder.body[HEADER_SIZE:]
        batch.size_bytes = HEADER_SIZE
        gc.collect()
        return sys.getallocatedblocks()

    blocks_after_sending()
    before = blocks_after_sending()
    assert blocks_after_sending() < before + count // 2
