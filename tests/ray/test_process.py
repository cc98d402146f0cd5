"""Pools of `raylog.process` lose and repeat nothing that they promise not to while their actors are killed."""

from __future__ import annotations

import os
import random
import signal
import threading
from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import raylog
from tests.compat.topics import create_topic
from tests.support.forms import by_form
from tests.support.hang import HANG_SECONDS, wait_until

pytestmark = [pytest.mark.ray, pytest.mark.usefixtures("ray_runtime")]

NAME = "pools"
SERVERS = f"ray://{NAME}"
KILLS = by_form(2, long=100)
PARTITIONS, WORKERS = 4, 2
RECORDS = 400
"""For each kill."""
DELIVERIES = ("at_least_once", "exactly_once")


@pytest.fixture(scope="module")
def cluster(ray_runtime: None) -> Iterator[raylog.Cluster]:
    with raylog.start(NAME, config={"group.initial.rebalance.delay.ms": 0}) as cluster:
        yield cluster


@pytest.fixture
def topics(cluster: raylog.Cluster, request: pytest.FixtureRequest) -> tuple[str, str, str]:
    """For input, output and dead letters."""
    stem = f"{request.node.originalname}-{random.getrandbits(32):x}"
    made = (f"{stem}-in", f"{stem}-out", f"{stem}-dead")
    for topic in made:
        create_topic(cluster.bootstrap_servers, topic, partitions=PARTITIONS)
    return made


def write(topic: str, numbers: range) -> None:
    with raylog.Producer(bootstrap_servers=SERVERS) as producer:
        for number in numbers:
            producer.send(topic, b"%d" % number, partition=number % PARTITIONS)


def read_all(topic: str, count: int) -> list[raylog.ConsumerRecord]:
    """What is committed, once it has `count` different values."""
    with raylog.Consumer(bootstrap_servers=SERVERS, auto_offset_reset="earliest") as consumer:
        consumer.assign([(topic, number) for number in range(PARTITIONS)])
        found: list[raylog.ConsumerRecord] = []
        while len({record.value for record in found}) < count:
            found += consumer.poll(HANG_SECONDS)
        ends = consumer.end_offsets([(topic, number) for number in range(PARTITIONS)])
        while any(consumer.position(tp) < end for tp, end in ends.items()):
            found += consumer.poll(1)
        return found


class Traced:
    """Leaves the id of its process in a folder, and kills it when it first sees one of the `deadly` records."""

    def __init__(self, folder: str, pause: float = 0.0, deadly: frozenset[int] = frozenset()) -> None:
        self.folder, self.deadly = folder, deadly
        self.gate, self.pause = threading.Event(), pause
        Path(folder, str(os.getpid())).touch()

    def __call__(self, record: raylog.ConsumerRecord) -> Any:
        self.gate.wait(self.pause)
        mark = Path(f"{self.folder}-{int(record.value)}")
        if int(record.value) in self.deadly and not mark.exists():
            mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return raylog.OutputRecord(record.value, partition=record.partition)


class Unmade:
    def __init__(self, folder: str) -> None:
        Path(folder, str(os.getpid())).touch()
        raise RuntimeError("no model")

    def __call__(self, record: raylog.ConsumerRecord) -> None: ...


def unlucky(record: raylog.ConsumerRecord) -> Any:
    if record.value == b"13":
        raise ValueError("unlucky")
    return record.value


def has_restarted(pool: raylog.Pool, times: int) -> bool:
    return pool.progress().restarts == times


def pids(folder: Path) -> list[int]:
    """The processes of the workers that live."""
    return [int(file.name) for file in folder.iterdir() if Path("/proc", file.name).exists()]


@pytest.mark.parametrize("delivery", DELIVERIES)
def test_exact_while_workers_are_killed(topics: tuple[str, str, str], delivery: str, tmp_path: Path) -> None:
    """In every other round between two commits, when outputs were sent already; else at any time."""
    source, output, _ = topics
    rng = random.Random(KILLS)
    rounds = [range(number * RECORDS, (number + 1) * RECORDS) for number in range(KILLS)]
    deadly = frozenset(numbers[-1] for numbers in rounds[::2])
    pool = raylog.process(
        source,
        Traced,
        arguments={"folder": str(tmp_path), "pause": 0.005, "deadly": deadly},
        bootstrap_servers=SERVERS,
        group_id=source,
        concurrency=WORKERS,
        output=output,
        delivery=delivery,
        commit_interval_ms=2000,
        consumer_config={"heartbeat_interval_ms": 200},
    )
    with pool:
        for number, numbers in enumerate(rounds):
            write(source, numbers)
            if number % 2:
                os.kill(rng.choice(pids(tmp_path)), signal.SIGKILL)
            wait_until(partial(has_restarted, pool, number + 1), pool.progress)
        written = RECORDS * KILLS
        values = Counter(int(record.value) for record in read_all(output, written))
        assert values.keys() == set(range(written))
        assert (max(values.values()) > 1) == (delivery == "at_least_once")
        wait_until(lambda: sum(pool.progress().lag.values()) == 0, pool.progress)
        progress = pool.stop()
    assert (progress.state, progress.restarts, progress.failures) == ("stopped", KILLS, 0)
    wait_until(lambda: not pids(tmp_path))
    in_order = Counter[int]()
    for record in read_all(output, written) if delivery == "exactly_once" else []:
        assert int(record.value) // PARTITIONS == in_order[record.partition], "not in order"
        in_order[record.partition] += 1


