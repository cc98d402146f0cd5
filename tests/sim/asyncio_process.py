"""A process of a simulated run whose code is written for asyncio: raylog's own clients for asyncio, and what uses them.

Its event loop takes its time from the world, and its connections are simulated. Nothing else is replaced: the clients'
shells, all that they drive, and the coroutines of the program are production code.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from math import ceil
from types import SimpleNamespace
from typing import Any, TypeVar, cast

from raylog.client.admin import async_admin_client
from raylog.client.consumer import async_consumer
from raylog.client.consumer.local_files import LocalFiles
from raylog.client.network_client import NetworkClient
from raylog.client.producer import async_producer
from tests.sim.broker_host import BrokerHost
from tests.sim.client_driver import ClientDriver
from tests.sim.world import World

AnyHandle = TypeVar("AnyHandle", bound=asyncio.Handle)
BURIED_MS_MAX = 600_000
CLIENTS = (async_producer, async_consumer, async_admin_client)


class AsyncioProcess:
    """The event loop of a process, from its creation to `kill`."""

    def __init__(self, world: World, hosts: Sequence[BrokerHost]) -> None:
        """`hosts` are the brokers that it reaches."""
        self._as_loop = cast("asyncio.AbstractEventLoop", self)  # it has what is used of one
        self.world = world
        self.hosts = list(hosts)
        self.drivers: list[ClientDriver] = []
        self.killed = False
        self._pending: dict[asyncio.Handle, None] = {}
        self.errors: list[str] = []
        """What the loop was told that no code has handled."""

    def kill(self) -> None:
        """Nothing of it runs any more, and its connections break."""
        self.killed = True
        for driver in self.drivers:
            driver.close()

    def break_connections(self) -> None:
        for driver in self.drivers:
            driver.break_connection()

    def bury(self, task: asyncio.Task[Any]) -> None:
        """End the coroutines that a kill has left, without connections, and apart from the world.

        For the end of a run: they would run into the next one when they are collected.
        """
        self.kill()
        self.killed = False
        self.world = World(0)
        pending, self._pending = self._pending, {}
        for handle in pending:
            self._schedule(0, handle)
        task.cancel()
        self.world.run(until=task.done, limit_ms=BURIED_MS_MAX)
        self.killed = True

    # --- what asyncio asks of its loop

    def time(self) -> float:
        return self.world.time_ms / 1000

    def get_debug(self) -> bool:
        return False

    def is_running(self) -> bool:
        return True

    def is_closed(self) -> bool:
        return False

    def call_soon(self, callback: Any, *args: Any, context: Any = None) -> asyncio.Handle:
        handle = asyncio.Handle(callback, args, self._as_loop, context)
        return self._schedule(0, handle)

    call_soon_threadsafe = call_soon  # there is one thread

    def call_later(self, delay: float, callback: Any, *args: Any, context: Any = None) -> asyncio.TimerHandle:
        return self.call_at(self.time() + delay, callback, *args, context=context)

    def call_at(self, when: float, callback: Any, *args: Any, context: Any = None) -> asyncio.TimerHandle:
        handle = asyncio.TimerHandle(when, callback, args, self._as_loop, context)
        return self._schedule(ceil(round((when - self.time()) * 1000, 3)), handle)

    def create_future(self) -> asyncio.Future[Any]:
        return asyncio.Future(loop=self._as_loop)

    def create_task(self, coro: Any, *, name: str | None = None, context: Any = None) -> asyncio.Task[Any]:
        return asyncio.Task(coro, loop=self._as_loop, name=name, context=context)

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        self.errors.append(f"{context.get('message')}: {context.get('exception')!r}")

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """It is skipped when it is due."""

    def start(self, main: Callable[[], Coroutine[Any, Any, None]]) -> asyncio.Task[None]:
        """Run a coroutine, which is made within the loop."""

        async def run() -> None:
            await main()

        return self.create_task(run())

    def _schedule(self, delay_ms: int, handle: AnyHandle) -> AnyHandle:
        self._pending[handle] = None
        self.world.after(delay_ms, lambda: self._run_handle(handle))
        return handle

    def _run_handle(self, handle: asyncio.Handle) -> None:
        if self.killed or handle not in self._pending:
            return
        del self._pending[handle]
        if handle.cancelled():
            return
        asyncio._set_running_loop(self._as_loop)
        try:
            handle._run()
        finally:
            asyncio._set_running_loop(None)


class SimNetworkLoop:
    """In place of `NetworkLoop`."""

    def __init__(
        self, network: NetworkClient, _: object, loop: AsyncioProcess, *, lock: object, after_event: Callable[[], None]
    ) -> None:
        self._network = network
        self._loop = loop
        self._poked = False
        self._driver = ClientDriver(loop.world, loop.hosts, network)
        self._driver.on_event = after_event
        loop.drivers.append(self._driver)

    def poke_threadsafe(self) -> None:
        if not self._poked:
            self._poked = True
            self._loop.call_soon(self.poke)

    poke_soon = poke_threadsafe

    def poke(self) -> None:
        self._poked = False
        self._driver.event(self._network.run)

    def close(self) -> None:
        self._driver.close()
        if self._driver in self._loop.drivers:
            self._loop.drivers.remove(self._driver)


@contextmanager
def simulated(world: World, *modules: Any) -> Iterator[None]:
    """Within it the clients for asyncio, and these modules that use them, have the clock and the dice of the world."""
    dice = SimpleNamespace(Random=lambda: world.rng, uniform=world.rng.uniform)
    given: dict[str, Any] = {
        "now": world.now,
        "random": dice,
        "time_ns": lambda: world.now().wall_ms * 1_000_000,
        "NetworkLoop": SimNetworkLoop,
        "LocalFiles": lambda user, settings, enabled: LocalFiles(user, settings, enabled=False),
    }
    before = [
        (owner, name, vars(owner)[name]) for owner in (*CLIENTS, *modules) for name in given if name in vars(owner)
    ]
    try:
        for owner, name, _ in before:
            setattr(owner, name, given[name])
        yield
    finally:
        for owner, name, value in before:
            setattr(owner, name, value)
