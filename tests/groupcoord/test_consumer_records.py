"""The records of consumer groups have the bytes of Kafka's, and other bytes are refused."""

from __future__ import annotations

import struct
from uuid import UUID

import pytest

from raylog.core.errors import InvariantViolation
from raylog.groupcoord import records
from raylog.groupcoord.consumer.records import (
    ConsumerRecord,
    ConsumerRecordDeleted,
    GroupEpochBumped,
    MemberAssigned,
    MemberState,
    MemberSubscribed,
    MemberTargeted,
    RegexResolved,
    TargetDecided,
)

TOPIC_ID = UUID(int=(1 << 127) + 5)
T = TOPIC_ID.bytes.hex()
CASES: list[tuple[ConsumerRecord, str, str | None]] = [
    (GroupEpochBumped("g", 3, 0), "0003 0001 67", "0000 00000003 00"),
    (GroupEpochBumped("g", 3, 7), "0003 0001 67", "0000 00000003 01 00 08 0000000000000007"),
    (
        MemberSubscribed("g", "m", None, "r", "c", "h", ("a", "b"), None, 5, "uniform"),
        "0005 0001 67 0001 6d",
        "0000 00 0272 0263 0268 03 0261 0262 00 00000005 08 756e69666f726d 00",
    ),
    (TargetDecided("g", 4), "0006 0001 67", "0000 00000004 00"),
    (
        MemberTargeted("g", "m", frozenset({(TOPIC_ID, 1), (TOPIC_ID, 0)})),
        "0007 0001 67 0001 6d",
        f"0000 02 {T} 03 00000000 00000001 00 00",
    ),
    (
        MemberAssigned("g", "m", 4, 3, MemberState.UNREVOKED_PARTITIONS, frozenset({(TOPIC_ID, 2)}), frozenset()),
        "0008 0001 67 0001 6d",
        f"0000 00000004 00000003 01 02 {T} 02 00000002 00 01 00",
    ),
    (
        RegexResolved("g", "a.", ("ab",), 9, 10),
        "0010 0001 67 0002 612e",
        "0000 02 03 6162 0000000000000009 000000000000000a 00",
    ),
    (ConsumerRecordDeleted("g", 3), "0003 0001 67", None),
    (ConsumerRecordDeleted("g", 8, "m"), "0008 0001 67 0001 6d", None),
    (ConsumerRecordDeleted("g", 16, "a."), "0010 0001 67 0002 612e", None),
]


@pytest.mark.parametrize(("record", "key", "value"), CASES)
def test_bytes(record: ConsumerRecord, key: str, value: str | None) -> None:
    encoded = bytes.fromhex(key), None if value is None else bytes.fromhex(value)
    assert records.encode(record) == encoded
    assert records.decode(*encoded) == record


@pytest.mark.parametrize(("record", "key", "value"), [case for case in CASES if case[2] is not None])
def test_no_truncated_value_is_decoded(record: ConsumerRecord, key: str, value: str) -> None:
    whole = bytes.fromhex(value)
    for length in range(len(whole)):
        with pytest.raises(InvariantViolation):
            records.decode(bytes.fromhex(key), whole[:length])


def test_versions_and_states_of_the_future_are_refused() -> None:
    with pytest.raises(InvariantViolation, match="value version 1 is unknown"):
        records.decode(bytes.fromhex("0003000167"), struct.pack(">hiB", 1, 3, 0))
    key, value = records.encode(CASES[5][0])
    assert value is not None
    with pytest.raises(InvariantViolation, match="9 is not a valid MemberState"):
        records.decode(key, value[:10] + b"\x09" + value[11:])


def test_fields_that_later_versions_of_kafka_add_are_ignored() -> None:
    value = bytes.fromhex("0000 00000003 02 00 08 0000000000000007 01 08 00000000000000ff")
    assert records.decode(bytes.fromhex("0003000167"), value) == GroupEpochBumped("g", 3, 7)
