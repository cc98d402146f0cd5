"""(shell) A connection to the local socket of a broker on this node: requests, and waiting for its notification."""

from __future__ import annotations

import os
import select
import socket
import time
from collections.abc import Callable, Set
from pathlib import Path
from typing import Final, Self, TypeVar

from raylog.client.local_reader import LocalPartitionReader
from raylog.core.errors import ConfigError, ErrorCode, KafkaError, ProtocolViolation
from raylog.core.ids import Offset, TopicPartition
from raylog.protocol.local_messages import (
    DATAGRAM_BYTES_MAX,
    VERSION,
    Answer,
    Hello,
    Refused,
    Request,
    Welcome,
    decode_answer,
    encode,
)
from raylog.transport import unix
from raylog.transport.doorbell import Sleeper

ANSWER_SECONDS: Final = 30.0
BACKOFF_SECONDS: Final = 0.01
BACKOFF_SECONDS_MAX: Final = 0.5
SLEEP_SECONDS_MAX: Final = 1.0
"""A waiting reader checks the page this often even without a notification: see `transport.doorbell.fence`."""
DESCRIPTORS_MAX: Final = 2

A = TypeVar("A", bound=Answer)


def open_local(cluster_id: str, broker_id: int, *, user: str | None = None) -> LocalBroker | None:
    """The broker with these ids from Metadata; None if it is not on this node, or does not admit this process.

    The caller then reads over the network. So does a caller who logs in as another `user` than the one that the broker
    knows this process as: files are read with the rights of that one.
    """
    paths = []
    for runtime_dir in unix.runtime_dirs():
        try:
            paths.append(unix.socket_path(runtime_dir, cluster_id, unix.local_socket_name(broker_id)))
        except ConfigError:
            continue
    broker = LocalBroker(paths)
    try:
        broker.connect()
    except KafkaError:
        return None
    if user is not None and broker.principal != f"User:{user}":
        broker.close()
        return None
    return broker


