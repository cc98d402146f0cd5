"""One Ray and one Spark session for all tests of a run that need them: a process has one of each, slow to start.

And which tests are left out of a run unless they are asked for.
"""

from __future__ import annotations

import gc
import logging
import os
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from shutil import rmtree
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, settings

from tests.support import forms
from tests.support.descriptors import descriptors, opened_since
from tests.support.environment import set_worker_niceness
from tests.support.forms import Form, by_form

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from xdist.scheduler import Scheduling

UNPACKED_BY_JAVA = ("ray/[0-9]*", "liblz4-java-*")
"""In /tmp: what Java unpacks for each Spark session, Ray's library (40 MB under a number) and lz4's, and forgets."""


LEFT_OPEN_MAX = 80
"""Descriptors that a test file, and a whole run, may leave open: Ray and Spark sessions keep some, and py4j one for
each streaming query that has called Python."""
LEFT_OUT_OF_QUICK = {"ray", "spark", "compat", "slow"}


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--console", action="store_true", help="run the tests of the web console in Chromium too")
    parser.addoption("--kafka", action="store_true", help="run the tests against a real Apache Kafka too")
    parser.addoption("--kerberos", action="store_true", help="run the tests against a real Kerberos KDC too")
    parser.addoption("--packaging", action="store_true", help="install distributions in empty environments too")
    parser.addoption("--prometheus", action="store_true", help="run the tests with a real Prometheus too")
    parser.addoption("--spark-kafka", action="store_true", help="run the tests with Spark's own Kafka source and sink")
    parser.addoption("--spark4", action="store_true", help="run the tests of Spark 4 too; script/test --spark4 does")
    parser.addoption("--quick", action="store_true", help="leave out Ray, Spark, stock clients and all that takes long")
    parser.addoption("--long", action="store_true", help="run many more rounds, kills and seeds: hours in all")


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--quick") and config.getoption("--long"):
        raise pytest.UsageError("--quick and --long exclude each other")
    set_worker_niceness()
    if config.getoption("--long"):
        forms.choose(Form.LONG)
    elif config.getoption("--quick"):
        forms.choose(Form.QUICK)
    # A busy machine is no mistake: nothing that Hypothesis calls has a time limit.
    examples = by_form(40, quick=20, long=1000)
    settings.register_profile(
        "raylog", max_examples=examples, deadline=None, suppress_health_check=[HealthCheck.too_slow]
    )
    settings.load_profile("raylog")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Tests against Kafka need Maven and a Java 17 that is no part of .venv, so they run with --kafka only; those
    against a KDC, with --kerberos only; with Prometheus, with --prometheus only; with Chromium, with --console
    only; those that install packages, with --packaging only; those with Spark's own Kafka source, with --spark-kafka;
    those that need Spark 4, with --spark4, in an environment of their own."""
    opt_in = ("console", "kafka", "kerberos", "packaging", "prometheus", "spark4", "spark-kafka")
    left_out = {name.replace("-", "_") for name in opt_in if not config.getoption(f"--{name}")}
    if config.getoption("--quick"):
        left_out |= LEFT_OUT_OF_QUICK
    deselected = [item for item in items if any(mark.name in left_out for mark in item.iter_markers())]
    if deselected:
        config.hook.pytest_deselected(items=deselected)
        items[:] = [item for item in items if item not in set(deselected)]
    if config.getoption("numprocesses", None) or hasattr(config, "workerinput"):
        from tests.support.spreading import rank

        items.sort(key=lambda item: rank(item.nodeid))


def pytest_collection_finish() -> None:
    """The tests and the modules stay until the end: the collector need not walk over them again and again."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Scheduling:
    from tests.support.spreading import SpreadByFile

    config.option.loadscopereorder = False  # the order of the collection is the one wanted
    return SpreadByFile(config, log)


@contextmanager
def descriptors_are_closed() -> Iterator[None]:
    before = descriptors()
    yield
    left = opened_since(before, at_most=LEFT_OPEN_MAX)
    assert len(left) <= LEFT_OPEN_MAX, f"{len(left)} descriptors were left open: {Counter(left).most_common(20)}"


@pytest.fixture(scope="module", autouse=True)
def each_file_closes_its_descriptors(runtime_dir: Path) -> Iterator[None]:
    """Many systems allow a process 1,024, and a run is thousands of tests."""
    with descriptors_are_closed():
        yield


@pytest.fixture(autouse=True)
def logging_is_as_before() -> Iterator[None]:
    """A command that runs in this process logs to the stderr of its test, which later tests do not have."""
    logger = logging.getLogger("raylog")
    handlers, level, propagate = list(logger.handlers), logger.level, logger.propagate
    yield
    logger.handlers[:], logger.propagate = handlers, propagate
    logger.setLevel(level)


@pytest.fixture(scope="session", autouse=True)
def runtime_dir() -> Iterator[Path]:
    """Where the brokers of the tests, and of their processes, have their local endpoints; its name is short, as a
    socket's is."""
    with (
        descriptors_are_closed(),
        TemporaryDirectory(prefix="run-", dir="/tmp") as folder,
        pytest.MonkeyPatch.context() as patch,
    ):
        patch.setenv("XDG_RUNTIME_DIR", folder)
        yield Path(folder)


@pytest.fixture
def say(capsys: pytest.CaptureFixture[str]) -> Callable[[str], None]:
    """Prints a line also without `-s`."""

    def say(line: str) -> None:
        with capsys.disabled():
            os.write(1, f"\n  {line}".encode())

    return say


@pytest.fixture(scope="session")
def ray_runtime(runtime_dir: Path) -> Iterator[None]:
    """This process is connected to a Ray whose processes know where Java and Python are.

    Ray keeps the logs of every session it ever had; those of the tests go with them. The folder's name is short, since
    that of a Unix socket in it may have 107 letters.
    """
    from raylog.actors.local_ray import join_or_start_ray
    from raylog.raydp_bridge.session import prepare_environment

    prepare_environment()
    with TemporaryDirectory(prefix="ray-", ignore_cleanup_errors=True) as folder, pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_TMPDIR", folder)
        started = join_or_start_ray(None)
        import ray

        if started:  # the log monitor would read the logs of hundreds of ended processes all the time
            ray._private.worker._global_node.kill_log_monitor(check_alive=False)  # type: ignore[attr-defined]
        yield
        if started:
            ray.shutdown()


@pytest.fixture(scope="session")
def spark(ray_runtime: None) -> Iterator[SparkSession]:
    from raylog.raydp_bridge.session import spark_session

    with files_unpacked_by_java_are_removed(), spark_session("raylog-tests") as session:
        yield session


@contextmanager
def files_unpacked_by_java_are_removed() -> Iterator[None]:
    before = unpacked_by_java()
    yield
    for path in unpacked_by_java() - before:
        if path.is_dir():
            rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)


def unpacked_by_java() -> set[Path]:
    return {path for pattern in UNPACKED_BY_JAVA for path in Path("/tmp").glob(pattern)}
