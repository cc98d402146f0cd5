"""(shell) An accepted socket with TLS: OpenSSL works on bytes in memory, between the socket and an AcceptedConnection.

Handshakes compute for about a millisecond each, in threads, so that a thousand of them delay no request. Records are
encrypted and decrypted on the loop: that is faster than a change of threads.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

from raylog.protocol.wire import Buffer
from raylog.security.tls import tls_failure
from raylog.transport.socket_endpoints import UNWRITTEN_BYTES_MAX, AcceptedEndpoint, EndpointOwner
from raylog.transport.system_time import now

if TYPE_CHECKING:
    from raylog.transport.endpoints import Listener
    from raylog.transport.listener_tls import ListenerTls

log = logging.getLogger("raylog.transport")
HANDSHAKE_SECONDS_MAX: Final = 10.0
"""A connection whose handshake takes longer is closed."""
EARLY_BYTES_MAX: Final = 64 << 10
"""What a peer may send while a step of its handshake is computed."""
RECORD_BYTES: Final = 16 << 10
"""The largest TLS record. Smaller buffers are joined up to this size, since each record costs 22 bytes and a call."""
READ_BYTES: Final = 128 << 10
"""While a large request arrives, the socket reports bytes in pieces of about this size. Clients may write records of
some hundred bytes; without this the loop would be called for every few of them, at several times the cost."""
WRITE_BYTES: Final = 256 << 10
"""Encrypted output is passed to the socket in pieces of about this size."""
NO_TLS: Final = ("WRONG_VERSION_NUMBER", "HTTP_REQUEST")
"""OpenSSL's errors for a peer that does not use TLS. It sends such a peer no alert."""
ALERT: Final = bytes((0x15, 3, 3, 0, 2, 2, 10))
"""A record of TLS 1.2: the fatal alert unexpected_message. Kafka's clients, and raylog's, recognize it in place of a
response, and report that the listener may use TLS. Source: RFC 5246, sections 6.2.1 and 7.2."""


