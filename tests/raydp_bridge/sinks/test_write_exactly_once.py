"""A task is stopped between any two of its steps, and goes on as a zombie: a stock consumer reads each row once."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import Consumer
from confluent_kafka import TopicPartition as Position

from raylog.client.admin.admin_client import AdminClient
from raylog.client.admin.configs import ConfigResource, ConfigResourceType
from raylog.client.admin.topics import NewPartitions, NewTopic
from raylog.client.errors import FencedError
from raylog.core.errors import ConfigError, ErrorCode, KafkaError
from raylog.raydp_bridge.sinks import progress_topic
from raylog.raydp_bridge.sinks.columns import RowDigest
from raylog.raydp_bridge.sinks.exactly_once import BatchRefused, Decision, SinkId, Step, TaskRows, steps
from raylog.raydp_bridge.sinks.progress_topic import fix_tasks, last_record
from raylog.raydp_bridge.sinks.spool import Spool
from raylog.raydp_bridge.sinks.target import SinkTarget
from raylog.raydp_bridge.sinks.task_writer import TaskAttempt, TaskResult, write_exactly_once
from tests.client.served import Served, serve

SENTINEL = b"end"
TASKS = 2


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with serve(tmp_path_factory.mktemp("served")) as served:
        yield served


class Job:
    """One sink of a query, whose progress topic exists."""

    numbers = iter(range(1000))

    def __init__(self, served: Served, **options: Any) -> None:
        self.served = served
        self.topic = served.new_topic()
        self.target = SinkTarget.of(
            self.topic, bootstrap_servers=served.plain, client_config=None, producer_config={"linger.ms": 0}
        )
        self.sink = SinkId(f"query-{next(self.numbers)}", **options)

    def fix_tasks(self, batch_id: int = 0, tasks: int | None = TASKS) -> int:
        return fix_tasks(self.target.brokers, self.sink, batch_id, tasks=tasks, default_tasks=3)

    def write(self, batch_id: int, *values: bytes, task: int = 0, **options: Any) -> TaskResult:
        return write_exactly_once(
            iter([batch_of(*values)] if values else []),
            self.target,
            self.sink,
            task=task,
            tasks=TASKS,
            batch_id=batch_id,
            **options,
        )

    def read(self) -> list[bytes]:
        """What a stock consumer with isolation.level=read_committed reads; ends the partition by a record."""
        with self.target.producer() as producer:
            producer.send(self.topic, SENTINEL).result()
        consumer = Consumer({"bootstrap.servers": self.served.plain, "group.id": "g", "check.crcs": True})
        try:
            consumer.assign([Position(self.topic, 0, 0)])
            found: list[bytes] = []
            while SENTINEL not in found[-1:]:
                found += [message.value() or b"" for message in consumer.consume(10_000, 0.1)]
        finally:
            consumer.close()
        return found[:-1]


def batch_of(*values: bytes) -> pa.RecordBatch:
    return pa.record_batch({"value": pa.array(values, pa.binary())})


@pytest.fixture
def job(served: Served) -> Job:
    job = Job(served)
    assert job.fix_tasks() == TASKS
    return job


class StoppedAttempt:
    """A process that runs a task, one step at a time."""

    def __init__(self, job: Job, batch_id: int, *values: bytes, processes: ExitStack) -> None:
        digest, spool = RowDigest(), processes.enter_context(Spool())
        digest.update(batch_of(*values))
        spool.append(batch_of(*values))
        wanted = TaskRows(batch_id, digest.hexdigest(), digest.rows, TASKS)
        self.producer = processes.enter_context(job.target.producer(job.sink.transactional_id(0)))
        self.attempt = TaskAttempt(self.producer, job.target, job.sink, 0, wanted, spool)
        self.plan = steps(job.sink, 0, wanted)
        self.answer: TaskRows | None = None
        self.next: Step | None = next(self.plan)

    def run_until(self, stop: Step | None) -> Decision | None:
        """Run the steps before this one, or all of them."""
        while self.next is not stop:
            assert self.next is not None
            self.answer = self.attempt.carry_out(self.next)
            try:
                self.next = self.plan.send(self.answer)
            except StopIteration as end:
                self.next = None
                decision: Decision = end.value
                return decision
        return None


def test_batches_are_written_once_and_in_order(job: Job) -> None:
    assert job.write(0, b"a", b"b") == TaskResult(0, 2, written=True)
    assert job.write(0, b"b", b"a") == TaskResult(0, 2, written=False), "the order of rows does not matter"
    assert job.write(0, task=1) == TaskResult(1, 0, written=True)
    assert job.write(0, task=1) == TaskResult(1, 0, written=False)
    for batch_id in range(1, 12):  # more than the window in which the last record is searched first
        assert job.write(batch_id, b"%d" % batch_id).written
    assert job.read() == [b"a", b"b", *(b"%d" % number for number in range(1, 12))]


def test_rows_that_differ_and_batches_that_do_not_follow_are_refused(job: Job) -> None:
    job.write(0, b"a")
    for batch_id, values, task in ((0, [b"b"], 0), (0, [b"a", b"a"], 0), (2, [b"x"], 0), (1, [b"x"], 1)):
        with pytest.raises(BatchRefused):
            job.write(batch_id, *values, task=task)
    job.write(1, b"c")
    with pytest.raises(BatchRefused, match="a later one"):
        job.write(0, b"a")
    assert job.read() == [b"a", b"c"]


@pytest.mark.parametrize("stop", Step)
def test_an_attempt_that_was_replaced_writes_nothing(served: Served, stop: Step) -> None:
    """It is stopped before this step; the next attempt and the next batch are written; then it goes on."""
    job = Job(served)
    job.fix_tasks()
    with ExitStack() as processes:
        zombie = StoppedAttempt(job, 0, b"a", b"b", processes=processes)
        zombie.run_until(stop)
        assert job.write(0, b"b", b"a").written
        if stop is Step.INITIALIZE:
            assert zombie.run_until(None) is Decision.SKIP
        elif stop is Step.READ_PROGRESS:
            assert zombie.run_until(None) is Decision.SKIP, "it may read, and writes nothing"
        else:
            with pytest.raises((FencedError, KafkaError)) as raised:
                zombie.run_until(None)
            assert raised.value.code in (ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH)
        assert job.write(0, b"a", b"b") == TaskResult(0, 2, written=False)
        assert job.write(1, b"c").written
    assert sorted(job.read()) == [b"a", b"b", b"c"]


@pytest.mark.parametrize("stop", Step)
def test_an_attempt_that_was_killed_is_repeated(served: Served, stop: Step) -> None:
    """Its transaction stays open until the next attempt is initialized."""
    job = Job(served)
    job.fix_tasks()
    with ExitStack() as processes:
        killed = StoppedAttempt(job, 0, b"a", b"b", processes=processes)
        killed.run_until(stop)
        killed.producer.close(0)  # which sends nothing
        assert job.write(0, b"b", b"a").written
        assert job.write(1, b"c").written
        assert sorted(job.read()) == [b"a", b"b", b"c"]


def test_an_attempt_that_was_killed_after_its_commit_is_not_repeated(job: Job) -> None:
    with ExitStack() as processes:
        killed = StoppedAttempt(job, 0, b"a", processes=processes)
        assert killed.run_until(None) is Decision.WRITE
        assert not job.write(0, b"a").written
    assert job.read() == [b"a"]


def test_a_record_that_is_refused_aborts_the_transaction(served: Served) -> None:
    job = Job(served)
    job.fix_tasks()
    job.topic = served.new_topic(max_message_bytes="1000")
    job.target = SinkTarget.of(job.topic, bootstrap_servers=served.plain, client_config=None, producer_config=None)
    with pytest.raises(KafkaError) as raised:
        job.write(0, b"good", b"x" * 2000)
    assert raised.value.code is ErrorCode.MESSAGE_TOO_LARGE
    with AdminClient(bootstrap_servers=served.plain) as admin:
        states = {each.transactional_id: each.state for each in admin.list_transactions()}
    assert states[job.sink.transactional_id(0)] != "Ongoing", "read_committed consumers need not wait"
    assert job.write(0, b"good").written
    assert job.read() == [b"good"]


def test_many_rows_wait_in_a_file(job: Job) -> None:
    values = [b"%0100d" % number for number in range(20_000)]
    assert job.write(0, *values, spool_bytes=1000) == TaskResult(0, 20_000, written=True)
    assert job.read() == values


def test_a_transaction_begins_after_its_rows_have_come(job: Job) -> None:
    """Only the writing counts for transaction.timeout.ms."""
    with AdminClient(bootstrap_servers=job.served.plain) as admin:

        def rows() -> Iterator[pa.RecordBatch]:
            for number in range(3):
                ids = {each.transactional_id for each in admin.list_transactions()}
                assert job.sink.transactional_id(0) not in ids
                yield batch_of(b"%d" % number)

        write_exactly_once(rows(), job.target, job.sink, task=0, tasks=TASKS, batch_id=0)
        assert job.sink.transactional_id(0) in {each.transactional_id for each in admin.list_transactions()}


# --- the progress topic


def test_the_first_batch_fixes_the_number_of_tasks(served: Served) -> None:
    job = Job(served)
    assert job.fix_tasks(tasks=None) == 3
    assert job.fix_tasks(tasks=None) == job.fix_tasks(5, tasks=3) == 3
    with pytest.raises(ConfigError, match="tasks=2: the first batch of the query was written by 3 tasks"):
        job.fix_tasks(1, tasks=2)
    resource = ConfigResource(ConfigResourceType.TOPIC, job.sink.progress_topic)
    with AdminClient(bootstrap_servers=served.plain) as admin:
        assert admin.describe_configs([resource])[resource]["cleanup.policy"].value == "compact"


def test_a_later_batch_without_a_progress_topic_is_refused(served: Served) -> None:
    job = Job(served)
    with pytest.raises(BatchRefused, match=r"progress has no record of batch 6\. .*set first_batch=7"):
        job.fix_tasks(7)
    late = Job(served, first_batch=7)
    assert late.fix_tasks(7) == TASKS
    assert late.write(7, b"x").written


def test_a_progress_topic_that_was_deleted_or_changed_is_noticed(served: Served, job: Job) -> None:
    topic = job.sink.progress_topic
    for task in range(TASKS):
        job.write(0, b"x", task=task)
    with AdminClient(bootstrap_servers=served.plain) as admin:
        admin.create_partitions({topic: NewPartitions(TASKS + 1)})
        with pytest.raises(ConfigError, match="the first batch of the query was written by 3 tasks"):
            job.fix_tasks(1)
        with pytest.raises(BatchRefused, match="was written by 2 tasks, not 3"):
            write_exactly_once((), job.target, job.sink, task=0, tasks=job.fix_tasks(1, None), batch_id=1)
        resource = ConfigResource(ConfigResourceType.TOPIC, topic)
        admin.incremental_alter_configs({resource: {"cleanup.policy": "compact,delete"}})
        with pytest.raises(ConfigError, match="must be compact, or the progress of the sink gets lost"):
            job.fix_tasks(1, None)
        admin.delete_topics([topic])
        with pytest.raises(BatchRefused, match="It was deleted"):
            job.fix_tasks(1)
        admin.create_topics(NewTopic(topic, TASKS, 1, configs={"cleanup.policy": "compact"}))
    with pytest.raises(BatchRefused, match="It was deleted"):
        job.write(1, b"y")
    assert job.read() == [b"x"] * TASKS


def test_the_last_record_is_found_behind_many_aborted_transactions(job: Job) -> None:
    job.write(0, b"a")
    with job.target.producer(job.sink.transactional_id(0)) as producer:
        producer.init_transactions()
        for _ in range(20):
            producer.begin_transaction()
            producer.send(job.sink.progress_topic, b"{}", b"key", partition=0)
            producer.flush()
            producer.abort_transaction()
    found = last_record(job.target.brokers, job.sink.progress_topic, 0)
    assert found is not None
    assert (found.batch_id, found.rows) == (0, 1)
    assert last_record(job.target.brokers, job.sink.progress_topic, 1) is None


def test_an_open_transaction_of_another_producer_is_waited_for(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress_topic, "READ_SECONDS", 0)
    with job.target.producer("another") as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send(job.sink.progress_topic, b"{}", b"key", partition=0).result()
        with pytest.raises(KafkaError, match="a transaction of another producer is open at offset 0"):
            job.write(0, b"a")


def test_a_spool_returns_what_was_appended() -> None:
    batches = [batch_of(b"%d" % number) for number in range(10)]
    other = pa.record_batch({"value": ["text"], "partition": [1]})
    for memory_bytes in (1, 1 << 20):
        with Spool(memory_bytes) as spool:
            assert list(spool.batches()) == []
            for batch in (*batches, other, batches[0]):
                spool.append(batch)
            for _ in range(2):
                assert list(spool.batches()) == [*batches, other, batches[0]]
