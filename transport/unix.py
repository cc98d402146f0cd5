"""(shell) Unix sockets for processes of one machine: paths, access checks, datagrams that carry descriptors.

A broker listens on `<runtime directory>/<cluster id>/broker-<id>.sock` (the local endpoint) and on
`broker-<id>-kafka.sock` in the same directory (a stream of frames). A client derives the path from both ids, which
Metadata returns; if no broker listens there, the broker is on another node. The runtime directory is
`$XDG_RUNTIME_DIR/raylog` or `/tmp/raylog-<uid>`: the variable may be set in one process and not in another, so readers
try both. It belongs to the user and is closed to others; this is checked before use, since any user can create names
in /tmp.
"""

from __future__ import annotations

import errno
import os
import re
import socket
import stat
import struct
from pathlib import Path
from typing import Final

from raylog.core.errors import ConfigError

STREAM: Final = socket.SOCK_STREAM
DATAGRAMS: Final = socket.SOCK_SEQPACKET
ROOT: Final = 0
PATH_BYTES_MAX: Final = 107
"""A Unix socket's address holds this many bytes and a terminating zero."""
BACKLOG: Final = 64
SEND_BUFFER_BYTES: Final = 8 << 10
"""A peer that never reads is disconnected after a few responses: each may hold descriptors open."""

_CLUSTER_ID: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")
_CREDENTIALS: Final = struct.Struct("3i")
_DESCRIPTOR: Final = struct.Struct("i")
_TIMEVAL: Final = struct.Struct("ll")


def runtime_dirs() -> tuple[Path, ...]:
    """Possible runtime directories of this user, best first. They need not exist."""
    in_tmp = Path(f"/tmp/raylog-{os.geteuid()}")
    runtime_dir = os.environ.get("XDG_RUNTIME_DIR", "")
    return (Path(runtime_dir) / "raylog", in_tmp) if os.path.isabs(runtime_dir) else (in_tmp,)


def local_socket_name(broker_id: int) -> str:
    return f"broker-{broker_id}.sock"


def kafka_socket_name(broker_id: int) -> str:
    return f"broker-{broker_id}-kafka.sock"


def socket_path(runtime_dir: Path, cluster_id: str, name: str) -> Path:
    """Raises ConfigError if the path is too long for a socket, or the cluster id is not valid as a directory name."""
    path = runtime_dir / cluster_id / name
    if _CLUSTER_ID.fullmatch(cluster_id) is None:
        raise ConfigError(f"cluster id {cluster_id!r} is not valid as a directory name")
    if len(os.fsencode(path)) > PATH_BYTES_MAX:
        raise ConfigError(f"{path}: the path of a Unix socket is limited to {PATH_BYTES_MAX} bytes")
    return path


def listen_in_runtime_dir(cluster_id: str, name: str, kind: int) -> tuple[socket.socket, Path]:
    """A listening socket in the first runtime directory where that works. Raises ConfigError if none does."""
    refusals: list[str] = []
    for runtime_dir in runtime_dirs():
        try:
            path = socket_path(runtime_dir, cluster_id, name)
            return listen(path, kind), path
        except (ConfigError, OSError) as error:
            refusals.append(str(error))
    raise ConfigError("; ".join(refusals))


def remove(path: Path) -> None:
    """Remove a socket's name, and its directory if it is empty then. The system removes neither by itself."""
    try:
        path.unlink(missing_ok=True)
        path.parent.rmdir()
    except OSError:  # other sockets are still in it
        pass


def connect_in_runtime_dir(cluster_id: str, name: str, kind: int, *, timeout_seconds: float) -> socket.socket | None:
    """A connection to the broker of this machine that listens under this name; None if there is none."""
    for runtime_dir in runtime_dirs():
        try:
            return connect(socket_path(runtime_dir, cluster_id, name), kind, timeout_seconds=timeout_seconds)
        except (ConfigError, OSError):
            continue
    return None


def listen(path: Path, kind: int) -> socket.socket:
    """A listening socket at `path`, non-blocking. A socket left by a dead broker is replaced.

    Raises ConfigError if the directory is not safe or another process listens there, OSError as the system does.
    """
    for directory in (path.parent.parent, path.parent):
        directory.mkdir(mode=0o700, exist_ok=True)
        check_is_private(directory)
    try:
        return _bind(path, kind)
    except FileNotFoundError:  # a broker of the same cluster that is stopping has removed the directory
        path.parent.mkdir(mode=0o700, exist_ok=True)
        return _bind(path, kind)


