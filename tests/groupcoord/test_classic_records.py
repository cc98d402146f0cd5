"""Records of groups have Kafka's format: kafka-python's codec writes the same bytes from Kafka's schemas.

What members say of their subscriptions is read as that codec writes it.
"""

from __future__ import annotations

import struct
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.protocol.consumer.metadata import ConsumerProtocolAssignment, ConsumerProtocolSubscription
from kafka.protocol.schemas import StructField

from raylog.core.errors import InvariantViolation
from raylog.core.ids import TopicPartition
from raylog.groupcoord import records
from raylog.groupcoord.classic.subscription import assigned_partitions, subscribed_topics
from raylog.groupcoord.records import CommittedMember, GroupCommitted, GroupDeleted, OffsetDeleted

MEMBER_FIELDS = [
    {"name": "memberId", "versions": "0+", "type": "string"},
    {"name": "groupInstanceId", "versions": "3+", "nullableVersions": "3+", "type": "string", "default": "null"},
    {"name": "clientId", "versions": "0+", "type": "string"},
    {"name": "clientHost", "versions": "0+", "type": "string"},
    {"name": "rebalanceTimeout", "versions": "1+", "type": "int32"},
    {"name": "sessionTimeout", "versions": "0+", "type": "int32"},
    {"name": "subscription", "versions": "0+", "type": "bytes"},
    {"name": "assignment", "versions": "0+", "type": "bytes"},
]
VALUE_SCHEMA = {
    "name": "GroupMetadataValue",
    "type": "data",
    "validVersions": "0-3",
    "flexibleVersions": "none",
    "versions": "0+",
    "fields": [
        {"name": "protocolType", "versions": "0+", "type": "string"},
        {"name": "generation", "versions": "0+", "type": "int32"},
        {"name": "protocol", "versions": "0+", "nullableVersions": "0+", "type": "string"},
        {"name": "leader", "versions": "0+", "nullableVersions": "0+", "type": "string"},
        {"name": "currentStateTimestamp", "versions": "2+", "type": "int64", "default": "-1"},
        {"name": "members", "versions": "0+", "type": "[]MemberMetadata", "fields": MEMBER_FIELDS},
    ],
}
"""Of Kafka's GroupMetadataValue.json: names, types and versions."""


def kafkas_value(record: GroupCommitted, version: int = 3) -> bytes:
    codec = StructField(VALUE_SCHEMA)
    members = [
        (
            member.member_id,
            *((member.group_instance_id,) if version >= 3 else ()),
            member.client_id,
            member.client_host,
            *((member.rebalance_timeout_ms,) if version >= 1 else ()),
            member.session_timeout_ms,
            member.subscription,
            member.assignment,
        )
        for member in record.members
    ]
    fields = (
        record.protocol_type,
        record.generation_id,
        record.protocol_name,
        record.leader,
        *((record.state_timestamp_ms,) if version >= 2 else ()),
        members,
    )
    return struct.pack(">h", version) + cast("bytes", codec.encode(fields, version=version))


GROUP = GroupCommitted(
    "gruppe-ä",
    "consumer",
    7,
    "range",
    "m-1",
    1_700_000_000_000,
    (
        CommittedMember("m-1", None, "c", "/10.0.0.1", 300_000, 45_000, b"subscribed", b"assigned"),
        CommittedMember("m-2", "instance", "", "/::1", 1, 2, b"", b""),
    ),
)
EMPTY_GROUP = GroupCommitted("g", "", 0, None, None, -1, ())


@pytest.mark.parametrize("record", [GROUP, EMPTY_GROUP])
def test_a_group_is_written_as_by_kafka(record: GroupCommitted) -> None:
    key, value = records.encode(record)
    encoded = record.group.encode()
    assert key == struct.pack(f">hh{len(encoded)}s", 2, len(encoded), encoded)
    assert value == kafkas_value(record)
    assert records.encode(GroupDeleted(record.group)) == (key, None)


def test_the_golden_bytes() -> None:
    key, value = records.encode(EMPTY_GROUP)
    assert (key.hex(), value and value.hex()) == (
        "0002000167",
        "0003" + "0000" + "00000000" + "ffff" + "ffff" + "ffffffffffffffff" + "00000000",
    )


