"""One broker for the tests of a file, and the command line as a function."""

from __future__ import annotations

import io
import itertools
from collections.abc import Callable, Iterator
from typing import NamedTuple

import pytest

from raylog.cli.main import main
from tests.support.cluster_thread import RunningCluster, cluster_thread


class Result(NamedTuple):
    code: int
    out: str
    err: str


Cli = Callable[..., Result]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningCluster]:
    with cluster_thread({"num.partitions": 3}, tmp_path_factory.mktemp("cli"), brokers=2) as running:
        yield running


@pytest.fixture
def topic() -> str:
    return f"topic-{next(_NUMBERS)}"


@pytest.fixture
def cli(cluster: RunningCluster, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Cli:
    """Runs `raylog ...` against the broker, with `stdin` as its input."""

    def run(*arguments: str, stdin: bytes = b"") -> Result:
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        try:
            code = main([*arguments, "--bootstrap-server", cluster.bootstrap_servers])
        except SystemExit as usage:
            code = int(usage.code or 0)
        return Result(code, *capfd.readouterr())

    return run


_NUMBERS = itertools.count()
