"""Which port a listener gets."""

from __future__ import annotations

import asyncio
import socket

import pytest

from raylog.config.network import SocketOptions
from raylog.core.errors import ConfigError
from raylog.transport import bind as bind_module
from raylog.transport.bind import bind
from raylog.transport.endpoints import Endpoint, Listener

HOST = "127.0.0.1"


def a_listener(port: int = 0, last_port: int = 0) -> Listener:
    return Listener("PLAINTEXT", Endpoint(HOST, port), None, internal=False, last_port=last_port)


def a_taken_port() -> tuple[socket.socket, int]:
    taken = socket.socket()
    taken.bind((HOST, 0))
    taken.listen()
    return taken, taken.getsockname()[1]


def test_the_last_port_is_used_again() -> None:
    taken, port = a_taken_port()
    taken.close()
    with asyncio.run(bind(a_listener(last_port=port), SocketOptions())) as bound:
        assert bound.getsockname() == (HOST, port)


def test_the_last_port_is_waited_for() -> None:
    """The process of the last start may take a moment to end."""

    async def run() -> socket.socket:
        asyncio.get_running_loop().call_later(4 * bind_module.LAST_PORT_POLL_SECONDS, taken.close)
        return await bind(a_listener(last_port=port), SocketOptions())

    taken, port = a_taken_port()
    with asyncio.run(run()) as bound:
        assert bound.getsockname() == (HOST, port)


def test_another_port_is_used_if_the_last_one_remains_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bind_module, "LAST_PORT_SECONDS", 0.1)
    taken, port = a_taken_port()
    with taken, asyncio.run(bind(a_listener(last_port=port), SocketOptions())) as bound:
        assert bound.getsockname()[1] not in (0, port)


def test_a_configured_port_that_is_taken_is_refused() -> None:
    taken, port = a_taken_port()
    with (
        taken,
        pytest.raises(ConfigError, match=rf"listeners: cannot listen on PLAINTEXT://127.0.0.1:{port}: .*in use"),
    ):
        asyncio.run(bind(a_listener(port), SocketOptions()))