@pytest.mark.parametrize(
    ("version", "missing"),
    [
        (0, {"rebalance_timeout_ms", "group_instance_id", "state_timestamp_ms"}),
        (1, {"group_instance_id", "state_timestamp_ms"}),
        (2, {"group_instance_id"}),
        (3, set()),
    ],
)
def test_records_of_older_kafka_versions_are_read(version: int, missing: set[str]) -> None:
    key, _ = records.encode(GROUP)
    found = records.decode(key, kafkas_value(GROUP, version))
    assert isinstance(found, GroupCommitted)
    assert found.state_timestamp_ms == (-1 if "state_timestamp_ms" in missing else GROUP.state_timestamp_ms)
    for ours, theirs in zip(found.members, GROUP.members, strict=True):
        assert ours.group_instance_id == (None if "group_instance_id" in missing else theirs.group_instance_id)
        assert ours.rebalance_timeout_ms == (
            theirs.session_timeout_ms if "rebalance_timeout_ms" in missing else theirs.rebalance_timeout_ms
        )
        assert (ours.member_id, ours.assignment) == (theirs.member_id, theirs.assignment)


_text = st.text(max_size=20)
_int32 = st.integers(-(1 << 31), (1 << 31) - 1)
_member = st.builds(
    CommittedMember,
    _text,
    st.none() | _text,
    _text,
    _text,
    _int32,
    _int32,
    st.binary(max_size=9),
    st.binary(max_size=9),
)
_group = st.builds(
    GroupCommitted,
    _text,
    _text,
    _int32,
    st.none() | _text,
    st.none() | _text,
    st.integers(-1, 1 << 60),
    st.lists(_member, max_size=4).map(tuple),
)


@given(_group)
def test_records_are_encoded_and_decoded(record: GroupCommitted) -> None:
    key, value = records.encode(record)
    assert value == kafkas_value(record)
    assert records.decode(key, value) == record
    assert records.decode(key, None) == GroupDeleted(record.group)


@given(_group, st.data())
def test_a_truncated_record_is_refused(record: GroupCommitted, data: st.DataObject) -> None:
    key, value = records.encode(record)
    assert value is not None
    cut = data.draw(st.integers(0, len(value) - 1))
    with pytest.raises(InvariantViolation):
        records.decode(key, value[:cut])


def test_an_unknown_version_is_refused() -> None:
    for record in (GROUP, OffsetDeleted("g", "t", 0)):
        key, _ = records.encode(record)
        with pytest.raises(InvariantViolation, match="version 4"):
            records.decode(key, struct.pack(">h", 4) + b"anything, of any length")


def subscription(topics: list[str], version: int) -> bytes:
    said: Any = ConsumerProtocolSubscription(version=version, topics=topics, user_data=b"own", owned_partitions=[])
    return cast("bytes", said.encode(version=version))


@pytest.mark.parametrize("version", [0, 1, 2, 3])
def test_subscriptions_are_read_in_every_version(version: int) -> None:
    assert subscribed_topics(subscription(["a", "ä", "a"], version)) == {"a", "ä"}
    assert subscribed_topics(subscription([], version)) == set()


@pytest.mark.parametrize("version", [0, 1, 2, 3])
def test_assignments_are_read_in_every_version(version: int) -> None:
    parts = [("a", [0, 5]), ("ä", []), ("b", [1])]
    said: Any = ConsumerProtocolAssignment(version=version, assigned_partitions=parts, user_data=b"own")
    encoded = cast("bytes", said.encode(version=version))
    assert assigned_partitions(encoded) == [TopicPartition("a", 0), TopicPartition("a", 5), TopicPartition("b", 1)]
    assert all(
        assigned_partitions(encoded[:cut]) in ([], [*map(TopicPartition, "aa", (0, 5)), TopicPartition("b", 1)])
        for cut in range(len(encoded))
    )
    assert assigned_partitions(b"") == assigned_partitions(b"\x00\x00\x7f\xff\xff\xff") == []


@given(st.binary(max_size=60))
def test_invalid_bytes_have_no_subscription(metadata: bytes) -> None:
    topics = subscribed_topics(metadata)
    assert topics is None or sum(2 + len(topic.encode()) for topic in topics) <= len(metadata) - 6
