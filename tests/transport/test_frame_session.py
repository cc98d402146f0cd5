"""A session that carries frames: each request gets its own response, also after another one was cancelled."""

from __future__ import annotations

import asyncio
from types import MappingProxyType
from uuid import uuid4

import pytest

from raylog.config.network import ConnectionLimits, SocketOptions
from raylog.config.table import broker_configs
from raylog.core.errors import ErrorCode, KafkaError
from raylog.core.ids import BrokerId
from raylog.protocol import registry
from raylog.protocol.header import encode_request
from raylog.protocol.messages.api_versions import ApiVersionsRequest
from raylog.transport.frame_session import FrameSession
from raylog.transport.handlers import api_versions
from raylog.transport.listeners import plan_listeners
from raylog.transport.node import Node, NodeIdentity
from raylog.transport.server import NodeServer, no_peers
from raylog.transport.system_time import now


class AnyNode(Node):
    handlers = MappingProxyType({registry.API_VERSIONS: api_versions.handle})


def opened() -> FrameSession:
    limits = ConnectionLimits(1 << 20, connections_max=9, connections_per_host_max=9, idle_ms=-1)
    node = AnyNode(NodeIdentity(BrokerId(0), "c", uuid4(), b"s"), limits, new_nonce=bytes, now=now())
    [listener, *_] = plan_listeners(broker_configs({"listeners": "PLAINTEXT://127.0.0.1:0"}))
    server = NodeServer(node, [listener], options=SocketOptions(), resolve=no_peers, on_failure=lambda failure: None)
    return FrameSession(server, listener)


def request(correlation_id: int) -> bytes:
    return b"".join(encode_request(ApiVersionsRequest(), api_version=0, correlation_id=correlation_id))


def correlation_id_of(response: bytes) -> int:
    return int.from_bytes(response[:4], "big")


def test_requests_get_their_responses() -> None:
    async def run() -> list[int]:
        session = opened()
        responses = await asyncio.gather(*(session.request(request(number)) for number in range(3)))
        return [correlation_id_of(response) for response in responses]

    assert asyncio.run(run()) == [0, 1, 2]


def test_the_session_is_closed_if_a_request_is_cancelled_that_waits_for_its_response() -> None:
    async def run() -> int:
        session = opened()
        session._connection.throttled = True  # so that the first request waits
        first = asyncio.create_task(session.request(request(1)))
        second = asyncio.create_task(session.request(request(2)))
        await asyncio.sleep(0)
        first.cancel()
        session._connection.throttled = False
        with pytest.raises(asyncio.CancelledError):
            await first
        return correlation_id_of(await second)

    with pytest.raises(KafkaError) as caught:
        asyncio.run(run())
    assert caught.value.code is ErrorCode.NETWORK_EXCEPTION


def test_the_session_stays_open_if_a_request_is_cancelled_before_its_turn() -> None:
    async def run() -> bool:
        session = opened()
        session._connection.throttled = True
        first = asyncio.create_task(session.request(request(1)))
        second = asyncio.create_task(session.request(request(2)))
        await asyncio.sleep(0)
        second.cancel()
        with pytest.raises(asyncio.CancelledError):
            await second
        closed = session.closed
        session.abort()
        with pytest.raises(KafkaError):
            await first
        return closed

    assert not asyncio.run(run())
