"""(shell) Waits that end early: with an event, or by an interruption."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any, Generic, TypeVar

T = TypeVar("T")


async def until_set(event: asyncio.Event, seconds: float | None) -> None:
    """Wait for the event, at most so long; None: without limit."""
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()


class Interruptible(Generic[T]):
    """Awaits one coroutine at a time, which `interrupt` cancels."""

    def __init__(self) -> None:
        self._task: asyncio.Task[T] | None = None

    async def run(self, work: Coroutine[Any, Any, T]) -> T | None:
        """None if it was interrupted."""
        self._task = asyncio.create_task(work)
        try:
            return await self._task
        except asyncio.CancelledError:
            caller = asyncio.current_task()
            if caller is not None and caller.cancelling():
                raise
            return None
        finally:
            self._task = None

    def interrupt(self) -> None:
        if self._task is not None:
            self._task.cancel()
