"""Principals and hosts are encoded and decoded in Kafka's Envelope format, and invalid ones refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raylog.core.errors import ErrorCode, KafkaError
from raylog.security.principal import (
    ANONYMOUS,
    Principal,
    decode_host,
    decode_principal,
    encode_host,
    encode_principal,
    parse_principal,
)

_text = st.text(st.characters(exclude_categories=["Cs"]), max_size=300)


@given(st.builds(Principal, _text, _text), st.booleans())
def test_a_principal_is_decoded_and_its_truncations_are_refused(principal: Principal, by_token: bool) -> None:
    data = encode_principal(principal, token_authenticated=by_token)
    assert decode_principal(data) == (principal, by_token)
    for length in (*range(min(len(data), 20)), len(data) - 1):
        with pytest.raises(KafkaError) as refused:
            decode_principal(data[:length])
        assert refused.value.code == ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE


def test_the_bytes_are_kafkas() -> None:
    encoded = b"\0\0" + b"\5User" + b"\x0aANONYMOUS"
    assert encode_principal(ANONYMOUS) == encoded + b"\0" + b"\0"
    assert encode_principal(ANONYMOUS, token_authenticated=True) == encoded + b"\1" + b"\0"


@pytest.mark.parametrize("host", ["127.0.0.1", "10.1.2.3", "::1", "2001:db8::5", "ray", ""])
def test_a_host_is_encoded_and_decoded(host: str) -> None:
    assert decode_host(encode_host(host)) == host


@pytest.mark.parametrize("text", ["User:alice", "User:CN=a:b,OU=c", "User:*"])
def test_principals_as_text(text: str) -> None:
    assert str(parse_principal(text)) == text


@pytest.mark.parametrize("text", ["", "alice", ":alice", "User:"])
def test_invalid_principals(text: str) -> None:
    with pytest.raises(KafkaError) as refused:
        parse_principal(text)
    assert refused.value.code == ErrorCode.INVALID_REQUEST
