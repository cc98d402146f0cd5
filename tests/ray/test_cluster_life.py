"""A cluster is started, found, stopped and restarted by `raylog.start` and `connect`; errors leave nothing behind."""

from __future__ import annotations

import glob
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import ray

import raylog
from tests.compat.topics import create_topic
from tests.ray.clients import answers, cluster_id_of, read, topics_of, write
from tests.support.hang import HANG_SECONDS
from tests.support.ports import free_port

pytestmark = [pytest.mark.ray, pytest.mark.usefixtures("ray_runtime")]


@pytest.fixture(autouse=True)
def temporary_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the test alone: elsewhere on the machine there may be another cluster of the same name."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))


@pytest.fixture(scope="module")
def standing(ray_runtime: None) -> Iterator[raylog.Cluster]:
    """For tests that leave it as it was."""
    with raylog.start("standing") as cluster:
        yield cluster


def temporary_dirs(name: str) -> list[str]:
    return glob.glob(f"{tempfile.gettempdir()}/raylog-{name}-*")


def run_program(program: str, **environment: str) -> dict[str, Any]:
    """The JSON output of another Python process, which gets the address of Ray as an argument."""
    inherited = {name: value for name, value in os.environ.items() if name != "RAY_ADDRESS"}
    ran = subprocess.run(
        [sys.executable, "-c", program],
        env={**inherited, "TMPDIR": tempfile.gettempdir(), **environment},
        capture_output=True,
        text=True,
        timeout=HANG_SECONDS,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    printed: dict[str, Any] = json.loads(ran.stdout.splitlines()[-1])
    return printed


class TestStartAndStop:
    def test_the_with_block_ends_the_cluster_and_its_data(self) -> None:
        with raylog.start("brief") as cluster:
            assert len(temporary_dirs("brief")) == 1
            assert cluster_id_of(cluster.bootstrap_servers) == cluster.status()[0].cluster_id
            write(cluster.bootstrap_servers, "t", [b"a", b"b"])
            assert read(cluster.bootstrap_servers, "t") == [(0, b"a"), (1, b"b")]
        assert not answers(cluster.bootstrap_servers)
        assert temporary_dirs("brief") == []
        with pytest.raises(raylog.ConfigError, match="no cluster with this name"):
            raylog.connect("brief")
        cluster.stop()  # once more, to no effect

    def test_an_exception_in_the_with_block_ends_the_cluster_too(self) -> None:
        class Mishap(Exception):
            pass

        with pytest.raises(Mishap), raylog.start("mishap") as cluster:
            raise Mishap
        assert not answers(cluster.bootstrap_servers)
        assert temporary_dirs("mishap") == []

    def test_data_dirs_are_kept_and_used_again(self, tmp_path: Path) -> None:
        """Each of the three has one of the partitions. The second start has a port, and another configuration."""
        data_dirs = [str(tmp_path / f"disk-{number}") for number in range(3)]
        port = free_port()
        cluster_ids = set()
        with raylog.start(
            "kept", data_dir=data_dirs, config={"num.partitions": 4, "auto.create.topics.enable": False}
        ) as first:
            cluster_ids.add(cluster_id_of(first.bootstrap_servers))
            create_topic(first.bootstrap_servers, "default", partitions=-1)
            assert read(first.bootstrap_servers, "default", partition=3) == []
            create_topic(first.bootstrap_servers, "t", partitions=3)
            for partition in range(3):
                write(first.bootstrap_servers, "t", [b"first"], partition=partition)
        with raylog.start("kept", data_dir=data_dirs, port=port) as second:
            assert second.bootstrap_servers == f"127.0.0.1:{port}"
            cluster_ids.add(cluster_id_of(second.bootstrap_servers))
            for partition in range(3):
                write(second.bootstrap_servers, "t", [b"second"], partition=partition)
                found = read(second.bootstrap_servers, "t", partition=partition)
                assert found == [(0, b"first"), (1, b"second")]
            write(second.bootstrap_servers, "made-by-its-first-record", [b"v"])
            assert read(second.bootstrap_servers, "made-by-its-first-record") == [(0, b"v")]
        assert len(cluster_ids) == 1
        assert [len(glob.glob(f"{path}/broker-0/t-*")) for path in data_dirs] == [1, 1, 1]
        assert temporary_dirs("kept") == []


def test_another_process_connects_to_a_cluster(standing: raylog.Cluster) -> None:
    write(standing.bootstrap_servers, "across", [b"hello"])
    found = run_program(
        "import json, os, raylog\n"
        "with raylog.connect('standing', address=os.environ['ADDRESS']) as cluster:\n"
        "    print(json.dumps({'servers': cluster.bootstrap_servers, 'pid': cluster.status()[0].pid}))\n",
        ADDRESS=standing.ray_address,
    )
    assert found == {"servers": standing.bootstrap_servers, "pid": standing.status()[0].pid}
    assert read(standing.bootstrap_servers, "across") == [(0, b"hello")]


def test_two_clusters_are_independent() -> None:
    """Each is found by its name, and ended so too."""
    with raylog.start("left") as left, raylog.start("right") as right:
        assert left.bootstrap_servers != right.bootstrap_servers
        assert cluster_id_of(left.bootstrap_servers) != cluster_id_of(right.bootstrap_servers)
        write(left.bootstrap_servers, "t", [b"left"])
        write(right.bootstrap_servers, "t", [b"right"])
        write(right.bootstrap_servers, "only-right", [b"right"])
        assert read(left.bootstrap_servers, "t") == [(0, b"left")]
        assert read(right.bootstrap_servers, "t") == [(0, b"right")]
        assert "only-right" not in topics_of(left.bootstrap_servers)
        with raylog.connect("left") as again:
            assert again.bootstrap_servers == left.bootstrap_servers
            assert again.status() == left.status()
        assert answers(left.bootstrap_servers)
        raylog.connect("left").stop()
        assert not answers(left.bootstrap_servers)
        assert read(right.bootstrap_servers, "t") == [(0, b"right")]


@pytest.mark.parametrize("interrupted", ["start", "stop"])
def test_what_a_program_that_was_killed_has_left_is_replaced(tmp_path: Path, interrupted: str) -> None:
    """It was killed before it had made a broker, or when its brokers were stopped, but not all of its actors killed."""
    data_dir = str(tmp_path / "data")
    cluster = raylog.start("remains", data_dir=data_dir, brokers=2, group_coordinators=0, transaction_coordinators=0)
    write(cluster.bootstrap_servers, "t", [b"kept"])
    for broker_id in cluster.broker_ids:
        ray.get(cluster.broker(broker_id).stop.remote())
        if interrupted == "start":
            ray.kill(cluster.broker(broker_id), no_restart=True)
    with raylog.start("remains", data_dir=data_dir) as again:
        assert again.bootstrap_servers == cluster.bootstrap_servers
        assert read(again.bootstrap_servers, "t") == [(0, b"kept")]


class TestErrors:
    def test_a_name_in_use(self, standing: raylog.Cluster) -> None:
        with pytest.raises(raylog.ConfigError, match="is already running"):
            raylog.start("standing")
        assert temporary_dirs("standing") == []
        write(standing.bootstrap_servers, "t", [b"unharmed"])

    def test_a_start_that_is_refused_changes_no_file(self, standing: raylog.Cluster) -> None:
        assert standing.data_dir is not None
        files = sorted(Path(standing.data_dir).glob("*.json"))
        before = [path.read_bytes() for path in files]
        with pytest.raises(raylog.ConfigError, match="is already running"):
            raylog.start("standing", data_dir=standing.data_dir, brokers=3)
        assert [path.read_bytes() for path in files] == before
        assert sorted(Path(standing.data_dir).glob("*.json")) == files

    @pytest.mark.parametrize(
        ("config", "complaint"),
        [
            ({"no.such.key": 1}, "no.such.key"),
            ({"num.partitions": 0}, "num.partitions"),
            ({"node.id": 1000}, "must be below 1000"),
            ({"listeners": "SSL://127.0.0.1:0"}, "ssl.keystore.location"),  # seen by the broker only
            ({"listeners": "PLAINTEXT://192.0.2.1:9092"}, "cannot listen on"),  # seen by the broker only
        ],
    )
    def test_an_invalid_configuration(self, config: dict[str, Any], complaint: str) -> None:
        with pytest.raises(raylog.ConfigError, match=complaint):
            raylog.start("wrong", config=config)
        assert temporary_dirs("wrong") == []
        with pytest.raises(raylog.ConfigError, match="no cluster with this name"):
            raylog.connect("wrong")

    def test_a_port_in_use(self, standing: raylog.Cluster) -> None:
        port = int(standing.bootstrap_servers.split(":")[1])
        with pytest.raises(raylog.ConfigError, match="cannot listen on"):
            raylog.start("late", port=port)
        assert temporary_dirs("late") == []
        write(standing.bootstrap_servers, "t", [b"unharmed"])

    def test_a_data_dir_of_another_cluster(self, tmp_path: Path) -> None:
        data_dir = str(tmp_path / "data")
        with raylog.start("owner", data_dir=data_dir) as cluster:
            with pytest.raises(raylog.ConfigError, match="belongs to cluster 'owner'"):
                raylog.start("thief", data_dir=data_dir)
            write(cluster.bootstrap_servers, "t", [b"unharmed"])
        with pytest.raises(raylog.ConfigError, match="belongs to cluster 'owner'"):
            raylog.start("heir", data_dir=data_dir)

    def test_a_data_dir_in_use_by_a_cluster_with_the_same_name_in_another_ray(self, tmp_path: Path) -> None:
        """The other Ray cannot know the name; the lock on the directory stands."""
        data_dir = str(tmp_path / "data")
        with raylog.start("namesake", data_dir=data_dir) as cluster:
            write(cluster.bootstrap_servers, "t", [b"before"])
            refused = run_program(
                "import json, os, raylog, sys\n"
                "try:\n"
                "    raylog.start('namesake', data_dir=os.environ['DATA_DIR'])\n"
                "except (raylog.ConfigError, raylog.KafkaError) as error:\n"
                "    import ray\n"
                "    print(json.dumps({'error': str(error), 'ray': ray.is_initialized()}))\n",
                DATA_DIR=data_dir,
            )
            assert "lock" in refused["error"]
            assert not refused["ray"]
            write(cluster.bootstrap_servers, "t", [b"after"])
            assert read(cluster.bootstrap_servers, "t") == [(0, b"before"), (1, b"after")]


def test_a_ray_started_by_the_cluster_ends_with_it() -> None:
    """In a process that knows no Ray, one is started for the cluster and shut down with it."""
    seen = run_program(
        "import json, raylog\n"
        "with raylog.start('alone') as cluster:\n"
        "    import ray\n"
        "    from tests.ray.clients import answers, read, write\n"
        "    write(cluster.bootstrap_servers, 't', [b'v'])\n"
        "    found = [offset for offset, _ in read(cluster.bootstrap_servers, 't')]\n"
        "    address = cluster.ray_address\n"
        "left = {'ray': ray.is_initialized(), 'broker': answers(cluster.bootstrap_servers), 'gcs': answers(address)}\n"
        "print(json.dumps({'found': found, 'left': left}))\n"
    )
    assert seen == {"found": [0], "left": {"ray": False, "broker": False, "gcs": False}}
    assert temporary_dirs("alone") == []
