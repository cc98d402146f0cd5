"""A streaming query with state whose driver is killed again and again has the result of one that was never killed."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import raylog
from raylog.raydp_bridge.plan_store import PlanStore
from tests.conftest import files_unpacked_by_java_are_removed
from tests.support.forms import by_form

pytestmark = [pytest.mark.ray, pytest.mark.spark]

KILLS = by_form(0, long=10)
"""Each needs the start of a Spark session, so the usual form has none: tests/spark/test_read_stream.py has failures."""
EPOCH_MS = 1_357_000_200_000
WINDOW = 100
ROUND = 500


def windows(folder: Path) -> dict[int, tuple[int, int]]:
    found: dict[int, tuple[int, int]] = {}
    for path in sorted((folder / "out").glob("*.json"), key=lambda path: int(path.stem)):
        found |= {start: (count, total) for start, count, total in json.loads(path.read_text())}
    return found


def expected(count: int) -> dict[int, tuple[int, int]]:
    result = {}
    for first in range(0, count, WINDOW):
        numbers = range(first, min(first + WINDOW, count))
        result[EPOCH_MS + 1000 * first] = (len(numbers), sum(numbers))
    return result


@pytest.fixture
def removed() -> Iterator[None]:
    with files_unpacked_by_java_are_removed():
        yield


@pytest.mark.skipif(not KILLS, reason="runs with --long only")
def test_a_killed_driver_loses_and_repeats_nothing(
    ray_runtime: None, removed: None, tmp_path: Path, say: Callable[[str], None]
) -> None:
    import ray

    seed = random.randrange(1 << 32)
    say(f"seed {seed}")
    choose = random.Random(seed)
    (tmp_path / "out").mkdir()
    address = ray.get_runtime_context().gcs_address
    count = 0
    with (
        raylog.start("killed", brokers=1) as cluster,
        raylog.Producer(bootstrap_servers=cluster.bootstrap_servers) as producer,
    ):
        with raylog.AdminClient(bootstrap_servers=cluster.bootstrap_servers) as admin:
            admin.create_topics(raylog.NewTopic("counted", num_partitions=3, configs={"retention.ms": "-1"}))
        command = [
            sys.executable,
            "-m",
            "tests.spark.stream_driver",
            cluster.bootstrap_servers,
            "counted",
            str(tmp_path),
        ]
        for kill in range(KILLS + 1):
            with (tmp_path / f"driver-{kill}.log").open("wb") as log:
                driver = subprocess.Popen(
                    command, stdout=log, stderr=log, env={**os.environ, "RAY_ADDRESS": address}, start_new_session=True
                )
            try:
                for number in range(count, count + ROUND):
                    producer.send(
                        "counted", value=b"%d" % number, partition=number % 3, timestamp_ms=EPOCH_MS + 1000 * number
                    )
                producer.flush()
                count += ROUND
                wanted = max(PlanStore(tmp_path / "plan").batches(), default=-1) + choose.randint(1, 4)
                while max(PlanStore(tmp_path / "plan").batches(), default=-1) < wanted:
                    assert driver.poll() is None, (tmp_path / f"driver-{kill}.log").read_text()[-3000:]
                    time.sleep(0.05)
                time.sleep(choose.random())  # at any moment of a batch
                if kill == KILLS:
                    while windows(tmp_path) != expected(count):
                        assert driver.poll() is None, (tmp_path / f"driver-{kill}.log").read_text()[-3000:]
                        time.sleep(0.2)
                    (tmp_path / "stop").touch()
                    assert driver.wait() == 0
            finally:
                if driver.poll() is None:
                    os.killpg(driver.pid, signal.SIGKILL)
                driver.wait()
            say(f"kill {kill}: {count} records, {len(windows(tmp_path))} windows")
    assert windows(tmp_path) == expected(count)
