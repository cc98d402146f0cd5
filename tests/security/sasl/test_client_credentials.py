"""Tokens by the client credentials grant: what is asked, how long a token is used, and what is refused."""

from __future__ import annotations

import json
import time
from base64 import b64encode
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from raylog.config.client import https_settings
from raylog.core.errors import ErrorCode, KafkaError
from raylog.core.password import Password
from raylog.security.sasl.client_credentials import ClientCredentials
from raylog.security.sasl.jaas import parse_jaas
from tests.support.certificates import Certificates
from tests.support.token_issuer import Endpoint, http_endpoint


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    with http_endpoint() as made:
        yield made


def credentials(endpoint: Endpoint, **options: Any) -> ClientCredentials:
    return ClientCredentials(endpoint.url, "me", Password("s e:cret"), **options)


def test_a_token_is_requested_once_and_used_while_it_is_valid(endpoint: Endpoint) -> None:
    endpoint.serve(json.dumps({"access_token": "a.b.c", "expires_in": 3600}).encode())
    ours = credentials(endpoint, scope="kafka read")
    assert [ours().reveal() for _ in range(3)] == ["a.b.c"] * 3
    form = b"grant_type=client_credentials&scope=kafka+read"
    assert endpoint.requests == [("/keys", form, f"Basic {b64encode(b'me:s e:cret').decode()}")]


def test_a_token_endpoint_whose_authority_is_in_a_trust_store(tmp_path: Path) -> None:
    certificates = Certificates.new(tmp_path)
    trust = f'ssl.truststore.type=PEM ssl.truststore.location="{certificates.trusted}"'
    with http_endpoint(certificates.issue("issuer", "127.0.0.1")) as endpoint:
        endpoint.serve(json.dumps({"access_token": "a.b.c", "expires_in": 3600}).encode())
        tls = https_settings(parse_jaas(f"Login required {trust};").options)
        assert credentials(endpoint, tls=tls)().reveal() == "a.b.c"
        with pytest.raises(KafkaError, match="CERTIFICATE_VERIFY_FAILED"):
            credentials(endpoint)()


def test_a_token_is_used_as_long_as_it_is_valid_if_no_other_one_can_be_had(
    endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    endpoint.serve(json.dumps({"access_token": "a.b.c", "expires_in": 100}).encode())
    ours, clock = credentials(endpoint), [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    ours()
    endpoint.serve(b"", status=503)
    clock[0] = 99.0
    assert ours().reveal() == "a.b.c"
    assert len(endpoint.requests) == 2, "it was tried"
    clock[0] = 100.0
    with pytest.raises(KafkaError, match="no token"):
        ours()


@pytest.mark.parametrize("lifetime", [{"expires_in": 0}, {"expires_in": -5}, {}])
def test_a_token_without_lifetime_is_used_once(endpoint: Endpoint, lifetime: dict[str, int]) -> None:
    endpoint.serve(json.dumps({"access_token": "a.b.c", **lifetime}).encode())
    ours = credentials(endpoint)
    ours(), ours()
    assert [form for _, form, _ in endpoint.requests] == [b"grant_type=client_credentials"] * 2


@pytest.mark.parametrize(
    ("answer", "status"),
    [
        (b'{"error": "invalid_client", "hint": "s e:cret"}', 401),
        (b"", 200),
        (b"[]", 200),
        (b"7", 200),
        (b"{}", 200),
        (b"[" * 100_000, 200),
        (b'{"access_token": 7}', 200),
        (b'{"access_token": "x", "expires_in": "soon"}', 200),
        (b" " * ((1 << 20) + 1), 200),
    ],
    ids=lambda value: repr(value)[:20],
)
def test_other_answers_are_errors_that_show_no_secret(endpoint: Endpoint, answer: bytes, status: int) -> None:
    endpoint.serve(answer, status=status)
    with pytest.raises(KafkaError, match="no token: http://") as failed:
        credentials(endpoint)()
    assert failed.value.code == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert "s e:cret" not in failed.value.message
