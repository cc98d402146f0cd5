"""A TCP proxy that can keep the server's answers to itself while the client's requests still arrive."""

from __future__ import annotations

import asyncio
import threading
from typing import Self

CHUNK_BYTES = 1 << 16


class SilentProxy:
    """Listens on a free port of 127.0.0.1 in a thread of its own, and connects to `target_port` for each client."""

    def __init__(self, target_port: int) -> None:
        self._target_port = target_port
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="silent-proxy", daemon=True)
        self._writers: set[asyncio.StreamWriter] = set()
        self._silent = False
        self.swallowed_bytes = 0
        """Of answers, since `silence` was last called."""
        self.silences_with_loss = 0
        self.port = 0

    def __enter__(self) -> Self:
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self._listen(), self._loop).result(10)
        return self

    def __exit__(self, *_: object) -> None:
        asyncio.run_coroutine_threadsafe(self._close(), self._loop).result(10)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()

    def silence(self) -> None:
        """From here on the server is heard by the proxy alone."""
        self.swallowed_bytes = 0
        self._silent = True

    def hang_up(self) -> None:
        """End every connection, and with that the silence: the next one is passed on whole."""
        asyncio.run_coroutine_threadsafe(self._hang_up(), self._loop).result(10)

    async def _listen(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]

    async def _serve(self, client: asyncio.StreamReader, to_client: asyncio.StreamWriter) -> None:
        self._writers.add(to_client)
        try:
            server, to_server = await asyncio.open_connection("127.0.0.1", self._target_port)
        except OSError:
            self._end(to_client)
            return
        self._writers.add(to_server)
        await asyncio.gather(self._pass(client, to_server), self._pass(server, to_client, may_be_silent=True))

    async def _pass(
        self, source: asyncio.StreamReader, target: asyncio.StreamWriter, *, may_be_silent: bool = False
    ) -> None:
        try:
            while data := await source.read(CHUNK_BYTES):
                if may_be_silent and self._silent:
                    self.swallowed_bytes += len(data)
                    continue
                target.write(data)
                await target.drain()
        except OSError:
            pass
        if not (may_be_silent and self._silent):  # else the client would learn that the server is gone
            self._end(target)

    async def _hang_up(self) -> None:
        self.silences_with_loss += self._silent and self.swallowed_bytes > 0
        for writer in list(self._writers):
            self._end(writer)
        self._silent = False

    async def _close(self) -> None:
        self._server.close()
        await self._hang_up()
        await asyncio.sleep(0.05)  # the tasks of the connections end

    def _end(self, writer: asyncio.StreamWriter) -> None:
        self._writers.discard(writer)
        writer.transport.abort()
