"""A node behind real sockets."""

from __future__ import annotations

import asyncio
from uuid import uuid4

import pytest

from raylog.config.network import ConnectionLimits, SocketOptions
from raylog.config.table import broker_configs
from raylog.core.ids import BrokerId
from raylog.transport import server as server_module
from raylog.transport.endpoints import Endpoint
from raylog.transport.listeners import plan_listeners
from raylog.transport.node import Node, NodeIdentity
from raylog.transport.server import NodeServer, no_peers
from raylog.transport.system_time import now
from raylog.transport.turn_times import TurnTimes

WAIT_SECONDS = 10.0


def test_a_disconnected_client_is_notified_at_once() -> None:
    async def run() -> bytes:
        limits = ConnectionLimits(1 << 20, connections_max=9, connections_per_host_max=9, idle_ms=-1)
        node = Node(NodeIdentity(BrokerId(0), "c", uuid4(), b"s"), limits, new_nonce=bytes, now=now())
        [listener, *_] = plan_listeners(broker_configs({"listeners": "PLAINTEXT://127.0.0.1:0"}))
        server = NodeServer(
            node, [listener], options=SocketOptions(), resolve=no_peers, on_failure=lambda failure: None
        )
        await server.start()
        try:
            endpoint = server.bound[listener.name]
            reader, writer = await asyncio.open_connection(endpoint.host, endpoint.port)
            while not node._connections:  # noqa: ASYNC110 - the node has no event for it
                await asyncio.sleep(0.01)
            node.close_connections(now())
            server.after_event()
            got = await asyncio.wait_for(reader.read(), WAIT_SECONDS)
            writer.close()
            return got
        finally:
            await server.stop()

    assert asyncio.run(run()) == b""


def test_an_ipv4_client_of_a_listener_on_all_interfaces_has_its_ipv4_address() -> None:
    """Access control lists and limits name it so."""

    async def run() -> list[str]:
        limits = ConnectionLimits(1 << 20, connections_max=9, connections_per_host_max=9, idle_ms=-1)
        node = Node(NodeIdentity(BrokerId(0), "c", uuid4(), b"s"), limits, new_nonce=bytes, now=now())
        [listener, *_] = plan_listeners(
            broker_configs({"listeners": "PLAINTEXT://:0", "advertised.listeners": "PLAINTEXT://h:1"})
        )
        server = NodeServer(
            node, [listener], options=SocketOptions(), resolve=no_peers, on_failure=lambda failure: None
        )
        await server.start()
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", server.bound[listener.name].port)
            while not node._connections:  # noqa: ASYNC110 - the node has no event for it
                await asyncio.sleep(0.01)
            writer.close()
            return [connection.peer_host for connection in node._connections]
        finally:
            await server.stop()

    assert asyncio.run(run()) == ["127.0.0.1"]


def test_a_link_is_dialled_again_after_any_lookup_failure() -> None:
    async def run() -> None:
        asked: asyncio.Queue[str] = asyncio.Queue()

        async def resolve(peer: str) -> Endpoint:
            asked.put_nowait(peer)
            raise RuntimeError("not from the network")

        limits = ConnectionLimits(1 << 20, connections_max=9, connections_per_host_max=9, idle_ms=-1)
        node = Node(NodeIdentity(BrokerId(0), "c", uuid4(), b"s"), limits, new_nonce=bytes, now=now())
        node.new_link("another")
        server = NodeServer(node, [], options=SocketOptions(), resolve=resolve, on_failure=lambda failure: None)
        await server.start()
        try:
            for _ in range(3):
                assert await asyncio.wait_for(asked.get(), WAIT_SECONDS) == "another"
        finally:
            await server.stop()

    asyncio.run(run())


def test_the_longest_turn_is_kept_and_slow_ones_are_counted_and_noted(monkeypatch: pytest.MonkeyPatch) -> None:
    limits = ConnectionLimits(1 << 20, connections_max=9, connections_per_host_max=9, idle_ms=-1)
    node = Node(NodeIdentity(BrokerId(0), "c", uuid4(), b"s"), limits, new_nonce=bytes, now=now())
    server = NodeServer(node, [], options=SocketOptions(), resolve=no_peers, on_failure=lambda failure: None)
    clock_ns = 0
    monkeypatch.setattr(server_module, "perf_counter_ns", lambda: clock_ns)

    def work_ms(ms: int) -> None:
        def longer() -> None:
            nonlocal clock_ns
            clock_ns += ms * 1_000_000

        server.event(longer)

    for ms in (20, 51, 10, 90, 70):
        work_ms(ms)
    assert server.turns.longest_ns == 90_000_000
    assert server.turns.longest == "longer"
    assert server.turns.slow == 3
    assert [event.fields for event in node.journal.events() if event.event == "slow turn"] == [
        {"of": "longer", "took_ms": str(ms)} for ms in (51, 90, 70)
    ]
    assert server.turns.take().slow == 3
    work_ms(49)
    busy_ns = (20 + 51 + 10 + 90 + 70 + 49) * 1_000_000
    assert server.turns == TurnTimes(49_000_000, "longer", slow=0, slow_ever=3, busy_ns=busy_ns)
