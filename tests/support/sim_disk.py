"""A disk in memory that loses unsynced data, tears writes, fills up and fails, all from one seed.

Every file and directory has two states, the visible one and the durable one, and between them an ordered list of
changes that no fsync has covered. A killed process loses none of them; a power cut keeps, drops or tears each one
separately, which is harsher than any real file system.
"""

from __future__ import annotations

import errno
import os
import random
from dataclasses import dataclass, field

from raylog.logstore.disk import DiskUsage, FileHandle, FileStatus
from raylog.logstore.open_files import OpenFiles

_LARGE_DISK_BYTES = 1 << 40
_TORN_ZEROS_SHARE = 0.25
"""The share of torn writes that extend the file with zeros instead of the beginning of the data."""

SEGMENT_FILES_MAX = 20
"""Few, so that files are closed and opened again."""
NAME_BYTES_MAX = 255
"""Of a file or directory, as in the file systems of Linux."""


class Killed(BaseException):
    """The process died in the middle of a disk operation. Not an Exception: no handler of ours may survive it."""


@dataclass(eq=False, slots=True)
class _File:
    data: bytearray = field(default_factory=bytearray)
    durable: bytearray = field(default_factory=bytearray)
    unsynced: list[tuple[int, bytes | None]] = field(default_factory=list)
    """(position, bytes written), or (new size, None) for a truncation."""
    bad_for_reading: bool = False
    bad_for_writing: bool = False

    def write(self, position: int, piece: bytes) -> None:
        _write(self.data, position, piece)
        self.unsynced.append((position, piece))

    def truncate(self, size: int) -> None:
        _truncate(self.data, size)
        self.unsynced.append((size, None))

    def sync(self) -> None:
        for position, piece in self.unsynced:
            if piece is None:
                _truncate(self.durable, position)
            else:
                _write(self.durable, position, piece)
        self.unsynced.clear()

    def lose_power(self, rng: random.Random) -> None:
        for position, piece in self.unsynced:
            fate = rng.random()
            if fate < 0.4:
                continue
            if piece is None:
                _truncate(self.durable, position)
            elif fate < 0.7:
                _write(self.durable, position, piece)
            elif rng.random() < _TORN_ZEROS_SHARE:
                if len(self.durable) < position + len(piece):
                    _truncate(self.durable, position + len(piece))
            else:
                _write(self.durable, position, piece[: rng.randrange(len(piece) + 1)])
        self.unsynced.clear()
        self.data = bytearray(self.durable)


@dataclass(eq=False, slots=True)
class _Directory:
    entries: dict[str, _File | _Directory] = field(default_factory=dict)
    durable: dict[str, _File | _Directory] = field(default_factory=dict)
    unsynced: list[tuple[str, str, _File | _Directory | None]] = field(default_factory=list)
    """(old name, new name, node): ("", name, node) for a new entry, (name, "", None) for a removed one, (name, name,
    None) for two that were exchanged."""

    def change(self, old: str, new: str, node: _File | _Directory | None) -> None:
        _relink(self.entries, old, new, node)
        self.unsynced.append((old, new, node))

    def sync(self) -> None:
        for change in self.unsynced:
            _relink(self.durable, *change)
        self.unsynced.clear()

    def lose_power(self, rng: random.Random) -> None:
        for old, new, node in self.unsynced:
            if rng.random() < 0.5 and (not old or old in self.durable):
                if not (old and new):
                    _relink(self.durable, old, new, node)
                elif node is not None:
                    _relink(self.durable, old, new, self.durable[old])
                elif new in self.durable:
                    _relink(self.durable, old, new, None)
        self.unsynced.clear()
        self.entries = dict(self.durable)
        for name in sorted(self.entries):
            self.entries[name].lose_power(rng)


def _check_medium(*, bad: bool) -> None:
    if bad:
        raise OSError(errno.EIO, os.strerror(errno.EIO))


def _relink(entries: dict[str, _File | _Directory], old: str, new: str, node: _File | _Directory | None) -> None:
    if old and new and node is None:
        entries[old], entries[new] = entries[new], entries[old]
        return
    if old:
        entries.pop(old, None)
    if new:
        assert node is not None
        entries[new] = node


