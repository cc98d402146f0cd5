"""One blocking connection to one broker, for tests of listeners and logins: send a request, wait for its response."""

from __future__ import annotations

import math
import socket
import ssl
import time
from collections.abc import Callable, Sequence
from typing import Any

from raylog.client.client_config import ClientConfig
from raylog.core.errors import ErrorCode, KafkaError, ProtocolViolation
from raylog.protocol.messages.api_versions import ApiVersionsResponse
from raylog.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from raylog.protocol.messages.sasl_handshake import SaslHandshakeRequest
from raylog.protocol.schema import Message
from raylog.protocol.wire import Buffer
from raylog.security.sasl.mechanism import SaslClient
from raylog.transport.client_connection import ClientConnection

DEFAULT_TIMEOUT_SECONDS = 30.0
REAUTHENTICATE_AFTER = 0.85
"""A session with an end is renewed after this part of its lifetime. Kafka's clients choose between 0.85 and 0.95."""
Login = Callable[[], SaslClient]
"""Begins a SASL exchange. May block; raises KafkaError and ConfigError."""


class SocketStream:
    """A connected socket, which this object owns."""

    def __init__(self, sock: socket.socket, where: str, login: Login | None = None) -> None:
        self._socket = sock
        self.where = where
        self.login = login

    def send(self, buffers: Sequence[Buffer]) -> None:
        for buffer in buffers:
            self._socket.sendall(buffer)

    def receive_into(self, view: memoryview, timeout_seconds: float) -> int:
        self._socket.settimeout(timeout_seconds)
        return self._socket.recv_into(view)

    def close(self) -> None:
        self._socket.close()


def connect_tcp(
    host: str,
    port: int,
    *,
    tls: ssl.SSLContext | None = None,
    login: Login | None = None,
    timeout_seconds: float = DEFAULT_TIMEOUT_SECONDS,
) -> SocketStream:
    """Raises KafkaError: NETWORK_EXCEPTION if the connection fails, SASL_AUTHENTICATION_FAILED if TLS does.

    The latter is not retriable: neither the certificate nor the protocol of the listener will be another one next time.
    """
    where = f"{host}:{port}"
    try:
        sock = socket.create_connection((host, port), timeout=timeout_seconds)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if tls is not None:
            sock = _secured(sock, tls, host)
    except ssl.SSLError as error:
        reason = getattr(error, "verify_message", "") or error.reason or str(error)
        message = f"the TLS handshake with {where} failed: {reason}"
        raise KafkaError(ErrorCode.SASL_AUTHENTICATION_FAILED, message) from error
    except OSError as error:
        raise KafkaError(ErrorCode.NETWORK_EXCEPTION, f"cannot connect to {where}: {error}") from error
    return SocketStream(sock, where, login)


def connect(config: ClientConfig, host: str, port: int) -> SocketStream:
    """As the properties of a client say."""
    dialer = config.dialer()
    tls, login = dialer.prepare(host)

    def log_in() -> SaslClient:
        begun = dialer.prepare(host)[1]
        assert begun is not None
        return begun

    return connect_tcp(host, port, tls=tls, login=None if login is None else log_in)


def _secured(sock: socket.socket, tls: ssl.SSLContext, host: str) -> ssl.SSLSocket:
    """Raises OSError; the socket is then closed."""
    try:
        return tls.wrap_socket(sock, server_hostname=host)
    except BaseException:
        sock.close()
        raise


