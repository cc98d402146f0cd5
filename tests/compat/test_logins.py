"""Stock clients log in by every mechanism they have, over TLS and without, and are refused with what does not fit."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.compat.conftest import Complaints
from tests.compat.secure_clients import SECURE_CLIENTS, VALUES, SecureClient
from tests.support.certificates import Certificates
from tests.support.secure_cluster import PASSWORD, SecureCluster, secure_cluster

MAY_BE_LOGGED = ("authentication failed", "TLS handshake failed")
"""The broker closes a connection 100 ms after it has refused its login, and the client may have tried again by then."""

clients = pytest.mark.parametrize("client", SECURE_CLIENTS, ids=lambda client: client.name)


@pytest.fixture(scope="module")
def secure(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureCluster]:
    with secure_cluster(tmp_path_factory.mktemp("secure")) as cluster:
        yield cluster


def topic_of(request: pytest.FixtureRequest) -> str:
    return "".join(each if each.isalnum() else "-" for each in request.node.name)


@clients
@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
@pytest.mark.parametrize("protocol", ["SASL_PLAINTEXT", "SASL_SSL"])
def test_log_in(
    secure: SecureCluster, client: SecureClient, protocol: str, mechanism: str, request: pytest.FixtureRequest
) -> None:
    assert client.use(secure.login(protocol, mechanism), topic_of(request)) == VALUES


@clients
@pytest.mark.parametrize("name", ["", "bob"])
def test_tls(secure: SecureCluster, client: SecureClient, name: str, request: pytest.FixtureRequest) -> None:
    login = secure.login("SSL")
    if name:
        login = secure.with_certificate(login, name)
    assert client.use(login, topic_of(request)) == VALUES


@clients
@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
@pytest.mark.parametrize("wrong", [{"password": "wrong"}, {"user": "nobody"}])
def test_a_wrong_password_is_refused(
    secure: SecureCluster,
    client: SecureClient,
    mechanism: str,
    wrong: dict[str, str],
    request: pytest.FixtureRequest,
    complaints: Complaints,
) -> None:
    with pytest.raises(Exception, match=r"(?i)authenticat|invalid credentials|bootstrap"):
        client.use(secure.login("SASL_PLAINTEXT", mechanism, **wrong), topic_of(request))
    assert any("authentication failed" in line for line in complaints.lines)
    assert not any(PASSWORD in line or "wrong" in line for line in complaints.lines)
    complaints.lines.clear()


@clients
@pytest.mark.parametrize("name", ["late", "stranger"])
def test_a_certificate_that_is_not_valid_is_refused(
    secure: SecureCluster,
    client: SecureClient,
    name: str,
    tmp_path: Path,
    request: pytest.FixtureRequest,
    complaints: Complaints,
) -> None:
    login = secure.with_certificate(secure.login("SSL"), name)
    if name == "stranger":
        others = Certificates.new(tmp_path / "others", "Another authority")
        others.issue("stranger", unit="Users")
        login = replace(login, certificate=others.folder / "stranger.crt", key=others.folder / "stranger.key")
    with pytest.raises(Exception, match=r"(?i)ssl|handshake|bootstrap|connect|brokers are down"):
        client.use(login, topic_of(request))
    assert any("TLS handshake failed" in line for line in complaints.lines)
    complaints.lines.clear()


@clients
def test_a_certificate_for_another_host_is_refused(
    secure: SecureCluster, client: SecureClient, request: pytest.FixtureRequest, complaints: Complaints
) -> None:
    login = secure.login("SSL")
    elsewhere = replace(login, servers=login.servers.replace("localhost", "127.0.0.1"))
    with pytest.raises(Exception, match=r"(?i)ssl|handshake|bootstrap|connect|brokers are down"):
        client.use(elsewhere, topic_of(request))
    complaints.lines.clear()
    assert client.use(login, topic_of(request)) == VALUES
