"""(shell) The file operations that logs need, as an interface, and its implementation for real disks.

All code in logstore accesses files through `Disk`, so that it also runs on a simulated disk that loses unsynced bytes.
Failures are `OSError`.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import struct
from typing import NamedTuple, NewType, Protocol

from raylog.logstore.open_files import OPEN_FILES_MIN, OpenFiles

FileHandle = NewType("FileHandle", int)
"""An open file of a Disk. Invalid after `close` and after a crash."""

_AT_FDCWD, _RENAME_EXCHANGE = -100, 2
"""Linux's AT_FDCWD and RENAME_EXCHANGE: paths are relative to the current directory; the two files are swapped."""
_WHOLE_FILE = struct.pack("hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
"""Linux's struct flock: an exclusive lock from the first byte to the end."""


NO_MORE_FILES = (errno.EMFILE, errno.ENFILE)
"""Errors of an open for lack of descriptors: no file was changed, and it can succeed when others are closed."""

SPACE_IS_SHORT = (errno.ENOSPC, errno.EDQUOT)
"""Errors of a write that do not affect existing data."""


def is_transient(error: OSError) -> bool:
    """Whether a later attempt can succeed and existing data is intact. Never true for a failed fsync, after which the
    system may have dropped the pages that it could not write, whatever the error."""
    return error.errno in NO_MORE_FILES or error.errno in SPACE_IS_SHORT


class DiskUsage(NamedTuple):
    """Size of a file system, and the space available to unprivileged processes."""

    total_bytes: int
    usable_bytes: int


class FileStatus(NamedTuple):
    """What is known of a file or directory without reading it."""

    identity: tuple[int, int]
    """Device and inode, which identify it until it is deleted."""
    size_bytes: int


class Disk(Protocol):
    """Positioned reads and writes, and the directory operations whose order matters in a crash.

    Paths are strings with "/". Written data is durable after `fsync` of its file; creation, deletion and renaming of a
    file are durable after `fsync_dir` of its directory.
    """

    segment_files: OpenFiles
    """The open files of segments, of which there is a limited number."""

    def for_jobs(self) -> Disk:
        """The same disk with `segment_files` of its own, for a log that is used by jobs in other threads."""
        ...

    def open(self, path: str, *, create: bool = False, writable: bool = True) -> FileHandle:
        """Open a file for reading and, if `writable`, for writing, which fails on a read-only file system.

        `create` creates a new empty file, and raises FileExistsError if it exists.
        """
        ...

    def close(self, handle: FileHandle) -> None: ...

    def pread(self, handle: FileHandle, size: int, position: int) -> bytes:
        """A copy of `size` bytes from `position`; fewer only at the end of the file."""
        ...

    def is_resident(self, handle: FileHandle, size: int, position: int) -> bool:
        """Whether `pread` of this range needs no disk: its pages are in the page cache. They may leave it any time."""
        ...

    def pwrite(self, handle: FileHandle, data: bytes | bytearray | memoryview, position: int) -> None:
        """Write all of `data`. If it raises, a prefix may have been written."""
        ...

    def size(self, handle: FileHandle) -> int: ...

    def status(self, file: FileHandle | str) -> FileStatus:
        """The status of an open file, or of the file or directory with this name."""
        ...

    def truncate(self, handle: FileHandle, size: int) -> None: ...

    def fsync(self, handle: FileHandle) -> None: ...

    def fsync_path(self, path: str) -> None:
        """fsync the file that currently has this name."""
        ...

    def fsync_dir(self, path: str) -> None: ...

    def rename(self, source: str, target: str) -> None:
        """Rename a file within its directory, atomically replacing an existing `target`."""
        ...

    def exchange(self, first: str, second: str) -> None:
        """Atomically swap the names of two files or directories in the same directory."""
        ...

    def unlink(self, path: str) -> None: ...

    def rmtree(self, path: str) -> None:
        """Delete a directory and its contents, if it exists."""
        ...

    def mkdir(self, path: str) -> None:
        """Create a directory, unless it exists."""
        ...

    def listdir(self, path: str) -> list[str]:
        """Names in the directory, sorted."""
        ...

    def exists(self, path: str) -> bool: ...

    def is_dir(self, path: str) -> bool: ...

    def read_file(self, path: str) -> bytes: ...

    def usage(self, path: str) -> DiskUsage:
        """The usage of the file system that contains `path`."""
        ...

    def lock(self, path: str) -> FileHandle:
        """Take the exclusive lock on a file, which is created if missing, until `close` or the end of the process.

        Raises BlockingIOError if another process, of raylog or Kafka, holds it.
        """
        ...


SEGMENT_FILES_MAX = 256
"""How many files of segments are open at once, unless the caller knows the limit of the process."""
PROBE_BYTES = 512 << 10
"""The interval at which bytes are probed: the kernel reads ahead, and evicts pages, in larger units than this."""


class RealDisk:
    """The operating system's files; handles are file descriptors."""

    def __init__(self, segment_files_max: int = SEGMENT_FILES_MAX) -> None:
        self.segment_files = OpenFiles(segment_files_max)
        self._probe = [bytearray(1)]
        self._can_probe = True
        """False if the file system does not report what is in the page cache."""

    def for_jobs(self) -> RealDisk:
        return RealDisk(OPEN_FILES_MIN)

    def open(self, path: str, *, create: bool = False, writable: bool = True) -> FileHandle:
        access = os.O_RDWR if writable else os.O_RDONLY
        flags = access | os.O_CLOEXEC | (os.O_CREAT | os.O_EXCL if create else 0)
        return FileHandle(os.open(path, flags, 0o644))

    def close(self, handle: FileHandle) -> None:
        os.close(handle)

    def pread(self, handle: FileHandle, size: int, position: int) -> bytes:
        data = os.pread(handle, size, position)
        if len(data) == size or not data:
            return data
        parts = [data]  # short read: the end of the file, or the kernel's limit of 2 GiB per call
        got = len(data)
        while got < size:
            data = os.pread(handle, size - got, position + got)
            if not data:
                break
            parts.append(data)
            got += len(data)
        return b"".join(parts)

    def is_resident(self, handle: FileHandle, size: int, position: int) -> bool:
        """Looks at one byte in each PROBE_BYTES: the kernel reads ahead in larger pieces."""
        if not self._can_probe:
            return True
        last = position + size - 1
        try:
            for at in (*range(position, last, PROBE_BYTES), last):
                os.preadv(handle, self._probe, at, os.RWF_NOWAIT)
        except BlockingIOError:
            return False
        except OSError as error:
            if error.errno not in (errno.EOPNOTSUPP, errno.ENOSYS):
                raise
            self._can_probe = False
        return True

    def pwrite(self, handle: FileHandle, data: bytes | bytearray | memoryview, position: int) -> None:
        written = os.pwrite(handle, data, position)
        if written == len(data):
            return
        with memoryview(data) as view:
            while written < len(view):
                step = os.pwrite(handle, view[written:], position + written)
                if step == 0:
                    raise OSError(errno.EIO, "pwrite wrote no bytes and reported no error")
                written += step

    def size(self, handle: FileHandle) -> int:
        return os.lseek(handle, 0, os.SEEK_END)  # a third of the time of fstat; reads and writes name their position

    def status(self, file: FileHandle | str) -> FileStatus:
        found = os.stat(file)
        return FileStatus((found.st_dev, found.st_ino), found.st_size)

    def truncate(self, handle: FileHandle, size: int) -> None:
        os.ftruncate(handle, size)

    def fsync(self, handle: FileHandle) -> None:
        os.fsync(handle)

    def fsync_path(self, path: str) -> None:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def fsync_dir(self, path: str) -> None:
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def rename(self, source: str, target: str) -> None:
        os.rename(source, target)

    def exchange(self, first: str, second: str) -> None:
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.renameat2(_AT_FDCWD, os.fsencode(first), _AT_FDCWD, os.fsencode(second), _RENAME_EXCHANGE):
            error = ctypes.get_errno()
            raise OSError(error, os.strerror(error), first)

    def unlink(self, path: str) -> None:
        os.unlink(path)

    def rmtree(self, path: str) -> None:
        try:
            entries = sorted(os.scandir(path), key=lambda entry: entry.name)
        except FileNotFoundError:
            return
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                self.rmtree(entry.path)
            else:
                os.unlink(entry.path)
        os.rmdir(path)

    def mkdir(self, path: str) -> None:
        try:
            os.mkdir(path)
        except FileExistsError:
            if not os.path.isdir(path):
                raise

    def listdir(self, path: str) -> list[str]:
        return sorted(os.listdir(path))

    def exists(self, path: str) -> bool:
        return os.path.exists(path)

    def is_dir(self, path: str) -> bool:
        return os.path.isdir(path)

    def read_file(self, path: str) -> bytes:
        with open(path, "rb") as file:
            return file.read()

    def usage(self, path: str) -> DiskUsage:
        found = os.statvfs(path)
        return DiskUsage(found.f_blocks * found.f_frsize, found.f_bavail * found.f_frsize)

    def lock(self, path: str) -> FileHandle:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.fcntl(
                descriptor, fcntl.F_OFD_SETLK, _WHOLE_FILE
            )  # the kind of lock that Java uses; it does not see flock
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(descriptor)
            raise
        return FileHandle(descriptor)
