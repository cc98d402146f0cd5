"""(shell) The HTTP endpoint of a node: /metrics for Prometheus, and /healthz.

It runs on the loop of the node, the only writer of what it shows. A scrape is made in short pieces, with the events of
the node in between, so that its length delays no request; it goes on when the peer has read what was written. h11
parses HTTP: whatever a peer sends is answered with an error, or its connection is closed.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from time import perf_counter_ns
from typing import Final

import h11

from raylog.config.metrics import MetricsAddress
from raylog.core.metrics import CONTENT_TYPE
from raylog.transport.endpoints import Endpoint

log = logging.getLogger("raylog.transport")
CONNECTIONS_MAX: Final = 32
"""Beyond this the connection that has been idle for longest is closed: silent peers do not keep Prometheus out."""
SCRAPES_MAX: Final = 4
"""Scrapes at once; further ones are refused with 503."""
REQUEST_BYTES_MAX: Final = 16 << 10
IDLE_SECONDS_MAX: Final = 120.0
"""How long a connection may wait for its next request: longer than usual scrape intervals."""
ANSWER_SECONDS_MAX: Final = 30.0
"""How long a peer may take to read an answer."""
PREPARE_SECONDS_MAX: Final = 1.0
"""How long a scrape waits for what other nodes have to say. Prometheus gives up after 10 s."""
READ_BYTES: Final = 16 << 10
TEXT: Final = "text/plain; charset=utf-8"
JSON: Final = "application/json"


@dataclass(slots=True)
class ScrapeCost:
    """What scrapes have cost since the node started."""

    scrapes: int = 0
    total_ns: int = 0
    """Of the loop."""
    longest_piece_ns: int = 0
    """For how long the loop was held at most."""


class MetricsEndpoint:
    """Serves metrics to Prometheus over HTTP. Open from `open` until `close`."""

    def __init__(
        self,
        scrape: Callable[[], Iterator[str]],
        is_ready: Callable[[], bool],
        prepare: Callable[[Callable[[], None]], None] = lambda done: done(),
        *,
        prepare_seconds_max: float = PREPARE_SECONDS_MAX,
        targets: Callable[[], str] | None = None,
    ) -> None:
        """`prepare` is called before each scrape, with a function to call when the scrape may begin. It then begins
        soon in any case. `targets` returns the JSON of /targets."""
        self.bound: Endpoint | None = None
        self.cost = ScrapeCost()
        self._scrape = scrape
        self._is_ready = is_ready
        self._prepare = prepare
        self._prepare_seconds_max = prepare_seconds_max
        self._targets = targets
        self._server: asyncio.Server | None = None
        self._idle: dict[asyncio.StreamWriter, None] = {}
        """Connections that wait for a request, the longest idle one first."""
        self._answering: set[asyncio.StreamWriter] = set()
        self._scraping = 0

    async def open(self, address: MetricsAddress, node_id: int) -> None:
        """Listen on one of the ports. If there is none, the error is logged: a node must not fail because of this."""
        failure: OSError | None = None
        for port in address.ports(node_id):
            try:
                sock = _bind(address.host, port)
                self._server = await asyncio.start_server(self._accepted, sock=sock, limit=READ_BYTES)
            except OSError as error:
                failure = error
                continue
            host = address.host if address.host not in ("", "0.0.0.0", "::") else socket.gethostname()
            self.bound = Endpoint(host, sock.getsockname()[1])
            log.info("metrics shown", extra={"address": f"http://{self.bound}/metrics"})
            return
        log.error("metrics not shown", extra={"address": str(address), "reason": str(failure)})

    def close(self) -> None:
        if self._server is not None:
            self._server.close()
        for writer in [*self._idle, *self._answering]:
            writer.transport.abort()

    async def _accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            if len(self._idle) + len(self._answering) >= CONNECTIONS_MAX:
                if not self._idle:
                    return
                next(iter(self._idle)).transport.abort()
            await self._serve(reader, writer)
        except (OSError, TimeoutError, h11.LocalProtocolError):
            pass  # the peer is gone, or too slow
        except Exception:
            log.exception("metrics request failed")
        finally:
            self._idle.pop(writer, None)
            self._answering.discard(writer)
            writer.transport.abort() if writer.transport.get_write_buffer_size() else writer.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer requests one after another, until the connection has to be closed."""
        connection = h11.Connection(h11.SERVER, max_incomplete_event_size=REQUEST_BYTES_MAX)
        while True:
            self._idle[writer] = None
            try:
                async with asyncio.timeout(IDLE_SECONDS_MAX):
                    request = await _next_request(connection, reader)
            except h11.RemoteProtocolError as error:
                if connection.our_state in (h11.IDLE, h11.SEND_RESPONSE):
                    async with asyncio.timeout(ANSWER_SECONDS_MAX):
                        await _send(connection, writer, error.error_status_hint, f"{error}\n", close=True)
                return
            finally:
                del self._idle[writer]
            if request is None:
                return
            self._answering.add(writer)
            async with asyncio.timeout(ANSWER_SECONDS_MAX):
                await self._answer(connection, writer, request)
            self._answering.discard(writer)
            if connection.our_state is not h11.DONE or connection.their_state is not h11.DONE:
                return
            connection.start_next_cycle()

    async def _answer(self, connection: h11.Connection, writer: asyncio.StreamWriter, request: h11.Request) -> None:
        path = request.target.partition(b"?")[0]
        if request.method not in (b"GET", b"HEAD"):
            await _send(connection, writer, 405, "only GET and HEAD are allowed\n", close=True)
        elif path == b"/metrics":
            await self._answer_scrape(connection, writer)
        elif path == b"/healthz":
            ready = self._is_ready()
            await _send(connection, writer, 200 if ready else 503, "ready\n" if ready else "live, not ready\n")
        elif path == b"/targets" and self._targets is not None:
            await _send(connection, writer, 200, self._targets(), content_type=JSON)
        else:
            await _send(connection, writer, 404, "there are /metrics and /healthz\n")

    async def _answer_scrape(self, connection: h11.Connection, writer: asyncio.StreamWriter) -> None:
        if self._scraping >= SCRAPES_MAX:
            await _send(connection, writer, 503, f"{SCRAPES_MAX} scrapes are in progress\n")
            return
        self._scraping += 1
        try:
            head = h11.Response(status_code=200, headers=[("Content-Type", CONTENT_TYPE)])
            writer.write(connection.send(head) or b"")
            await self._prepared()
            pieces = self._scrape()
            while (piece := self._next_piece(pieces)) is not None:
                if piece:
                    writer.write(connection.send(h11.Data(piece.encode())) or b"")
                    await writer.drain()
                await asyncio.sleep(0)  # other events of the node
            writer.write(connection.send(h11.EndOfMessage()) or b"")
            await writer.drain()
        finally:
            self._scraping -= 1

    async def _prepared(self) -> None:
        prepared = asyncio.get_running_loop().create_future()

        def done() -> None:
            if not prepared.done():
                prepared.set_result(None)

        self._prepare(done)
        await asyncio.wait([prepared], timeout=self._prepare_seconds_max)

    def _next_piece(self, pieces: Iterator[str]) -> str | None:
        began_ns = perf_counter_ns()
        piece = next(pieces, None)
        took_ns = perf_counter_ns() - began_ns
        self.cost.total_ns += took_ns
        self.cost.longest_piece_ns = max(self.cost.longest_piece_ns, took_ns)
        self.cost.scrapes += piece is None
        return piece


