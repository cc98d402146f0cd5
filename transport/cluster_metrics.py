"""(shell) One endpoint for the metrics of all nodes of a cluster: each scrape of it scrapes every node.

A node that does not answer delays a scrape once, and not by more than NODE_SECONDS_MAX; from then on the others do not
wait for it until it answers again. Its only series then is `raylog_node_up`, which is 0.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from time import monotonic
from typing import Final

import h11

from raylog.core.metrics import Kind, Metric, Sample, exposition
from raylog.core.metrics_merge import NODE, merged
from raylog.transport.endpoints import Endpoint

log = logging.getLogger("raylog.transport")
NODE_SECONDS_MAX: Final = 5.0
"""How long a scrape waits for a node. Prometheus waits for 10 s by default."""
DOWN_SECONDS_MAX: Final = 0.5
"""How long a scrape waits for a node that did not answer the last time."""
BYTES_MAX: Final = 128 << 20
"""Of the answers of all nodes to one scrape. One whose answer does not fit any more counts as down."""
READ_BYTES: Final = 256 << 10
CLUSTER: Final = "cluster"
"""In place of a node: the metrics of the cluster as a whole."""
ANSWER_SECONDS_MAX: Final = NODE_SECONDS_MAX + DOWN_SECONDS_MAX + 1.0
"""Longer than any scrape of the nodes takes."""


@dataclass(slots=True)
class _Node:
    """What the last attempt to scrape one node has brought."""

    endpoint: Endpoint | None
    up: bool = True
    attempt: asyncio.Task[None] | None = None
    took_seconds: float = 0.0
    text: str | None = None
    """Of the attempt; None while there is none, or if it has failed."""


@dataclass(slots=True)
class _Scrape:
    """The nodes as one scrape shows them."""

    up: dict[str, bool] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)
    texts: dict[str, str] = field(default_factory=dict)


def _by_node(of: Callable[[_Scrape], Mapping[str, float]]) -> Callable[[_Scrape], Iterator[Sample]]:
    return lambda scrape: (Sample((node,), value) for node, value in of(scrape).items())


CLUSTER_METRICS: Final[tuple[Metric[_Scrape], ...]] = (
    Metric(
        "raylog_node_up",
        Kind.GAUGE,
        (NODE,),
        "1 for a node that has answered, 0 for one that has not.",
        _by_node(lambda scrape: {node: float(up) for node, up in scrape.up.items()}),
    ),
    Metric(
        "raylog_node_scrape_seconds",
        Kind.GAUGE,
        (NODE,),
        "How long the answer of a node took.",
        _by_node(lambda scrape: scrape.seconds),
    ),
    Metric(
        "raylog_node_scrape_bytes",
        Kind.GAUGE,
        (NODE,),
        "The length of the answer of a node.",
        _by_node(lambda scrape: {node: len(text) for node, text in scrape.texts.items()}),
    ),
)


class ClusterMetrics:
    """What a MetricsEndpoint shows of a cluster. Belongs to one loop."""

    def __init__(self) -> None:
        self._nodes: dict[str, _Node] = {}
        self._latest = _Scrape()
        self._scraping: asyncio.Task[None] | None = None
        self._bytes = 0

    def use(self, nodes: Mapping[str, Endpoint | None]) -> None:
        """The nodes of the cluster, and where their metrics are; None for one that does not run."""
        for name in [name for name in self._nodes if name not in nodes]:
            _cancel(self._nodes.pop(name))
        for name, endpoint in nodes.items():
            self._nodes.setdefault(name, _Node(endpoint)).endpoint = endpoint

    @property
    def endpoints(self) -> dict[str, Endpoint | None]:
        return {name: node.endpoint for name, node in self._nodes.items()}

    def prepare(self, done: Callable[[], None]) -> None:
        """Scrape the nodes, and call `done`. Requests that come meanwhile get the same answer."""
        if self._scraping is None or self._scraping.done():
            self._scraping = asyncio.create_task(self._scrape())
        self._scraping.add_done_callback(lambda _: done())

    async def texts(self) -> Mapping[str, str]:
        """Scrape the nodes. What each has answered, and as `cluster` which of them have."""
        done = asyncio.Event()
        self.prepare(done.set)
        await done.wait()
        return {CLUSTER: "".join(exposition(CLUSTER_METRICS, self._latest)), **self._latest.texts}

    def pieces(self) -> Iterator[str]:
        """The metrics of the last scrape, and whether each node has answered."""
        scrape = self._latest
        yield from exposition(CLUSTER_METRICS, scrape)
        yield from merged(scrape.texts)

    def close(self) -> None:
        for node in self._nodes.values():
            _cancel(node)
        if self._scraping is not None:
            self._scraping.cancel()

    async def _scrape(self) -> None:
        self._bytes = 0
        waited: dict[asyncio.Task[None], None] = {}
        unhurried: dict[asyncio.Task[None], None] = {}
        for name, node in self._nodes.items():
            node.text = None
            if node.endpoint is not None and (node.attempt is None or node.attempt.done()):
                node.attempt = asyncio.create_task(self._attempt(name, node, node.endpoint))
            if node.attempt is not None:
                (waited if node.up else unhurried)[node.attempt] = None
        began = monotonic()
        if waited:
            await asyncio.wait(waited, timeout=NODE_SECONDS_MAX)
        left = DOWN_SECONDS_MAX - (monotonic() - began)
        if unhurried:
            await asyncio.wait(unhurried, timeout=max(0.0, left))
        self._latest = latest = _Scrape()
        for name, node in self._nodes.items():
            latest.up[name] = node.text is not None
            if node.text is not None:
                latest.texts[name], latest.seconds[name], node.text = node.text, node.took_seconds, None
            elif node.up:
                node.up = False
                log.warning("metrics of a node missing", extra={"node": name, "address": str(node.endpoint)})

    async def _attempt(self, name: str, node: _Node, endpoint: Endpoint) -> None:
        began = monotonic()
        try:
            async with asyncio.timeout(NODE_SECONDS_MAX):
                node.text = await self._text(endpoint)
        except (OSError, TimeoutError, ValueError, h11.RemoteProtocolError) as error:
            if node.up:
                log.info("node not scraped", extra={"node": name, "reason": str(error) or type(error).__name__})
            return
        node.took_seconds = monotonic() - began
        node.up = True

    async def _text(self, endpoint: Endpoint) -> str:
        """Raises OSError, ValueError and h11.RemoteProtocolError."""
        reader, writer = await asyncio.open_connection(endpoint.host, endpoint.port, limit=READ_BYTES)
        try:
            connection = h11.Connection(h11.CLIENT)
            headers = [("Host", str(endpoint)), ("Connection", "close")]
            writer.write(connection.send(h11.Request(method="GET", target="/metrics", headers=headers)) or b"")
            writer.write(connection.send(h11.EndOfMessage()) or b"")
            parts: list[bytes] = []
            while not isinstance(event := connection.next_event(), h11.EndOfMessage):
                if event is h11.NEED_DATA:
                    connection.receive_data(await reader.read(READ_BYTES))
                elif isinstance(event, h11.Response) and event.status_code != 200:
                    raise ValueError(f"HTTP {event.status_code}")
                elif isinstance(event, h11.Data):
                    self._bytes += len(event.data)
                    if self._bytes > BYTES_MAX:
                        raise ValueError(f"the answers have more than {BYTES_MAX} bytes")
                    parts.append(bytes(event.data))
            return b"".join(parts).decode()
        finally:
            writer.close()


def _cancel(node: _Node) -> None:
    if node.attempt is not None:
        node.attempt.cancel()
