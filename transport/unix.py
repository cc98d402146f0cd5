"""(shell) Sockets for processes of the same machine: where they lie, who may be behind them, and datagrams that carry
descriptors.

A broker listens on `<runtime directory>/<cluster id>/broker-<id>.sock` (the local door) and beside it on
`broker-<id>-kafka.sock` (a stream of frames). Whoever knows both ids, which Metadata tells,
derives the path; where nothing is there, or nobody answers, the broker is on another node. The runtime directory is
`$XDG_RUNTIME_DIR/raylog` or `/tmp/raylog-<uid>`: a process may lack the variable that another has, so readers look at
both. It is the user's own and closed to others, and it is checked before it is used: anybody may make names in /tmp.
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
"""A Unix socket's address holds so many, and a zero."""
BACKLOG: Final = 64
SEND_BUFFER_BYTES: Final = 8 << 10
"""A peer that never reads is given up after a few answers: each may hold descriptors open."""

_CLUSTER_ID: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")
_CREDENTIALS: Final = struct.Struct("3i")
_DESCRIPTOR: Final = struct.Struct("i")
_TIMEVAL: Final = struct.Struct("ll")


def runtime_dirs() -> tuple[Path, ...]:
    """Where doors of this user may lie, best first. None of them need exist."""
    in_tmp = Path(f"/tmp/raylog-{os.geteuid()}")
    runtime_dir = os.environ.get("XDG_RUNTIME_DIR", "")
    return (Path(runtime_dir) / "raylog", in_tmp) if os.path.isabs(runtime_dir) else (in_tmp,)


def door_name(broker_id: int) -> str:
    return f"broker-{broker_id}.sock"


def stream_name(broker_id: int) -> str:
    return f"broker-{broker_id}-kafka.sock"


def socket_path(runtime_dir: Path, cluster_id: str, name: str) -> Path:
    """Raises ConfigError where the name is too long for a socket, or the cluster's id is no name for a directory."""
    path = runtime_dir / cluster_id / name
    if _CLUSTER_ID.fullmatch(cluster_id) is None:
        raise ConfigError(f"cluster id {cluster_id!r} is no name for a directory")
    if len(os.fsencode(path)) > PATH_BYTES_MAX:
        raise ConfigError(f"{path}: a socket's path may have {PATH_BYTES_MAX} bytes")
    return path


def listen_in_runtime_dir(cluster_id: str, name: str, kind: int) -> tuple[socket.socket, Path]:
    """A listening socket in the first runtime directory that has room for it. Raises ConfigError where none has."""
    refusals: list[str] = []
    for runtime_dir in runtime_dirs():
        try:
            path = socket_path(runtime_dir, cluster_id, name)
            return listen(path, kind), path
        except (ConfigError, OSError) as error:
            refusals.append(str(error))
    raise ConfigError("; ".join(refusals))


def remove(path: Path) -> None:
    """A socket's name, and its directory where it was the last one there. The system removes neither by itself."""
    try:
        path.unlink(missing_ok=True)
        path.parent.rmdir()
    except OSError:  # others are there still
        pass


def connect_in_runtime_dir(cluster_id: str, name: str, kind: int, *, timeout_seconds: float) -> socket.socket | None:
    """A connection to the broker of this machine that listens under this name; None where there is none."""
    for runtime_dir in runtime_dirs():
        try:
            return connect(socket_path(runtime_dir, cluster_id, name), kind, timeout_seconds=timeout_seconds)
        except (ConfigError, OSError):
            continue
    return None


def listen(path: Path, kind: int) -> socket.socket:
    """A listening socket at `path`, non-blocking. What a dead broker has left there is replaced.

    Raises ConfigError where the directory is not safe or another process listens there, OSError as the system does.
    """
    for directory in (path.parent.parent, path.parent):
        directory.mkdir(mode=0o700, exist_ok=True)
        check_is_private(directory)
    try:
        return _bind(path, kind)
    except FileNotFoundError:  # a broker of the same cluster, which stops just now, has taken the directory along
        path.parent.mkdir(mode=0o700, exist_ok=True)
        return _bind(path, kind)


def connect(path: Path, kind: int, *, timeout_seconds: float) -> socket.socket:
    """A connection to the broker behind `path`, with that timeout on all it does.

    Raises FileNotFoundError or ConnectionRefusedError where no broker is on this node, ConfigError where the directory
    is not safe, other OSErrors as the system does.
    """
    check_is_private(path.parent.parent)
    sock = socket.socket(socket.AF_UNIX, kind)
    try:
        # A socket with a timeout of Python's would not wait for room in the backlog of a broker that is busy.
        microseconds = int(timeout_seconds * 1_000_000)
        wait = _TIMEVAL.pack(microseconds // 1_000_000, microseconds % 1_000_000)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, wait)
        sock.connect(str(path))
        sock.settimeout(timeout_seconds)
    except BaseException:
        sock.close()
        raise
    return sock


def check_is_private(directory: Path) -> None:
    """Raises ConfigError unless it is a directory of this user, closed to all others; OSError where it is missing."""
    found = directory.lstat()
    if not stat.S_ISDIR(found.st_mode):
        raise ConfigError(f"{directory}: is no directory")
    if found.st_uid != os.geteuid():
        raise ConfigError(f"{directory}: belongs to user {found.st_uid}, not to {os.geteuid()}")
    if found.st_mode & 0o077:
        raise ConfigError(f"{directory}: is open to other users (mode {found.st_mode & 0o777:o}, must be 700)")


def peer_user(sock: socket.socket) -> int:
    """Who was behind the other end when it was connected, as the system knows it."""
    credentials = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    return int(_CREDENTIALS.unpack(credentials)[1])


def send(sock: socket.socket, datagram: bytes, descriptors: tuple[int, ...] = ()) -> None:
    """Raises OSError; BlockingIOError where the peer does not read."""
    if descriptors:
        socket.send_fds(sock, [datagram], descriptors)
    else:
        sock.send(datagram)


def receive(sock: socket.socket, max_bytes: int, *, descriptors_max: int) -> tuple[bytes, tuple[int, ...]]:
    """One datagram, cut at one byte more than `max_bytes`, and its descriptors, which are the caller's to close.

    Empty where the peer has closed. Descriptors beyond `descriptors_max` never reach this process. Raises OSError.
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
    """Whether nobody listens at a path that is taken."""
    with socket.socket(socket.AF_UNIX, kind) as probe:
        probe.setblocking(False)
        try:
            probe.connect(str(path))
        except ConnectionRefusedError:
            return True
        except OSError:
            return False
    return False
