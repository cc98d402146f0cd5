"""A local socket is at its documented path, in a private directory, and descriptors it carries do not leak."""

from __future__ import annotations

import os
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from raylog.core.errors import ConfigError
from raylog.transport import unix
from tests.support.descriptors import descriptors, left_by_rounds

CLUSTER = "abcdefghijklmnopqrstuv"


@pytest.fixture
def room() -> Iterator[Path]:
    """A runtime directory that does not exist yet; pytest's own paths are too long for sockets."""
    with TemporaryDirectory(prefix="door-", dir="/tmp") as folder:
        yield Path(folder) / "raylog"


@pytest.fixture
def path(room: Path) -> Path:
    return unix.socket_path(room, CLUSTER, unix.local_socket_name(3))


def pair() -> tuple[socket.socket, socket.socket]:
    return socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)


def listen(path: Path) -> socket.socket:
    return unix.listen(path, unix.DATAGRAMS)


def connect(path: Path) -> socket.socket:
    return unix.connect(path, unix.DATAGRAMS, timeout_seconds=20)


BOTH: tuple[Callable[[Path], socket.socket], ...] = (listen, connect)


def test_the_runtime_directory_follows_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    in_tmp = Path(f"/tmp/raylog-{os.geteuid()}")
    monkeypatch.setenv("XDG_RUNTIME_DIR", "/run/user/7")
    assert unix.runtime_dirs() == (Path("/run/user/7/raylog"), in_tmp)
    monkeypatch.setenv("XDG_RUNTIME_DIR", "not/absolute")
    assert unix.runtime_dirs() == (in_tmp,)
    monkeypatch.delenv("XDG_RUNTIME_DIR")
    assert unix.runtime_dirs() == (in_tmp,)


def test_names(room: Path) -> None:
    assert unix.socket_path(room, CLUSTER, unix.local_socket_name(3)) == room / CLUSTER / "broker-3.sock"
    for cluster_id in ("", "..", "a/b", "a b", "\0", "x" * 65):
        with pytest.raises(ConfigError, match="not valid as a directory name"):
            unix.socket_path(room, cluster_id, unix.local_socket_name(0))
    longest = Path("/" + "x" * (unix.PATH_BYTES_MAX - len(f"//{CLUSTER}/broker-0.sock")))
    assert len(str(unix.socket_path(longest, CLUSTER, unix.local_socket_name(0)))) == unix.PATH_BYTES_MAX
    with pytest.raises(ConfigError, match="107 bytes"):
        unix.socket_path(Path(f"{longest}x"), CLUSTER, unix.local_socket_name(0))


def test_a_socket_is_found_and_knows_the_user_of_its_client(path: Path) -> None:
    with (
        unix.listen(path, unix.DATAGRAMS) as listener,
        unix.connect(path, unix.DATAGRAMS, timeout_seconds=20) as client,
    ):
        server, _ = listener.accept()
        with server:
            assert unix.peer_user(server) == os.geteuid()
            unix.send(client, b"hello")
            assert unix.receive(server, 100, descriptors_max=0) == (b"hello", ())
        assert unix.receive(client, 100, descriptors_max=2) == (b"", ())
    for directory in (path.parent, path.parent.parent):
        assert directory.stat().st_mode & 0o777 == 0o700


