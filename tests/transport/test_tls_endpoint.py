"""The endpoint of a TLS connection without a socket: how much it reads where nothing can be done with it."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from pathlib import Path
from uuid import uuid4

import pytest

from raylog.config.network import ConnectionLimits, SocketOptions
from raylog.config.table import broker_configs
from raylog.core.clock import Now
from raylog.core.config import Configs
from raylog.core.ids import BrokerId
from raylog.quotas.client_quotas import Limit
from raylog.quotas.connections import Delay
from raylog.transport.listeners import plan_listeners
from raylog.transport.node import Node, NodeIdentity
from raylog.transport.server import NodeServer, no_peers
from raylog.transport.socket_endpoints import UNWRITTEN_BYTES_MAX
from raylog.transport.system_time import now
from raylog.transport.tls_endpoint import EARLY_BYTES_MAX, TlsEndpoint
from tests.support.certificates import Certificates

REFUSED_MS = 60_000
CHUNK = bytes(100_000)
CHUNKS = 50


class FakeSocket(asyncio.Transport):
    """What the endpoint has written, and whether it reads."""

    def __init__(self) -> None:
        super().__init__()
        self.written = bytearray()
        self.reading = True
        self.closed = False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.written += data

    def pause_reading(self) -> None:
        self.reading = False

    def resume_reading(self) -> None:
        self.reading = True

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def get_write_buffer_size(self) -> int:
        return len(self.written)

    def is_closing(self) -> bool:
        return self.closed

    def close(self) -> None:
        self.closed = True

    abort = close


class Handshakes:
    """In place of the threads: a step is run when the test says so."""

    def __init__(self) -> None:
        self.steps: list[Callable[[], None]] = []

    def submit(self, step: Callable[[], None]) -> None:
        self.steps.append(step)

    async def run(self) -> None:
        while self.steps:
            self.steps.pop(0)()
            await asyncio.sleep(0)  # the loop calls the endpoint


class Peer:
    """A client of an endpoint, in the middle of its handshake or behind it."""

    def __init__(self, endpoint: TlsEndpoint, sock: FakeSocket, encrypted: memoryview, trusted: Path) -> None:
        self._endpoint = endpoint
        self._sock = sock
        self._encrypted = encrypted
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        context = ssl.create_default_context(cafile=str(trusted))
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_hostname="127.0.0.1")

    def handshake(self) -> bool:
        """Whether it is complete for the client."""
        self._incoming.write(self._sock.written)
        self._sock.written.clear()
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            return False
        return True

    def write(self, data: bytes) -> None:
        self._tls.write(data)

    def deliver(self) -> None:
        """What was written arrives, while the endpoint reads."""
        while self._sock.reading and self._outgoing.pending:
            received = self._outgoing.read(len(self._encrypted))
            self._encrypted[: len(received)] = received
            self._endpoint.buffer_updated(len(received))

    @property
    def undelivered_bytes(self) -> int:
        return self._outgoing.pending


class Answering:
    """In place of a TLS session whose peer sends nothing but what OpenSSL answers, such as updates of its keys."""

    def __init__(self, endpoint: TlsEndpoint) -> None:
        self._endpoint = endpoint

    def read(self, size: int, buffer: memoryview) -> int:
        self._endpoint._outgoing.write(self._endpoint._incoming.read())
        raise ssl.SSLWantReadError


def configured(folder: Path) -> tuple[Certificates, Configs]:
    certificates = Certificates.new(folder)
    config = {
        "listeners": "SASL_SSL://127.0.0.1:0",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(certificates.issue("broker", "127.0.0.1")),
    }
    return certificates, broker_configs(config)


def new_node() -> Node:
    limits = ConnectionLimits(1 << 20, connections_max=9, connections_per_host_max=9, idle_ms=-1)
    return Node(NodeIdentity(BrokerId(0), "c", uuid4(), b"s"), limits, new_nonce=bytes, now=now())


def new_endpoint(
    node: Node, configs: Configs, monkeypatch: pytest.MonkeyPatch
) -> tuple[NodeServer, TlsEndpoint, Handshakes]:
    [listener, *_] = plan_listeners(configs)
    server = NodeServer(
        node,
        [listener],
        options=SocketOptions(),
        resolve=no_peers,
        on_failure=lambda failure: None,
        configs=lambda: configs,
    )
    server.handshake_threads.shutdown()
    handshakes = Handshakes()
    monkeypatch.setattr(server, "handshake_threads", handshakes)
    endpoint = server._endpoint_factory(listener)()
    assert isinstance(endpoint, TlsEndpoint)
    return server, endpoint, handshakes


async def connected(
    server: NodeServer, endpoint: TlsEndpoint, handshakes: Handshakes, sock: FakeSocket, certificates: Certificates
) -> Peer:
    """A client whose last message of the handshake has arrived."""
    endpoint.connection_made(sock)
    peer = Peer(endpoint, sock, server.encrypted, certificates.trusted)
    while not peer.handshake():
        peer.deliver()
        await handshakes.run()
    peer.deliver()
    return peer


def test_a_peer_that_reads_nothing_does_not_get_ever_more_answers_of_openssl(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    certificates, configs = configured(tmp_path)

    async def run() -> None:
        server, endpoint, handshakes = new_endpoint(new_node(), configs, monkeypatch)
        sock = FakeSocket()
        await connected(server, endpoint, handshakes, sock, certificates)
        await handshakes.run()
        monkeypatch.setattr(endpoint, "_tls", Answering(endpoint))

        def deliver() -> None:
            for _ in range(CHUNKS):
                if sock.reading:
                    endpoint.buffer_updated(len(CHUNK))

        deliver()
        assert not sock.reading
        assert len(sock.written) < UNWRITTEN_BYTES_MAX + 2 * len(CHUNK)
        sock.written.clear()
        endpoint.resume_writing()
        assert sock.reading
        deliver()
        assert UNWRITTEN_BYTES_MAX < len(sock.written) < UNWRITTEN_BYTES_MAX + 2 * len(CHUNK)

    asyncio.run(run())


@pytest.mark.parametrize("early", [0, 3 * EARLY_BYTES_MAX], ids=["behind the handshake", "during it"])
def test_a_connection_that_is_refused_by_the_quota_of_its_address_is_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, early: int
) -> None:
    certificates, configs = configured(tmp_path)
    node = new_node()

    def refuse(listener: str, address: str, limit: Limit | None, now_ms: int) -> Delay:
        return Delay(REFUSED_MS, closes=True)

    monkeypatch.setattr(node.connection_rates, "opened", refuse)

    async def run() -> None:
        server, endpoint, handshakes = new_endpoint(node, configs, monkeypatch)
        sock = FakeSocket()
        peer = await connected(server, endpoint, handshakes, sock, certificates)
        peer.write(bytes(early))
        peer.deliver()
        await handshakes.run()
        for _ in range(CHUNKS):
            peer.write(CHUNK)
            peer.deliver()
        assert not sock.reading
        assert peer.undelivered_bytes > (CHUNKS - 2) * len(CHUNK)
        later = Now(now().monotonic_ms + REFUSED_MS, now().wall_ms)
        server.event(lambda: node.tick(later))
        assert sock.closed

    asyncio.run(run())
