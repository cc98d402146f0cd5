"""(shell) The local endpoint: a Unix socket at which processes of the same node get the files of a log.

Uses raw sockets on the broker's loop, because asyncio's transports drop descriptors. A connection has one request in
progress and none queued: it is read when it is readable and answered at once. The broker closes it if it sends an
invalid request or does not read its response. Closing a connection releases everything it was given, as LocalReaders
defines.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import socket
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final

from raylog.broker.local_readers import LocalReader, LocalReaders, Reply, refusal
from raylog.core.errors import ConfigError, ErrorCode, InvariantViolation, ProtocolViolation
from raylog.core.ids import BrokerId
from raylog.protocol.local_messages import DATAGRAM_BYTES_MAX, decode_request, encode
from raylog.transport import unix

log = logging.getLogger("raylog.broker")
ACCEPT_PAUSE_SECONDS: Final = 1.0
"""Pause after the process ran out of descriptors; otherwise the loop would spin on the pending connection."""
NO_MORE_FILES: Final = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)


def open_local_endpoint(
    readers: LocalReaders,
    *,
    cluster_id: str,
    broker_id: BrokerId,
    on_failure: Callable[[InvariantViolation], None],
) -> LocalEndpoint | None:
    """The endpoint in the first usable runtime directory; None, with a warning, if there is none.

    Readers then use the Kafka protocol. `on_failure` is called when an invariant breaks while a reader is served.
    """
    try:
        sock, path = unix.listen_in_runtime_dir(cluster_id, unix.local_socket_name(broker_id), unix.DATAGRAMS)
    except ConfigError as error:
        log.warning("local endpoint not opened", extra={"reason": error.message})
        return None
    return LocalEndpoint(readers, sock, path, on_failure=on_failure)


class LocalEndpoint:
    """The Unix socket at which readers on this machine get descriptors.

    Open from `__init__` to `close`, on the running loop.
    """

    def __init__(
        self,
        readers: LocalReaders,
        listener: socket.socket,
        path: Path,
        *,
        on_failure: Callable[[InvariantViolation], None],
    ) -> None:
        self._readers = readers
        self._listener = listener
        self._path = path
        self._on_failure = on_failure
        self._connections: dict[LocalReader, socket.socket] = {}
        self._loop = asyncio.get_running_loop()
        self._pause: asyncio.TimerHandle | None = None
        self._listen()

    def close(self) -> None:
        """Accept no more connections, notify all readers, and close their connections."""
        unix.remove(self._path)
        if self._pause is not None:
            self._pause.cancel()
        self._loop.remove_reader(self._listener)
        self._listener.close()
        self._readers.close()
        for reader in list(self._connections):
            self._disconnect(reader)

    def _listen(self) -> None:
        self._pause = None
        self._loop.add_reader(self._listener, self._accept)

    def _accept(self) -> None:
        try:
            sock, _ = self._listener.accept()
        except OSError as error:
            if error.errno in NO_MORE_FILES:
                log.warning("local reader connection delayed", extra={"reason": str(error)})
                self._loop.remove_reader(self._listener)
                self._pause = self._loop.call_later(ACCEPT_PAUSE_SECONDS, self._listen)
            return
        user = unix.peer_user(sock)
        reader = self._readers.connected(user=user, broker_user=os.geteuid())
        if reader is None:
            log.warning("local reader refused", extra={"user": user})
            sock.close()
            return
        sock.setblocking(False)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, unix.SEND_BUFFER_BYTES)
        self._connections[reader] = sock
        self._loop.add_reader(sock, partial(self._readable, reader))

    def _readable(self, reader: LocalReader) -> None:
        try:
            self._serve(reader)
        except InvariantViolation as violation:
            self._on_failure(violation)
        except (ProtocolViolation, OSError) as reason:
            log.info("local reader disconnected", extra={"reason": str(reason)})
            self._disconnect(reader)
        except Exception:
            log.exception("local reader failed")
            self._disconnect(reader)

    def _serve(self, reader: LocalReader) -> None:
        sock = self._connections[reader]
        try:
            datagram, _ = unix.receive(sock, DATAGRAM_BYTES_MAX, descriptors_max=0)
        except BlockingIOError:
            return
        except ConnectionResetError:  # it closed without reading its last response
            datagram = b""
        if datagram:
            self._answer(sock, self._readers.serve(reader, decode_request(datagram)))
        else:
            self._disconnect(reader)

    def _answer(self, sock: socket.socket, reply: Reply) -> None:
        if reply.path is None and reply.content is None:
            unix.send(sock, encode(reply.answer), reply.descriptors)
            return
        try:
            file = _file_of(reply)
        except OSError as error:
            unix.send(sock, encode(refusal(ErrorCode.KAFKA_STORAGE_ERROR, str(error)).answer))
            return
        try:
            unix.send(sock, encode(reply.answer), (file,))
        finally:
            os.close(file)

    def _disconnect(self, reader: LocalReader) -> None:
        sock = self._connections.pop(reader)
        self._loop.remove_reader(sock)
        sock.close()
        self._readers.disconnected(reader)


def _file_of(reply: Reply) -> int:
    """The file that is sent with a response. Raises OSError."""
    if reply.path is not None:
        return os.open(reply.path, os.O_RDONLY | os.O_CLOEXEC)
    file = os.memfd_create("raylog-list", os.MFD_CLOEXEC)
    try:
        os.pwrite(file, reply.content or b"", 0)
    except OSError:
        os.close(file)
        raise
    return file
