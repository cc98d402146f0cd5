"""A document from a URL: whatever the server does, the answer is bounded in size and in time."""

from __future__ import annotations

import re
import socket
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest

from raylog.security.bounded_http import fetch
from tests.support.certificates import Certificates
from tests.support.token_issuer import Endpoint, http_endpoint

HANG_SECONDS = 60


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    with http_endpoint() as made:
        yield made


def test_a_document_by_http(endpoint: Endpoint) -> None:
    endpoint.serve(b"{}")
    assert fetch(f"{endpoint.url}?a=b") == b"{}"
    assert fetch(endpoint.url, form=b"x=y", headers={"Authorization": "Basic eA=="}) == b"{}"
    assert endpoint.requests == [("/keys?a=b", b"", ""), ("/keys", b"x=y", "Basic eA==")]


def test_a_document_in_a_file(tmp_path: Path) -> None:
    (tmp_path / "the keys").write_bytes(b"12345")
    assert fetch(f"file://{tmp_path}/the%20keys", bytes_max=5) == b"12345"
    with pytest.raises(OSError, match="more than 4 bytes"):
        fetch(f"file://{tmp_path}/the%20keys", bytes_max=4)
    with pytest.raises(OSError, match="No such file"):
        fetch(f"file://{tmp_path}/none")


class TestHttps:
    @pytest.fixture
    def issued(self, tmp_path: Path) -> Certificates:
        return Certificates.new(tmp_path)

    def test_a_trusted_certificate(self, issued: Certificates, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("SSL_CERT_FILE", str(issued.trusted))
        with http_endpoint(issued.issue("issuer", "127.0.0.1")) as endpoint:
            endpoint.serve(b"{}")
            assert fetch(endpoint.url) == b"{}"
            endpoint.answer = lambda handler: slow_body(handler, endpoint.stopped)
            with pytest.raises(OSError, match="no complete answer within"):
                fetch(endpoint.url, seconds_max=0.3)

    def test_an_authority_that_is_not_trusted(self, issued: Certificates) -> None:
        with http_endpoint(issued.issue("issuer", "127.0.0.1")) as endpoint:
            endpoint.serve(b"{}")
            with pytest.raises(OSError, match="CERTIFICATE_VERIFY_FAILED"):
                fetch(endpoint.url)
        assert endpoint.requests == []

    def test_a_certificate_of_another_host(self, issued: Certificates, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("SSL_CERT_FILE", str(issued.trusted))
        with http_endpoint(issued.issue("issuer", "issuer.example")) as endpoint:
            endpoint.serve(b"{}")
            with pytest.raises(OSError, match="CERTIFICATE_VERIFY_FAILED"):
                fetch(endpoint.url)


@pytest.mark.parametrize("status", [204, 301, 404, 500])
def test_other_statuses_are_refused_and_redirects_not_followed(endpoint: Endpoint, status: int) -> None:
    endpoint.serve(b"{}", status=status)
    with pytest.raises(OSError, match=f"{re.escape(endpoint.url)}: HTTP status {status}"):
        fetch(endpoint.url)
    assert len(endpoint.requests) == 1


def test_a_large_answer(endpoint: Endpoint) -> None:
    endpoint.serve(b"x" * 1001)
    with pytest.raises(OSError, match="more than 1000 bytes"):
        fetch(endpoint.url, bytes_max=1000)


def drip(handler: BaseHTTPRequestHandler, piece: bytes, stopped: threading.Event) -> None:
    while not stopped.wait(0.02):
        handler.wfile.write(piece)


def slow_body(handler: BaseHTTPRequestHandler, stopped: threading.Event) -> None:
    handler.send_response(200)
    handler.end_headers()
    drip(handler, b" ", stopped)


def slow_headers(handler: BaseHTTPRequestHandler, stopped: threading.Event) -> None:
    handler.wfile.write(b"HTTP/1.1 200 OK\r\nX: ")
    drip(handler, b"y", stopped)


def endless_continue(handler: BaseHTTPRequestHandler, stopped: threading.Event) -> None:
    drip(handler, b"HTTP/1.1 100 Continue\r\n\r\n", stopped)


def silence(handler: BaseHTTPRequestHandler, stopped: threading.Event) -> None:
    stopped.wait()


def slow_but_complete(handler: BaseHTTPRequestHandler, stopped: threading.Event) -> None:
    """Ends when the client closes, so that what has arrived could be taken for the whole."""
    handler.wfile.write(b"HTTP/1.0 200 OK\r\n\r\n{}")
    stopped.wait()


@pytest.mark.parametrize("answer", [slow_body, slow_headers, endless_continue, silence, slow_but_complete])
def test_a_slow_answer_ends_at_the_deadline(
    endpoint: Endpoint, answer: Callable[[BaseHTTPRequestHandler, threading.Event], None]
) -> None:
    endpoint.answer = lambda handler: answer(handler, endpoint.stopped)
    began = time.monotonic()
    with pytest.raises(OSError, match=r"no complete answer within|timed out"):
        fetch(endpoint.url, seconds_max=0.3)
    assert time.monotonic() - began < HANG_SECONDS


@pytest.mark.parametrize(
    "answer", [b"", b"SSH-2.0-x\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nx", b"\0" * 99]
)
def test_what_is_no_http(answer: bytes) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            accepted, _ = listening.accept()
            accepted.recv(1000)
            accepted.sendall(answer)
            accepted.close()

        thread = threading.Thread(target=serve)
        thread.start()
        with pytest.raises(OSError, match="http://"):
            fetch(f"http://127.0.0.1:{listening.getsockname()[1]}/", seconds_max=HANG_SECONDS)
        thread.join()


def test_nobody_listens() -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    with pytest.raises(OSError, match="refused"):
        fetch(f"http://127.0.0.1:{port}/")


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_a_silent_server_does_not_delay_for_longer(scheme: str) -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as silent,
        pytest.raises(OSError, match=r"no complete answer|timed out"),
    ):
        fetch(f"{scheme}://127.0.0.1:{silent.getsockname()[1]}/", seconds_max=0.3)
