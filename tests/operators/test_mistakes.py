"""Directories that an operator has mixed up, copied or damaged are refused with a clear reason, and nothing is lost.

A stock client writes all the time to the cluster whose directories they are.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from shutil import which

import pytest

from raylog.actors.data_dir import make_data_dir
from tests.operators.conftest import Site
from tests.operators.load import Load, load_on
from tests.operators.long_form import long_only
from tests.support.node_cluster import NAME
from tests.support.node_process import NodeProcess
from tests.support.ports import free_ports

pytestmark = pytest.mark.slow

WITHOUT_ROOTS_RIGHTS = ("setpriv", "--bounding-set", "-dac_override,-dac_read_search")
"""Permissions of files hold for such a process even if its user is root."""


@pytest.fixture(scope="module")
def topic(site: Site) -> str:
    return site.new_topic()


@pytest.fixture(scope="module")
def load(site: Site, topic: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Load]:
    path = tmp_path_factory.mktemp("load") / "ledger"
    with load_on(site.cluster.bootstrap_servers, topic, path) as load:
        yield load


@pytest.fixture
def broker(site: Site, topic: str, load: Load) -> Iterator[NodeProcess]:
    """A broker; at the end the load goes on and all are in sync."""
    yield site.cluster.followers(topic)[0]
    site.cluster.restart_ended()
    site.cluster.wait_until_healthy(topic)
    load.until_more(50)


def second(node: NodeProcess, path: Path, *, data_dir: Path | None = None) -> NodeProcess:
    """Another process with the id of the node, on its data directory or another one, with ports of its own."""
    client_port, internal_port = free_ports(2)
    spec = replace(
        node.spec,
        data_dir=str(data_dir or node.spec.data_dir),
        port=0 if node.spec.is_controller else client_port,
        internal_port=internal_port,
    )
    return NodeProcess(spec, path / "second.log")


@contextmanager
def changed(path: Path, harm: Callable[[Path], object]) -> Iterator[None]:
    """A file or directory is harmed, and put back at the end."""
    kept = path.with_name(f"{path.name}.kept")
    if path.is_dir():
        shutil.copytree(path, kept)
    else:
        shutil.copy2(path, kept)
    try:
        harm(path)
        yield
    finally:
        if path.is_dir():
            shutil.rmtree(path)
        kept.rename(path)


def copy_while_used(directory: str, copy: Path) -> None:
    """The broker may remove files of deleted topics meanwhile."""
    try:
        shutil.copytree(directory, copy)
    except shutil.Error as error:
        if not all("No such file or directory" in reason for _, _, reason in error.args[0]):
            raise


def emptied(path: Path) -> None:
    os.truncate(path, 0)


def test_two_brokers_on_one_directory(broker: NodeProcess, tmp_path: Path) -> None:
    assert "is locked by another broker" in second(broker, tmp_path).refusal()


@long_only
def test_two_controllers_on_one_directory(site: Site, broker: NodeProcess, tmp_path: Path) -> None:
    assert "is locked by another broker" in second(site.cluster.controllers[0], tmp_path).refusal()


@long_only
def test_the_directory_of_another_cluster(broker: NodeProcess, tmp_path: Path) -> None:
    other = tmp_path / "other"
    make_data_dir(str(other), name=NAME, brokers=3, controllers=3)
    shutil.copytree(broker.spec.path, other / broker.spec.name)
    refusal = second(broker, tmp_path, data_dir=other).refusal()
    assert "meta.properties: cluster.id=" in refusal
    assert "but this broker belongs to cluster" in refusal


@long_only
def test_the_directory_of_another_broker(broker: NodeProcess, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(broker.spec.data_dir, copy)
    other = (broker.spec.node_id + 1) % 3
    shutil.rmtree(copy / broker.spec.name)
    (copy / f"broker-{other}").rename(copy / broker.spec.name)
    refusal = second(broker, tmp_path, data_dir=copy).refusal()
    assert f"meta.properties: node.id={other}, but this is broker {broker.spec.node_id}" in refusal


def test_a_copied_directory_while_the_original_is_used(
    site: Site, topic: str, load: Load, broker: NodeProcess, tmp_path: Path
) -> None:
    """The controller keeps the broker that is registered."""
    copy = tmp_path / "copy"
    copy_while_used(broker.spec.data_dir, copy)
    process = second(broker, tmp_path, data_dir=copy)
    process.start()
    try:
        process.wait_until_logged("registration refused")
        load.until_more()
        assert site.cluster.problem(topic) == ""
    finally:
        process.kill()


@pytest.mark.skipif(which("setpriv") is None, reason="setpriv is not installed")
def test_a_directory_without_permissions(broker: NodeProcess) -> None:
    broker.stop()
    mode = broker.spec.path.stat().st_mode
    broker.spec.path.chmod(0)
    broker.prefix = WITHOUT_ROOTS_RIGHTS
    try:
        assert f"cannot open log directory {broker.spec.path}: [Errno 13] Permission denied" in broker.refusal()
    finally:
        broker.spec.path.chmod(mode)
        broker.prefix = ()


@long_only
@pytest.mark.parametrize("name", ["meta.properties", "{topic}-0/partition.metadata"])
def test_a_zero_length_file_of_identity(broker: NodeProcess, topic: str, name: str) -> None:
    path = broker.spec.path / name.format(topic=topic)
    broker.stop()
    with changed(path, emptied):
        assert f"cannot read {path}" in broker.refusal()


@long_only
def test_a_zero_length_quorum_state(site: Site, broker: NodeProcess) -> None:
    """It says for whom the controller has voted: without it, it could vote twice."""
    controller = site.cluster.controllers[2]
    controller.stop()
    path = controller.spec.path / "__cluster_metadata-0" / "quorum-state"
    with changed(path, emptied):
        assert "quorum-state" in controller.refusal()


@long_only
def test_a_removed_meta_properties(broker: NodeProcess) -> None:
    """The directory counts as a new one: the broker is in sync when it has caught up."""
    broker.stop()
    (broker.spec.path / "meta.properties").unlink()
    broker.start()
    broker.wait_until_started()


@long_only
def test_an_older_copy_of_the_directory(site: Site, topic: str, load: Load, broker: NodeProcess) -> None:
    """A restored backup: cleanly stopped, but records that were acknowledged since are missing."""
    broker.stop()
    kept = broker.spec.path.with_name("kept")
    shutil.copytree(broker.spec.path, kept)
    broker.start()
    broker.wait_until_started()
    site.cluster.wait_until_healthy(topic)
    load.until_more()
    broker.kill()
    shutil.rmtree(broker.spec.path)
    kept.rename(broker.spec.path)
    broker.start()
    broker.wait_until_started()
    site.cluster.wait_until_healthy(topic)
    others = site.cluster.followers(topic)
    for other in (site.cluster.leader(topic), *others):
        if other is not broker:
            other.kill()
            load.until_more(50)
            other.start()
            other.wait_until_started()
            site.cluster.wait_until_healthy(topic)
