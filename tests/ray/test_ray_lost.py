"""All processes of Ray are killed; a new Ray restores the cluster from the same directories."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import raylog
from tests.ray.clients import cluster_id_of, read, topics_of
from tests.support.hang import HANG_SECONDS

pytestmark = [pytest.mark.ray, pytest.mark.usefixtures("ray_runtime")]

PROGRAM = """
import sys, raylog
from tests.compat.topics import create_topic
from tests.ray.clients import cluster_id_of, write
cluster = raylog.start("outlives", data_dir=sys.argv[1], brokers=2)
create_topic(cluster.bootstrap_servers, "kept", partitions=2)
write(cluster.bootstrap_servers, "kept", [b"a", b"b"])
print(cluster_id_of(cluster.bootstrap_servers), flush=True)
sys.stdin.read()
"""


def descendants(pid: int) -> list[int]:
    """The process and all that it has started, directly or not."""
    parents: dict[int, int] = {}
    for status in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = status.read_text().rpartition(")")[2].split()
        except (FileNotFoundError, ProcessLookupError):
            continue
        parents[int(status.parent.name)] = int(fields[1])
    found = [pid]
    for parent in found:
        found += [child for child, its_parent in parents.items() if its_parent == parent]
    return found


def test_the_cluster_is_restored_from_its_directories(tmp_path: Path) -> None:
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
        cluster_id = process.stdout.readline().strip()
        killed = descendants(process.pid)
        assert len(killed) > 5  # the program, Ray's own processes, three actors
        for pid in killed:
            os.kill(pid, signal.SIGKILL)
    deadline = time.monotonic() + HANG_SECONDS
    while any(Path(f"/proc/{pid}").exists() for pid in killed):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    with raylog.start("outlives", data_dir=data_dir) as cluster:
        assert len(cluster.status()) == 2
        assert cluster_id_of(cluster.bootstrap_servers) == cluster_id
        assert topics_of(cluster.bootstrap_servers) >= {"kept"}
        assert read(cluster.bootstrap_servers, "kept") == [(0, b"a"), (1, b"b")]
