"""Disks of single processes: file systems in private mount namespaces, which end with the namespace."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.support.node_process import ROOT

UNSHARE = ("unshare", "-m", "--propagation", "private")
DISK_BYTES = 200 << 20
BALLAST = "ballast"
"""The file that fills a disk."""


@cache
def why_no_disks() -> str:
    """Why this process cannot mount disks of its own; empty if it can."""
    try:
        with TemporaryDirectory() as folder, own_disk(Path(folder) / "image", Path(folder) / "disk"):
            return ""
    except FileNotFoundError as error:
        return f"{error.filename} is not installed"
    except subprocess.CalledProcessError as error:
        return f"disks cannot be mounted: {error}"


class MountNamespace:
    """Exists until `close`, also if processes in it end."""

    def __init__(self) -> None:
        self._holder = subprocess.Popen([*UNSHARE, "cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert self._holder.stdin is not None
        assert self._holder.stdout is not None
        self._holder.stdin.write(b"\n")
        self._holder.stdin.flush()
        self._holder.stdout.readline()  # it is in its namespace

    @property
    def prefix(self) -> list[str]:
        """The beginning of a command that runs in the namespace."""
        return ["nsenter", "-t", str(self._holder.pid), "-m", f"--wd={ROOT}"]

    def run(self, *command: str) -> str:
        """What the command prints. Raises CalledProcessError."""
        return subprocess.run([*self.prefix, *command], check=True, stdout=subprocess.PIPE, text=True).stdout

    def close(self) -> None:
        assert self._holder.stdin is not None
        assert self._holder.stdout is not None
        self._holder.stdin.close()
        self._holder.wait()
        self._holder.stdout.close()


class OwnDisk:
    """A small ext4 file system over a directory, which is not changed, for processes of one mount namespace."""

    def __init__(self, namespace: MountNamespace, path: Path) -> None:
        """Use `own_disk` instead."""
        self._namespace = namespace
        self._path = path

    @property
    def prefix(self) -> list[str]:
        """The beginning of a command that runs where the disk is mounted."""
        return self._namespace.prefix

    def fill(self) -> None:
        self._namespace.run("sh", "-c", f"dd if=/dev/zero of={self._path}/{BALLAST} bs=4k status=none 2>&1; true")

    def empty(self) -> None:
        """Undo `fill`."""
        self._namespace.run("rm", f"{self._path}/{BALLAST}")

    def fail(self) -> None:
        """The file system finds an error in itself, and becomes read-only."""
        device = self._namespace.run("findmnt", "-no", "SOURCE", str(self._path)).strip()
        Path(f"/sys/fs/ext4/{Path(device).name}/trigger_fs_error").write_text("a test")


@contextmanager
def own_disk(image: Path, path: Path) -> Iterator[OwnDisk]:
    """A disk with a copy of the directory `path`, in the file `image`. All processes in its namespace must have ended
    at the end of the block."""
    path.mkdir(exist_ok=True)
    with image.open("wb") as file:
        file.truncate(DISK_BYTES)
    subprocess.run(["mkfs.ext4", "-q", "-d", str(path), str(image)], check=True)
    namespace = MountNamespace()
    try:
        namespace.run("mount", "-o", "loop,errors=remount-ro", str(image), str(path))
        yield OwnDisk(namespace, path)
    finally:
        namespace.close()
        image.unlink()
