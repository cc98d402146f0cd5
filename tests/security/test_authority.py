"""When a certificate must be renewed, and what an authority signs."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from cryptography import x509

from raylog.security.authority import Authority, needs_renewal, new_key, signing_request

NOW = datetime(2030, 1, 1, tzinfo=UTC)
HOSTS = ("broker.example", "10.0.0.7")


@pytest.fixture(scope="module")
def authority() -> Authority:
    return Authority.new("Test", now=NOW)


def test_a_certificate_is_renewed_after_two_thirds_of_its_time(authority: Authority) -> None:
    chain = authority.issue("broker-0", HOSTS, days=30, now=NOW).chain
    for days, expected in ((0, False), (19, False), (21, True), (31, True)):
        now = NOW + timedelta(days=days)
        assert needs_renewal(chain, HOSTS, authority.certificate, now=now) is expected, days


@pytest.mark.parametrize(("hosts", "expected"), [(HOSTS[:1], False), ((*HOSTS, "other"), True), (("10.0.0.8",), True)])
def test_a_certificate_is_renewed_for_other_hosts(authority: Authority, hosts: list[str], expected: bool) -> None:
    chain = authority.issue("broker-0", HOSTS, now=NOW).chain
    assert needs_renewal(chain, hosts, authority.certificate, now=NOW) is expected


def test_a_certificate_of_another_authority_is_renewed(authority: Authority) -> None:
    chain = Authority.new("Test", now=NOW).issue("broker-0", HOSTS, now=NOW).chain
    assert needs_renewal(chain, HOSTS, authority.certificate, now=NOW)


@pytest.mark.parametrize("pem", [b"", b"-----BEGIN CERTIFICATE-----\n", b"\xff" * 100])
def test_what_is_no_certificate_is_renewed(authority: Authority, pem: bytes) -> None:
    chain = authority.issue("broker-0", HOSTS, now=NOW).chain
    assert needs_renewal(pem, HOSTS, authority.certificate, now=NOW)
    assert needs_renewal(chain, HOSTS, pem, now=NOW)


def test_a_request_determines_the_key_and_nothing_else(authority: Authority) -> None:
    key = new_key()
    chain = authority.sign(signing_request(key), "broker-0", HOSTS, organizational_unit="brokers", now=NOW)
    certificate = x509.load_pem_x509_certificate(chain)
    assert certificate.subject.rfc4514_string() == "CN=broker-0,OU=brokers"
    assert not certificate.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    assert b"PRIVATE" not in chain
    assert not needs_renewal(chain, HOSTS, authority.certificate, now=NOW)


@pytest.mark.parametrize("request_pem", [b"", b"-----BEGIN CERTIFICATE REQUEST-----\nAAAA\n"])
def test_an_invalid_request_is_refused(authority: Authority, request_pem: bytes) -> None:
    with pytest.raises(ValueError, match=r"PEM|request"):
        authority.sign(request_pem, "broker-0")
