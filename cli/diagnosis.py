"""What `raylog doctor` finds in the facts about a machine: for each subject a level, what was found, and what to do.

Pure: `doctor.py` gathers the facts.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, NamedTuple

from raylog.logstore.start_checks import FILES_MIN

GIB: Final = 1 << 30
FILES_WANTED: Final = 65_536
"""Open files: a partition has several, and each connection one."""
FREE_SHARE_MIN: Final = 0.05
FREE_SHARE_WANTED: Final = 0.15
FSYNC_SLOW_MS: Final = 20.0
"""A controller syncs each round of changes, so that a slower disk is felt in every creation of a topic."""
SHM_WANTED: Final = GIB
AVAILABLE_WANTED: Final = GIB
CLOCK_ERROR_WANTED_MS: Final = 500.0
PYTHONS: Final = ((3, 11), (3, 12), (3, 13))
JAVA_FOR: Final = "needed for Spark only"


class Level(StrEnum):
    """`ERROR`: a cluster does not start here, or is in danger."""

    OK = "ok"
    WARNING = "warning"
    ERROR = "error"


class Finding(NamedTuple):
    """`advice` is empty if there is nothing to do."""

    subject: str
    level: Level
    found: str
    advice: str = ""


@dataclass(frozen=True, slots=True)
class DiskFacts:
    """A directory that is to hold data. `error` says why it cannot; the other values are then of no use."""

    path: str
    error: str | None = None
    file_system: str = "unknown"
    is_network: bool = False
    is_memory: bool = False
    total_bytes: int = 0
    free_bytes: int = 0
    fsync_ms: float = 0.0
    """The median of several."""
    io_errors: int = 0
    """That the file system or the device has counted."""


@dataclass(frozen=True, slots=True)
class MachineFacts:
    """None: not known on this machine."""

    python: tuple[int, int]
    ray_version: str | None
    ray_wanted: str
    ray_fits: bool
    niceness: int
    """At which Ray would start a worker."""
    may_raise_priority: bool
    java: str | None
    java_error: str
    open_files_hard: int
    memory_available: int | None
    overcommit: int | None
    shm_free: int | None
    clock_synchronized: bool | None
    clock_error_ms: float | None
    disks: Sequence[DiskFacts]
    ports_in_use: Sequence[int]
    ports: Sequence[int]


def diagnose(facts: MachineFacts) -> list[Finding]:
    """One finding for each subject, in the order in which a start would meet them."""
    return [
        _python(facts),
        _ray(facts),
        _niceness(facts),
        _java(facts),
        _open_files(facts),
        *_ports(facts),
        *(finding for disk in facts.disks for finding in _disk(disk)),
        *_memory(facts),
        *_clock(facts),
    ]


def _python(facts: MachineFacts) -> Finding:
    found = ".".join(map(str, facts.python))
    if facts.python in PYTHONS:
        return Finding("python", Level.OK, found)
    wanted = " or ".join(".".join(map(str, each)) for each in PYTHONS)
    return Finding("python", Level.ERROR, found, f"use Python {wanted}")


def _ray(facts: MachineFacts) -> Finding:
    advice = f"install ray{facts.ray_wanted}"
    if facts.ray_version is None:
        return Finding("ray", Level.ERROR, "not installed", advice)
    if not facts.ray_fits:
        return Finding("ray", Level.ERROR, facts.ray_version, f"{advice}; no other version was tested")
    return Finding("ray", Level.OK, facts.ray_version)


def _niceness(facts: MachineFacts) -> Finding:
    if facts.niceness <= 0 or facts.may_raise_priority:
        return Finding("niceness", Level.OK, "brokers run at niceness 0")
    advice = "set RAY_worker_niceness=0 where Ray is started, or permit CAP_SYS_NICE"
    return Finding("niceness", Level.WARNING, f"brokers run at niceness {facts.niceness}", advice)


def _java(facts: MachineFacts) -> Finding:
    if facts.java is not None:
        return Finding("java", Level.OK, facts.java)
    return Finding("java", Level.WARNING, f"not found, {JAVA_FOR}", facts.java_error)


def _open_files(facts: MachineFacts) -> Finding:
    found, advice = f"{facts.open_files_hard} open files", f"raise the hard limit to {FILES_WANTED} (ulimit -Hn)"
    if facts.open_files_hard < FILES_MIN:
        return Finding("open files", Level.ERROR, found, advice)
    if facts.open_files_hard < FILES_WANTED:
        return Finding("open files", Level.WARNING, found, advice)
    return Finding("open files", Level.OK, found)


def _ports(facts: MachineFacts) -> Iterator[Finding]:
    for port in facts.ports:
        if port in facts.ports_in_use:
            advice = "end the program that uses it (ss -ltnp), or choose another with --port"
            yield Finding(f"port {port}", Level.ERROR, "in use", advice)
        else:
            yield Finding(f"port {port}", Level.OK, "free")


def _disk(disk: DiskFacts) -> Iterator[Finding]:
    subject = f"disk {disk.path}"
    if disk.error is not None:
        yield Finding(subject, Level.ERROR, disk.error, "name a directory that can be written with --data-dir")
        return
    if disk.is_network:
        advice = "use a local disk: synced data may be lost, and the lock may not exclude a second broker"
        yield Finding(subject, Level.WARNING, f"network file system {disk.file_system}", advice)
    elif disk.is_memory:
        advice = "use a disk: a restart of the machine loses all data"
        yield Finding(subject, Level.WARNING, f"in memory ({disk.file_system})", advice)
    else:
        yield Finding(subject, Level.OK, disk.file_system)
    share = disk.free_bytes / max(disk.total_bytes, 1)
    space = f"{disk.free_bytes / GIB:.1f} of {disk.total_bytes / GIB:.1f} GiB free"
    if share < FREE_SHARE_WANTED:
        level = Level.ERROR if share < FREE_SHARE_MIN else Level.WARNING
        yield Finding(subject, level, space, "free some space, or lower log.retention.bytes and log.retention.ms")
    else:
        yield Finding(subject, Level.OK, space)
    speed = f"fsync takes {disk.fsync_ms:.1f} ms"
    if disk.fsync_ms > FSYNC_SLOW_MS:
        advice = "use a faster disk, for the first --data-dir at least, which has the metadata log"
        yield Finding(subject, Level.WARNING, speed, advice)
    else:
        yield Finding(subject, Level.OK, speed)
    if disk.io_errors:
        advice = "read the kernel's log (dmesg), and replace the disk before it loses data"
        yield Finding(subject, Level.ERROR, f"{disk.io_errors} errors counted by the kernel", advice)


def _memory(facts: MachineFacts) -> Iterator[Finding]:
    if facts.memory_available is not None:
        found = f"{facts.memory_available / GIB:.1f} GiB available"
        if facts.memory_available < AVAILABLE_WANTED:
            advice = "free some memory: brokers serve recent records from the page cache"
            yield Finding("memory", Level.WARNING, found, advice)
        else:
            yield Finding("memory", Level.OK, found)
    if facts.overcommit == 2:
        advice = "set vm.overcommit_memory to 0 or 1: mapped files count against the limit"
        yield Finding("overcommit", Level.WARNING, "vm.overcommit_memory is 2", advice)
    if facts.shm_free is not None:
        found = f"{facts.shm_free / GIB:.1f} GiB free"
        if facts.shm_free < SHM_WANTED:
            advice = (
                "enlarge it (mount -o remount,size=4g /dev/shm, docker run --shm-size): Ray keeps its objects there"
            )
            yield Finding("/dev/shm", Level.WARNING, found, advice)
        else:
            yield Finding("/dev/shm", Level.OK, found)


def _clock(facts: MachineFacts) -> Iterator[Finding]:
    if facts.clock_synchronized is None or facts.clock_error_ms is None:
        return
    advice = "run chrony or systemd-timesyncd: retention and offsets by time follow the clocks of brokers and clients"
    if not facts.clock_synchronized:
        yield Finding("clock", Level.WARNING, "not synchronized", advice)
    elif facts.clock_error_ms > CLOCK_ERROR_WANTED_MS:
        yield Finding("clock", Level.WARNING, f"may be off by {facts.clock_error_ms:.0f} ms", advice)
    else:
        yield Finding("clock", Level.OK, "synchronized")
