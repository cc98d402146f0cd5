"""Request and response headers are encoded and decoded in every version, and invalid ones refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raylog.core.errors import ProtocolViolation
from raylog.protocol import codec
from raylog.protocol.header import (
    RequestHeader,
    RequestStart,
    decode_request_header,
    decode_request_start,
    decode_response_header,
    encode_request,
    encode_request_header,
    encode_response_header,
)
from raylog.protocol.messages.api_versions import ApiVersionsRequest
from raylog.protocol.produce import ProduceRequest
from raylog.protocol.registry import API_VERSIONS, APIS, METADATA, SASL_HANDSHAKE
from raylog.protocol.wire import ELEMENTS_MAX, uvarint
from tests.protocol.messages import TEXT

TOO_MANY_ELEMENTS = (
    b"\0" + b"\0\0" + b"\0\0\0\0" + uvarint(ELEMENTS_MAX + 2) + bytes([1, 1, 0]) * (ELEMENTS_MAX + 1) + b"\0"
)
"""A Produce v9 of empty topics."""
SERVED = st.sampled_from(APIS).flatmap(
    lambda spec: st.tuples(st.just(spec.key), st.integers(spec.lowest, spec.highest))
)


@given(SERVED, st.integers(-(2**31), 2**31 - 1), st.none() | TEXT)
def test_a_request_header_is_decoded_and_its_truncations_are_refused(
    api: tuple[int, int], correlation_id: int, client_id: str | None
) -> None:
    raw = encode_request_header(*api, correlation_id, client_id)
    assert decode_request_header(memoryview(raw + b"body")) == (
        RequestHeader(*api, correlation_id, client_id),
        len(raw),
    )
    for stop in range(len(raw)):
        with pytest.raises(ProtocolViolation):
            decode_request_header(raw[:stop])


@given(SERVED, st.integers(-(2**31), 2**31 - 1))
def test_a_response_header_is_decoded_and_its_truncations_are_refused(
    api: tuple[int, int], correlation_id: int
) -> None:
    raw = encode_response_header(*api, correlation_id)
    assert decode_response_header(*api, b"xx" + raw, 2) == (correlation_id, 2 + len(raw))
    for stop in range(len(raw)):
        with pytest.raises(ProtocolViolation):
            decode_response_header(*api, raw[:stop])


@given(st.binary(max_size=40))
def test_random_bytes_are_a_header_or_a_violation(noise: bytes) -> None:
    try:
        decode_request_header(noise)
    except ProtocolViolation:
        pass


@pytest.mark.parametrize(("version", "header"), [(8, b""), (9, b"\0")])
def test_flexible_requests_have_tags_after_the_client_id(version: int, header: bytes) -> None:
    raw = encode_request_header(METADATA, version, 5, "me")
    assert raw == b"\0\x03\0" + bytes((version,)) + b"\0\0\0\x05" + b"\0\x02me" + header
    unknown_tag = raw[:-1] + b"\x01\x07\x02hi"
    if header:
        assert decode_request_header(unknown_tag)[1] == len(unknown_tag)


def test_the_api_versions_response_has_the_old_header_in_every_version() -> None:
    assert [encode_response_header(API_VERSIONS, version, 1) for version in range(5)] == [b"\0\0\0\x01"] * 5
    assert encode_response_header(METADATA, 9, 1) == b"\0\0\0\x01\0"
    assert encode_response_header(SASL_HANDSHAKE, 1, 1) == b"\0\0\0\x01"


def test_api_versions_of_an_unsupported_version_can_be_answered() -> None:
    raw = b"\0\x12\0\x09\0\0\0\x2a" + b"whatever a later version says"
    assert decode_request_start(raw) == RequestStart(api_key=API_VERSIONS, api_version=9, correlation_id=42)
    with pytest.raises(ProtocolViolation, match="API key 18 version 9 is not supported"):
        decode_request_header(raw)


@pytest.mark.parametrize("start", [b"\x03\xe8\0\0", b"\0\x03\0\x0e", b"\0\0\0\x02", b"\0\x03\xff\xff", b"\xff\xff\0\0"])
def test_unsupported_requests_are_refused_after_their_first_fields(start: bytes) -> None:
    raw = start + b"\0\0\0\x07" + b"\xff\xff\0"
    assert decode_request_start(raw).correlation_id == 7
    with pytest.raises(ProtocolViolation, match="is not supported"):
        decode_request_header(raw)


@pytest.mark.parametrize("client_id", [b"\xff\xfe", b"\x80\0", b"\x7f\xff", b"\0\x05abc", b"\0\x01\xff"])
def test_an_invalid_client_id_is_refused(client_id: bytes) -> None:
    with pytest.raises(ProtocolViolation):
        decode_request_header(b"\0\x03\0\x01\0\0\0\x07" + client_id)


def test_a_request_is_its_header_and_its_body() -> None:
    message = ApiVersionsRequest(client_software_name="raylog", client_software_version="1")
    raw = b"".join(encode_request(message, api_version=3, correlation_id=9, client_id="c"))
    header, position = decode_request_header(raw)
    assert header == RequestHeader(API_VERSIONS, 3, 9, "c")
    assert codec.decode(ApiVersionsRequest, 3, raw, position) == message


def test_a_message_with_too_many_elements_does_not_affect_the_next_header() -> None:
    """Else one hostile peer would have the requests of all others refused."""
    request = encode_request_header(METADATA, 12, 7, "me")
    response = encode_response_header(METADATA, 12, 7)
    for _ in range(2):
        with pytest.raises(ProtocolViolation, match="elements in one message"):
            codec.decode(ProduceRequest, 9, TOO_MANY_ELEMENTS)
        assert decode_request_header(request)[1] == len(request)
        with pytest.raises(ProtocolViolation, match="elements in one message"):
            codec.decode(ProduceRequest, 9, TOO_MANY_ELEMENTS)
        assert decode_response_header(METADATA, 12, response) == (7, len(response))
