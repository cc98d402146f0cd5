"""One Ray and one Spark session for all tests of a run that need them: a process has one of each, slow to start.

And which tests are left out of a run unless they are asked for.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from shutil import rmtree
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

UNPACKED_BY_JAVA = Path("/tmp/ray")
"""Where Ray's Java unpacks its library for each Spark session, 40 MB under a number, and forgets it."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--kafka", action="store_true", help="run the tests against a real Apache Kafka too")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Without --kafka they are left out: they want Maven, and a Java 17 that is no part of .venv."""
    if config.getoption("--kafka"):
        return
    left_out = [item for item in items if item.get_closest_marker("kafka") is not None]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item.get_closest_marker("kafka") is None]


@pytest.fixture(scope="session", autouse=True)
def runtime_dir() -> Iterator[Path]:
    """Where the brokers of the tests, and of their processes, have their local doors; its name is short, as a
    socket's is."""
    with TemporaryDirectory(prefix="run-", dir="/tmp") as folder, pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_RUNTIME_DIR", folder)
        yield Path(folder)


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
        yield
        if started:
            import ray

            ray.shutdown()


@pytest.fixture(scope="session")
def spark(ray_runtime: None) -> Iterator[SparkSession]:
    from raylog.raydp_bridge.session import spark_session

    before = set(UNPACKED_BY_JAVA.glob("[0-9]*"))
    with spark_session("raylog-tests") as session:
        yield session
    for directory in set(UNPACKED_BY_JAVA.glob("[0-9]*")) - before:
        rmtree(directory, ignore_errors=True)