def test_a_pool_whose_own_actor_is_killed(topics: tuple[str, str, str], tmp_path: Path) -> None:
    import ray

    source, output, _ = topics
    pool = raylog.process(
        source,
        Traced,
        arguments={"folder": str(tmp_path)},
        bootstrap_servers=SERVERS,
        group_id=source,
        output=output,
        delivery="exactly_once",
    )
    with pool:
        [former] = pids(tmp_path)
        ray.kill(pool._actor, no_restart=False)
        write(source, range(200))
        assert Counter(int(record.value) for record in read_all(output, 200)) == Counter(range(200))
        wait_until(lambda: former not in pids(tmp_path) and pool.progress().state == "running")


def test_dead_letters_and_progress_from_a_task(topics: tuple[str, str, str]) -> None:
    import ray

    source, output, dead = topics
    write(source, range(20))
    pool = raylog.process(
        source,
        unlucky,
        bootstrap_servers=SERVERS,
        group_id=source,
        output=output,
        dead_letter_topic=dead,
        retries=1,
        retry_backoff_ms=1,
    )
    with pool:
        assert [record.value for record in read_all(dead, 1)] == [b"13"]
        assert {int(record.value) for record in read_all(output, 19)} == set(range(20)) - {13}
        wait_until(lambda: pool.progress().records == 20)
        ask: Any = ray.remote(num_cpus=0)(lambda pool: pool.progress())
        progress = ray.get(ask.remote(pool))
        wait_until(lambda: len(pool.progress().lag) == PARTITIONS)
        assert (progress.state, progress.outputs, progress.dead_letters, progress.failures) == ("running", 19, 1, 2)
        assert set(pool.progress().lag.values()) == {0}
        assert not pool.wait(0)
    assert pool.wait()
    assert pool.stop().state == "stopped"
    others = [raylog.Pool(pool._actor) for _ in range(3)]  # as tasks have it, which did not stop it themselves
    assert others[0].wait()
    assert (others[1].progress().state, others[2].stop().state) == ("stopped", "stopped")


def test_a_pool_that_has_failed_says_where(topics: tuple[str, str, str]) -> None:
    source, output, _ = topics
    write(source, range(20))
    pool = raylog.process(
        source, unlucky, bootstrap_servers=SERVERS, group_id=source, output=output, concurrency=2, retries=0
    )
    with pytest.raises(raylog.ProcessingError) as failed:
        pool.wait()
    error = failed.value
    assert (error.topic, error.partition, error.offset) == (source, 13 % PARTITIONS, 3)
    assert error.cause == "builtins.ValueError"
    progress = pool.stop()
    assert progress.state == "failed"
    assert "offset 3: builtins.ValueError: unlucky" in (progress.error or "")


def test_a_constructor_that_fails_is_called_once(topics: tuple[str, str, str], tmp_path: Path) -> None:
    with pytest.raises(raylog.ProcessingError, match="the constructor of Unmade has failed: RuntimeError"):
        raylog.process(
            topics[0], Unmade, arguments={"folder": str(tmp_path)}, bootstrap_servers=SERVERS, group_id=topics[0]
        )
    assert len(list(tmp_path.iterdir())) == 1


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"output": "missing"}, "topic 'missing' does not exist"),
        ({"bootstrap_servers": "ray://missing"}, "no cluster with this name"),
        ({"concurrency": 0}, "concurrency=0: must be"),
        ({"concurrency": 1_000_000}, "concurrency=1000000: must be"),
        ({"work": threading.Lock().acquire}, "cannot be pickled: .*; make clients, locks"),
        ({"work": 5}, "work=5: must be a function or a class"),
        ({"work": Path}, "work=Path: a class must have __call__ or process_batch"),
        ({"arguments": {"a": 1}}, "arguments: are those of the constructor of a class"),
        ({"actor_options": {"num_cpu": 1}}, "actor_options="),
        ({"consumer_config": {"max_pol_records": 1}}, "max.pol.records"),
    ],
)
def test_bad_use(topics: tuple[str, str, str], settings: dict[str, Any], message: str) -> None:
    given: dict[str, Any] = {"topic": topics[0], "work": unlucky, "bootstrap_servers": SERVERS, "group_id": "bad"}
    with pytest.raises(raylog.KafkaError, match=message):
        raylog.process(**{**given, **settings})
