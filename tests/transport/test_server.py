"""A node behind real sockets."""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from pathlib import Path
from uuid import uuid4

import pytest

from raylog.config.network import ConnectionLimits, SocketOptions
from raylog.config.table import broker_configs
from raylog.core.ids import BrokerId
from raylog.protocol import registry
from raylog.protocol.framing import frame
from raylog.protocol.header import encode_request
from raylog.protocol.messages.api_versions import ApiVersionsRequest
from raylog.protocol.messages.list_groups import ListGroupsRequest
from raylog.protocol.messages.metadata import MetadataRequest
from raylog.protocol.schema import Message
from raylog.transport import server as server_module
from raylog.transport.accepted_connection import TURN_FRAMES_MAX
from raylog.transport.endpoints import Endpoint
from raylog.transport.exchange import Exchange
from raylog.transport.handlers import api_versions
from raylog.transport.listeners import plan_listeners
from raylog.transport.node import Node, NodeIdentity
from raylog.transport.server import NodeServer, no_peers
from raylog.transport.system_time import now
from raylog.transport.turn_times import TurnTimes
from tests.support.certificates import Certificates

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


@pytest.mark.parametrize("protocol", ["SSL", "SASL_SSL"])
def test_client_authentication_that_does_not_apply_to_a_listener_is_reported(
    protocol: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    certificates = Certificates.new(tmp_path)
    configs = broker_configs(
        {
            "listeners": f"{protocol}://127.0.0.1:0",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(certificates.issue("broker", "127.0.0.1")),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(certificates.trusted),
            "ssl.client.auth": "required",
        }
    )
    limits = ConnectionLimits(1 << 20, connections_max=9, connections_per_host_max=9, idle_ms=-1)
    NodeServer(
        Node(NodeIdentity(BrokerId(0), "c", uuid4(), b"s"), limits, new_nonce=bytes, now=now()),
        plan_listeners(configs),
        options=SocketOptions(),
        resolve=no_peers,
        on_failure=lambda failure: None,
        configs=lambda: configs,
    )
    messages = [record.getMessage() for record in caplog.records]
    assert messages == (["client authentication not applied"] if protocol == "SASL_SSL" else [])


class Failing(Node):
    """Its Metadata raises; its ListGroups raises in a step of the answer."""

    def __init__(self) -> None:
        limits = ConnectionLimits(1 << 20, connections_max=9, connections_per_host_max=9, idle_ms=-1)
        super().__init__(NodeIdentity(BrokerId(0), "c", uuid4(), b"s"), limits, new_nonce=bytes, now=now())
        self.handlers = {
            registry.API_VERSIONS: api_versions.handle,
            registry.METADATA: self.fail,
            registry.LIST_GROUPS: self.fail_later,
        }

    def fail(self, *_: object) -> None:
        raise ValueError("a bug")

    def fail_later(self, _: Node, exchange: Exchange, __: object) -> None:
        def steps() -> Generator[None, None, None]:
            yield
            raise ValueError("a bug")

        exchange.answer_in_steps(steps())


@pytest.mark.parametrize("requests_before", [0, 3 * TURN_FRAMES_MAX], ids=["alone", "in a later turn"])
@pytest.mark.parametrize("bad", [MetadataRequest(), ListGroupsRequest()], ids=["in the handler", "in a step"])
def test_a_request_that_fails_unexpectedly_closes_its_connection_and_no_other(
    requests_before: int, bad: Message
) -> None:
    failures: list[BaseException] = []

    def framed(message: Message) -> bytes:
        encoded = encode_request(message, api_version=0, correlation_id=0, client_id="c")
        return b"".join(bytes(part) for part in frame(encoded))

    async def run() -> tuple[bytes, bytes]:
        [listener, *_] = plan_listeners(broker_configs({"listeners": "PLAINTEXT://127.0.0.1:0"}))
        server = NodeServer(
            Failing(), [listener], options=SocketOptions(), resolve=no_peers, on_failure=failures.append
        )
        await server.start()
        try:
            port = server.bound[listener.name].port
            other_reader, other_writer = await asyncio.open_connection("127.0.0.1", port)
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            ask = framed(ApiVersionsRequest())
            writer.write(ask * requests_before + framed(bad))
            got = await asyncio.wait_for(reader.read(), WAIT_SECONDS)
            other_writer.write(ask)
            answered = await asyncio.wait_for(other_reader.read(1), WAIT_SECONDS)
            writer.close()
            other_writer.close()
            return got, answered
        finally:
            await server.stop()

    got, answered = asyncio.run(run())
    assert (failures, len(answered)) == ([], 1)
    assert bool(got) == bool(requests_before)


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