def connect(path: Path, kind: int, *, timeout_seconds: float) -> socket.socket:
    """A connection to the broker behind `path`, with this timeout for every operation.

    Raises FileNotFoundError or ConnectionRefusedError if no broker is on this node, ConfigError if the directory is
    not safe, other OSErrors as the system does.
    """
    check_is_private(path.parent.parent)
    sock = socket.socket(socket.AF_UNIX, kind)
    try:
        # With Python's socket timeout, connect would not wait for room in the backlog of a busy broker.
        microseconds = int(timeout_seconds * 1_000_000)
        wait = _TIMEVAL.pack(microseconds // 1_000_000, microseconds % 1_000_000)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, wait)
        sock.connect(str(path))
        while not _is_connected(sock):  # a signal has ended the wait, which Python takes for success
            sock.connect(str(path))
        sock.settimeout(timeout_seconds)
    except BaseException:
        sock.close()
        raise
    return sock


def _is_connected(sock: socket.socket) -> bool:
    try:
        sock.getpeername()
    except OSError as error:
        if error.errno == errno.ENOTCONN:
            return False
        raise
    return True


def check_is_private(directory: Path) -> None:
    """Raises ConfigError unless it is a directory of this user, closed to all others; OSError if it is missing."""
    found = directory.lstat()
    if not stat.S_ISDIR(found.st_mode):
        raise ConfigError(f"{directory}: is not a directory")
    if found.st_uid != os.geteuid():
        raise ConfigError(f"{directory}: belongs to user {found.st_uid}, not to {os.geteuid()}")
    if found.st_mode & 0o077:
        raise ConfigError(f"{directory}: is accessible to other users (mode {found.st_mode & 0o777:o}, must be 700)")


def peer_user(sock: socket.socket) -> int:
    """The user of the peer process when it connected, as reported by the system."""
    credentials = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    return int(_CREDENTIALS.unpack(credentials)[1])


def send(sock: socket.socket, datagram: bytes, descriptors: tuple[int, ...] = ()) -> None:
    """Raises OSError; BlockingIOError if the peer does not read."""
    if descriptors:
        socket.send_fds(sock, [datagram], descriptors)
    else:
        sock.send(datagram)


def receive(sock: socket.socket, max_bytes: int, *, descriptors_max: int) -> tuple[bytes, tuple[int, ...]]:
    """One datagram, cut at one byte more than `max_bytes`, and its descriptors, which the caller must close.

    Empty if the peer has closed. Descriptors beyond `descriptors_max` never reach this process. Raises OSError.
    """
    if not descriptors_max:
        return sock.recv(max_bytes + 1), ()
    room = socket.CMSG_LEN(descriptors_max * _DESCRIPTOR.size)  # socket.recv_fds would drop the flag of the next line
    datagram, ancillary, _, _ = sock.recvmsg(max_bytes + 1, room, socket.MSG_CMSG_CLOEXEC)
    descriptors: list[int] = []
    for level, kind, data in ancillary:
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
            whole = data[: len(data) - len(data) % _DESCRIPTOR.size]
            descriptors += (descriptor for (descriptor,) in _DESCRIPTOR.iter_unpack(whole))
    return datagram, tuple(descriptors)


def _bind(path: Path, kind: int) -> socket.socket:
    sock = socket.socket(socket.AF_UNIX, kind)
    try:
        try:
            sock.bind(str(path))
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise
            if not _is_abandoned(path, kind):
                raise ConfigError(f"{path}: another process listens there") from None
            path.unlink()
            sock.bind(str(path))
        sock.listen(BACKLOG)
        sock.setblocking(False)
    except BaseException:
        sock.close()
        raise
    return sock


def _is_abandoned(path: Path, kind: int) -> bool:
    """Whether no process listens at a path that exists."""
    with socket.socket(socket.AF_UNIX, kind) as probe:
        probe.setblocking(False)
        try:
            probe.connect(str(path))
        except ConnectionRefusedError:
            return True
        except OSError:
            return False
    return False
