"""The real and the simulated disk behave alike, and the simulated one loses exactly the unsynced data."""

from __future__ import annotations

import errno
import os
import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from raylog.logstore.disk import Disk, RealDisk
from tests.support.sim_disk import Killed, SimDisk


@pytest.fixture(params=["real", "simulated"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Disk, str]:
    if request.param == "real":
        return RealDisk(), str(tmp_path)
    disk = SimDisk(random.Random(0))
    disk.mkdir("/root")
    return disk, "/root"


def test_files(place: tuple[Disk, str]) -> None:
    disk, root = place
    path = f"{root}/file"
    with pytest.raises(FileNotFoundError):
        disk.open(path)
    handle = disk.open(path, create=True)
    with pytest.raises(FileExistsError):
        disk.open(path, create=True)
    disk.pwrite(handle, memoryview(b"hello"), 2)
    assert disk.size(handle) == 7
    assert disk.pread(handle, 100, 1) == b"\0hello"
    assert disk.pread(handle, 2, 3) == b"el"
    assert disk.pread(handle, 5, 7) == b""
    disk.truncate(handle, 4)
    disk.fsync(handle)
    disk.close(handle)
    assert disk.read_file(path) == b"\0\0he"
    with pytest.raises(OSError, match=r"."):
        disk.pread(handle, 1, 0)


def test_directories(place: tuple[Disk, str]) -> None:
    disk, root = place
    disk.mkdir(f"{root}/d")
    disk.mkdir(f"{root}/d")
    for name in ("b", "a"):
        disk.close(disk.open(f"{root}/d/{name}", create=True))
    disk.fsync_dir(f"{root}/d")
    assert disk.listdir(f"{root}/d") == ["a", "b"]
    disk.rename(f"{root}/d/a", f"{root}/d/b")
    assert disk.listdir(f"{root}/d") == ["b"]
    disk.rename(f"{root}/d", f"{root}/e")
    assert disk.is_dir(f"{root}/e")
    assert not disk.exists(f"{root}/d")
    assert not disk.is_dir(f"{root}/e/b")
    disk.rmtree(f"{root}/e")
    disk.rmtree(f"{root}/e")
    assert disk.listdir(root) == []
    with pytest.raises(FileNotFoundError):
        disk.unlink(f"{root}/x")
    with pytest.raises(FileNotFoundError):
        disk.rename(f"{root}/x", f"{root}/y")
    disk.close(disk.open(f"{root}/f", create=True))
    with pytest.raises(FileExistsError):
        disk.mkdir(f"{root}/f")


def test_locks(place: tuple[Disk, str]) -> None:
    disk, root = place
    held = disk.lock(f"{root}/.lock")
    with pytest.raises(BlockingIOError):
        disk.lock(f"{root}/.lock")
    disk.close(held)
    disk.close(disk.lock(f"{root}/.lock"))


def test_an_exchange_swaps_two_names(place: tuple[Disk, str]) -> None:
    disk, root = place
    for name in ("a", "b"):
        disk.mkdir(f"{root}/{name}")
        disk.close(disk.open(f"{root}/{name}/{name}", create=True))
    disk.exchange(f"{root}/a", f"{root}/b")
    assert (disk.listdir(f"{root}/a"), disk.listdir(f"{root}/b")) == (["b"], ["a"])
    with pytest.raises(FileNotFoundError):
        disk.exchange(f"{root}/a", f"{root}/c")
    assert disk.listdir(root) == ["a", "b"]


def test_an_unsynced_exchange_is_undone_completely_or_not_at_all() -> None:
    found = set()
    for seed in range(50):
        disk = SimDisk(random.Random(seed))
        disk.overwrite("/a", b"a")
        disk.overwrite("/b", b"b")
        disk.exchange("/a", "/b")
        if seed % 2:
            disk.fsync_dir("")
        disk.crash(power_cut=True)
        found.add((seed % 2, disk.read_file("/a") + disk.read_file("/b")))
    assert found == {(0, b"ab"), (0, b"ba"), (1, b"ba")}


def test_the_real_lock_excludes_java_locks_and_is_excluded_by_them(tmp_path: Path) -> None:
    """Java takes POSIX record locks, which know nothing of flock."""
    path = str(tmp_path / ".lock")
    ask = "import fcntl, sys; fcntl.lockf(open(sys.argv[1], 'r+'), fcntl.LOCK_EX | fcntl.LOCK_NB)"
    held = RealDisk().lock(path)
    assert subprocess.run([sys.executable, "-c", ask, path], stderr=subprocess.PIPE, check=False).returncode == 1
    RealDisk().close(held)
    hold = f"{ask}; print('held', flush=True); sys.stdin.read()"
    command = [sys.executable, "-c", hold.replace("open(", "f := open("), path]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == b"held\n"
        with pytest.raises(BlockingIOError):
            RealDisk().lock(path)
        assert other.stdin is not None
        other.stdin.close()
    RealDisk().close(RealDisk().lock(path))


def test_a_short_write_is_continued(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = os.pwrite
    pieces: Callable[..., int] = lambda fd, data, at: whole(fd, bytes(data)[:3], at)  # noqa: E731
    monkeypatch.setattr(os, "pwrite", pieces)
    disk = RealDisk()
    handle = disk.open(str(tmp_path / "f"), create=True)
    disk.pwrite(handle, b"0123456789", 0)
    assert disk.read_file(str(tmp_path / "f")) == b"0123456789"
    disk.close(handle)


def outcomes(act: Callable[[SimDisk], None], *, power_cut: bool) -> set[bytes | None]:
    found: set[bytes | None] = set()
    for seed in range(300):
        disk = SimDisk(random.Random(seed))
        act(disk)
        disk.crash(power_cut=power_cut)
        found.add(disk.read_file("/f") if disk.exists("/f") else None)
    return found


def test_a_power_failure_loses_exactly_the_unsynced_data() -> None:
    def unsynced(disk: SimDisk) -> None:
        handle = disk.open("/f", create=True)
        disk.fsync_dir("")
        disk.pwrite(handle, b"abc", 0)

    def synced(disk: SimDisk) -> None:
        unsynced(disk)
        disk.fsync(disk.open("/f"))

    def no_name(disk: SimDisk) -> None:
        handle = disk.open("/f", create=True)
        disk.pwrite(handle, b"abc", 0)
        disk.fsync(handle)

    assert outcomes(unsynced, power_cut=True) == {b"", b"a", b"ab", b"abc", b"\0\0\0"}
    assert outcomes(unsynced, power_cut=False) == {b"abc"}
    assert outcomes(synced, power_cut=True) == {b"abc"}
    assert outcomes(no_name, power_cut=True) == {None, b"abc"}


def test_a_kill_happens_within_the_chosen_operation() -> None:
    sizes = set()
    for seed in range(40):
        disk = SimDisk(random.Random(seed))
        handle = disk.open("/f", create=True)
        disk.arm(kill_at_op=2)
        disk.pwrite(handle, b"one", 0)
        with pytest.raises(Killed):
            disk.pwrite(handle, b"two", 3)
        with pytest.raises(Killed):
            disk.size(handle)
        disk.crash(power_cut=False)
        with pytest.raises(OSError, match="before a crash"):
            disk.size(handle)
        sizes.add(len(disk.read_file("/f")))
    assert sizes == {3, 4, 5, 6}


def test_planned_failures_and_a_full_disk() -> None:
    disk = SimDisk(random.Random(1))
    handle = disk.open("/f", create=True)
    disk.fail_next("fsync", errno.EIO)
    with pytest.raises(OSError, match=os.strerror(errno.EIO)):
        disk.fsync(handle)
    disk.fsync(handle)
    disk.capacity_bytes = 5
    with pytest.raises(OSError, match=os.strerror(errno.ENOSPC)):
        disk.pwrite(handle, b"0123456789", 0)
    assert disk.read_file("/f") == b"01234"
    disk.pwrite(handle, b"xx", 0)