async def _next_request(connection: h11.Connection, reader: asyncio.StreamReader) -> h11.Request | None:
    """The next request, without its body, which must be empty; None if the peer has closed the connection.

    Raises h11.RemoteProtocolError for what is not HTTP.
    """
    request: h11.Request | None = None
    while True:
        event = connection.next_event()
        if event is h11.NEED_DATA:
            connection.receive_data(await reader.read(READ_BYTES))
        elif isinstance(event, h11.Request):
            request = event
        elif isinstance(event, h11.EndOfMessage):
            return request
        elif isinstance(event, h11.Data):
            raise h11.RemoteProtocolError("a request must have no body", error_status_hint=413)
        else:
            return None


async def _send(
    connection: h11.Connection,
    writer: asyncio.StreamWriter,
    status: int,
    text: str,
    *,
    close: bool = False,
    content_type: str = TEXT,
) -> None:
    body = text.encode()
    headers = [("Content-Type", content_type), ("Content-Length", str(len(body)))]
    if close:
        headers.append(("Connection", "close"))
    for event in (h11.Response(status_code=status, headers=headers), h11.Data(body), h11.EndOfMessage()):
        writer.write(connection.send(event) or b"")
    await writer.drain()


def _bind(host: str, port: int) -> socket.socket:
    """Raises OSError."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind((host, port))
    except OSError:
        sock.close()
        raise
    return sock
