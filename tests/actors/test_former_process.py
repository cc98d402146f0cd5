"""A node that starts while its former process is ending."""

from __future__ import annotations

import asyncio
import errno
from pathlib import Path

import pytest

from raylog.actors import former_process
from raylog.actors.former_process import POLL_SECONDS, check_unused, wait_until_unlocked
from raylog.core.errors import ConfigError
from raylog.logstore.disk import FileHandle, RealDisk
from raylog.logstore.log_dir import LOCK_FILE


def test_a_directory_is_waited_for_until_it_is_unlocked(tmp_path: Path) -> None:
    disk = RealDisk()
    lock = disk.lock(str(tmp_path / LOCK_FILE))

    async def run() -> None:
        asyncio.get_running_loop().call_later(4 * POLL_SECONDS, disk.close, lock)
        await wait_until_unlocked(disk, str(tmp_path))

    asyncio.run(run())
    disk.close(disk.lock(str(tmp_path / LOCK_FILE)))


def test_a_directory_of_a_running_process_is_not_waited_for_without_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(former_process, "FORMER_PROCESS_SECONDS", 2 * POLL_SECONDS)
    disk = RealDisk()
    lock = disk.lock(str(tmp_path / LOCK_FILE))
    asyncio.run(wait_until_unlocked(disk, str(tmp_path)))
    with pytest.raises(BlockingIOError):
        disk.lock(str(tmp_path / LOCK_FILE))
    with pytest.raises(ConfigError, match=rf"{tmp_path}/.lock is locked: another cluster runs"):
        check_unused(disk, [str(tmp_path / "new"), str(tmp_path)])
    disk.close(lock)
    check_unused(disk, [str(tmp_path)])


def test_a_failed_disk_is_for_the_start_of_the_node_to_report(tmp_path: Path) -> None:
    """One that has others goes on with those (KIP-112)."""

    class Failed(RealDisk):
        def lock(self, path: str) -> FileHandle:
            raise OSError(errno.EROFS, "read-only file system")

    (tmp_path / LOCK_FILE).touch()
    asyncio.run(wait_until_unlocked(Failed(), str(tmp_path)))


def test_a_directory_that_was_never_used_is_not_made(tmp_path: Path) -> None:
    asyncio.run(wait_until_unlocked(RealDisk(), str(tmp_path / "new")))
    assert not (tmp_path / "new").exists()
