"""Records of MirrorMaker 2's internal topics: the bytes of its own classes, and refusals of what is malformed."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raylog.core.errors import KafkaError
from raylog.core.ids import TopicPartition
from raylog.mirror.formats import Checkpoint, Heartbeat, OffsetSync

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)
LONGS = st.integers(-(1 << 63), (1 << 63) - 1)
TPS = st.builds(TopicPartition, TEXTS, st.integers(0, (1 << 31) - 1))
RECORDS = st.one_of(
    st.builds(Heartbeat, TEXTS, TEXTS, LONGS),
    st.builds(Checkpoint, TEXTS, TPS, LONGS, LONGS, TEXTS),
    st.builds(OffsetSync, TPS, LONGS, LONGS),
)
GOLDEN = [
    (Heartbeat("A", "B", 1234567890123), "000141000142", "00000000011f71fb04cb"),
    (
        Checkpoint("group", TopicPartition("A.topic", 3), 100, 42, "meta"),
        "000567726f75700007412e746f70696300000003",
        "00000000000000000064000000000000002a00046d657461",
    ),
    (OffsetSync(TopicPartition("topic", 3), 100, 42), "0005746f70696300000003", "0000000000000064000000000000002a"),
]
"""From Kafka 4.1's Heartbeat, Checkpoint and OffsetSync."""


@pytest.mark.parametrize(("record", "key", "value"), GOLDEN)
def test_the_bytes_are_those_of_mirror_maker(record: Any, key: str, value: str) -> None:
    assert [part.hex() for part in record.encode()] == [key, value]
    assert type(record).decode(bytes.fromhex(key), bytes.fromhex(value)) == record


@given(RECORDS)
def test_what_is_encoded_is_decoded(record: Any) -> None:
    assert type(record).decode(*record.encode()) == record
    key, value = record.encode()
    assert type(record).decode(key + b"later fields", value + b"later fields") == record


@given(RECORDS)
def test_every_truncation_is_refused(record: Any) -> None:
    key, value = record.encode()
    for end in range(len(key)):
        with pytest.raises(KafkaError, match="malformed"):
            type(record).decode(key[:end], value)
    for end in range(len(value)):
        with pytest.raises(KafkaError, match="malformed"):
            type(record).decode(key, value[:end])


@given(st.sampled_from([Heartbeat, Checkpoint, OffsetSync]), st.binary(max_size=60), st.binary(max_size=60))
def test_any_bytes_are_read_or_refused(kind: Any, key: bytes, value: bytes) -> None:
    try:
        kind.decode(key, value)
    except KafkaError as error:
        refused = error.message
    else:
        refused = "malformed"
    assert "malformed" in refused


def test_other_versions_nulls_and_long_names_are_refused() -> None:
    key, value = Heartbeat("A", "B", 1).encode()
    with pytest.raises(KafkaError, match="version 1 is unknown"):
        Heartbeat.decode(key, b"\0\1" + value[2:])
    with pytest.raises(KafkaError, match="null"):
        Heartbeat.decode(None, value)
    with pytest.raises(KafkaError, match="null"):
        Heartbeat.decode(key, None)
    assert Heartbeat("x" * 32_767, "B", 1).encode().key[:2] == b"\x7f\xff"
    with pytest.raises(KafkaError, match="32768 bytes"):
        Heartbeat("x" * 32_768, "B", 1).encode()