class LocalBroker:
    """Reconnects after a restart of the broker. Not thread-safe; a context manager."""

    def __init__(self, paths: list[Path]) -> None:
        self._paths = paths
        self._socket: socket.socket | None = None
        self._sleeper: Sleeper | None = None
        self._poller = select.poll()
        self._backoff_seconds = BACKOFF_SECONDS
        self.connection = 0
        """Number of the connection; handles from earlier ones are no longer valid."""
        self.principal = ""
        """Whom the broker takes this process for: User:alice."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def connected(self) -> bool:
        """The last known state: the death of a broker is noticed by `call` and `sleep`."""
        return self._socket is not None

    def open(
        self,
        tp: TopicPartition,
        offset: int,
        *,
        committed: bool = True,
        keep_chunks: bool = False,
        check_crc: bool = True,
    ) -> LocalPartitionReader:
        """A reader of the partition from `offset` on. Raises KafkaError if this broker does not lead it.

        `committed` selects isolation level read_committed. `keep_chunks` maps the files, for callers that keep many
        chunks at a time (see logstore/local_log.py).
        """
        return LocalPartitionReader(
            self, tp, Offset(offset), committed=committed, keep_chunks=keep_chunks, check_crc=check_crc
        )

    def connect(self) -> None:
        """Raises KafkaError: NETWORK_EXCEPTION if no broker listens, or the error that the broker returns."""
        self.disconnect()
        reason: Exception | None = None
        for path in self._paths:
            try:
                self._socket = unix.connect(path, unix.DATAGRAMS, timeout_seconds=ANSWER_SECONDS)
                break
            except (OSError, ConfigError) as error:
                reason = error
        if self._socket is None:
            where = ", ".join(map(str, self._paths))
            raise KafkaError(ErrorCode.NETWORK_EXCEPTION, f"no broker at {where}: {reason}")
        self.connection += 1
        try:
            welcome, descriptors = self.call(Hello(VERSION), Welcome, descriptors=2)
            self.principal = welcome.principal
            self._sleeper = Sleeper(*descriptors)
        except KafkaError:
            self.disconnect()
            raise
        except (OSError, ValueError) as error:
            raise self._lost(error) from error
        self._poller = select.poll()
        self._poller.register(self._socket, select.POLLIN)
        self._poller.register(self._sleeper, select.POLLIN)
        self._backoff_seconds = BACKOFF_SECONDS

    def connect_until(self, deadline: float) -> None:
        """Retry `connect` with growing pauses until the monotonic time `deadline`. Raises the last KafkaError."""
        while True:
            try:
                self.connect()
                return
            except KafkaError as error:
                pause = min(self._backoff_seconds, deadline - time.monotonic())
                if pause <= 0 or error.code != ErrorCode.NETWORK_EXCEPTION:
                    raise
            time.sleep(pause)
            self._backoff_seconds = min(2 * self._backoff_seconds, BACKOFF_SECONDS_MAX)

    def disconnect(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None
        if self._sleeper is not None:
            self._sleeper.close()
            self._sleeper = None

    def close(self) -> None:
        """Does not close readers, which are closed on their own. Can be called twice."""
        self.disconnect()

    def call(self, request: Request, wanted: type[A], *, descriptors: int = 0) -> tuple[A, tuple[int, ...]]:
        """The response and this many file descriptors, which the caller must close.

        Raises KafkaError: the error that the broker returns, or NETWORK_EXCEPTION after closing the connection.
        """
        if self._socket is None:
            raise KafkaError(ErrorCode.NETWORK_EXCEPTION, "the connection to the broker was lost")
        try:
            unix.send(self._socket, encode(request))
            datagram, received = unix.receive(self._socket, DATAGRAM_BYTES_MAX, descriptors_max=DESCRIPTORS_MAX)
            if not datagram:
                raise ConnectionResetError("the broker closed the connection")
        except OSError as error:
            raise self._lost(error) from error
        except BaseException:  # if interrupted, the pending response would be taken for that of the next request
            self.disconnect()
            raise
        try:
            answer = decode_answer(datagram)
            if isinstance(answer, wanted) and len(received) == descriptors:
                return answer, received
            if isinstance(answer, Refused):
                raise KafkaError(answer.error_code, answer.message)
            raise ProtocolViolation(f"{answer} with {len(received)} file descriptors, expected {descriptors}")
        except (KafkaError, ProtocolViolation) as error:
            for descriptor in received:
                os.close(descriptor)
            if isinstance(error, KafkaError):
                raise
            raise self._lost(error) from error

    def sleep(self, seconds: float, *, unless: Callable[[], bool]) -> None:
        """Wait for a notification of the broker, its death (see `connected`) or the timeout; may return early.

        `unless` is checked once more after the notification is armed.
        """
        assert self._sleeper is not None
        self._sleeper.arm()
        try:
            milliseconds = 0.0 if unless() else min(seconds, SLEEP_SECONDS_MAX) * 1000
            woken = self._poller.poll(milliseconds)
        finally:
            self._sleeper.disarm()
        self.notice_end({descriptor for descriptor, _ in woken})

    def arm(self) -> tuple[int, int]:
        """Two descriptors that are readable after a notification, or after the end of the connection.

        `disarm` and `notice_end` follow.
        """
        assert self._socket is not None
        assert self._sleeper is not None
        self._sleeper.arm()
        return self._socket.fileno(), self._sleeper.fileno()

    def disarm(self) -> None:
        if self._sleeper is not None:
            self._sleeper.disarm()

    def notice_end(self, woken: Set[int]) -> None:
        """`woken` are the descriptors that were found readable."""
        if self._socket is not None and self._socket.fileno() in woken:
            self.disconnect()  # the broker sends nothing unrequested, so this is the end of the connection

    def _lost(self, reason: Exception) -> KafkaError:
        self.disconnect()
        return KafkaError(ErrorCode.NETWORK_EXCEPTION, f"the connection to the broker was lost: {reason}")