def _write(target: bytearray, position: int, piece: bytes) -> None:
    if len(target) < position:
        target.extend(bytes(position - len(target)))
    target[position : position + len(piece)] = piece


def _truncate(target: bytearray, size: int) -> None:
    if size < len(target):
        del target[size:]
    else:
        target.extend(bytes(size - len(target)))


class SimDisk:
    """`Disk` for tests. Paths begin with "/"; the root exists and is durable. `rng` decides everything random."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self.segment_files = OpenFiles(SEGMENT_FILES_MAX)
        self._root = _Directory()
        self._open: dict[int, tuple[_File, str]] = {}
        self._locks: dict[str, int] = {}
        self._next_handle = 1000
        self._dead = False
        self._kill_at: int | None = None
        self._failures: dict[str, list[int]] = {}
        self.op_count = 0
        """The number of changing operations so far."""
        self.capacity_bytes: int | None = None
        """If set, writes beyond this total size of all files raise ENOSPC, after writing the part that fits."""
        self.read_only = False
        """While set, every changing operation raises EROFS, and so does an open for writing."""
        self.no_more_files = False
        """While set, every operation that opens a file raises EMFILE."""
        self.cold = False
        """While set, the page cache holds only files that were read since."""
        self._warm: set[int] = set()
        self.cold_reads = 0
        """Reads of pages that were not in the page cache."""

    # Faults

    def arm(self, *, kill_at_op: int | None) -> None:
        """The process dies (`Killed`) within the n-th changing operation from now, counted from 1; None disarms."""
        self._kill_at = None if kill_at_op is None else self.op_count + kill_at_op

    def fail_next(self, op: str, error: int, *, after: int = 0) -> None:
        """The next call of the method named `op`, but for `after` of them, raises OSError(error).

        A pwrite has then written a prefix.
        """
        self._failures.setdefault(op, []).extend([*[0] * after, error])

    def spoil(self, path: str, *, reading: bool = False, writing: bool = False) -> None:
        """From now on reading the file, or changing and syncing it, raises EIO; as long as it is the same file."""
        file = self._file(path)
        file.bad_for_reading, file.bad_for_writing = reading, writing

    def heal(self) -> None:
        """Clear all current and planned faults, except for spoiled files."""
        self.capacity_bytes = None
        self.read_only = self.no_more_files = False
        self._failures.clear()

    def crash(self, *, power_cut: bool) -> None:
        """The process has ended: handles and locks are void. A power cut also affects unsynced changes."""
        self._open.clear()
        self.segment_files = OpenFiles(self.segment_files.files_max)
        self._locks.clear()
        self._failures.clear()
        self._kill_at = None
        self._dead = False
        if power_cut:
            self._root.lose_power(self._rng)

    # Disk

    def for_jobs(self) -> SimDisk:
        """Itself: in tests jobs run in the same thread."""
        return self

    def open(self, path: str, *, create: bool = False, writable: bool = True) -> FileHandle:
        self._takes_a_file()
        if self.read_only and writable:
            raise OSError(errno.EROFS, os.strerror(errno.EROFS), path)
        parent, name = self._parent(path)
        if create:
            if name in parent.entries:
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path)
            if self._begins("open"):
                parent.change("", name, _File())
            self._ends()
        elif self._dead:
            raise Killed
        return self._handle(self._file(path), path)

    def close(self, handle: FileHandle) -> None:
        if self._dead:
            return  # a generator closes its file when it is collected, where an exception would only be printed
        self._opened(handle)
        _, path = self._open.pop(handle)
        if self._locks.get(path) == handle:
            del self._locks[path]

    def pread(self, handle: FileHandle, size: int, position: int) -> bytes:
        self._may_fail("pread")
        file = self._opened(handle)
        if self.cold and id(file) not in self._warm:
            self.cold_reads += 1
            self._warm.add(id(file))
        _check_medium(bad=file.bad_for_reading)
        return bytes(file.data[position : position + size])

    def is_resident(self, handle: FileHandle, size: int, position: int) -> bool:
        return not self.cold or id(self._opened(handle)) in self._warm

    def pwrite(self, handle: FileHandle, data: bytes | bytearray | memoryview, position: int) -> None:
        file = self._opened(handle)
        piece = bytes(data)
        failure = self._next_failure("pwrite")
        self._check_writable()
        _check_medium(bad=file.bad_for_writing)
        if self.capacity_bytes is not None and failure is None:
            room = self.capacity_bytes - self.used_bytes()
            if max(position + len(piece) - len(file.data), 0) > room:
                file.write(position, piece[: max(len(file.data) + max(room, 0) - position, 0)])
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        if failure is not None:
            file.write(position, piece[: self._rng.randrange(len(piece) + 1)])
            raise OSError(failure, os.strerror(failure))
        self._count()
        if self._dying():
            file.write(position, piece[: self._rng.randrange(len(piece) + 1)])
        else:
            file.write(position, piece)
        self._ends()

    def size(self, handle: FileHandle) -> int:
        self._may_fail("size")
        return len(self._opened(handle).data)

    def status(self, file: FileHandle | str) -> FileStatus:
        self._may_fail("status")
        node = self._find(file) if isinstance(file, str) else self._opened(file)
        if node is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), file)
        return FileStatus((0, id(node)), len(node.data) if isinstance(node, _File) else 0)

    def truncate(self, handle: FileHandle, size: int) -> None:
        file = self._opened(handle)
        _check_medium(bad=file.bad_for_writing)
        if self._begins("truncate"):
            file.truncate(size)
        self._ends()

    def fsync(self, handle: FileHandle) -> None:
        file = self._opened(handle)
        _check_medium(bad=file.bad_for_writing)
        if self._begins("fsync"):
            file.sync()
        self._ends()

    def fsync_path(self, path: str) -> None:
        self._takes_a_file()
        file = self._file(path)
        _check_medium(bad=file.bad_for_writing)
        if self._begins("fsync_path"):
            file.sync()
        self._ends()

    def fsync_dir(self, path: str) -> None:
        self._takes_a_file()
        directory = self._directory(path)
        if self._begins("fsync_dir"):
            directory.sync()
        self._ends()

    def rename(self, source: str, target: str) -> None:
        parent, old = self._parent(source)
        other, new = self._parent(target)
        if parent is not other:
            raise OSError(errno.EXDEV, os.strerror(errno.EXDEV), source)
        node = parent.entries.get(old)
        if node is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), source)
        if self._begins("rename"):
            parent.change(old, new, node)
        self._ends()

    def exchange(self, first: str, second: str) -> None:
        parent, old = self._parent(first)
        other, new = self._parent(second)
        if parent is not other:
            raise OSError(errno.EXDEV, os.strerror(errno.EXDEV), first)
        for name, path in ((old, first), (new, second)):
            if name not in parent.entries:
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        if self._begins("exchange"):
            parent.change(old, new, None)
        self._ends()

    def unlink(self, path: str) -> None:
        self._file(path)
        parent, name = self._parent(path)
        if self._begins("unlink"):
            parent.change(name, "", None)
        self._ends()

    def rmtree(self, path: str) -> None:
        parent, name = self._parent(path)
        node = parent.entries.get(name)
        if node is None:
            return
        if isinstance(node, _Directory):
            for child in sorted(node.entries):
                self.rmtree(f"{path}/{child}")
        if self._begins("rmtree"):
            parent.change(name, "", None)
        self._ends()

    def mkdir(self, path: str) -> None:
        parent, name = self._parent(path)
        if isinstance(parent.entries.get(name), _Directory):
            return
        if name in parent.entries:
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path)
        if self._begins("mkdir"):
            parent.change("", name, _Directory())
        self._ends()

    def listdir(self, path: str) -> list[str]:
        self._may_fail("listdir")
        self._takes_a_file()
        return sorted(self._directory(path).entries)

    def exists(self, path: str) -> bool:
        return self._find(path) is not None

    def is_dir(self, path: str) -> bool:
        return isinstance(self._find(path), _Directory)

    def read_file(self, path: str) -> bytes:
        self._may_fail("read_file")
        self._takes_a_file()
        file = self._file(path)
        _check_medium(bad=file.bad_for_reading)
        return bytes(file.data)

    def usage(self, path: str) -> DiskUsage:
        """Disk usage; that of a large disk if `capacity_bytes` is not set."""
        self._may_fail("usage")
        total = self.capacity_bytes if self.capacity_bytes is not None else _LARGE_DISK_BYTES
        return DiskUsage(total, max(total - self.used_bytes(), 0))

    def lock(self, path: str) -> FileHandle:
        self._takes_a_file()
        self._check_writable()
        parent, name = self._parent(path)
        if path in self._locks:
            raise BlockingIOError(errno.EWOULDBLOCK, os.strerror(errno.EWOULDBLOCK), path)
        if name not in parent.entries:
            if self._begins("lock"):
                parent.change("", name, _File())
            self._ends()
        handle = self._handle(self._file(path), path)
        self._locks[path] = handle
        return handle

    # For tests

    def used_bytes(self) -> int:
        """Total size of all files."""
        return _used_bytes(self._root)

    def durable_bytes(self, path: str) -> bytes:
        """The durable content of a file; empty if the file itself is not durable."""
        node: _File | _Directory | None = self._root
        for name in path.strip("/").split("/"):
            node = node.durable.get(name) if isinstance(node, _Directory) else None
        return bytes(node.durable) if isinstance(node, _File) else b""

    def durable_names(self, path: str) -> list[str]:
        """The durable entries of a directory."""
        node: _File | _Directory | None = self._root
        for name in path.strip("/").split("/"):
            node = node.durable.get(name) if isinstance(node, _Directory) else None
        return sorted(node.durable) if isinstance(node, _Directory) else []

    def open_files(self) -> int:
        """The number of open handles."""
        return len(self._open)

    def overwrite(self, path: str, data: bytes) -> None:
        """Sets the content of a file durably and regardless of faults; creates it if missing."""
        parent, name = self._parent(path)
        parent.entries[name] = parent.durable[name] = _File(bytearray(data), bytearray(data))

    # Inner parts

    def _handle(self, file: _File, path: str) -> FileHandle:
        self._next_handle += 1
        self._open[self._next_handle] = (file, path)
        return FileHandle(self._next_handle)

    def _opened(self, handle: FileHandle) -> _File:
        if self._dead:
            raise Killed
        try:
            return self._open[handle][0]
        except KeyError:
            raise OSError(errno.EBADF, f"handle {handle} is closed, or from before a crash") from None

    def _count(self) -> None:
        if self._dead:
            raise Killed
        self.op_count += 1

    def _dying(self) -> bool:
        if self._kill_at is not None and self.op_count >= self._kill_at:
            self._dead = True
        return self._dead

    def _begins(self, op: str) -> bool:
        """Whether the operation takes effect: always, except randomly for the operation in which the process dies."""
        self._count()
        self._may_fail(op)
        self._check_writable()
        return not self._dying() or self._rng.random() < 0.5

    def _ends(self) -> None:
        if self._dead:
            raise Killed

    def _next_failure(self, op: str) -> int | None:
        if self._dead:
            raise Killed
        planned = self._failures.get(op)
        return (planned.pop(0) or None) if planned else None

    def _may_fail(self, op: str) -> None:
        error = self._next_failure(op)
        if error is not None:
            raise OSError(error, os.strerror(error))

    def _check_writable(self) -> None:
        if self.read_only:
            raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    def _takes_a_file(self) -> None:
        if self.no_more_files:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    def _find(self, path: str) -> _File | _Directory | None:
        if self._dead:
            raise Killed
        node: _File | _Directory = self._root
        for name in path.split("/"):
            if not name:
                continue
            if not isinstance(node, _Directory) or name not in node.entries:
                return None
            node = node.entries[name]
        return node

    def _file(self, path: str) -> _File:
        node = self._find(path)
        if node is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        if isinstance(node, _Directory):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
        return node

    def _directory(self, path: str) -> _Directory:
        node = self._find(path)
        if node is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        if isinstance(node, _File):
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), path)
        return node

    def _parent(self, path: str) -> tuple[_Directory, str]:
        directory, _, name = path.rpartition("/")
        if len(name.encode()) > NAME_BYTES_MAX:
            raise OSError(errno.ENAMETOOLONG, os.strerror(errno.ENAMETOOLONG), path)
        return self._directory(directory), name


def _used_bytes(directory: _Directory) -> int:
    return sum(len(node.data) if isinstance(node, _File) else _used_bytes(node) for node in directory.entries.values())
