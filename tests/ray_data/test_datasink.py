"""A Dataset is written to topics: all of its rows, and with a job id exactly once, however often the job is run."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import ray

import raylog
from tests.ray_data.committed import committed

pytestmark = pytest.mark.ray


@pytest.fixture
def preserved_order() -> Iterator[None]:
    options = ray.data.DataContext.get_current().execution_options
    before, options.preserve_order = options.preserve_order, True
    yield
    options.preserve_order = before


def rows(numbers: range) -> ray.data.Dataset:
    return ray.data.from_items([{"key": f"k{number % 7}", "value": b"%d" % number} for number in numbers])


def test_rows_are_records(servers: str, topic: str) -> None:
    given = [
        {"key": "a", "value": b"1", "partition": 1, "headers": [{"key": "h", "value": b"x"}], "price": 2.5},
        {"key": None, "value": b"2", "partition": 0, "headers": [], "price": 0.0},
        {"key": "c", "value": None, "partition": 1, "headers": [{"key": "h", "value": None}], "price": 1.0},
    ]
    ray.data.from_items(given).write_datasink(raylog.TopicDatasink(topic, bootstrap_servers=servers))
    found = sorted(committed(servers, topic, whole=True))
    assert found == [(0, None, b"2", ()), (1, b"a", b"1", (("h", b"x"),)), (1, b"c", None, (("h", None),))]


def test_rows_name_their_topics(servers: str, topic: str) -> None:
    with raylog.AdminClient(bootstrap_servers=servers) as admin:
        admin.create_topics(raylog.NewTopic(f"{topic}-b", num_partitions=1))
    given = [{"topic": topic if number % 2 else f"{topic}-b", "value": b"%d" % number} for number in range(10)]
    ray.data.from_items(given).write_datasink(raylog.TopicDatasink(bootstrap_servers=servers))
    assert sorted(committed(servers, topic)) == [b"1", b"3", b"5", b"7", b"9"]
    assert sorted(committed(servers, f"{topic}-b")) == [b"0", b"2", b"4", b"6", b"8"]


@pytest.mark.usefixtures("preserved_order")
class TestExactlyOnce:
    def write(self, servers: str, topic: str, dataset: ray.data.Dataset, batch_id: int = 0, tasks: int = 3) -> None:
        dataset.write_datasink(
            raylog.TopicDatasink(topic, bootstrap_servers=servers, job_id=f"of-{topic}", tasks=tasks, batch_id=batch_id)
        )

    def test_a_batch_that_is_repeated_is_written_once(self, servers: str, topic: str) -> None:
        for batch_id, numbers in enumerate([range(50), range(50, 60), range(60, 60), range(60, 61)]):
            for _ in range(2):
                self.write(servers, topic, rows(numbers).repartition(3), batch_id)
        assert sorted(map(int, committed(servers, topic))) == list(range(61))

    def test_a_job_that_has_failed_writes_what_is_missing(self, servers: str, topic: str, tmp_path: Path) -> None:
        failed = tmp_path / "failed"

        def fail_once(batch: pa.Table) -> pa.Table:
            if b"15" in batch["value"].to_pylist() and not failed.exists():
                failed.touch()
                raise OSError("the disk of this worker is gone")
            return batch

        dataset = rows(range(20)).repartition(2).map_batches(fail_once, batch_format="pyarrow")
        with pytest.raises(Exception, match="the disk of this worker is gone"):
            self.write(servers, topic, dataset)
        self.write(servers, topic, dataset)
        assert sorted(map(int, committed(servers, topic))) == list(range(20))

    def test_a_worker_that_dies_after_the_commit_has_written(self, servers: str, topic: str, tmp_path: Path) -> None:
        """Ray starts its task again, since it has returned nothing."""

        class Mortal(raylog.TopicDatasink):
            def write(self, blocks: Any, ctx: Any) -> Any:
                result = super().write(blocks, ctx)
                died = tmp_path / f"died-{ctx.task_idx}"
                if not died.exists():
                    died.touch()
                    os.kill(os.getpid(), signal.SIGKILL)
                return result

        sink = Mortal(topic, bootstrap_servers=servers, job_id=topic, tasks=2)
        rows(range(20)).repartition(2).write_datasink(sink)
        assert len(list(tmp_path.iterdir())) == 2
        assert sorted(map(int, committed(servers, topic))) == list(range(20))

    def test_other_rows_under_the_number_of_a_batch_are_refused(self, servers: str, topic: str) -> None:
        self.write(servers, topic, rows(range(20)).repartition(3))
        with pytest.raises(Exception, match="has other rows than when task"):
            self.write(servers, topic, rows(range(1, 21)).repartition(3))
        with pytest.raises(Exception, match="must be written to the sink, also one without rows"):
            self.write(servers, topic, rows(range(20)).repartition(3), 2)
        assert sorted(map(int, committed(servers, topic))) == list(range(20))

    def test_more_blocks_than_tasks_are_refused(self, servers: str, topic: str) -> None:
        with pytest.raises(Exception, match=r"use dataset.repartition\(2\)"):
            self.write(servers, topic, rows(range(20)).repartition(4), tasks=2)


def test_a_job_without_a_fixed_order_is_refused(servers: str, topic: str) -> None:
    sink = raylog.TopicDatasink(topic, bootstrap_servers=servers, job_id=topic, tasks=2)
    with pytest.raises(Exception, match="preserve_order = True"):
        rows(range(10)).write_datasink(sink)
    assert committed(servers, topic) == []


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"job_id": "j"}, "job_id and tasks"),
        ({"tasks": 1}, "job_id and tasks"),
        ({"job_id": "j", "tasks": 0}, "tasks=0"),
        ({"job_id": "j", "tasks": 1 << 40}, "tasks=1099511627776"),
        ({"job_id": "a b", "tasks": 1}, "job id 'a b'"),
        ({"job_id": 5, "tasks": 1}, "job id 5"),
        ({"job_id": "j", "tasks": 1, "batch_id": "0"}, "batch_id='0'"),
        ({"producer_config": {"transactional.id": "t"}}, "transactional.id"),
        ({"producer_config": {"linger.ms": "soon"}}, "linger.ms"),
    ],
)
def test_arguments_that_cannot_be_right_are_refused_at_once(given: dict[str, Any], said: str) -> None:
    with pytest.raises(raylog.ConfigError, match=said):
        raylog.TopicDatasink("orders", bootstrap_servers="127.0.0.1:1", **given)


def test_columns_that_cannot_be_written_are_refused(servers: str, topic: str) -> None:
    with pytest.raises(Exception, match="Required attribute 'value' not found"):
        ray.data.from_items([{"key": "a"}]).write_datasink(raylog.TopicDatasink(topic, bootstrap_servers=servers))
    with pytest.raises(Exception, match="value attribute unsupported type double"):
        ray.data.from_items([{"value": 1.5}]).write_datasink(raylog.TopicDatasink(topic, bootstrap_servers=servers))
    assert committed(servers, topic) == []
