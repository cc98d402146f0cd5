"""The driver of a client's network goes on after errors, and ends connections that cannot be made with an error."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import nullcontext
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
