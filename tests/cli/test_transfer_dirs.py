"""`raylog import-dir` and `export-dir` find the log directories of a cluster and copy whole topics."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from shutil import copytree, rmtree

import pytest

from raylog.actors.data_dir import make_data_dir
from raylog.cli.main import main
from raylog.core.ids import TopicPartition
from raylog.protocol.records.builder import NewRecord, build_batch
from tests.support.cluster_thread import RunningCluster, cluster_thread
from tests.support.wire import produce

PARTITIONS = 3
RECORDS = 4


def make(path: Path, fill: Callable[[RunningCluster], None], *, topics: tuple[str, ...] = ("carried",)) -> Path:
    """The data directory of a cluster of two brokers that was stopped after it had been filled."""
    make_data_dir(str(path), name="carried", brokers=2)
    with cluster_thread({}, path, brokers=2) as cluster:
        for topic in topics:
            create = ["topics", "create", topic, "--partitions", str(PARTITIONS)]
            assert main([*create, "--bootstrap-server", cluster.bootstrap_servers]) == 0
        fill(cluster)
    return path


def filled(cluster: RunningCluster) -> None:
    for partition in range(PARTITIONS):
        values = [b"%d-%d" % (partition, number) for number in range(RECORDS)]
        batches = [build_batch([NewRecord(None, value, 1)]) for value in values]
        produce(cluster, TopicPartition("carried", partition), batches)


def empty(cluster: RunningCluster) -> None:
    pass


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A filled data directory and an empty one."""
    root = tmp_path_factory.mktemp("dirs")
    return make(root / "full", filled), make(root / "empty", empty)


@pytest.fixture
def dirs(made: tuple[Path, Path], tmp_path: Path) -> tuple[Path, Path]:
    """Theirs, which is full, and ours, which is empty. For the commands a raylog is as good as a Kafka."""
    full, ours = made
    return Path(copytree(full, tmp_path / "full")), Path(copytree(ours, tmp_path / "ours"))


def log_dirs(path: Path) -> list[str]:
    return [str(path / "broker-0"), str(path / "broker-1")]


def consumed(path: Path, capsys: pytest.CaptureFixture[str]) -> list[str]:
    """What a cluster of these files serves. A copy of another cluster's files has its own id in meta.properties."""
    capsys.readouterr()
    with cluster_thread({}, path, brokers=2) as cluster:
        options = ["--offset", "earliest", "--exit-at-end", "--bootstrap-server", cluster.bootstrap_servers]
        assert main(["consume", "carried", *options]) == 0
    return sorted(capsys.readouterr().out.split())


def held(path: Path) -> dict[str, int]:
    """Bytes of each partition of the topic, wherever it is."""
    return {
        folder.name: sum(file.stat().st_size for file in folder.glob("*.log"))
        for folder in sorted(path.glob("broker-*/carried-*"))
    }


def test_import_finds_the_broker_that_has_each_partition(
    dirs: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    full, ours = dirs
    assert main(["import-dir", "--data-dir", str(ours), *log_dirs(full)]) == 0
    title, *lines = capsys.readouterr().out.splitlines()
    assert title.split() == ["PARTITION", "LOG-START-OFFSET", "LOG-END-OFFSET", "BYTES", "INTO"]
    assert [line.split()[:3] for line in lines] == [[f"carried-{n}", "0", str(RECORDS)] for n in range(PARTITIONS)]
    assert {line.split()[-1] for line in lines} == set(log_dirs(ours)), "both brokers got something"
    assert held(ours) == held(full)


def test_export_collects_from_all_brokers(dirs: tuple[Path, Path], capsys: pytest.CaptureFixture[str]) -> None:
    full, ours = dirs
    assert main(["export-dir", "--data-dir", str(full), *log_dirs(ours), "--topic", "carried"]) == 0
    assert held(ours) == held(full)


def test_imported_topics_are_served(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    full, ours = make(tmp_path / "full", filled), make(tmp_path / "ours", empty)
    assert main(["import-dir", "--data-dir", str(ours), *log_dirs(full)]) == 0
    assert consumed(ours, capsys) == sorted(f"{p}-{n}" for p in range(PARTITIONS) for n in range(RECORDS))


def test_a_single_log_directory_is_accepted(dirs: tuple[Path, Path], tmp_path: Path) -> None:
    full, _ = dirs
    one = copytree(full / "broker-0", tmp_path / "one")
    for log in one.glob("carried-*/*.log"):
        log.write_bytes(b"")
    assert main(["import-dir", "--data-dir", str(one), str(full / "broker-0")]) == 0
    here = {folder.name for folder in one.glob("carried-*")}
    assert here
    assert {name: held(full)[name] for name in here} == {
        folder.name: sum(file.stat().st_size for file in folder.glob("*.log")) for folder in one.glob("carried-*")
    }


def test_errors_are_one_line_with_the_path_and_the_rule(
    dirs: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    full, ours = dirs

    def refusal(*arguments: str) -> str:
        assert main([*arguments]) == 1
        out, err = capsys.readouterr()
        assert out == ""
        assert err.count("\n") == 1
        return err

    kafka, data_dir = log_dirs(full), str(ours)
    assert "topic nothing is not in" in refusal("import-dir", "--data-dir", data_dir, *kafka, "--topic", "nothing")
    said = refusal("import-dir", "--data-dir", str(ours / "controller-0"), *kafka)
    assert f"carried-0 of {full}" in said
    assert "create topic carried with 3 partition(s)" in said
    assert "/nowhere is not a log directory" in refusal("import-dir", "--data-dir", data_dir, "/nowhere")
    assert main(["import-dir", "--data-dir", data_dir, *kafka]) == 0
    capsys.readouterr()
    said = refusal("import-dir", "--data-dir", data_dir, *kafka)
    assert f"{ours}/broker-" in said
    assert "--force" in said
    assert main(["import-dir", "--data-dir", data_dir, *kafka, "--force"]) == 0
    capsys.readouterr()
    rmtree(ours / "broker-1")
    assert f"{ours}/broker-1 is missing" in refusal("import-dir", "--data-dir", data_dir, *kafka)
    (ours / "cluster.json").write_text("{}")
    assert "data_dir=" in refusal("import-dir", "--data-dir", data_dir, *kafka)
