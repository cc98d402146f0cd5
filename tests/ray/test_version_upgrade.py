"""A running cluster of an earlier version is upgraded node by node, under load: no record is lost, no client fails."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from raylog.metadata.levels import LATEST_LEVEL, METADATA_FEATURE
from tests.ray.clients import read
from tests.ray.test_three_brokers import TOPIC, PartitionLoad, until_more
from tests.support.environment import without_ray
from tests.support.forms import by_form
from tests.support.hang import HANG_SECONDS
from tests.support.ports import free_ports

pytestmark = [
    pytest.mark.ray,
    pytest.mark.compat,
    pytest.mark.skipif(not by_form(0, long=1), reason="a cluster of two versions, with --long"),
]

ROOT = Path(__file__).resolve().parents[2]
EARLIER = "73a05cf"
"""The commit before coordinators were nodes: its newest level of raylog.metadata is 5."""
PARTITIONS = 3
RAYLOG = "import sys; from raylog.cli.main import main; sys.exit(main())"


class Installed:
    """Both versions, of which one is installed: where new processes find `raylog`."""

    def __init__(self, folder: Path, ray_folder: str) -> None:
        self._folder = folder
        self._environment = {
            **without_ray(),
            "PYTHONPATH": str(folder / "installed"),
            "RAY_TMPDIR": ray_folder,
            "PATH": f"{Path(sys.executable).parent}:{without_ray()['PATH']}",
        }
        archive = subprocess.run(["git", "archive", EARLIER], cwd=ROOT, stdout=subprocess.PIPE, check=True).stdout
        (folder / "earlier").mkdir()
        subprocess.run(["tar", "x", "-C", folder / "earlier"], input=archive, check=True)
        self._install(folder / "earlier")

    def install_this_one(self) -> None:
        self._install(ROOT)

    def _install(self, version: Path) -> None:
        new = self._folder / "new"
        new.symlink_to(version)
        new.replace(self._folder / "installed")

    def begin(self, *arguments: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-c", RAYLOG, *arguments],
            cwd=self._folder,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def run(self, *arguments: str, meanwhile: Callable[[], None] = lambda: time.sleep(0.1)) -> str:
        with self.begin(*arguments) as process:
            while process.poll() is None:
                meanwhile()
            assert process.stdout is not None
            printed = process.stdout.read()
        assert process.returncode == 0, printed
        return printed


@pytest.fixture
def installed(tmp_path: Path) -> Iterator[Installed]:
    with TemporaryDirectory(prefix="ray-", ignore_cleanup_errors=True) as folder:  # short, for the sockets in it
        yield Installed(tmp_path, folder)


def test_a_cluster_is_upgraded_under_load(installed: Installed, tmp_path: Path) -> None:
    ports = free_ports(3)
    servers = ",".join(f"127.0.0.1:{port}" for port in ports)
    size = ("--brokers", "3", "--controllers", "3", "--port", str(ports[0]))
    safe = ("--config", "default.replication.factor=3", "--config", "min.insync.replicas=2")
    cluster = installed.begin("start", "--name", "up", "--data-dir", str(tmp_path / "data"), *size, *safe)
    try:
        assert cluster.stdout is not None
        assert "is ready" in cluster.stdout.readline()
        installed.run("topics", "create", TOPIC, "--partitions", str(PARTITIONS), "-b", servers)
        loads = [PartitionLoad(servers, partition) for partition in range(PARTITIONS)]
        until_more(loads, loads, 500)

        def work() -> None:
            for load in loads:
                load.work()

        installed.install_this_one()
        installed.run("status", "--name", "up", meanwhile=work)
        printed = installed.run("brokers", "restart", "--all", "--name", "up", meanwhile=work)
        assert printed.count("is in sync") == 6
        assert f"{METADATA_FEATURE} is at level {LATEST_LEVEL}" in installed.run(
            "features", "upgrade", "-b", servers, meanwhile=work
        )
        until_more(loads, loads, 500)
        for load in loads:
            load.finish()
            assert read(servers, TOPIC, load.partition) == load.ledger
    finally:
        cluster.send_signal(signal.SIGINT)
        cluster.communicate(timeout=HANG_SECONDS)
