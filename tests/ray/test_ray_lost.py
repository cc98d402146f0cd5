"""One process of Ray is killed, or all: `raylog start` reports it and ends, and a new Ray restores the cluster."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from shutil import rmtree
from tempfile import mkdtemp

import pytest

import raylog
from raylog.actors.ray_watch import descendants
from tests.compat.topics import create_topic
from tests.ray.clients import cluster_id_of, read, write
from tests.ray.test_three_brokers import (
    TOPIC,
    PartitionLoad,
    until_in_the_middle_of_a_burst,
    until_more,
)
from tests.support.environment import without_ray
from tests.support.forms import by_form
from tests.support.hang import HANG_SECONDS
from tests.support.ports import free_port

pytestmark = [pytest.mark.ray, pytest.mark.usefixtures("ray_runtime")]

KILLED = [("gcs_server", "its GCS"), ("raylet", "the raylet of this host")][: by_form(1, long=2)]
"""Executables of Ray, and what a message calls them."""
PARTITIONS = 2
RAYLOG = str(Path(sys.executable).with_name("raylog"))
PROGRAM = """
import sys, raylog
cluster = raylog.start("outlives", data_dir=sys.argv[1], brokers=2, group_coordinators=0, transaction_coordinators=0)
print(cluster.bootstrap_servers, flush=True)
sys.stdin.read()
"""


def with_descendants(pid: int) -> list[int]:
    """The process and all that it has started, directly or not."""
    return [pid, *(process.pid for process in descendants(pid))]


def wait_until_gone(pids: list[int]) -> None:
    deadline = time.monotonic() + HANG_SECONDS
    while any(Path(f"/proc/{pid}").exists() for pid in pids):
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_the_cluster_is_restored_from_its_directories(tmp_path: Path) -> None:
    """Every process is killed while records are sent; what was acknowledged is there, on the brokers where it was."""
    data_dir = str(tmp_path / "data")
    environment = {name: value for name, value in os.environ.items() if name != "RAY_ADDRESS"}
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM, data_dir],
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        servers = process.stdout.readline().strip()
        create_topic(servers, TOPIC, partitions=PARTITIONS)
        cluster_id = cluster_id_of(servers)
        loads = [PartitionLoad(servers, partition) for partition in range(PARTITIONS)]
        until_in_the_middle_of_a_burst(loads)
        killed = with_descendants(process.pid)
        assert len(killed) > 5  # the program, Ray's own processes, three actors
        for pid in killed:
            os.kill(pid, signal.SIGKILL)
    wait_until_gone(killed)
    with raylog.start("outlives", data_dir=data_dir) as cluster:
        assert len(cluster.status()) == 2
        assert cluster.bootstrap_servers == servers
        assert cluster_id_of(servers) == cluster_id
        until_more(loads, loads)
        for load in loads:
            load.finish()
            assert read(servers, TOPIC, load.partition) == load.ledger
    with pytest.raises(raylog.ConfigError, match="contains 2 brokers"):
        raylog.start("outlives", data_dir=data_dir, brokers=1)


@pytest.mark.parametrize(("killed", "called"), KILLED)
def test_the_end_of_a_process_of_ray_ends_the_cluster_with_its_data(tmp_path: Path, killed: str, called: str) -> None:
    name, data_dir = f"lost-{killed.partition('_')[0]}", str(tmp_path / "data")
    environment = {**without_ray(), "RAY_TMPDIR": mkdtemp(prefix="ray-")}  # short, for the sockets in it
    command = [RAYLOG, "start", "--name", name, "--data-dir", data_dir, "--port", "0"]
    with subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            servers = process.stdout.readline().split()[-1]
            create_topic(servers, "kept", partitions=1)
            write(servers, "kept", [b"a", b"b"])
            started = with_descendants(process.pid)
            (victim,) = [pid for pid in started if Path(f"/proc/{pid}/exe").resolve().name == killed]
            os.kill(victim, signal.SIGKILL)
            _, complaints = process.communicate(timeout=HANG_SECONDS)
        finally:
            process.kill()
            rmtree(environment["RAY_TMPDIR"], ignore_errors=True)
    assert process.returncode == 1
    assert f"Ray has failed: {called}" in complaints
    assert f"--data-dir {data_dir}" in complaints
    wait_until_gone(started)
    with raylog.start(name, data_dir=data_dir) as cluster:
        assert read(cluster.bootstrap_servers, "kept") == [(0, b"a"), (1, b"b")]


def test_status_reports_a_ray_whose_gcs_has_ended(tmp_path: Path) -> None:
    address = f"127.0.0.1:{free_port()}"
    environment = {**without_ray(), "HOME": str(tmp_path)}
    asked = subprocess.run(
        [RAYLOG, "status", "--address", address], env=environment, capture_output=True, text=True, check=False
    )
    assert asked.returncode == 1
    assert "nothing listens there, so its GCS has ended" in asked.stderr