def test_without_a_broker_connecting_returns_none(path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        unix.connect(path, unix.DATAGRAMS, timeout_seconds=20)
    unix.listen(path, unix.DATAGRAMS).close()
    with pytest.raises(ConnectionRefusedError):
        unix.connect(path, unix.DATAGRAMS, timeout_seconds=20)


def test_a_socket_of_a_dead_broker_is_replaced_and_one_of_a_live_broker_is_not(path: Path) -> None:
    unix.listen(path, unix.DATAGRAMS).close()
    assert path.exists()
    with unix.listen(path, unix.DATAGRAMS):
        before = descriptors()
        for _ in range(20):
            with pytest.raises(ConfigError, match="another process listens there"):
                unix.listen(path, unix.DATAGRAMS)
        assert left_by_rounds(before, 20) == []
        unix.connect(path, unix.DATAGRAMS, timeout_seconds=20).close()


def test_removal_leaves_only_the_runtime_directory(room: Path, path: Path) -> None:
    other = unix.socket_path(room, CLUSTER, unix.local_socket_name(4))
    with listen(path), listen(other):
        unix.remove(path)
        assert list(room.rglob("*")) == [path.parent, other]
        unix.remove(other)
    unix.remove(other)
    assert list(room.rglob("*")) == []


def test_a_directory_removed_at_the_last_moment_is_recreated(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By another broker of the cluster that stops."""
    bind = unix._bind
    calls: list[Path] = []

    def late(path: Path, kind: int) -> socket.socket:
        if not calls:
            path.parent.rmdir()
        calls.append(path)
        return bind(path, kind)

    monkeypatch.setattr(unix, "_bind", late)
    with listen(path):
        assert calls == [path, path]
        connect(path).close()


def test_a_broker_too_busy_to_accept_counts_as_alive(path: Path) -> None:
    with unix.listen(path, unix.DATAGRAMS):
        waiting = [socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) for _ in range(unix.BACKLOG + 1)]
        for sock in waiting:
            sock.connect(str(path))
        with pytest.raises(ConfigError, match="another process listens there"):
            unix.listen(path, unix.DATAGRAMS)
        for sock in waiting:
            sock.close()


def test_connecting_to_a_busy_socket_waits(path: Path) -> None:
    with unix.listen(path, unix.DATAGRAMS) as listener:
        waiting = [unix.connect(path, unix.DATAGRAMS, timeout_seconds=20) for _ in range(unix.BACKLOG + 1)]
        with pytest.raises(BlockingIOError):
            unix.connect(path, unix.DATAGRAMS, timeout_seconds=0.01)
        later = threading.Thread(target=listener.accept)
        later.start()
        unix.connect(path, unix.DATAGRAMS, timeout_seconds=60).close()
        later.join()
        for sock in waiting:
            sock.close()


def test_a_signal_does_not_end_the_wait_for_a_busy_socket(path: Path) -> None:
    signals = 0

    def handle(*_: object) -> None:
        nonlocal signals
        signals += 1
        if signals == 3:
            listener.accept()[0].close()

    with unix.listen(path, unix.DATAGRAMS) as listener, ExitStack() as cleanup:
        for _ in range(unix.BACKLOG + 1):
            cleanup.callback(unix.connect(path, unix.DATAGRAMS, timeout_seconds=60).close)
        cleanup.callback(signal.signal, signal.SIGALRM, signal.signal(signal.SIGALRM, handle))
        cleanup.callback(signal.setitimer, signal.ITIMER_REAL, 0)
        signal.setitimer(signal.ITIMER_REAL, 0.01, 0.01)
        with unix.connect(path, unix.DATAGRAMS, timeout_seconds=60) as sock:
            sock.send(b"connected")
        assert signals >= 3


def test_a_directory_accessible_to_others_is_not_used(room: Path, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    elsewhere = room.parent / "elsewhere"
    elsewhere.mkdir(mode=0o700)
    room.symlink_to(elsewhere)
    for act in BOTH:
        with pytest.raises(ConfigError, match="is not a directory"):
            act(path)
    room.unlink()
    room.mkdir(mode=0o700)
    room.chmod(0o750)
    for act in BOTH:
        with pytest.raises(ConfigError, match="accessible to other users"):
            act(path)
    room.chmod(0o700)
    owner = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: owner + 1)
    for act in BOTH:
        with pytest.raises(ConfigError, match="belongs to user"):
            act(path)


def test_descriptors_arrive_as_new_ones() -> None:
    ours, theirs = pair()
    with ours, theirs:
        read_end, write_end = os.pipe()
        unix.send(ours, b"here", (write_end,))
        os.close(write_end)
        datagram, (received,) = unix.receive(theirs, 100, descriptors_max=2)
        assert datagram == b"here"
        assert not os.get_inheritable(received)
        os.write(received, b"x")
        assert os.read(read_end, 1) == b"x"
        os.close(received)
        os.close(read_end)


@pytest.mark.parametrize("descriptors_max", [0, 2])
def test_unexpected_descriptors_are_closed(descriptors_max: int) -> None:
    ours, theirs = pair()
    with ours, theirs:
        before = descriptors()
        for _ in range(20):
            socket.send_fds(ours, [b"take these"], [0] * 200)
            datagram, received = unix.receive(theirs, 100, descriptors_max=descriptors_max)
            assert datagram == b"take these"
            assert len(received) <= descriptors_max
            for descriptor in received:
                os.close(descriptor)
        assert left_by_rounds(before, 20) == []


def test_a_datagram_that_is_too_long_is_detected() -> None:
    ours, theirs = pair()
    with ours, theirs:
        unix.send(ours, bytes(5000))
        unix.send(ours, b"next")
        assert len(unix.receive(theirs, 100, descriptors_max=0)[0]) == 101
        assert unix.receive(theirs, 100, descriptors_max=0)[0] == b"next"
