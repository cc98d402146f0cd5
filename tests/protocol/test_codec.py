"""Every message in every version is decoded as encoded, and every length is checked before it is used."""

from __future__ import annotations

import random
import struct
import tracemalloc
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from raylog.core.errors import ErrorCode, ProtocolViolation
from raylog.protocol import codec
from raylog.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from raylog.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseTopic,
)
from raylog.protocol.messages.offset_fetch import OffsetFetchRequest
from raylog.protocol.produce import ProducePartition, ProduceRequest, ProduceTopic
from raylog.protocol.wire import read_uvarint, uvarint
from tests.protocol.messages import MESSAGES, structures, versions

every_message = pytest.mark.parametrize("cls", MESSAGES)
QUICK = settings(max_examples=6, deadline=None)


def read(cls: type[Any], version: int, raw: bytes) -> Any:
    return codec.decode(cls, version, memoryview(raw))


def read_or_refuse(cls: type[Any], version: int, raw: bytes) -> Any:
    """The message, or None where the bytes are refused as they should be; any other exception is the test's failure."""
    try:
        return read(cls, version, raw)
    except ProtocolViolation:
        return None


@every_message
def test_messages_are_encoded_and_decoded_and_their_parts_refused(cls: type[Any]) -> None:
    """What follows a message is ignored, as by Kafka."""

    def check(message: Any, version: int) -> None:
        raw = codec.encode(message, version)
        assert b"".join(codec.encode_buffers(message, version)) == raw
        for before, after in ((b"", b""), (b"xyz", b""), (b"", b"\1\0\0")):
            assert codec.decode(cls, version, before + raw + after, len(before)) == message
        stops = range(len(raw)) if len(raw) < 120 else random.Random(len(raw)).sample(range(len(raw)), 120)
        for stop in stops:
            with pytest.raises(ProtocolViolation):
                read(cls, version, raw[:stop])

    for version in versions(cls):
        QUICK(given(structures(cls, version), st.just(version))(check))()


@every_message
def test_random_bytes_are_read_or_refused(cls: type[Any]) -> None:
    for version in versions(cls):
        dice = random.Random(f"{cls.__name__} {version}")
        for _ in range(60):
            noise = bytes(dice.choice((0, 0, 1, 2, 255, dice.randrange(256))) for _ in range(dice.randrange(60)))
            message = read_or_refuse(cls, version, noise)
            if message is not None:
                codec.encode(message, version)


@every_message
def test_hostile_lengths_allocate_no_memory(cls: type[Any]) -> None:
    for version in versions(cls):
        read_or_refuse(cls, version, b"")  # compiles the reader
        tracemalloc.start()
        for filler in (b"\xff\xff\xff\xff\x0f", b"\x7f\xff\xff\xff", b"\x80", b"\x7f", b"\xff\xff\xff\xff\x07"):
            for zeros in range(0, 40, 3):
                read_or_refuse(cls, version, bytes(zeros) + filler * 4)
        _, peak_bytes = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert peak_bytes < 100_000


def test_an_array_is_limited_by_the_smallest_size_of_its_elements() -> None:
    # 18 bytes are the least a partition can be in v12; 100 of them are claimed, 99 would fit.
    head = codec.encode(MetadataResponse(topics=(MetadataResponseTopic(name="t"),)), 12)
    at = head.index(b"\x02t") + 2 + 16 + 1
    hostile = head[:at] + uvarint(101) + bytes(99 * 18)
    with pytest.raises(ProtocolViolation, match="partitions is longer than the frame"):
        read(MetadataResponse, 12, hostile)


@pytest.mark.parametrize("version", [8, 12])
def test_a_string_has_at_most_the_bytes_that_any_version_can_carry(version: int) -> None:
    longest = codec.encode(MetadataResponse(cluster_id="x" * 32767), version)
    assert read(MetadataResponse, version, longest).cluster_id == "x" * 32767
    if version >= 9:
        longer = codec.encode(MetadataResponse(cluster_id="x" * 32768), version)
        with pytest.raises(ProtocolViolation, match="cluster_id is longer than a string may be"):
            read(MetadataResponse, version, longer)


def test_nested_arrays_of_the_smallest_structures_take_linear_time() -> None:
    # OffsetFetch v8: as many groups as fit, each as small as can be: work and memory follow the bytes.
    group = b"\x01\x01\x00"
    count = 20_000
    frame = uvarint(count + 1) + group * count + b"\0\0"
    tracemalloc.start()
    message = read(OffsetFetchRequest, 8, frame)
    _, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(message.groups) == count
    assert peak_bytes < 80 * len(frame)


@pytest.mark.parametrize("count", [-2, -(2**31), 2**31 - 1, 5])
def test_an_array_of_old_versions_cannot_be_negative_or_exceed_the_frame(count: int) -> None:
    with pytest.raises(ProtocolViolation):
        read(MetadataRequest, 1, struct.pack(">i", count) + b"\0\0")


def test_null_is_read_only_in_versions_that_allow_it() -> None:
    assert read(MetadataRequest, 1, b"\xff\xff\xff\xff").topics is None
    with pytest.raises(ProtocolViolation, match="topics: null"):
        read(MetadataRequest, 0, b"\xff\xff\xff\xff")
    with pytest.raises(ProtocolViolation, match="client_software_name: null"):
        read(ApiVersionsRequest, 3, b"\0\x01\0")


def test_text_must_be_utf8() -> None:
    with pytest.raises(ProtocolViolation, match="utf-8"):
        read(ApiVersionsRequest, 3, b"\x02\xff\x01\0")


