"""Workers of `raylog.process`: exact outputs, order, retries, dead letters, and a group that waits for long work."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest
from ray import cloudpickle

import raylog
from raylog.client.bootstrap import Bootstrap, resolvers
from raylog.client.errors import ProcessingError
from raylog.client.processing.records import ERROR_HEADER, OutputRecord
from raylog.client.processing.settings import AT_LEAST_ONCE, EXACTLY_ONCE, ProcessSettings
from raylog.client.processing.worker import Worker, WorkerProgress, WorkerSpec
from raylog.client.processing.worker_state import REWINDS_MAX
from raylog.security.acl import Operation, ResourceType
from raylog.testing.cluster import TestCluster
from tests.client.served import Target
from tests.client.test_revoked_permissions import CONFIG, denied
from tests.support.cluster_thread import cluster_thread
from tests.support.hang import HANG_SECONDS, wait_until
from tests.support.raw_client import RawClient

TOPIC_DENIED = raylog.ErrorCode.TOPIC_AUTHORIZATION_FAILED
DELIVERIES = (AT_LEAST_ONCE, EXACTLY_ONCE)
dumps: Callable[[Any], bytes] = cloudpickle.dumps
# What the work of the tests has in common with them: it runs in threads of this process.
SEEN: list[Any] = []
GATE = threading.Event()


class Running:
    """A worker in a thread with a loop of its own."""

    def __init__(self, spec: WorkerSpec, number: int) -> None:
        self.ended: Future[WorkerProgress] = Future()
        self._ready = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run(spec, number)), daemon=True)
        self._thread.start()
        self._ready.wait()

    async def _run(self, spec: WorkerSpec, number: int) -> None:
        self._loop = asyncio.get_running_loop()
        self._worker = Worker(spec, number)
        self._ready.set()
        try:
            try:
                await self._worker.start()
                await self._worker.run()
                progress = self._worker.progress()
            finally:
                await self._worker.close()
            self.ended.set_result(progress)
        except BaseException as error:
            self.ended.set_exception(error)

    def progress(self) -> WorkerProgress:
        async def ask() -> WorkerProgress:
            return self._worker.progress()

        return asyncio.run_coroutine_threadsafe(ask(), self._loop).result(HANG_SECONDS)

    def ask_to_stop(self) -> None:
        """It is asked on return."""

        async def ask() -> None:
            self._worker.stop()

        asyncio.run_coroutine_threadsafe(ask(), self._loop).result(HANG_SECONDS)

    def stop(self) -> WorkerProgress:
        """Raises what the worker has raised."""
        if not self.ended.done():
            self.ask_to_stop()
        try:
            return self.ended.result(HANG_SECONDS)
        finally:
            self._thread.join(HANG_SECONDS)


class Bench:
    """Topics of one test, and workers over them."""

    def __init__(self, target: Target) -> None:
        self.target = target
        self.source, self.output, self.letters = (target.new_topic(2) for _ in range(3))
        self.group = target.new_group()
        self._running: list[Running] = []

    def start(self, work: Any, *, number: int = 0, arguments: dict[str, Any] | None = None, **settings: Any) -> Running:
        given = {"output": self.output, "retry_backoff_ms": 1, **settings}
        given["consumer_config"] = {"heartbeat_interval_ms": 200, **given.get("consumer_config", {})}
        made = ProcessSettings(topics=(self.source,), bootstrap_servers=self.target.plain, group_id=self.group, **given)
        running = Running(WorkerSpec(made, dumps(work), arguments or {}), number)
        self._running.append(running)
        return running

    def write(self, count: int, partition: int = 0, *, first: int = 0) -> None:
        with raylog.Producer(bootstrap_servers=self.target.plain) as producer:
            for number in range(first, first + count):
                producer.send(self.source, b"%d" % number, b"k", partition=partition, headers={"h": b"x"})

    def read(self, topic: str, count: int) -> list[raylog.ConsumerRecord]:
        """What is committed in the topic, once there is as much; and all of it."""
        with raylog.Consumer(bootstrap_servers=self.target.plain, auto_offset_reset="earliest") as consumer:
            consumer.assign([(topic, number) for number in range(2)])
            found: list[raylog.ConsumerRecord] = []
            while len(found) < count:
                found += consumer.poll(HANG_SECONDS)
            return found + consumer.poll(0)

    def values(self, count: int, topic: str | None = None) -> list[bytes]:
        return [record.value for record in self.read(topic or self.output, count)]

    def committed(self) -> int:
        """By the group, over both partitions."""
        with raylog.Consumer(bootstrap_servers=self.target.plain, group_id=self.group) as consumer:
            found = consumer.committed([(self.source, number) for number in range(2)])
        return sum(0 if each is None else each.offset for each in found.values())

    def close(self) -> None:
        GATE.set()
        for running in self._running:
            if not running.ended.done():
                running.stop()


@pytest.fixture
def bench(target: Target) -> Iterator[Bench]:
    SEEN.clear()
    GATE.clear()
    bench = Bench(target)
    yield bench
    bench.close()


# --- the work of the tests


def double(record: raylog.ConsumerRecord) -> Any:
    return record.key, b"%d" % (2 * int(record.value))


async def double_later(record: raylog.ConsumerRecord) -> Any:
    await asyncio.sleep(0)
    return [double(record)]


class Doubler:
    def __init__(self, factor: int = 2) -> None:
        self.factor = factor

    def __call__(self, record: raylog.ConsumerRecord) -> Any:
        return OutputRecord(b"%d" % (self.factor * int(record.value)), record.key)


class DoublerOfBatches:
    def process_batch(self, records: list[raylog.ConsumerRecord]) -> list[Any]:
        return [double(record) for record in records]


class AsyncDoubler:
    async def __call__(self, record: raylog.ConsumerRecord) -> Any:
        return double(record)


def asyncio_inside(record: raylog.ConsumerRecord) -> Any:
    return asyncio.run(double_later(record))


@pytest.mark.parametrize(
    ("work", "delivery"),
    [
        (double, EXACTLY_ONCE),
        *((each, AT_LEAST_ONCE) for each in (double_later, Doubler, DoublerOfBatches, AsyncDoubler, asyncio_inside)),
    ],
)
def test_each_record_is_worked_on_once_and_in_order(bench: Bench, work: Any, delivery: str) -> None:
    bench.write(300)
    bench.write(200, 1, first=1000)
    running = bench.start(work, delivery=delivery)
    values = [int(value) for value in bench.values(500)]
    assert [value for value in values if value < 2000] == [2 * number for number in range(300)]
    assert [value for value in values if value >= 2000] == [2 * number for number in range(1000, 1200)]
    counts = running.stop().counts
    assert (counts.records, counts.outputs, counts.failures) == (500, 500, 0)
    assert bench.committed() == 500


# --- failures


def unlucky(record: raylog.ConsumerRecord) -> Any:
    """Fails twice at 7, and always at 13."""
    SEEN.append(int(record.value))
    if (record.value == b"7" and SEEN.count(7) < 3) or record.value == b"13":
        raise ValueError(f"unlucky {record.value!r}")
    return record.value


@pytest.mark.parametrize("delivery", DELIVERIES)
def test_a_failing_record_is_retried_and_then_stops_the_worker(bench: Bench, delivery: str) -> None:
    bench.write(20)
    with pytest.raises(ProcessingError) as stopped:
        bench.start(unlucky, delivery=delivery, retries=2).ended.result(HANG_SECONDS)
    error = stopped.value
    assert (error.topic, error.partition, error.offset) == (bench.source, 0, 13)
    assert (error.cause, error.code) == ("builtins.ValueError", raylog.ErrorCode.INVALID_RECORD)
    assert f"topic '{bench.source}', partition 0, offset 13: builtins.ValueError after 3 attempts" in str(error)
    assert "in unlucky" in error.trace
    assert bench.values(13) == [b"%d" % number for number in range(13)]
    assert bench.committed() == 13
    assert (SEEN.count(7), SEEN.count(13)) == (3, 3)


@pytest.mark.parametrize("delivery", DELIVERIES)
def test_a_failing_record_becomes_a_dead_letter(bench: Bench, delivery: str) -> None:
    bench.write(20)
    running = bench.start(unlucky, delivery=delivery, retries=2, dead_letter_topic=bench.letters)
    assert bench.values(19) == [b"%d" % number for number in range(20) if number != 13]
    [letter] = bench.read(bench.letters, 1)
    assert (letter.key, letter.value) == (b"k", b"13")
    headers = dict(letter.headers)
    assert headers["h"] == b"x"
    assert headers[ERROR_HEADER + "topic"] == bench.source.encode()
    assert headers[ERROR_HEADER + "offset"] == b"13"
    assert headers[ERROR_HEADER + "class.name"] == b"unlucky"
    assert headers[ERROR_HEADER + "exception.message"] == b"unlucky b'13'"
    assert b"in unlucky" in (headers[ERROR_HEADER + "exception.stacktrace"] or b"")
    counts = running.stop().counts
    assert (counts.records, counts.outputs, counts.dead_letters, counts.failures) == (20, 19, 1, 5)


class UnluckyBatches:
    def process_batch(self, records: list[raylog.ConsumerRecord]) -> list[Any]:
        SEEN.append(len(records))
        return [unlucky(record) for record in records]


def test_of_a_failing_batch_only_one_record_becomes_a_dead_letter(bench: Bench) -> None:
    bench.write(20)
    bench.start(UnluckyBatches, retries=2, dead_letter_topic=bench.letters)
    assert sorted(map(int, bench.values(19))) == [number for number in range(20) if number != 13]
    assert [letter.value for letter in bench.read(bench.letters, 1)] == [b"13"]
    assert max(SEEN) == 20


def too_large(record: raylog.ConsumerRecord) -> Any:
    return record.value if record.value != b"3" else b"3" * 2_000_000


@pytest.mark.parametrize("delivery", DELIVERIES)
@pytest.mark.parametrize("by_broker", [False, True])
def test_an_output_that_is_too_large(bench: Bench, delivery: str, by_broker: bool) -> None:
    """Refused by the producer, or by the broker when other records were sent already."""
    bench.write(6)
    config = {"max_request_size": 4_000_000} if by_broker else {}
    running = bench.start(too_large, delivery=delivery, dead_letter_topic=bench.letters, producer_config=config)
    [letter] = bench.read(bench.letters, 1)
    assert letter.value == b"3"
    assert dict(letter.headers)[ERROR_HEADER + "exception.message"]
    values = bench.values(5)
    assert set(values) == {b"0", b"1", b"2", b"4", b"5"}
    assert delivery == AT_LEAST_ONCE or len(values) == 5
    assert running.stop().counts.dead_letters == 1


def all_too_large(record: raylog.ConsumerRecord) -> Any:
    return b"3" * 2_000_000


@pytest.mark.parametrize("delivery", DELIVERIES)
def test_many_outputs_that_are_too_large(bench: Bench, delivery: str) -> None:
    bench.write(15)
    running = bench.start(all_too_large, delivery=delivery, dead_letter_topic=bench.letters)
    wait_until(lambda: running.ended.done() or running.progress().counts.dead_letters == 15)
    running.stop()
    assert bench.values(15, bench.letters) == [b"%d" % number for number in range(15)]


def quotes(record: raylog.ConsumerRecord) -> Any:
    raise ValueError(f"cannot parse {record.value!r}")


@pytest.mark.parametrize("size", [300_000, 1_040_000])
def test_a_large_record_becomes_a_dead_letter(bench: Bench, size: int) -> None:
    """Its error quotes it. One that has hardly room for headers gets those without texts."""
    with raylog.Producer(bootstrap_servers=bench.target.plain) as producer:
        producer.send(bench.source, b"\xff" * size, partition=0)
    running = bench.start(quotes, retries=0, dead_letter_topic=bench.letters)
    wait_until(lambda: running.ended.done() or running.progress().counts.dead_letters == 1)
    running.stop()
    [letter] = bench.read(bench.letters, 1)
    assert letter.value == b"\xff" * size
    headers = dict(letter.headers)
    assert headers[ERROR_HEADER + "exception.class.name"] == b"builtins.ValueError"
    message = headers[ERROR_HEADER + "exception.message"]
    assert message == (b"cannot parse b'" + rb"\xff" * 8192)[:8192] if size == 300_000 else message == b""


def without_key(record: raylog.ConsumerRecord) -> Any:
    return OutputRecord(record.value, None if record.value == b"3" else b"k", partition=0)


@pytest.mark.parametrize("delivery", DELIVERIES)
def test_of_a_refused_batch_only_the_invalid_record_becomes_a_dead_letter(bench: Bench, delivery: str) -> None:
    bench.output = bench.target.new_topic(2, cleanup_policy="compact")
    bench.write(6)
    together = {"linger_ms": 100}
    running = bench.start(without_key, delivery=delivery, dead_letter_topic=bench.letters, producer_config=together)
    values = bench.values(5)
    assert set(values) == {b"0", b"1", b"2", b"4", b"5"}
    assert delivery == AT_LEAST_ONCE or len(values) == 5
    [letter] = bench.read(bench.letters, 1)
    assert letter.value == b"3"
    assert running.stop().counts.dead_letters == 1


def remembered(record: raylog.ConsumerRecord) -> Any:
    SEEN.append(int(record.value))
    return record.value


def test_outputs_whose_leader_is_not_available_for_long(tmp_path: Path) -> None:
    SEEN.clear()
    with TestCluster(tmp_path, brokers=2, config={"offsets.topic.replication.factor": "2"}) as cluster:
        bench = Bench(Target(cluster.bootstrap_servers))
        bench.source, bench.output = "in", "out"
        with raylog.AdminClient(bootstrap_servers=cluster.bootstrap_servers) as admin:
            for topic, leader in (("in", 0), ("out", 1)):
                admin.create_topics(raylog.NewTopic(topic, replica_assignments={0: [leader], 1: [leader]}))
        bench.write(3)
        cluster.kill(1)
        impatient = {"request_timeout_ms": 300, "delivery_timeout_ms": 400}
        running = bench.start(remembered, producer_config=impatient, retry_backoff_max_ms=1)
        wait_until(lambda: running.ended.done() or SEEN.count(0) > REWINDS_MAX + 1)
        cluster.start(1)
        wait_until(lambda: running.ended.done() or running.progress().counts.records == 3)
        assert running.stop().counts.outputs == 3
        assert set(bench.values(3)) == {b"0", b"1", b"2"}


def not_an_output(record: raylog.ConsumerRecord) -> Any:
    return {"value": record.value}


def test_what_is_no_output_is_a_failure(bench: Bench) -> None:
    bench.write(1)
    with pytest.raises(ProcessingError, match="the work returned dict: it must return None, bytes"):
        bench.start(not_an_output, retries=0).ended.result(HANG_SECONDS)


def output(**given: Any) -> OutputRecord:
    return OutputRecord(b"v", **given)


UNFIT = (
    ("half \ud800", "SerializationError"),
    (("half \ud800", b"v"), "SerializationError"),
    (output(headers={"h": "\ud800"}), "SerializationError"),
    (OutputRecord(7), "SerializationError"),
    (output(partition=99), "UnknownPartitionError"),
    (output(partition="1"), "TypeError"),
    (output(timestamp_ms=1.5), "TypeError"),
)
"""Outputs that no producer can send, and the exceptions that say why."""


def unfit(record: raylog.ConsumerRecord) -> Any:
    number = int(record.value)
    return UNFIT[number][0] if number < len(UNFIT) else record.value


@pytest.mark.parametrize("delivery", DELIVERIES)
def test_an_output_that_cannot_be_sent_is_a_failure_of_its_record(bench: Bench, delivery: str) -> None:
    bench.write(len(UNFIT) + 1)
    running = bench.start(unfit, delivery=delivery, retries=1, dead_letter_topic=bench.letters)
    wait_until(lambda: running.ended.done() or running.progress().counts.records == len(UNFIT) + 1)
    running.stop()
    assert bench.values(1) == [b"%d" % len(UNFIT)]
    letters = bench.read(bench.letters, len(UNFIT))
    names = [dict(letter.headers)[ERROR_HEADER + "exception.class.name"] for letter in letters]
    assert [(name or b"").decode().rpartition(".")[2] for name in names] == [name for _, name in UNFIT]


def leave(record: raylog.ConsumerRecord) -> Any:
    raise SystemExit(1)


def test_work_cannot_end_its_process(bench: Bench) -> None:
    bench.write(1)
    with pytest.raises(ProcessingError, match=r"offset 0: builtins.SystemExit: 1"):
        bench.start(leave, retries=0).ended.result(HANG_SECONDS)


class Unmade:
    def __init__(self, **arguments: Any) -> None:
        raise RuntimeError(f"no {arguments}")

    def __call__(self, record: raylog.ConsumerRecord) -> None: ...


def test_a_constructor_that_fails(bench: Bench) -> None:
    with pytest.raises(ProcessingError, match=r"the constructor of Unmade has failed: RuntimeError\(\"no {'a': 1}"):
        bench.start(Unmade, arguments={"a": 1}).ended.result(HANG_SECONDS)
    made = ProcessSettings(topics=("t",), bootstrap_servers=bench.target.plain, group_id=bench.group)
    with pytest.raises(ProcessingError, match="cannot be unpickled"):
        Running(WorkerSpec(made, b"nonsense", {}), 0).ended.result(HANG_SECONDS)


# --- the group


class Slow:
    """The first record takes longer than max.poll.interval.ms."""

    def __call__(self, record: raylog.ConsumerRecord) -> Any:
        if record.value == b"0" and 0 not in SEEN:
            SEEN.append(0)
            GATE.wait(4)
        SEEN.append(int(record.value))
        return record.value

    def close(self) -> None:
        SEEN.append("closed")


@pytest.mark.parametrize("delivery", DELIVERIES)
def test_a_worker_stays_in_its_group_while_work_takes_long(bench: Bench, delivery: str) -> None:
    bench.write(3)
    running = bench.start(Slow, delivery=delivery, consumer_config={"max_poll_interval_ms": 2_000})
    assert bench.values(3) == [b"0", b"1", b"2"]
    running.stop()
    wait_until(lambda: len(SEEN) == 5)
    assert SEEN == [0, 0, 1, 2, "closed"]
    assert bench.committed() == 3


def wait_at_3(record: raylog.ConsumerRecord) -> Any:
    SEEN.append(int(record.value))
    if record.value == b"3":
        GATE.wait(HANG_SECONDS)
    return record.value


@pytest.mark.parametrize("delivery", DELIVERIES)
def test_stop_ends_after_the_current_record(bench: Bench, delivery: str) -> None:
    bench.write(9)
    running = bench.start(wait_at_3, delivery=delivery)
    wait_until(lambda: 3 in SEEN)
    running.ask_to_stop()
    GATE.set()
    assert running.stop().counts.records == bench.committed() == len(SEEN) == 4
    # another member has the partitions at once, although this one has a name of its own in the group
    other = bench.start(wait_at_3, delivery=delivery, number=7)
    assert sorted(bench.values(9)) == [b"%d" % number for number in range(9)]  # of two partitions
    wait_until(lambda: other.progress().lag.keys() == {(bench.source, 0), (bench.source, 1)})


def slow(record: raylog.ConsumerRecord) -> Any:
    SEEN.append(int(record.value))
    GATE.wait(0.003)
    return record.value


@pytest.mark.parametrize("delivery", DELIVERIES)
def test_partitions_move_when_their_current_record_is_done(bench: Bench, delivery: str) -> None:
    """What was done before is committed then: nothing is done again."""
    bench.write(200)
    bench.write(200, 1, first=200)
    first = bench.start(slow, delivery=delivery, commit_interval_ms=60_000)
    wait_until(lambda: bool(SEEN))
    second = bench.start(slow, delivery=delivery, commit_interval_ms=60_000, number=1)
    wait_until(lambda: len(second.progress().lag) == 1)
    GATE.set()
    assert sorted(map(int, bench.values(400))) == list(range(400))
    counts = [running.stop().counts.records for running in (first, second)]
    assert min(counts) > 0
    assert (sum(counts), bench.committed(), len(SEEN)) == (400, 400, 400)


@pytest.mark.parametrize("delivery", DELIVERIES)
def test_a_worker_is_fenced_by_another_one_with_its_name(bench: Bench, delivery: str) -> None:
    bench.write(9)
    first = bench.start(wait_at_3, delivery=delivery)
    wait_until(lambda: 3 in SEEN)
    second = bench.start(double, delivery=delivery)
    wait_until(lambda: bench.committed() == 9)
    GATE.set()
    with pytest.raises(raylog.FencedError):
        first.ended.result(HANG_SECONDS)
    second.stop()
    values = [int(value) for value in bench.values(9)]
    with raylog.AdminClient(bootstrap_servers=bench.target.plain) as admin:
        ids = {each.transactional_id for each in admin.list_transactions()}
    assert {each for each in ids if each.startswith(f"{bench.group}-")} == (
        {f"{bench.group}-0"} if delivery == EXACTLY_ONCE else set()
    )
    possible = [[*range(k), *(2 * number for number in range(k, 9))] for k in range(4)]
    if delivery == EXACTLY_ONCE:  # the first may have committed the records before the one that it waited at
        assert values in possible
    else:
        assert {2 * number for number in range(3, 9)} <= set(values)


def test_a_worker_responds_while_its_cluster_is_being_found(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    servers = bench.target.plain

    def find(name: str) -> Bootstrap:
        SEEN.append(name)
        GATE.wait(HANG_SECONDS)
        return Bootstrap(servers)

    monkeypatch.setitem(resolvers, "slow", find)
    bench.target = Target("slow://shop")
    running = bench.start(double)
    wait_until(lambda: "shop" in SEEN)
    assert running.progress().counts.records == 0
    GATE.set()
    running.stop()


def test_what_is_done_is_committed_while_other_work_takes_long(bench: Bench) -> None:
    bench.write(9)
    running = bench.start(wait_at_3, commit_interval_ms=100)
    wait_until(lambda: 3 in SEEN)
    assert bench.values(3) == [b"0", b"1", b"2"]
    wait_until(lambda: bench.committed() == running.progress().counts.records == 3)
    assert running.progress().lag[raylog.TopicPartition(bench.source, 0)] == 6


# --- permissions


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    """A cluster whose permissions can be revoked."""
    with cluster_thread(CONFIG, tmp_path_factory.mktemp("guarded")) as running:
        yield Target(running.bootstrap_servers)


@pytest.mark.parametrize("delivery", DELIVERIES)
@pytest.mark.parametrize("lost", ["input", "output", "group"])
def test_a_lost_permission_ends_the_worker(guarded: Target, delivery: str, lost: str) -> None:
    bench = Bench(guarded)
    running = bench.start(double, delivery=delivery)
    bench.write(5)
    bench.values(5)
    kind, name, operation = {
        "input": (ResourceType.TOPIC, bench.source, Operation.READ),
        "output": (ResourceType.TOPIC, bench.output, Operation.WRITE),
        "group": (ResourceType.GROUP, bench.group, Operation.READ),
    }[lost]
    with RawClient(guarded.plain, client_id="t") as client, denied(client, kind, name, operation):
        bench.write(5, first=5)
        with pytest.raises(raylog.KafkaError) as ended:
            running.ended.result(HANG_SECONDS)
    expected = raylog.ErrorCode.GROUP_AUTHORIZATION_FAILED if lost == "group" else TOPIC_DENIED
    assert ended.value.code is expected
    assert name in str(ended.value)
    bench.start(double, delivery=delivery)
    assert set(bench.values(10)) == {b"%d" % (2 * number) for number in range(10)}
    assert delivery == AT_LEAST_ONCE or len(bench.values(10)) == 10
    bench.close()
