"""(shell) The address of a broker for clients: a proxy that stays when the broker does not, and can be made faulty."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass, field

CHUNK_BYTES = 1 << 18
HOST = "127.0.0.1"


@dataclass(eq=False)
class Proxy:
    """Belongs to the loop of `start`. Connections are forwarded to `target`, the port of a broker; 0: there is none."""

    target: int = 0
    port: int = 0
    delay_seconds: float = 0.0
    """How long each piece of data waits before it is forwarded, in both directions."""
    _server: asyncio.Server | None = None
    _connections: set[asyncio.StreamWriter] = field(default_factory=set)
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)

    async def start(self) -> None:
        """Listen, on the port of the last time."""
        if self._server is None:
            self._server = await asyncio.start_server(self._serve, HOST, self.port)
            self.port = self._server.sockets[0].getsockname()[1]

    def refuse(self) -> None:
        """Close all connections, and refuse new ones until `start`."""
        if self._server is not None:
            self._server.close()
            self._server = None
        self.drop()

    def drop(self) -> None:
        """Close all connections."""
        for writer in self._connections:
            writer.transport.abort()

    async def stop(self) -> None:
        self.refuse()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self._connections.add(writer)
        try:
            with contextlib.suppress(OSError, asyncio.IncompleteReadError):
                await self._forward_both(reader, writer)
        finally:
            self._connections.discard(writer)
            self._tasks.discard(task)
            writer.close()

    async def _forward_both(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if not self.target:
            return
        far_reader, far_writer = await asyncio.open_connection(HOST, self.target)
        self._connections.add(far_writer)
        ways = [
            asyncio.ensure_future(self._forward(reader, far_writer)),
            asyncio.ensure_future(self._forward(far_reader, writer)),
        ]
        try:
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for way in ways:
                way.cancel()
            await asyncio.gather(*ways, return_exceptions=True)
            self._connections.discard(far_writer)
            far_writer.close()

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(CHUNK_BYTES):
            if self.delay_seconds:
                await asyncio.sleep(self.delay_seconds)
            writer.write(data)
            await writer.drain()
