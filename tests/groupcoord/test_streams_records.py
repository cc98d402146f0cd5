"""The records of streams groups have the bytes of Kafka's, and other bytes are refused."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from raylog.core.errors import InvariantViolation
from raylog.groupcoord import records
from raylog.groupcoord.streams.records import (
    MemberState,
    StreamsGroupEpochBumped,
    StreamsMemberAssigned,
    StreamsMemberJoined,
    StreamsMemberTargeted,
    StreamsRecord,
    StreamsRecordDeleted,
    StreamsTargetDecided,
    TopologySet,
)
from raylog.groupcoord.streams.tasks import Tasks
from raylog.protocol.messages.streams_group_heartbeat import (
    CopartitionGroup,
    KeyValue,
    Subtopology,
    TopicInfo,
    Topology,
)

TOPOLOGY = Topology(
    epoch=1,
    subtopologies=(
        Subtopology(subtopology_id="0", source_topics=("in",), repartition_sink_topics=("mid",)),
        Subtopology(
            subtopology_id="1",
            source_topics=("in", "side"),
            repartition_source_topics=(TopicInfo(name="mid", partitions=4),),
            state_changelog_topics=(
                TopicInfo(
                    name="log",
                    replication_factor=3,
                    topic_configs=(KeyValue(key="cleanup.policy", value="compact"),),
                ),
            ),
            copartition_groups=(CopartitionGroup(source_topics=(1,), repartition_source_topics=(0,)),),
        ),
    ),
)
RECORDS: list[StreamsRecord] = [
    StreamsGroupEpochBumped("g", 3, 0),
    StreamsGroupEpochBumped("g", 3, 7, 1, (("num.standby.replicas", "1"),)),
    StreamsMemberJoined("g", "m", None, "r", "c", "h", 9, 1, "p", ("x", 65535), (("zone", "a"),)),
    StreamsMemberJoined("g", "m", None, None, "c", "h", 9, 1, "p"),
    StreamsTargetDecided("g", 4),
    StreamsMemberTargeted(
        "g", "m", Tasks(frozenset({("1", 2), ("1", 0), ("0", 1)}), frozenset({("1", 1)}), frozenset({("0", 0)}))
    ),
    StreamsMemberAssigned(
        "g",
        "m",
        5,
        4,
        MemberState.UNREVOKED_TASKS,
        Tasks(frozenset({("0", 0), ("0", 1)}), frozenset({("1", 1)}), frozenset({("1", 3)})),
        Tasks(frozenset({("1", 2)}), frozenset({("1", 0)})),
        {("0", 0): 3, ("0", 1): 5, ("1", 2): 4},
    ),
    TopologySet("g", TOPOLOGY),
    StreamsRecordDeleted("g", 17),
    StreamsRecordDeleted("g", 19, "m"),
    StreamsRecordDeleted("g", 20),
    StreamsRecordDeleted("g", 21, "m"),
    StreamsRecordDeleted("g", 22, "m"),
    StreamsRecordDeleted("g", 23),
]
KAFKAS = Path(__file__).parent.parent / "golden" / "streams-records.txt"
"""The same records as Kafka encodes them: what tests/kafka/streams/StreamsRecords.java prints (4.2.0)."""


def _bytes(line: str) -> tuple[bytes, bytes | None]:
    key, value = line.split()
    return bytes.fromhex(key), None if value == "null" else bytes.fromhex(value)


CASES = list(zip(RECORDS, map(_bytes, KAFKAS.read_text().splitlines()), strict=True))


@pytest.mark.parametrize(("record", "encoded"), CASES)
def test_bytes(record: StreamsRecord, encoded: tuple[bytes, bytes | None]) -> None:
    assert records.encode(record) == encoded
    assert records.decode(*encoded) == record


@pytest.mark.parametrize(("record", "encoded"), [case for case in CASES if case[1][1] is not None])
def test_no_truncated_value_is_decoded(record: StreamsRecord, encoded: tuple[bytes, bytes]) -> None:
    key, whole = encoded
    for length in range(len(whole)):
        with pytest.raises(InvariantViolation):
            records.decode(key, whole[:length])


def test_versions_and_states_of_the_future_are_refused() -> None:
    with pytest.raises(InvariantViolation, match="value version 1 is unknown"):
        records.decode(bytes.fromhex("0011000167"), struct.pack(">hiqB", 1, 3, 0, 0))
    key, value = records.encode(RECORDS[6])
    assert value is not None
    with pytest.raises(InvariantViolation, match="9 is not a valid MemberState"):
        records.decode(key, value[:10] + b"\x09" + value[11:])


def test_as_many_epochs_as_tasks() -> None:
    value = bytes.fromhex(
        "0000 00000005 00000004 01 02 0230 03 00000000 00000001 01 00 05 02 00000003 00 0101010101 00"
    )
    with pytest.raises(InvariantViolation):
        records.decode(records.encode(RECORDS[6])[0], value)


def test_active_tasks_without_epochs_have_that_of_the_member() -> None:
    value = bytes.fromhex("0000 00000005 00000004 01 02 0230 02 00000000 00 01 01 01 01 01 00")
    assert records.decode(records.encode(RECORDS[6])[0], value) == StreamsMemberAssigned(
        "g", "m", 5, 4, MemberState.STABLE, Tasks(frozenset({("0", 0)})), Tasks(), {("0", 0): 5}
    )
