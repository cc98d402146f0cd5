"""`raylog doctor`: look at this machine before a cluster is started on it, and say what to do.

One line for each finding. The exit code is 1 if there is an error: a cluster does not start, or its data is in danger.
Warnings alone are no failure. With --json an array:

    [{"subject": "open files", "level": "warning", "found": "1024 open files", "advice": "raise the hard limit..."}]

A level is ok, warning or error. It writes a small file into each data directory, to measure fsync, and removes it. A
directory that does not exist yet is judged by the one in which it would be created.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import re
import resource
import socket
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from importlib import metadata
from pathlib import Path

from raylog.actors.cluster import DEFAULT_PORT
from raylog.cli.arguments import Subparsers, whole_number
from raylog.cli.columns import columns
from raylog.cli.diagnosis import DiskFacts, Level, MachineFacts, diagnose
from raylog.cli.output import add_json, show
from raylog.core.errors import ConfigError
from raylog.logstore.mounts import mount_of
from raylog.logstore.start_checks import MOUNTS
from raylog.raydp_bridge.java import find_java_home

FSYNCS = 9
FAILED = 1
RAY_NICENESS = 15
"""That of Ray's workers, unless RAY_worker_niceness says otherwise."""
IN_MEMORY = ("tmpfs", "ramfs")
TIME_ERROR = 5
"""What adjtimex returns while the clock is not synchronized."""


def add_to(subparsers: Subparsers) -> None:
    parser = subparsers.add_parser("doctor", help="look at this machine before a start, and say what to do")
    parser.add_argument(
        "--data-dir",
        action="append",
        metavar="DIR",
        help="as for start; can be repeated (default: the directory for temporary files)",
    )
    parser.add_argument("--port", type=whole_number(0), default=DEFAULT_PORT, metavar="P", help="default: %(default)s")
    parser.add_argument("--brokers", type=whole_number(1), default=1, metavar="K", help="default: %(default)s")
    add_json(parser)
    parser.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> int:
    ports = range(options.port, min(options.port + options.brokers, 65536)) if options.port else ()
    findings = diagnose(_gather(options.data_dir or [tempfile.gettempdir()], list(ports)))
    rows = [[each.level, each.subject, each.found, each.advice] for each in findings]
    show(options, [each._asdict() for each in findings], columns(["LEVEL", "SUBJECT", "FOUND", "WHAT TO DO"], rows))
    return FAILED if any(each.level is Level.ERROR for each in findings) else 0


def _gather(data_dirs: list[str], ports: list[int]) -> MachineFacts:
    version, wanted, fits = _ray()
    java, java_error = _java()
    synchronized, error_ms = _clock()
    meminfo = _numbers(Path("/proc/meminfo"))
    overcommit = _text(Path("/proc/sys/vm/overcommit_memory"))
    return MachineFacts(
        python=sys.version_info[:2],
        ray_version=version,
        ray_wanted=wanted,
        ray_fits=fits,
        niceness=_niceness(),
        may_raise_priority=os.geteuid() == 0,
        java=java,
        java_error=java_error,
        open_files_hard=_open_files(),
        memory_available=1024 * meminfo["MemAvailable"] if "MemAvailable" in meminfo else None,
        overcommit=int(overcommit) if overcommit.isdecimal() else None,
        shm_free=_free("/dev/shm"),
        clock_synchronized=synchronized,
        clock_error_ms=error_ms,
        disks=[_disk(path) for path in data_dirs],
        ports_in_use=[port for port in ports if _is_in_use(port)],
        ports=ports,
    )


def _ray() -> tuple[str | None, str, bool]:
    """The installed version, what raylog requires, and whether it is that."""
    requirement = next(each for each in metadata.requires("raylog") or () if re.match(r"ray[<>=]", each))
    wanted = requirement.removeprefix("ray").partition(";")[0].strip()
    try:
        version = metadata.version("ray")
    except metadata.PackageNotFoundError:
        return None, wanted, False
    bounds = dict(re.findall(r"(>=|<)([0-9.]+)", wanted))
    fits = _numbered(bounds.get(">=", "0")) <= _numbered(version) < _numbered(bounds.get("<", "999"))
    return version, wanted, fits


def _numbered(version: str) -> list[int]:
    return [int(part) for part in re.findall(r"[0-9]+", version)]


def _niceness() -> int:
    text = os.environ.get("RAY_worker_niceness", "")  # noqa: SIM112  Ray's name
    return int(text) if text.removeprefix("-").isdecimal() else RAY_NICENESS


def _java() -> tuple[str | None, str]:
    try:
        return str(find_java_home(os.environ)), ""
    except ConfigError as error:
        return None, error.message


def _open_files() -> int:
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    return sys.maxsize if hard == resource.RLIM_INFINITY else hard


def _clock() -> tuple[bool | None, float | None]:
    """Whether the kernel's clock is synchronized, and its greatest error in milliseconds."""
    with suppress(OSError, AttributeError):
        # struct timex: modes (int), offset, freq, maxerror (long), ...
        buffer = (ctypes.c_long * 64)()
        state = ctypes.CDLL(None, use_errno=True).adjtimex(buffer)
        if state >= 0:
            return state != TIME_ERROR, buffer[3] / 1000
    return None, None


def _disk(path: str) -> DiskFacts:
    place = Path(path).absolute()
    while not place.exists() and place != place.parent:
        place = place.parent
    try:
        usage = os.statvfs(place)
        fsync_ms = statistics.median(_fsyncs(place))
    except OSError as error:
        return DiskFacts(path, error=f"cannot be used: {error.strerror or error}")
    mount = mount_of(os.path.realpath(place), _text(MOUNTS))
    return DiskFacts(
        path,
        file_system="unknown" if mount is None else mount.file_system,
        is_network=mount is not None and mount.is_network,
        is_memory=mount is not None and mount.file_system in IN_MEMORY,
        total_bytes=usage.f_blocks * usage.f_frsize,
        free_bytes=usage.f_bavail * usage.f_frsize,
        fsync_ms=fsync_ms,
        io_errors=_io_errors(os.stat(place).st_dev),
    )


def _fsyncs(place: Path) -> Iterator[float]:
    """How long each takes, in milliseconds. Raises OSError."""
    with tempfile.TemporaryFile(dir=place) as file:
        for _ in range(FSYNCS):
            file.write(bytes(4096))
            file.flush()
            began = time.perf_counter()
            os.fsync(file.fileno())
            yield 1000 * (time.perf_counter() - began)


def _io_errors(device: int) -> int:
    """What ext4 and the driver of the device have counted; 0 where neither says."""
    block = Path(f"/sys/dev/block/{os.major(device)}:{os.minor(device)}")
    counts = [
        _text(block / "device" / "ioerr_cnt"),
        _text(Path("/sys/fs/ext4") / block.resolve().name / "errors_count"),
    ]
    total = 0
    for count in counts:
        with suppress(ValueError):
            total += int(count, 0)
    return total


def _is_in_use(port: int) -> bool:
    try:
        with socket.create_server(("127.0.0.1", port)):
            return False
    except OSError:
        return True


def _free(path: str) -> int | None:
    with suppress(OSError):
        usage = os.statvfs(path)
        return usage.f_bavail * usage.f_frsize
    return None


def _numbers(path: Path) -> dict[str, int]:
    """`name: number` in each line."""
    return {name: int(value) for name, value in re.findall(r"(?m)^(\w+):\s+(\d+)", _text(path))}


def _text(path: Path) -> str:
    """Empty if it cannot be read."""
    with suppress(OSError):
        return path.read_text(errors="surrogateescape").strip()
    return ""