@pytest.mark.parametrize("raw", [b"\x80" * 5 + b"\0", b"\xff" * 4 + b"\x7f", b"\xff" * 4 + b"\x10", b"\x80" * 5])
def test_a_varint_beyond_32_bits_is_refused(raw: bytes) -> None:
    with pytest.raises(ProtocolViolation, match="varint"):
        read_uvarint(raw, 0)


@given(st.integers(0, 2**32 - 1))
def test_varints_are_encoded_and_decoded(value: int) -> None:
    raw = uvarint(value)
    assert read_uvarint(b"\0" + raw, 1) == (value, 1 + len(raw))


@pytest.mark.parametrize("size", [0, 1, 126, 127, 128, 16_382, 16_383, 16_384, 20_000])
def test_lengths_around_each_varint_size(size: int) -> None:
    message = ApiVersionsRequest(client_software_name="n" * size, client_software_version="v")
    assert read(ApiVersionsRequest, 3, codec.encode(message, 3)) == message


def test_unknown_tagged_fields_are_skipped() -> None:
    message = ApiVersionsRequest(client_software_name="n", client_software_version="v")
    raw = codec.encode(message, 3)
    assert raw.endswith(b"\0")
    unknown = b"\x02" + b"\x05\x03abc" + uvarint(70_000) + b"\0"
    assert read(ApiVersionsRequest, 3, raw[:-1] + unknown) == message
    known = codec.encode(ApiVersionsResponse(finalized_features_epoch=7), 3)
    assert known[-11:-8] == b"\x01\x01\x08"  # one tag, number 1, eight bytes
    assert (
        read(ApiVersionsResponse, 3, known[:-11] + b"\x02" + known[-10:] + b"\x63\x02hi").finalized_features_epoch == 7
    )
    assert read(ApiVersionsRequest, 3, raw[:-1] + b"\x80\0") == message  # no tags, said at length


@pytest.mark.parametrize(
    "tags", [b"\x01\x05\x04abc", b"\x7f\x05\0", b"\x01", b"\x01\x05", b"\xff\xff\xff\xff\x0f", b"\x02\x05\0"]
)
def test_tagged_fields_must_fit_the_frame(tags: bytes) -> None:
    raw = codec.encode(ApiVersionsRequest(client_software_name="n", client_software_version="v"), 3)
    with pytest.raises(ProtocolViolation):
        read(ApiVersionsRequest, 3, raw[:-1] + tags)


@pytest.mark.parametrize(
    "tags", [b"\x01\x01\x07" + bytes(7), b"\x01\x01\x09" + bytes(9), b"\x02\x01\x07" + bytes(7) + b"\x63\x01x"]
)
def test_a_known_tagged_field_must_have_its_size(tags: bytes) -> None:
    raw = codec.encode(ApiVersionsResponse(), 3)
    with pytest.raises(ProtocolViolation):
        read(ApiVersionsResponse, 3, raw[:-1] + tags)


def test_tagged_fields_with_their_default_are_omitted() -> None:
    assert codec.encode(ApiVersionsResponse(), 3) == b"\0\0" + b"\x01" + bytes(4) + b"\0"


def test_an_unknown_error_code_is_unknown_server_error() -> None:
    raw = codec.encode(ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION), 0)
    future = struct.pack(">h", 32_000) + raw[2:]
    assert read(ApiVersionsResponse, 0, future).error_code is ErrorCode.UNKNOWN_SERVER_ERROR


def test_fields_missing_in_a_version_are_omitted_and_decoded_as_their_default() -> None:
    message = MetadataResponse(throttle_time_ms=5, cluster_id="c", error_code=ErrorCode.INVALID_REQUEST)
    assert read(MetadataResponse, 0, codec.encode(message, 0)) == MetadataResponse()


@pytest.mark.parametrize(
    ("message", "version"),
    [
        (MetadataRequest(topics=None), 0),
        (MetadataRequest(topics=(MetadataRequestTopic(name=None),)), 9),
        (MetadataRequest(topics=(MetadataRequestTopic(name="n" * 40_000),)), 8),
        (MetadataResponse(throttle_time_ms=2**31), 3),
        (MetadataResponse(topics=(MetadataResponseTopic(partitions=None),)), 3),  # type: ignore[arg-type]
        (MetadataRequest(), 14),
        (ProduceRequest(), 2),
        (ApiVersionsRequest(client_software_name="\ud800"), 3),
        (ApiVersionsRequest(client_software_name=b"bytes"), 3),  # type: ignore[arg-type]
    ],
)
def test_values_outside_the_wire_type_are_a_value_error(message: Any, version: int) -> None:
    with pytest.raises(ValueError):
        codec.encode(message, version)


def test_large_buffers_are_passed_through_and_small_ones_joined() -> None:
    large, small = memoryview(bytes(codec.PASS_THROUGH_BYTES)), memoryview(b"tiny")
    partitions = tuple(ProducePartition(index=index, records=each) for index, each in enumerate((large, small, large)))
    buffers = codec.encode_buffers(ProduceRequest(topics=(ProduceTopic(name="t", partitions=partitions),)), 9)
    assert [each is large for each in buffers] == [False, True, False, True, False]


def test_a_large_frame_of_tiny_elements_is_refused_before_it_uses_much_memory() -> None:
    """Ten million empty topic names fit into 30 MB, and would be gigabytes of objects."""
    count = 10_000_000
    raw = b"\0" + b"\0\0" + b"\0\0\0\0" + uvarint(count + 1) + bytes([1, 1, 0]) * count + b"\0"
    tracemalloc.start()
    with pytest.raises(ProtocolViolation, match="elements in one message"):
        codec.decode(ProduceRequest, 9, raw)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 10_000_000
