"""(shell) One worker: a member of the group that has records worked on, sends what comes of them, and commits.

The clients run on the loop of the caller, the work in a thread. While work takes long the worker keeps calling poll(),
with all partitions paused, so that it stays in its group. Only what the work has returned is sent and committed: with
exactly_once in one transaction, which begins when there is something to send.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from raylog.client.bootstrap import resolve
from raylog.client.consumer.async_consumer import AsyncConsumer
from raylog.client.consumer.calls import Offsets
from raylog.client.errors import (
    AbortableError,
    FencedError,
    InvalidBatchError,
    ProcessingError,
    SerializationError,
    UnknownPartitionError,
)
from raylog.client.processing.records import Failure
from raylog.client.processing.settings import ProcessSettings
from raylog.client.processing.work_thread import WorkThread
from raylog.client.processing.worker_state import Counts, FailedRecord, Send, WorkerState
from raylog.client.producer.async_producer import AsyncDelivery, AsyncProducer
from raylog.core.errors import ErrorCode, KafkaError
from raylog.core.ids import TopicPartition
from raylog.protocol.records.batch import MalformedBatch
from raylog.transport.system_time import now

log = logging.getLogger("raylog.client")
POLL_SECONDS: Final = 0.2
"""How often poll() is called while work takes long."""
CLOSE_SECONDS: Final = 10.0
OF_THE_RECORD: Final = frozenset(
    {
        ErrorCode.MESSAGE_TOO_LARGE,
        ErrorCode.RECORD_LIST_TOO_LARGE,
        ErrorCode.INVALID_RECORD,
        ErrorCode.INVALID_TIMESTAMP,
    }
)
"""Errors that no other output of the same topic need have."""
NO_MEMBER: Final = frozenset({ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION})


@dataclass(frozen=True, slots=True)
class WorkerSpec:
    """What all workers of a pool are made of."""

    settings: ProcessSettings
    work: bytes
    """The function or class, pickled."""
    arguments: Mapping[str, Any]
    """Of its constructor."""


@dataclass(frozen=True, slots=True)
class WorkerProgress:
    """What one worker has done since it was started."""

    counts: Counts
    lag: Mapping[TopicPartition, int]
    """Records behind what is done, of the partitions that it reads."""


class Worker:
    """`start`, then `run` until `stop` is called or it raises, then `close`. For one loop."""

    def __init__(self, spec: WorkerSpec, number: int) -> None:
        self._settings = settings = spec.settings
        self._number = number
        self._thread = WorkThread(spec.work, spec.arguments, settings.output)
        self._working: asyncio.Future[None] | None = None
        """The work that is in progress."""
        self._deliveries: list[tuple[Send, AsyncDelivery]] = []
        self._in_transaction = False
        self._stopping = False
        self._consumer: AsyncConsumer | None = None
        self._producer: AsyncProducer | None = None
        self._state: WorkerState | None = None

    async def start(self) -> None:
        """Raises ProcessingError if the work cannot be constructed, and KafkaError."""
        await asyncio.wrap_future(self._thread.construct())
        settings = self._settings
        # by the name of a cluster this may wait for its brokers; the clients below then find them at once
        await asyncio.to_thread(resolve, settings.bootstrap_servers)
        name = f"{settings.group_id}-{self._number}"
        shared = {"bootstrap.servers": settings.bootstrap_servers, "client.id": name} | dict(settings.client_config)
        consumer_config = {
            "auto.offset.reset": "earliest",
            "allow.auto.create.topics": False,
            **_dotted(settings.consumer_config),
            "group.id": settings.group_id,
            "group.instance.id": name,
            "enable.auto.commit": False,
        }
        transactional = {"transactional.id": name} if settings.exactly_once else {}
        self._producer = AsyncProducer({**shared, **_dotted(settings.producer_config), **transactional})
        if settings.exactly_once:
            await self._until_done(lambda: self._used_producer.init_transactions())
        self._consumer = AsyncConsumer({**shared, **consumer_config})
        records_max = int(consumer_config.get("max.poll.records", 500))
        interval_ms = int(consumer_config.get("max.poll.interval.ms", 300_000))
        self._revocation_seconds = interval_ms / 2000
        """How long the group waits for the work in progress before its partitions are given up."""
        self._state = WorkerState(
            settings,
            worker=self._number,
            work=self._thread.name,
            records_max=records_max,
            jitter=partial(random.uniform, 0.8, 1.2),
        )
        topics = list(settings.topics)
        self._consumer.subscribe(topics, on_assign=self._assigned, on_revoke=self._revoked, on_lost=self._lost)

    async def run(self) -> None:
        """Returns after `stop`, when everything is committed that was done.

        Raises KafkaError: why it cannot go on; FencedError if another worker has its name; ProcessingError at a record
        that cannot be processed.
        """
        state = self._used_state
        while True:
            if self._working is not None and self._working.done():
                self._working.result()
                self._working = None
            await self._send_outputs()
            ending = self._stopping or state.failed is not None
            if state.commit_due(_ms(), ending=ending and self._working is None):
                await self._commit()
            if self._working is not None:
                await self._poll(0)
                await asyncio.wait([self._working], timeout=POLL_SECONDS)
                continue
            if ending and not state.offsets():
                break
            batches = [] if ending else state.take_work(_ms())
            if batches:
                self._working = asyncio.wrap_future(self._thread.run(batches, self._settings.commit_interval_ms))
                await asyncio.wait([self._working], timeout=POLL_SECONDS)
            else:
                await self._poll(state.poll_ms(_ms()) / 1000)
        if state.failed is not None:
            raise _stopped_at(state.failed)

    def stop(self) -> None:
        """Have `run` return after the current record."""
        self._stopping = True
        self._thread.halt()

    def progress(self) -> WorkerProgress:
        if self._consumer is None or self._state is None:
            return WorkerProgress(Counts(), {})
        lag = {tp: self._consumer.lag(tp) for tp in self._consumer.assignment()}
        known = {tp: behind + self._state.pending_of(tp) for tp, behind in lag.items() if behind is not None}
        return WorkerProgress(self._state.counts, known)

    async def close(self) -> None:
        """Leave the group, abort an open transaction, and close the clients and the work."""
        self._thread.close()
        try:
            if self._producer is not None:
                await self._producer.close(CLOSE_SECONDS)
        finally:
            self._state = None
            if self._consumer is not None:
                await self._consumer.close(CLOSE_SECONDS, leave_group=True)

    # --- the group

    async def _poll(self, seconds: float) -> None:
        state = self._used_state
        self._pause()
        try:
            state.polled(await self._used_consumer.poll(seconds, max_records=max(1, state.room)))
        except MalformedBatch as error:
            raise ProcessingError(f"a batch cannot be read: {error.message}", code=error.code) from error
        except KafkaError as error:
            if error.code is ErrorCode.FENCED_INSTANCE_ID:
                raise FencedError(error.code, error.message) from error
            if not error.code.retriable or isinstance(error, (FencedError, ProcessingError)):
                raise
            log.warning("poll failed", extra={"group": self._settings.group_id, "reason": str(error)})

    def _pause(self) -> None:
        consumer, state = self._used_consumer, self._used_state
        assigned, wanted = consumer.assignment(), state.paused(_ms())
        if self._working is not None:
            wanted = set(assigned)
        consumer.pause(*(wanted & assigned) - consumer.paused())
        consumer.resume(*(consumer.paused() & assigned) - wanted)

    def _assigned(self, _: Any, partitions: Collection[TopicPartition]) -> None:
        self._used_state.assigned(partitions)
        self._pause()

    async def _revoked(self, _: Any, partitions: Collection[TopicPartition]) -> None:
        """Commit what is done before others get the partitions. Work that takes too long is theirs to do again."""
        if self._state is None:  # it is closing
            return
        if self._working is not None:
            self._thread.halt()
            await asyncio.wait([self._working], timeout=self._revocation_seconds)
        await self._send_outputs()
        if self._state.offsets():
            await self._commit()
        self._state.given_up(partitions)

    def _lost(self, _: Any, partitions: Collection[TopicPartition]) -> None:
        if self._state is not None:
            self._state.given_up(partitions)

    # --- results

    async def _send_outputs(self) -> None:
        """Those of the work that has ended, in the order of the records."""
        producer = self._used_producer
        for send in self._used_state.worked(self._thread.take_results(), _ms()):
            if self._used_state.must_rewind:
                return
            self._begin_transaction()
            output = send.output
            assert output.topic is not None
            try:
                delivery = await producer.send(
                    output.topic,
                    output.value,
                    output.key,
                    headers=output.headers,
                    partition=output.partition,
                    timestamp_ms=output.timestamp_ms,
                )
            except KafkaError as error:
                self._not_sent(send, error)
                return
            self._deliveries.append((send, delivery))

    def _not_sent(self, send: Send, error: KafkaError) -> None:
        """Raises KafkaError if no output can be sent."""
        is_of_another = isinstance(error, (AbortableError, InvalidBatchError))
        is_unfit = isinstance(error, (SerializationError, UnknownPartitionError))
        if is_unfit or (error.code in OF_THE_RECORD and not is_of_another):
            self._used_state.refused(send, Failure.of(error, retriable=False))
        elif isinstance(error, FencedError):
            raise error
        elif _denied(error) or error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise ProcessingError(f"output topic {send.output.topic!r}: {error}", code=error.code) from error
        elif self._settings.exactly_once or is_of_another or error.code.retriable:
            log.warning("output not sent", extra={"topic": send.output.topic, "reason": str(error)})
            self._used_state.undo(_ms(), retriable=error.code.retriable)
        else:
            raise error

    async def _commit(self) -> None:
        """Commit what is done, or undo it. Raises KafkaError."""
        state, exactly_once = self._used_state, self._settings.exactly_once
        await self._used_producer.flush()
        for send, delivery in self._deliveries:
            error = delivery.exception()
            if error is not None:
                self._not_sent(send, error)
        self._deliveries.clear()
        offsets = state.offsets()
        try:
            if state.must_rewind or not offsets:
                await self._rewind()
            elif exactly_once:
                await self._commit_transaction(offsets)
                state.committed(offsets)
            else:
                wanted: Offsets = {(topic, number): offset for (topic, number), offset in offsets.items()}
                await self._used_consumer.commit(wanted)
                state.committed(offsets)
        except KafkaError as error:
            await self._not_committed(error, offsets)

    async def _commit_transaction(self, offsets: Mapping[TopicPartition, int]) -> None:
        producer, group = self._used_producer, self._used_consumer.group_metadata()
        self._begin_transaction()
        await self._until_done(lambda: producer.send_offsets_to_transaction(offsets, group))
        await self._until_done(lambda: producer.commit_transaction())
        self._in_transaction = False

    async def _not_committed(self, error: KafkaError, offsets: Iterable[TopicPartition]) -> None:
        """Raises KafkaError if it cannot be committed later either."""
        if isinstance(error, FencedError):
            raise error
        if _denied(error):
            topics = ", ".join(sorted({tp.topic for tp in offsets}))
            text = f"group {self._settings.group_id!r} cannot commit offsets of {topics}: {error}"
            raise ProcessingError(text, code=error.code) from error
        if isinstance(error, AbortableError):
            self._used_state.undo(_ms(), retriable=error.code.retriable)
            await self._rewind()
        elif error.code is ErrorCode.FENCED_INSTANCE_ID:
            raise FencedError(error.code, error.message) from error
        elif error.code in NO_MEMBER:
            self._used_state.given_up(offsets)  # the next poll() joins the group again
        elif error.code is not ErrorCode.REBALANCE_IN_PROGRESS and not error.code.retriable:
            raise error
        self._used_state.not_committed(_ms())
        log.warning("commit failed", extra={"group": self._settings.group_id, "reason": str(error)})

    async def _rewind(self) -> None:
        """Have everything read again that is not committed. Raises KafkaError."""
        if self._in_transaction:
            await self._until_done(lambda: self._used_producer.abort_transaction())
            self._in_transaction = False
        consumer = self._used_consumer
        try:
            offsets = self._used_state.rewind()
        except OverflowError as error:
            text = f"the work of a worker was undone {error} times in a row, as no transaction could be committed"
            raise ProcessingError(text) from error
        for tp in offsets.keys() & consumer.assignment():
            consumer.seek(tp, offsets[tp])

    def _begin_transaction(self) -> None:
        if self._settings.exactly_once and not self._in_transaction:
            self._used_producer.begin_transaction()
            self._in_transaction = True

    async def _until_done(self, call: Any) -> None:
        """A call about transactions, which goes on when it is called again after its timeout. Raises KafkaError."""
        while True:
            try:
                await call()
                return
            except KafkaError as error:
                if error.code is not ErrorCode.REQUEST_TIMED_OUT or isinstance(error, AbortableError):
                    raise
                log.warning("transaction not completed yet", extra={"reason": str(error)})

    @property
    def _used_consumer(self) -> AsyncConsumer:
        assert self._consumer is not None
        return self._consumer

    @property
    def _used_producer(self) -> AsyncProducer:
        assert self._producer is not None
        return self._producer

    @property
    def _used_state(self) -> WorkerState:
        assert self._state is not None
        return self._state


def _ms() -> int:
    return now().monotonic_ms


def _dotted(config: Mapping[str, Any]) -> dict[str, Any]:
    return {name.replace("_", "."): value for name, value in config.items()}


def _denied(error: KafkaError) -> bool:
    return error.code.name.endswith("AUTHORIZATION_FAILED")


def _stopped_at(failed: FailedRecord) -> ProcessingError:
    (topic, partition), failure = failed.tp, failed.failure
    times = "" if failed.attempts == 1 else f" after {failed.attempts} attempts"
    where = f"topic {topic!r}, partition {partition}, offset {failed.offset}"
    return ProcessingError(
        f"{where}: {failure.error_class}{times}: {failure.message}",
        code=ErrorCode.INVALID_RECORD,
        topic=topic,
        partition=partition,
        offset=failed.offset,
        cause=failure.error_class,
        trace=failure.trace,
    )