class TlsEndpoint(AcceptedEndpoint):
    """The socket of an accepted TLS connection. States: handshake, secured, closed."""

    def __init__(self, server: EndpointOwner, listener: Listener, tls: ListenerTls) -> None:
        super().__init__(server, listener)
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = tls.context.wrap_bio(self._incoming, self._outgoing, server_side=True)
        self._secured = False
        self._computing = False
        """Whether a thread uses the TLS object now."""
        self._early: list[bytes] = []
        """What has arrived meanwhile."""
        self._early_bytes = 0
        self._deadline: asyncio.TimerHandle | None = None
        self._drain_called = False
        self._least_bytes = 1
        """How much must have arrived before the socket reports it (SO_RCVLOWAT)."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        if hasattr(self, "_connection"):
            self._server.handshake_begins(self)
            self._deadline = asyncio.get_running_loop().call_later(
                HANDSHAKE_SECONDS_MAX, self._refuse, f"it took longer than {HANDSHAKE_SECONDS_MAX:.0f} s"
            )

    def connection_lost(self, exc: Exception | None) -> None:
        self._end_handshake()
        super().connection_lost(exc)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._server.encrypted

    def buffer_updated(self, nbytes: int) -> None:
        received = self._server.encrypted[:nbytes]
        if self._secured:
            self._incoming.write(received)
            self._drain()
        elif self._computing:
            self._early.append(bytes(received))
            self._early_bytes += nbytes
            if self._early_bytes > EARLY_BYTES_MAX:
                self._transport.pause_reading()
        else:
            self._incoming.write(received)
            self._compute()

    # --- handshake

    def _compute(self) -> None:
        """Go on with the handshake in a thread."""
        self._computing = True
        loop = asyncio.get_running_loop()

        def step() -> None:
            failure: BaseException | None = None
            try:
                self._tls.do_handshake()
            except BaseException as error:  # its end must be reported, whatever its error
                failure = error
            loop.call_soon_threadsafe(self._computed, failure)

        self._server.handshake_threads.submit(step)

    def _computed(self, failure: BaseException | None) -> None:
        self._computing = False
        if self._transport.is_closing():
            return
        early, self._early, self._early_bytes = self._early, [], 0
        for received in early:
            self._incoming.write(received)
        self._send_encrypted()
        if self._reading:
            self._transport.resume_reading()
        if failure is None:
            self._complete()
        elif not isinstance(failure, ssl.SSLWantReadError):
            reason = tls_failure(failure) if isinstance(failure, ssl.SSLError) else str(failure)
            if reason in NO_TLS:
                self._transport.write(ALERT)
                reason = f"the client may not use TLS ({reason})"
            self._refuse(reason)
        elif early:
            self._compute()

    def _complete(self) -> None:
        if self._tls.session_reused and self._certificate_has_expired():
            self._refuse("the certificate of the client has expired")
            return
        self._secured = True
        self._end_handshake()
        certificate = self._tls.getpeercert(binary_form=True)
        self._server.event(partial(self._node.connection_secured, self._connection, certificate, now()), endpoint=self)
        self._drain()

    def _certificate_has_expired(self) -> bool:
        """OpenSSL checks certificates in full handshakes only, and issues a new ticket whenever it resumes a session: a
        client could resume its session for as long as it likes."""
        certificate = self._tls.getpeercert()
        if not certificate:
            return False
        return ssl.cert_time_to_seconds(str(certificate["notAfter"])) * 1000 <= now().wall_ms

    def _refuse(self, reason: str) -> None:
        log.warning("TLS handshake failed", extra={"peer": self.peer, "reason": reason})
        self._connection.close(f"the TLS handshake failed: {reason}")
        self.abort()

    def abandon_handshake(self) -> None:
        """Close the connection in favour of newer ones."""
        self._refuse("too many others are in progress")

    def _end_handshake(self) -> None:
        self._server.handshake_ended(self)
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    # --- records

    def _drain(self) -> None:
        """Decrypt what has arrived, as far as the connection takes it."""
        self._drain_called = False
        connection = self._connection
        read: Callable[[int, memoryview], int] = self._tls.read  # type: ignore[assignment]  # with a buffer, a count
        waiting = not self._secured
        ended = False
        while not waiting and not connection.closing and connection.wants_bytes:
            room = connection.receive_buffer()
            count, size = 0, len(room)
            try:
                while count < size:
                    got = read(size - count, room[count:])
                    if not got:
                        waiting = ended = True
                        break
                    count += got
            except ssl.SSLWantReadError:
                waiting = True
            except ssl.SSLError as error:
                connection.close(f"invalid TLS record: {error.reason}")
                self.abort()
                return
            if count:
                report = partial(self._node.bytes_received, connection, count, now())
                self._server.event(report, endpoint=self)
        if ended:
            self.close()
            return
        if self._reading and not connection.wants_bytes and not connection.closing:
            # Without a report, the connection is not flushed. What has arrived further would gather in `_incoming`.
            self._reading = False
            self._transport.pause_reading()
        self._expect(connection.missing_bytes)
        if self._outgoing.pending:  # OpenSSL answers some records by itself
            self._send_encrypted()
            if self._reading and self._transport.get_write_buffer_size() > UNWRITTEN_BYTES_MAX:
                # The peer does not read, and sends such records: there would be no end of answers.
                self._reading = False
                self._transport.pause_reading()

    def _expect(self, missing_bytes: int) -> None:
        """More bytes than this are needed before there is anything to do, save what a partial record may contain."""
        least_bytes = max(min(missing_bytes - 2 * RECORD_BYTES, READ_BYTES), 1)
        if least_bytes != self._least_bytes:
            self._least_bytes = least_bytes
            sock: socket.socket = self._transport.get_extra_info("socket")
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, least_bytes)

    def reading_resumed(self) -> None:
        if not self._drain_called:
            self._drain_called = True
            asyncio.get_running_loop().call_soon(self._drain)

    def write(self, output: Sequence[Buffer]) -> None:
        try:
            for piece in _pieces(output):
                self._tls.write(piece)
                if self._outgoing.pending >= WRITE_BYTES:
                    self._send_encrypted()
        except ssl.SSLError as error:  # the peer has ended the session, and may still send
            self._connection.close(f"cannot be written to: {error.reason}")
            self.abort()
            return
        self._send_encrypted()

    def close(self) -> None:
        if self._secured:
            try:
                self._tls.unwrap()
            except ssl.SSLError:
                pass  # the peer need not end the session
            self._send_encrypted()
        super().close()

    def _send_encrypted(self) -> None:
        if self._outgoing.pending:
            self._transport.write(self._outgoing.read())


def _pieces(output: Sequence[Buffer]) -> Iterator[Buffer]:
    """The same bytes in fewer buffers: small ones are joined."""
    small: list[Buffer] = []
    small_bytes = 0
    for buffer in output:
        size = len(buffer)
        if small_bytes + size > RECORD_BYTES and small:
            yield b"".join(small)
            small, small_bytes = [], 0
        if size > RECORD_BYTES:
            yield buffer
        elif size:
            small.append(buffer)
            small_bytes += size
    if small:
        yield b"".join(small)
