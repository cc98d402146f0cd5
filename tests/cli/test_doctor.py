"""`raylog doctor` judges each fact about the machine, says what to do, and fails for errors only."""

from __future__ import annotations

import json
import socket
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from raylog.cli.diagnosis import GIB, DiskFacts, Level, MachineFacts, diagnose
from raylog.cli.main import main

DISK = DiskFacts("/data", None, "ext4", total_bytes=100 * GIB, free_bytes=50 * GIB, fsync_ms=1.0)
HEALTHY = MachineFacts(
    python=(3, 11),
    ray_version="2.60.0",
    ray_wanted="<2.61,>=2.60",
    ray_fits=True,
    niceness=0,
    may_raise_priority=False,
    java="/usr/lib/jvm/java-17",
    java_error="",
    open_files_hard=1 << 20,
    memory_available=8 * GIB,
    overcommit=0,
    shm_free=4 * GIB,
    clock_synchronized=True,
    clock_error_ms=1.0,
    disks=[DISK],
    ports_in_use=[],
    ports=[9092, 9093],
)


def complaints(facts: MachineFacts) -> dict[str, Level]:
    found = [each for each in diagnose(facts) if each.level is not Level.OK]
    assert all(each.advice for each in found)
    return {each.subject: each.level for each in found}


def test_a_healthy_machine() -> None:
    findings = diagnose(HEALTHY)
    assert {each.level for each in findings} == {Level.OK}
    assert {"python", "ray", "niceness", "java", "open files", "port 9092", "disk /data", "memory", "clock"} <= {
        each.subject for each in findings
    }


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"python": (3, 10)}, {"python": Level.ERROR}),
        ({"python": (3, 13)}, {}),
        ({"python": (3, 14)}, {"python": Level.ERROR}),
        ({"ray_version": None, "ray_fits": False}, {"ray": Level.ERROR}),
        ({"ray_version": "2.9.3", "ray_fits": False}, {"ray": Level.ERROR}),
        ({"niceness": 15}, {"niceness": Level.WARNING}),
        ({"niceness": 15, "may_raise_priority": True}, {}),
        ({"java": None, "java_error": "install it"}, {"java": Level.WARNING}),
        ({"open_files_hard": 511}, {"open files": Level.ERROR}),
        ({"open_files_hard": 1024}, {"open files": Level.WARNING}),
        ({"ports_in_use": [9093]}, {"port 9093": Level.ERROR}),
        ({"memory_available": GIB - 1}, {"memory": Level.WARNING}),
        ({"overcommit": 2}, {"overcommit": Level.WARNING}),
        ({"shm_free": 64 << 20}, {"/dev/shm": Level.WARNING}),
        ({"clock_synchronized": False}, {"clock": Level.WARNING}),
        ({"clock_error_ms": 501.0}, {"clock": Level.WARNING}),
        ({"clock_synchronized": None, "memory_available": None, "shm_free": None, "overcommit": None}, {}),
    ],
)
def test_a_machine_with_one_fault(change: dict[str, Any], complaint: dict[str, Level]) -> None:
    assert complaints(replace(HEALTHY, **change)) == complaint


@pytest.mark.parametrize(
    ("change", "level"),
    [
        ({"error": "cannot be used: Permission denied"}, Level.ERROR),
        ({"is_network": True, "file_system": "nfs4"}, Level.WARNING),
        ({"is_memory": True, "file_system": "tmpfs"}, Level.WARNING),
        ({"free_bytes": 14 * GIB}, Level.WARNING),
        ({"free_bytes": 4 * GIB}, Level.ERROR),
        ({"free_bytes": 0, "total_bytes": 0}, Level.ERROR),
        ({"fsync_ms": 21.0}, Level.WARNING),
        ({"io_errors": 1}, Level.ERROR),
    ],
)
def test_a_disk_with_one_fault(change: dict[str, Any], level: Level) -> None:
    assert complaints(replace(HEALTHY, disks=[replace(DISK, **change)])) == {"disk /data": level}


class TestCommand:
    def test_a_port_in_use_is_an_error(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = taken.getsockname()[1]
            assert main(["doctor", "--data-dir", str(tmp_path / "new" / "shop"), "--port", str(port), "--json"]) == 1
        found = {each["subject"]: each for each in json.loads(capsys.readouterr().out)}
        assert found[f"port {port}"]["level"] == "error"
        assert (found["python"]["level"], found["ray"]["level"]) == ("ok", "ok")
        assert f"disk {tmp_path}/new/shop" in found
        assert not list(tmp_path.iterdir())

    def test_a_directory_that_cannot_be_written(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["doctor", "--data-dir", "/proc/none", "--port", "0"]) == 1
        lines = capsys.readouterr().out.splitlines()
        assert lines[0].split() == ["LEVEL", "SUBJECT", "FOUND", "WHAT", "TO", "DO"]
        (line,) = [line for line in lines if "/proc/none" in line]
        assert line.startswith("error ")
        assert line.endswith("name a directory that can be written with --data-dir")
