"""(shell) Writes the rows of one task, of Spark or of Ray Data, which may be started again at any time."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

import pyarrow as pa

from raylog.client.producer.producer import Producer, TableDelivery
from raylog.raydp_bridge.sinks.columns import RowDigest, check_topics, collected
from raylog.raydp_bridge.sinks.exactly_once import Decision, SinkId, Step, Steps, TaskRows, steps
from raylog.raydp_bridge.sinks.progress_topic import last_record
from raylog.raydp_bridge.sinks.spool import SPOOL_BYTES, Spool
from raylog.raydp_bridge.sinks.target import SinkTarget

UNACKNOWLEDGED_MAX: Final = 4
"""Tables that are sent before the first of them is acknowledged."""


def write_at_least_once(batches: Iterable[pa.RecordBatch], target: SinkTarget) -> Counter[str]:
    """Send the rows by one idempotent producer; the number of records of each topic.

    The columns are those of `Producer.send_arrow`. If the task is started again, all its rows are written again. Raises
    the KafkaError of a record that was not appended.
    """
    with target.producer() as producer:
        return send_rows(producer, target.topic, batches)


class TaskResult(NamedTuple):
    task: int
    rows: int
    written: bool
    """False: an earlier attempt had written the rows."""


def write_exactly_once(
    batches: Iterable[pa.RecordBatch],
    target: SinkTarget,
    sink: SinkId,
    *,
    task: int,
    tasks: int,
    batch_id: int,
    spool_bytes: int = SPOOL_BYTES,
) -> TaskResult:
    """Write the rows of a task in one transaction, unless an earlier attempt has done so (see `exactly_once`).

    The partition `task` of the sink's progress topic must exist. More than `spool_bytes` of rows are kept in a
    temporary file until they are sent. Raises BatchRefused; FencedError if another attempt has begun; KafkaError. After
    any error the task can be started again.
    """
    with Spool(spool_bytes) as spool:
        digest = RowDigest()
        for batch in _checked(batches):
            digest.update(batch)
            spool.append(batch)
        wanted = TaskRows(batch_id, digest.hexdigest(), digest.rows, tasks)
        with target.producer(sink.transactional_id(task)) as producer:
            attempt = TaskAttempt(producer, target, sink, task, wanted, spool)
            decision = attempt.run(steps(sink, task, wanted))
        return TaskResult(task, digest.rows, decision is Decision.WRITE)


class TaskAttempt:
    """Carries out the steps of one task."""

    def __init__(
        self, producer: Producer, target: SinkTarget, sink: SinkId, task: int, wanted: TaskRows, spool: Spool
    ) -> None:
        self._producer = producer
        self._target = target
        self._sink = sink
        self._task = task
        self._wanted = wanted
        self._spool = spool

    def run(self, plan: Steps) -> Decision:
        try:
            step = next(plan)
            while True:
                step = plan.send(self.carry_out(step))
        except StopIteration as end:
            decided: Decision = end.value
            return decided

    def carry_out(self, step: Step) -> TaskRows | None:
        """The last record for READ_PROGRESS. Raises KafkaError."""
        producer, topic = self._producer, self._sink.progress_topic
        match step:
            case Step.INITIALIZE:
                producer.init_transactions()
            case Step.READ_PROGRESS:
                return last_record(self._target.brokers, topic, self._task)
            case Step.BEGIN:
                producer.begin_transaction()
            case Step.SEND_ROWS:
                send_rows(producer, self._target.topic, self._spool.batches())
            case Step.SEND_PROGRESS:
                key = self._sink.transactional_id(self._task)
                producer.send(topic, self._wanted.encode(), key, partition=self._task)
            case Step.COMMIT:
                producer.commit_transaction()
        return None


def send_rows(producer: Producer, topic: str | None, batches: Iterable[pa.RecordBatch]) -> Counter[str]:
    """Returns when all of them are acknowledged."""
    counts: Counter[str] = Counter()
    sent: deque[TableDelivery] = deque()
    for table in collected(_checked(batches)):
        sent.append(producer.send_arrow(topic, table))
        if len(sent) > UNACKNOWLEDGED_MAX:
            _count(sent.popleft(), counts)
    for delivery in sent:
        _count(delivery, counts)
    return counts


def _checked(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        check_topics(batch)
        yield batch


def _count(delivery: TableDelivery, counts: Counter[str]) -> None:
    for appended in delivery.result():
        counts[appended.topic] += appended.record_count
