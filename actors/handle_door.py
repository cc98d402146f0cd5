"""(shell) The way to a broker by calls of its Ray actor, as a transport of asyncio, for clients without a network path.

A call takes one to two milliseconds, and frames go through Ray's object store. The identity of a session is the one
that its own SASL exchange has proved, as on a socket.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any

from raylog.actors.names import namespace_of, node_name
from raylog.client.blocking_calls import BlockingCalls, config_of
from raylog.client.client_config import ClientConfig, Dialer
from raylog.config.client import client_settings
from raylog.core.errors import KafkaError
from raylog.protocol.framing import LENGTH_BYTES
from raylog.protocol.wire import Buffer
from raylog.security.cluster_secret import NONCE_BYTES, SecretProver
from raylog.security.sasl.mechanism import SaslClient


class HandleDoor:
    """Opens sessions at the brokers of one cluster, by the Ray to which this process is connected."""

    def __init__(self, cluster: str, broker_ids: Mapping[tuple[str, int], int]) -> None:
        """`broker_ids` are those of the addresses that the client begins with."""
        self._namespace = namespace_of(cluster)
        self._broker_ids = broker_ids

    async def open(self, host: str, port: int, broker_id: int | None) -> HandleTransport:
        import ray

        if not ray.is_initialized():  # get_actor() would start a Ray
            raise OSError("this process is no longer connected to Ray")
        loop = asyncio.get_running_loop()
        name = node_name(self._broker_ids[host, port] if broker_id is None else broker_id)
        try:
            handle = await loop.run_in_executor(None, lambda: ray.get_actor(name, namespace=self._namespace))
        except (ValueError, ray.exceptions.RayError) as error:
            raise OSError(f"cannot reach the actor {name}: {error}") from error
        return await _opened(handle, name)


class NodeDoor:
    """Opens sessions at brokers by their handles, at the listener for nodes of their cluster."""

    def __init__(self, brokers: Mapping[str, Any]) -> None:
        """`brokers` are handles by their names."""
        self._brokers = brokers

    @property
    def servers(self) -> str:
        """What stands for bootstrap.servers: the names in place of hosts."""
        return ",".join(f"{name}:1" for name in self._brokers)

    async def open(self, host: str, port: int, broker_id: int | None) -> HandleTransport:
        name = host if broker_id is None else node_name(broker_id)
        if name not in self._brokers:
            raise OSError(f"{name} has no process")
        return await _opened(self._brokers[name], name, internal=True)


class NodeDialer(Dialer):
    """Connects by a `NodeDoor` alone, and proves to be a node of the cluster, which may do everything."""

    by_network = is_plain = False

    def __init__(self, door: NodeDoor, secret: bytes) -> None:
        """`secret` is that of the cluster."""
        super().__init__(client_settings({}), door)
        self._secret = secret

    def prepare(self, host: str) -> tuple[None, SaslClient]:
        return None, SecretProver(self._secret, os.urandom(NONCE_BYTES))


def calls_as_node(brokers: Mapping[str, Any], secret: bytes, *, client_id: str) -> BlockingCalls:
    """To the brokers of a cluster, whose handles are given by their names. No login is needed."""
    door = NodeDoor(brokers)
    given = config_of(ClientConfig(door.servers), client_id=client_id)
    return BlockingCalls(replace(given, dialer=NodeDialer(door, secret)))


async def _opened(handle: Any, name: str, *, internal: bool = False) -> HandleTransport:
    """A session at a running broker. Raises OSError."""
    import ray

    try:
        session: str = await _answer(handle.open_session.remote(internal=internal))
    except (KafkaError, ray.exceptions.RayError) as error:
        raise OSError(f"cannot reach the actor {name}: {error}") from error
    return HandleTransport(handle, session, asyncio.get_running_loop())


class HandleTransport(asyncio.Transport):
    """A session. It takes bytes, sends each complete frame as one call, and passes on responses in the same order."""

    def __init__(self, handle: Any, session: str, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__()
        self._handle = handle
        self._session = session
        self._loop = loop
        self._protocol: asyncio.BufferedProtocol | None = None
        self._unsent = bytearray()
        """The beginning of a frame."""
        self._calls: asyncio.Queue[Any] = asyncio.Queue()
        self._reading: asyncio.Task[None] | None = None
        self._closed = False

    def start(self, protocol: asyncio.BufferedProtocol) -> None:
        self._protocol = protocol
        self._reading = self._loop.create_task(self._read())
        protocol.connection_made(self)

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.writelines([data])

    def writelines(self, list_of_data: Iterable[Buffer]) -> None:
        self._unsent += b"".join(list_of_data)
        while len(self._unsent) >= LENGTH_BYTES and not self._closed:
            end = LENGTH_BYTES + int.from_bytes(self._unsent[:LENGTH_BYTES], "big")
            if len(self._unsent) < end:
                return
            frame = bytes(self._unsent[LENGTH_BYTES:end])
            del self._unsent[:end]
            try:
                self._calls.put_nowait(self._handle.request.remote(self._session, frame))
            except Exception as error:  # this process has left its Ray
                self._end(ConnectionResetError(str(error)))

    def is_closing(self) -> bool:
        return self._closed

    def close(self) -> None:
        self.abort()

    def abort(self) -> None:
        self._end(None)

    async def _read(self) -> None:
        import ray

        assert self._protocol is not None
        while not self._closed:
            try:
                response = await _answer(await self._calls.get())
            except (KafkaError, ray.exceptions.RayError) as error:
                self._end(ConnectionResetError(str(error)))
                return
            if response:  # a request with acks=0 has none
                self._pass_on(self._protocol, len(response).to_bytes(LENGTH_BYTES, "big") + response)

    def _pass_on(self, protocol: asyncio.BufferedProtocol, received: bytes) -> None:
        data = memoryview(received)
        while data and not self._closed:
            room = memoryview(protocol.get_buffer(len(data)))
            count = min(len(room), len(data))
            room[:count] = data[:count]
            data = data[count:]
            protocol.buffer_updated(count)

    def _end(self, error: Exception | None) -> None:
        if self._closed:
            return
        self._closed = True
        with suppress(Exception):  # without Ray the session ends by being idle
            self._handle.close_session.remote(self._session)
        if self._reading is not None:
            self._reading.cancel()
        if self._protocol is not None:
            self._loop.call_soon(self._protocol.connection_lost, error)


async def _answer(reference: Any) -> Any:
    """Without `ray.get`, which would block the loop; the reference must be kept until the call ends."""
    future = asyncio.wrap_future(reference.future())
    return await future
