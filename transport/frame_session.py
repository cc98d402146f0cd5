"""(shell) A connection without a socket: takes one frame, returns its response. Used by an actor's method."""

from __future__ import annotations

import asyncio
from functools import partial

from raylog.core.errors import ErrorCode, KafkaError
from raylog.protocol.framing import LENGTH_BYTES
from raylog.transport.endpoints import HANDLE_PEER, Listener
from raylog.transport.server import NodeServer
from raylog.transport.socket_endpoints import ServedEndpoint
from raylog.transport.system_time import now


class FrameSession(ServedEndpoint):
    """A session by an actor handle, which carries frames.

    Open from `__init__` until either side closes. Concurrent frames are served one after another.
    """

    def __init__(self, server: NodeServer, listener: Listener) -> None:
        """Raises KafkaError(NETWORK_EXCEPTION) if a connection limit is reached."""
        self.peer = HANDLE_PEER
        connection = server.node.connection_opened(listener, HANDLE_PEER, now())
        if connection is None:
            raise KafkaError(
                ErrorCode.NETWORK_EXCEPTION,
                "the broker has reached max.connections, or the client's limit of connections",
            )
        self._server = server
        self._connection = connection
        self._turn = asyncio.Lock()
        self._answer: asyncio.Future[bytes] | None = None
        server.opened(connection, self)

    @property
    def closed(self) -> bool:
        return self._connection.closing

    async def request(self, frame: bytes) -> bytes:
        """The response to a request, both without the length prefix; empty if the protocol defines no response.

        Raises KafkaError(NETWORK_EXCEPTION) if the broker closes the connection instead of responding. If the call is
        cancelled while it waits for the response, the session is closed.
        """
        async with self._turn:
            answer = self._answer = asyncio.get_running_loop().create_future()
            data = memoryview(len(frame).to_bytes(LENGTH_BYTES, "big") + frame)
            while data and not self.closed:
                room = self._connection.receive_buffer()
                count = min(len(room), len(data))
                room[:count] = data[:count]
                data = data[count:]
                report = partial(self._server.node.bytes_received, self._connection, count, now())
                self._server.event(report, endpoint=self)
            self.flush()
            try:
                output: bytes = await answer
            except asyncio.CancelledError:  # the response would be taken for that of the next request
                self.abort()
                raise
            return output

    def flush(self) -> None:
        output = b"".join(self._server.node.take_output(self._connection))
        answer = self._answer
        if answer is None or answer.done():
            return
        if output:
            answer.set_result(output[LENGTH_BYTES:])
        elif self.closed:
            answer.set_exception(KafkaError(ErrorCode.NETWORK_EXCEPTION, self._connection.close_reason or "closed"))
        elif not self._connection.in_work and not self._connection.buffered_bytes:
            answer.set_result(b"")

    def abort(self) -> None:
        self._connection.close("the session is closed")
        self._server.lost(self._connection, self)
        self.flush()
