"""(shell) Carries out operations for threads that wait for them: those of the admin client, readers and tools."""

from __future__ import annotations

import random
import threading
from collections.abc import Collection
from typing import Self, TypeVar

from raylog.client.admin.calls import Steps
from raylog.client.admin.core import AdminCore, Operation
from raylog.client.client_config import ClientConfig
from raylog.client.given_config import GivenConfig, given_config
from raylog.client.io_thread import shared_io_thread
from raylog.client.network_loop import NetworkLoop
from raylog.config.admin import ADMIN_CONFIG, admin_settings
from raylog.config.client_network import CLIENT_ID
from raylog.core.errors import ErrorCode, KafkaError
from raylog.transport.system_time import now

T = TypeVar("T")


class BlockingCalls:
    """Sends single requests to the brokers of a cluster and waits for their responses.

    Open from `__init__` to `close`; a context manager. Any number of threads may use it at the same time.
    """

    def __init__(self, given: GivenConfig, *, waits_for_brokers: bool = True, topics: Collection[str] = ()) -> None:
        """As `AdminCore`."""
        self._core = AdminCore(
            given.servers,
            admin_settings(given.configs),
            random.Random(),
            waits_for_brokers=waits_for_brokers,
            topics=topics,
        )
        self._thread = shared_io_thread()
        self._lock = threading.Lock()
        """Held while the core is used."""
        self._loop = NetworkLoop(
            self._core.network, given.dialer, self._thread.loop, lock=self._lock, after_event=lambda: None
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections; operations of other threads fail with ClientClosedError. Can be called twice."""
        self._check_thread()
        with self._lock:
            if not self._core.close():
                return
        ended = threading.Event()
        self._thread.loop.call_soon_threadsafe(self._end, ended)
        ended.wait()

    def run(self, steps: Steps[T], timeout: float | None = None) -> T:
        """The result of an operation, within `timeout` seconds or default.api.timeout.ms. Raises AdminError."""
        self._check_thread()
        done = threading.Event()
        operation = Operation(steps, now().monotonic_ms, self._core.timeout_ms(timeout), done.set)
        with self._lock:
            self._core.start(operation)
            self._loop.poke_threadsafe()
        try:
            done.wait()
        finally:
            if not done.is_set():  # interrupted
                with self._lock:
                    operation.finish(None, None)
        return operation.outcome()

    def _check_thread(self) -> None:
        self._thread.check_process()
        if self._thread.is_current:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "a callback of a client cannot wait for an admin client")

    def _end(self, ended: threading.Event) -> None:
        self._loop.close()
        ended.set()


def config_of(brokers: ClientConfig, *, client_id: str) -> GivenConfig:
    """Without the keys that only other clients have; `client_id` is the default. Raises ConfigError, and KafkaError."""
    return given_config(ADMIN_CONFIG, {CLIENT_ID.name: client_id, **brokers.keys_of(ADMIN_CONFIG)}, {})
