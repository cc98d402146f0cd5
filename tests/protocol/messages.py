"""What the tests of this folder share: every message in every version, and how to draw one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from raylog.core.errors import ErrorCode
from raylog.core.ids import ZERO_TOPIC_ID
from raylog.protocol import schema
from raylog.protocol.registry import (
    ADD_RAFT_VOTER,
    ALTER_SHARE_GROUP_OFFSETS,
    APIS,
    CONSUMER_GROUP_DESCRIBE,
    CONSUMER_GROUP_HEARTBEAT,
    CREATE_DELEGATION_TOKEN,
    DELETE_SHARE_GROUP_OFFSETS,
    DELETE_SHARE_GROUP_STATE,
    DESCRIBE_DELEGATION_TOKEN,
    DESCRIBE_SHARE_GROUP_OFFSETS,
    EXPIRE_DELEGATION_TOKEN,
    GET_TELEMETRY_SUBSCRIPTIONS,
    INITIALIZE_SHARE_GROUP_STATE,
    PUSH_TELEMETRY,
    READ_SHARE_GROUP_STATE,
    READ_SHARE_GROUP_STATE_SUMMARY,
    REMOVE_RAFT_VOTER,
    RENEW_DELEGATION_TOKEN,
    SHARE_ACKNOWLEDGE,
    SHARE_FETCH,
    SHARE_GROUP_DESCRIBE,
    SHARE_GROUP_HEARTBEAT,
    STREAMS_GROUP_DESCRIBE,
    STREAMS_GROUP_HEARTBEAT,
    UNREGISTER_BROKER,
    WRITE_SHARE_GROUP_STATE,
)
from raylog.protocol.schema import Wire, WireType

MESSAGES: list[type[Any]] = [cls for spec in APIS for cls in (spec.request, spec.response)]


def versions(cls: type[Any]) -> range:
    return range(cls.api.lowest, cls.api.highest + 1)


UNKNOWN_TO_KAFKA_PYTHON = frozenset(
    {
        CONSUMER_GROUP_HEARTBEAT,
        CONSUMER_GROUP_DESCRIBE,
        CREATE_DELEGATION_TOKEN,
        RENEW_DELEGATION_TOKEN,
        EXPIRE_DELEGATION_TOKEN,
        DESCRIBE_DELEGATION_TOKEN,
        UNREGISTER_BROKER,
        ADD_RAFT_VOTER,
        REMOVE_RAFT_VOTER,
        GET_TELEMETRY_SUBSCRIPTIONS,
        PUSH_TELEMETRY,
        SHARE_GROUP_HEARTBEAT,
        SHARE_GROUP_DESCRIBE,
        SHARE_FETCH,
        SHARE_ACKNOWLEDGE,
        INITIALIZE_SHARE_GROUP_STATE,
        READ_SHARE_GROUP_STATE,
        WRITE_SHARE_GROUP_STATE,
        ALTER_SHARE_GROUP_OFFSETS,
        DELETE_SHARE_GROUP_OFFSETS,
        DESCRIBE_SHARE_GROUP_OFFSETS,
        DELETE_SHARE_GROUP_STATE,
        READ_SHARE_GROUP_STATE_SUMMARY,
        STREAMS_GROUP_HEARTBEAT,
        STREAMS_GROUP_DESCRIBE,
    }
)
"""It has no schema of them: they are held against kio alone."""

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=6) | st.just("é" * 80)  # two bytes of length
RECORDS = st.binary(max_size=20) | st.just(bytes(5000))  # beyond what is copied
SCALARS: dict[WireType, SearchStrategy[Any]] = {
    schema.int8: st.integers(-(2**7), 2**7 - 1),
    schema.int16: st.integers(-(2**15), 2**15 - 1),
    schema.int32: st.integers(-(2**31), 2**31 - 1),
    schema.int64: st.integers(-(2**63), 2**63 - 1),
    schema.uint16: st.integers(0, 2**16 - 1),
    schema.float64: st.floats(allow_nan=False),
    schema.boolean: st.booleans(),
    schema.uuid: st.uuids() | st.just(ZERO_TOPIC_ID),
    schema.error: st.sampled_from(ErrorCode),
    schema.string: TEXT,
    schema.binary: RECORDS,
    schema.record_set: RECORDS.map(memoryview),
    schema.record_buffers: RECORDS.map(lambda raw: (memoryview(raw),) if raw else ()),
}
TIMES_MS = st.integers(0, 4 * 10**12)
"""What Python's datetime, and so kio, can express."""
MILLISECONDS = st.just(-1) | TIMES_MS
MILLISECONDS_32 = st.integers(-1, 2**31 - 1)
NOTHING: Mapping[str, SearchStrategy[Any]] = {}


def values(name: str, how: Wire, version: int, instead: Mapping[str, SearchStrategy[Any]]) -> SearchStrategy[Any]:
    """What one field can hold in one version."""
    drawn: SearchStrategy[Any]
    if name in instead:
        drawn = instead[name]
    elif isinstance(how.element, type):
        drawn = structures(how.element, version, instead)
    elif name.endswith("_ms") and not how.is_array:
        drawn = MILLISECONDS if how.element is schema.int64 else MILLISECONDS_32
    else:
        drawn = SCALARS[how.element]
    if how.is_array:
        drawn = st.lists(drawn, max_size=3).map(tuple)
    return st.none() | drawn if how.nullable_in(version) else drawn


def structures(
    cls: type[Any], version: int, instead: Mapping[str, SearchStrategy[Any]] = NOTHING
) -> SearchStrategy[Any]:
    """Instances of a message or structure; what the version lacks stays at its default.

    `instead` has the fields, by name, that another oracle can express only a part of.
    """
    wires = {each.name: each.metadata["wire"] for each in fields(cls)}
    present = {name: how for name, how in wires.items() if how.exists_in(version)}
    return st.builds(cls, **{name: values(name, how, version, instead) for name, how in present.items()})
