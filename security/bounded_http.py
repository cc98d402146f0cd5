"""(shell) One document from a URL, with a limit on its size and on the time that it takes, whatever the server does.

Redirects and the environment's proxies are not followed: a URL leads to the server that it names. For threads that
may block.
"""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from typing import Final
from urllib.parse import SplitResult, unquote, urlsplit

BYTES_MAX: Final = 1 << 20
SECONDS_MAX: Final = 10.0
"""For the connection, for the TLS handshake, and for the answer, each."""


def fetch(
    url: str,
    *,
    form: bytes | None = None,
    headers: Mapping[str, str] | None = None,
    bytes_max: int = BYTES_MAX,
    seconds_max: float = SECONDS_MAX,
    tls: ssl.SSLContext | None = None,
) -> bytes:
    """The content of a file:, http: or https: URL; `form` is sent by POST. Raises OSError that names the URL.

    Without `tls` the authorities of the system are trusted.
    """
    parts = urlsplit(url)
    try:
        if parts.scheme == "file":
            with open(unquote(parts.path), "rb") as file:
                content = file.read(bytes_max + 1)
        else:
            content = _answer(parts, form, headers or {}, bytes_max, seconds_max, tls)
    except (OSError, HTTPException) as error:
        raise OSError(f"{url}: {str(error) or type(error).__name__}") from error
    if len(content) > bytes_max:
        raise OSError(f"{url}: more than {bytes_max} bytes")
    return content


def _answer(
    parts: SplitResult,
    form: bytes | None,
    headers: Mapping[str, str],
    bytes_max: int,
    seconds_max: float,
    tls: ssl.SSLContext | None,
) -> bytes:
    """One byte more than `bytes_max`, if there are as many."""
    host = parts.hostname or ""
    if parts.scheme == "https":
        connection: HTTPConnection = HTTPSConnection(host, parts.port, timeout=seconds_max, context=tls)
    else:
        connection = HTTPConnection(host, parts.port, timeout=seconds_max)
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    try:
        connection.connect()
        with _deadline(connection.sock, seconds_max):
            given = {"Accept": "application/json", "Connection": "close", **headers}
            connection.request("GET" if form is None else "POST", target, body=form, headers=given)
            response = connection.getresponse()
            if response.status != 200:
                raise OSError(f"HTTP status {response.status}")
            content = response.read(bytes_max + 1)
            if response.length and len(content) <= bytes_max:
                raise OSError("the answer is incomplete")
            return content
    finally:
        connection.close()


@contextmanager
def _deadline(sock: socket.socket, seconds_max: float) -> Iterator[None]:
    """End the block by an error after this time: each of its reads has a timeout, but there may be many of them."""
    expired = threading.Event()

    def expire() -> None:
        expired.set()
        try:
            socket.socket.shutdown(sock, socket.SHUT_RDWR)
        except OSError:
            pass  # closed meanwhile

    timer = threading.Timer(seconds_max, expire)
    timer.daemon = True
    timer.start()
    try:
        yield
    except (OSError, HTTPException):
        if not expired.is_set():
            raise
    finally:
        timer.cancel()
    if expired.is_set():
        raise OSError(f"no complete answer within {seconds_max:.0f} s")
