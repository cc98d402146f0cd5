"""(shell) The transport to a broker by its actor handle, for all drivers, tasks and actors of its Ray cluster.

A Ray call takes one to two milliseconds, TCP thirty microseconds, and frames go through Ray's object store: this
transport works everywhere but is the slowest.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import ray

from raylog.actors.names import broker_name, is_broker, namespace_of
from raylog.client.client_config import Dialer, checked_properties
from raylog.client.cluster_view import Node
from raylog.config.client import client_settings
from raylog.core.errors import ErrorCode, KafkaError
from raylog.protocol.framing import LENGTH_BYTES
from raylog.protocol.wire import Buffer
from raylog.security.cluster_secret import NONCE_BYTES, SecretProver
from raylog.transport.blocking import Login, Stream


class HandleConnector:
    """Connects to the brokers of the named cluster in the Ray to which this process is connected.

    `client_config` contains properties of Kafka's Java client for the login; Kerberos is for sockets only.
    """

    def __init__(self, cluster: str, client_config: Mapping[str, Any] | None = None) -> None:
        """Raises ConfigError."""
        self._namespace = namespace_of(cluster)
        self._login = Dialer(client_settings(checked_properties(client_config or {}))).login(cluster)

    def bootstrap(self, timeout_seconds: float) -> Iterator[Callable[[], Stream]]:
        named = ray.util.list_named_actors(all_namespaces=True)
        for entry in named:
            if entry["namespace"] == self._namespace and is_broker(entry["name"]):
                yield partial(self._open, entry["name"], timeout_seconds)

    def open(self, node: Node, timeout_seconds: float) -> Stream:
        return self._open(broker_name(node.broker_id), timeout_seconds)

    def _open(self, name: str, timeout_seconds: float) -> Stream:
        try:
            actor = ray.get_actor(name, namespace=self._namespace)
            return HandleStream(actor, name, timeout_seconds, self._login)
        except (ValueError, ray.exceptions.RayError) as error:
            raise KafkaError(ErrorCode.NETWORK_EXCEPTION, f"cannot reach {name}: {error}") from error


class NodeConnector:
    """Connects to brokers as a node of the cluster, which may do everything and needs no login."""

    def __init__(self, brokers: Mapping[str, Any], secret: bytes) -> None:
        """`brokers` are handles by their names, `secret` is that of the cluster."""
        self._brokers = brokers
        self._secret = secret

    def bootstrap(self, timeout_seconds: float) -> Iterator[Callable[[], Stream]]:
        for name in self._brokers:
            yield partial(self._open, name, timeout_seconds)

    def open(self, node: Node, timeout_seconds: float) -> Stream:
        return self._open(broker_name(node.broker_id), timeout_seconds)

    def _open(self, name: str, timeout_seconds: float) -> Stream:
        try:
            return HandleStream(self._brokers[name], name, timeout_seconds, self._prover, internal=True)
        except (KeyError, ray.exceptions.RayError) as error:
            raise KafkaError(ErrorCode.NETWORK_EXCEPTION, f"cannot reach {name}: {error}") from error

    def _prover(self) -> SecretProver:
        return SecretProver(self._secret, os.urandom(NONCE_BYTES))


class HandleStream:
    """A session at a broker actor as a byte stream; it takes complete frames and returns complete responses."""

    def __init__(
        self, handle: Any, name: str, timeout_seconds: float, login: Login | None = None, *, internal: bool = False
    ) -> None:
        """`internal`: at the listener for nodes of the cluster. Raises RayError."""
        self.where = name
        self.login = login
        self._handle = handle
        self._session: str = ray.get(handle.open_session.remote(internal=internal), timeout=timeout_seconds)
        self._answers: deque[ray.ObjectRef[bytes]] = deque()
        self._received = memoryview(b"")

    def send(self, buffers: Sequence[Buffer]) -> None:
        data = b"".join(buffers)
        position = 0
        while position < len(data):
            end = position + LENGTH_BYTES + int.from_bytes(data[position : position + LENGTH_BYTES], "big")
            self._answers.append(self._handle.request.remote(self._session, data[position + LENGTH_BYTES : end]))
            position = end

    def receive_into(self, view: memoryview, timeout_seconds: float) -> int:
        while not self._received:
            if not self._answers:
                raise TimeoutError
            try:
                answer = ray.get(self._answers[0], timeout=timeout_seconds)
            except ray.exceptions.GetTimeoutError as error:
                raise TimeoutError from error
            except ray.exceptions.RayError as error:
                raise ConnectionResetError(str(error)) from error
            self._answers.popleft()
            if answer:
                self._received = memoryview(len(answer).to_bytes(LENGTH_BYTES, "big") + answer)
        count = min(len(view), len(self._received))
        view[:count] = self._received[:count]
        self._received = self._received[count:]
        return count

    def close(self) -> None:
        self._handle.close_session.remote(self._session)
