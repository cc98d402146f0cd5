"""The driver of a client's network goes on after errors, and ends connections that cannot be made with an error."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest

from raylog.client.client_config import ClientConfig
from raylog.client.network_client import NEVER_MS
from raylog.client.network_loop import NetworkLoop
from raylog.core.clock import Now
from tests.support.hang import HANG_SECONDS


class FailingNetwork:
    """A network whose services raise an error when they run, and which has work to do at once."""

    def __init__(self) -> None:
        self.ticked = asyncio.Event()

    def run(self, now: Now) -> None:
        raise UnicodeError("cannot be encoded")

    def tick(self, now: Now) -> None:
        self.ticked.set()

    def take_touched(self) -> Sequence[Any]:
        return []

    def next_tick_ms(self) -> int:
        return NEVER_MS if self.ticked.is_set() else 0


def test_time_goes_on_after_an_error() -> None:
    async def run() -> None:
        network: Any = FailingNetwork()
        dialer = ClientConfig("127.0.0.1:1").dialer()
        loop = NetworkLoop(network, dialer, asyncio.get_running_loop(), lock=nullcontext(), after_event=lambda: None)
        with pytest.raises(UnicodeError):
            loop.poke()
        await asyncio.wait_for(network.ticked.wait(), HANG_SECONDS)
        loop.close()

    asyncio.run(run())


class Link:
    wants_login, wants_connection = True, False


class Renewing:
    """A network with one link whose session is renewed; its connection is lost before the credentials are there."""

    def __init__(self) -> None:
        self.renewed = asyncio.Event()

    def address(self, _: Any) -> Any:
        return SimpleNamespace(host="h")

    def login_renewed(self, *_: object) -> None:
        self.renewed.set()

    def take_touched(self) -> Sequence[Any]:
        return []

    def next_tick_ms(self) -> int:
        return NEVER_MS


def test_a_connection_lost_while_a_login_is_prepared_is_made_again(monkeypatch: pytest.MonkeyPatch) -> None:
    async def run() -> list[Any]:
        network: Any = Renewing()
        dialer: Any = SimpleNamespace(prepare=lambda _: (None, "login"))
        loop = NetworkLoop(network, dialer, asyncio.get_running_loop(), lock=nullcontext(), after_event=lambda: None)
        dialled: list[Any] = []

        async def dial(link: Any, _: Any) -> None:
            dialled.append(link)

        monkeypatch.setattr(loop, "_dial", dial)
        link: Any = Link()
        loop._update(link)
        link.wants_login, link.wants_connection = False, True
        loop._update(link)  # it is lost, and waits for the task
        await asyncio.wait_for(network.renewed.wait(), HANG_SECONDS)
        await asyncio.sleep(0)
        loop.close()
        return dialled

    assert len(asyncio.run(run())) == 1
