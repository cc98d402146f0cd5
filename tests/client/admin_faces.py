"""The blocking and the asyncio admin client behind the same calls, for suites that run over both."""

from __future__ import annotations

import asyncio
import inspect
from typing import Any

from raylog.client.admin.admin_client import AdminClient
from raylog.client.admin.async_admin_client import AsyncAdminClient


class AsyncFace:
    """Each call runs the loop until it is done."""

    def __init__(self, **settings: Any) -> None:
        self._runner = asyncio.Runner()

        async def made() -> AsyncAdminClient:
            return AsyncAdminClient(**settings)

        self.admin = self._runner.run(made())

    def __getattr__(self, name: str) -> Any:
        def call(*arguments: Any, **options: Any) -> Any:
            result = getattr(self.admin, name)(*arguments, **options)
            return self._runner.run(result) if inspect.iscoroutine(result) else result

        return call

    def stop(self) -> None:
        self._runner.run(self.admin.close())
        self._runner.close()


class BlockingFace(AdminClient):
    """As it is."""

    def stop(self) -> None:
        self.close()


FACES = (BlockingFace, AsyncFace)