class BlockingConnection:
    """Connected and negotiated after construction. For one thread. Network failures raise KafkaError."""

    def __init__(
        self,
        stream: SocketStream,
        *,
        client_id: str,
        timeout_seconds: float = DEFAULT_TIMEOUT_SECONDS,
    ) -> None:
        """Raises KafkaError(NETWORK_EXCEPTION) and the errors of authentication; the stream is then closed."""
        self._where = stream.where
        self._timeout_seconds = timeout_seconds
        self._core = ClientConnection(client_id=client_id)
        self._stream = stream
        self._reauthenticate_at = math.inf
        """Monotonic time."""
        try:
            self._negotiate()
            if stream.login is not None:
                self._authenticate(stream.login())
        except BaseException:
            self.close()
            raise

    def call(self, request: Message, *, timeout_seconds: float | None = None, version_max: int | None = None) -> Any:
        """The response to `request`. Records in it are views that are valid until the next call. Raises KafkaError."""
        if time.monotonic() >= self._reauthenticate_at and self._stream.login is not None:
            self._authenticate(self._stream.login())
        return self._call(request, timeout_seconds or self._timeout_seconds, version_max)

    def version_for(self, api_key: int) -> int:
        """The version in which `call` sends this request. Raises KafkaError(UNSUPPORTED_VERSION)."""
        return self._core.version_for(api_key)

    def close(self) -> None:
        self._stream.close()

    def _negotiate(self) -> None:
        self._core.negotiate()
        self._flush()
        response = self._wait_for(None, self._timeout_seconds)
        if isinstance(response, ApiVersionsResponse) and response.error_code == ErrorCode.UNSUPPORTED_VERSION:
            self._flush()
            response = self._wait_for(None, self._timeout_seconds)
        if response.error_code != ErrorCode.NONE:
            raise KafkaError(response.error_code, f"{self._where} returned an error for ApiVersions")

    def _call(self, request: Message, timeout_seconds: float, version_max: int | None = None) -> Any:
        correlation_id = self._core.send(request, version_max=version_max)
        self._flush()
        return self._wait_for(correlation_id, timeout_seconds)

    def _authenticate(self, client: SaslClient) -> None:
        handshake = self._call(SaslHandshakeRequest(mechanism=client.mechanism), self._timeout_seconds)
        if handshake.error_code != ErrorCode.NONE:
            offered = ", ".join(handshake.mechanisms) or "no SASL mechanism"
            raise KafkaError(handshake.error_code, f"{self._where} offers {offered}")
        message: bytes | None = client.first_message
        lifetime_ms = 0
        while message is not None:
            response = self._call(SaslAuthenticateRequest(auth_bytes=message), self._timeout_seconds)
            if response.error_code != ErrorCode.NONE:
                raise KafkaError(response.error_code, response.error_message or response.error_code.sentence)
            message, lifetime_ms = client.respond(bytes(response.auth_bytes)), response.session_lifetime_ms
        lifetime_seconds = lifetime_ms / 1000 if lifetime_ms > 0 else math.inf
        self._reauthenticate_at = time.monotonic() + REAUTHENTICATE_AFTER * lifetime_seconds

    def _flush(self) -> None:
        try:
            self._stream.send(self._core.take_output())
        except OSError as error:
            self.close()
            raise KafkaError(ErrorCode.NETWORK_EXCEPTION, f"{self._where}: {error}") from error

    def _wait_for(self, correlation_id: int | None, timeout_seconds: float) -> Any:
        deadline = time.monotonic() + timeout_seconds
        try:
            while True:
                while (answered := self._core.next_response()) is not None:
                    if correlation_id is None or answered[0] == correlation_id:
                        return answered[1]
                self._receive(deadline)
        except ProtocolViolation as violation:
            self.close()
            raise KafkaError(ErrorCode.NETWORK_EXCEPTION, f"{self._where}: {violation}") from violation
        except OSError as error:
            self.close()
            raise KafkaError(ErrorCode.NETWORK_EXCEPTION, f"{self._where}: {error}") from error

    def _receive(self, deadline: float) -> None:
        remaining = deadline - time.monotonic()
        if remaining <= 0:
            self.close()
            raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, f"{self._where} did not respond in time")
        try:
            count = self._stream.receive_into(self._core.receive_buffer(), remaining)
        except TimeoutError:
            return
        if not count:
            self.close()
            raise KafkaError(ErrorCode.NETWORK_EXCEPTION, f"{self._where} closed the connection")
        self._core.bytes_received(count)
