"""(shell) The consumer for asyncio.

async with raylog.AsyncConsumer(bootstrap_servers="127.0.0.1:9092", group_id="boarding") as consumer:
    consumer.subscribe("flights")
    async for record in consumer:
        print(record.key, record.value)
"""

from __future__ import annotations

import asyncio
import inspect
import random
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar

from raylog.client.chunks.dereferencing import Dereferenced, Dereferencing
from raylog.client.chunks.references import ValueStore
from raylog.client.consumer.assignors import Assignor
from raylog.client.consumer.calls import ConsumerCalls, Offsets, committed_offsets
from raylog.client.consumer.consumer import CLOSE_SECONDS
from raylog.client.consumer.fetched import ConsumerRecord, FetchedBatches
from raylog.client.consumer.fetcher import CLOSE_MS_MAX
from raylog.client.consumer.interceptors import ConsumerInterceptor
from raylog.client.consumer.local_files import LocalFiles, read_files
from raylog.client.consumer.offset_lookup import OffsetAndTimestamp
from raylog.client.consumer.rebalance_callbacks import RebalanceCallback
from raylog.client.consumer.records import Deserializer, Deserializers, arrow_batches
from raylog.client.consumer.subscription import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP
from raylog.client.errors import ClientClosedError
from raylog.client.faces import AsyncioFace
from raylog.client.given_config import given_config
from raylog.client.given_values import Partition, check_topic_names, checked_count, checked_partitions, checked_seconds
from raylog.client.group_offsets import OffsetAndMetadata
from raylog.client.local_broker import SLEEP_SECONDS_MAX
from raylog.client.network_loop import NetworkLoop
from raylog.config.consumer import CONSUMER_CONFIG
from raylog.core.ids import TopicPartition
from raylog.transport.system_time import now

if TYPE_CHECKING:
    import pyarrow as pa

LOOP_SECONDS_MAX: Final = 0.005
"""poll() lets other tasks and the connections run at least so often, also while it always finds records."""
Found = TypeVar("Found")


class AsyncConsumer(AsyncioFace, ConsumerCalls):
    """Belongs to the loop in which it is made. An asynchronous context manager, which ends with `close()`.

    Its callbacks may be functions or coroutine functions.
    """

    def __init__(
        self,
        config: Mapping[str, Any] | None = None,
        *,
        key_deserializer: Deserializer | None = None,
        value_deserializer: Deserializer | None = None,
        assignors: Iterable[Assignor] | None = None,
        interceptors: Sequence[ConsumerInterceptor] = (),
        value_store: ValueStore | None = None,
        mapped: bool = True,
        **settings: Any,
    ) -> None:
        """As `Consumer`. Raises ConfigError, and RuntimeError outside of a running loop."""
        super().__init__()
        given = given_config(CONSUMER_CONFIG, config, settings)
        deserializers = Deserializers(key_deserializer, value_deserializer)
        self._configure(given, random.Random(), deserializers, assignors, interceptors, value_store)
        self._yielded = 0.0
        """When a poll() last let the loop run, by the loop's clock."""
        self._files = LocalFiles(given.dialer.user, self._core.settings, enabled=mapped)
        self._loop = NetworkLoop(
            self._core.network, given.dialer, self._asyncio_loop, lock=self._lock, after_event=self._after_event
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def __aiter__(self) -> AsyncIterator[ConsumerRecord]:
        """Records without end; waits for each. What was not yet returned counts as not read."""
        while not self._core.closed:
            for record in await self.poll(max_records=1):
                yield record

    # --- records

    async def poll(self, timeout: float = 1.0, *, max_records: int | None = None) -> list[ConsumerRecord]:
        """As `Consumer.poll`."""
        count = checked_count(max_records, self._core.settings.poll_records)
        taken = await self._polled(timeout, lambda: self._core.take(count))
        if self._values is not None and taken:
            taken = self._with_values(await self._fetched(self._values, taken))
        return self._interceptors.on_consume(self._deserializers.records(taken, self.seek))

    async def poll_arrow(self, timeout: float = 1.0, *, columns: Sequence[str] | None = None) -> list[pa.RecordBatch]:
        """As `Consumer.poll_arrow`."""
        from raylog.protocol.records.arrow import choose_columns

        chosen = choose_columns(columns)
        deadline = self._asyncio_loop.time() + checked_seconds(timeout)
        while taken := await self._polled(deadline - self._asyncio_loop.time(), self._core.take_batches):
            if batches := arrow_batches(taken[0], chosen, self.seek):
                return batches
        return []

    async def poll_batches(self, timeout: float = 1.0) -> FetchedBatches | None:
        """The next batches of one partition, not decoded; the position moves behind them. None: none came in time.

        Those of aborted transactions, control batches, and records before the position are among them. Checksums are
        not verified. Raises KafkaError as `poll`.
        """
        taken = await self._polled(timeout, self._core.take_batches)
        return taken[0] if taken else None

    async def _polled(self, timeout: float, take: Callable[[], list[Found]]) -> list[Found]:
        """What `take` returns, once that is something."""
        core = self._core
        deadline = self._asyncio_loop.time() + max(0.0, checked_seconds(timeout))
        self._begin_poll()
        poked = False
        try:
            if self._asyncio_loop.time() - self._yielded > LOOP_SECONDS_MAX:
                await asyncio.sleep(0)
                self._yielded = self._asyncio_loop.time()
            while True:
                await self._run_callbacks()  # as long as they take
                self._check_open()
                core.raise_error()
                batches_taken = core.batches_taken
                if found := take():
                    return found
                if core.batches_taken != batches_taken:
                    poked = False  # the next ones can be fetched
                if read_files(core, self._files, now(), lambda call: call()):
                    poked = False
                    continue
                if not poked:  # every event runs the services, so that once is enough
                    poked = True
                    self._poke_if_needed()
                try:
                    async with asyncio.timeout_at(deadline):
                        await self._event_or_news()
                except TimeoutError:
                    return []
        finally:
            self._end_poll()

    async def _fetched(self, values: Dereferencing, taken: list[ConsumerRecord]) -> Dereferenced:
        """The records with their values. If the store raises, or the call is cancelled, they are taken again."""
        subscription = self._core.subscription
        moves = {tp: state.moves for tp, state in subscription.partitions.items()}
        try:
            return await asyncio.to_thread(values.fetched, taken)
        except BaseException:  # positions that another task has moved meanwhile stay there
            unmoved = {tp for tp, state in subscription.partitions.items() if state.moves == moves.get(tp)}
            self._core.take_back([each for each in taken if (each.topic, each.partition) in unmoved])
            raise

    # --- offsets

    async def commit(self, offsets: Offsets | None = None, *, timeout: float | None = None) -> None:
        """As `Consumer.commit`."""
        self._check_open()
        commit = self._core.commit(committed_offsets(offsets), now(), self._timeout_ms(timeout), retries=True)
        await self._until(lambda: commit.done)
        if commit.error is not None:
            raise commit.error

    async def committed(
        self, partitions: Iterable[Partition], *, timeout: float | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """As `Consumer.committed`."""
        self._check_open()
        wanted = checked_partitions(partitions)
        fetch = self._core.committed(wanted, now(), self._timeout_ms(timeout))
        await self._until(lambda: fetch.done)
        if fetch.error is not None:
            raise fetch.error
        return {tp: fetch.result.get(tp) for tp in wanted}

    async def position(self, partition: Partition, *, timeout: float | None = None) -> int:
        """As `Consumer.position`."""
        state = self._state(partition)

        def found() -> bool:
            self._core.raise_error()
            return state.positioned

        with self._awaiting(state):
            if not await self._until(found, self._timeout_ms(timeout) / 1000):
                raise self._no_position(state)
            return self._core.safe_position(state)

    async def beginning_offsets(
        self, partitions: Iterable[Partition], *, timeout: float | None = None
    ) -> dict[TopicPartition, int]:
        """As `Consumer.beginning_offsets`."""
        found = await self._look_up(dict.fromkeys(checked_partitions(partitions), EARLIEST_TIMESTAMP), timeout)
        return {tp: each.offset for tp, each in found.items()}

    async def end_offsets(
        self, partitions: Iterable[Partition], *, timeout: float | None = None
    ) -> dict[TopicPartition, int]:
        """As `Consumer.end_offsets`."""
        found = await self._look_up(dict.fromkeys(checked_partitions(partitions), LATEST_TIMESTAMP), timeout)
        return {tp: each.offset for tp, each in found.items()}

    async def offsets_for_times(
        self, timestamps_ms: Mapping[Partition, int], *, timeout: float | None = None
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """As `Consumer.offsets_for_times`."""
        found = await self._look_up(self._checked_timestamps(timestamps_ms), timeout)
        return {tp: each if each.offset >= 0 else None for tp, each in found.items()}

    async def partitions_for_topic(self, topic: str, *, timeout: float | None = None) -> range:
        """As `Consumer.partitions_for_topic`."""
        check_topic_names([topic])
        self._check_open()
        with self._asking_for(topic):
            if not await self._until(lambda: self._topic_is_known(topic), self._timeout_ms(timeout) / 1000):
                raise self._no_topic(topic)
            return range(len(self._core.network.metadata.topics[topic].partitions))

    # --- the end

    async def unsubscribe(self) -> None:
        """As `Consumer.unsubscribe`."""
        self._check_open()
        await self._leave("the consumer has unsubscribed", CLOSE_SECONDS)

    async def close(self, timeout: float = CLOSE_SECONDS, *, leave_group: bool | None = None) -> None:
        """As `Consumer.close`."""
        if self._core.closed:
            return
        deadline = self._asyncio_loop.time() + checked_seconds(timeout)
        try:
            await self._leave("the consumer was closed", timeout, leave_group=leave_group)
            self._core.close_fetch_sessions(now())
            left = min(CLOSE_MS_MAX / 1000, max(0.0, deadline - self._asyncio_loop.time()))
            await self._until(lambda: self._core.fetch_sessions_closed, left)
        finally:
            self._core.closed = True
            self._core.abandon(ClientClosedError("the consumer was closed"))
            self._loop.close()
            self._files.close()
            self._interceptors.on_commits(self._committed_offsets)
            self._after_event()
            if self._interceptors:
                await asyncio.to_thread(self._interceptors.close)

    async def _leave(self, reason: str, timeout: float, *, leave_group: bool | None = None) -> None:
        deadline = self._asyncio_loop.time() + timeout
        commit = self._core.commit_positions(now(), int(1000 * timeout))
        await self._until(lambda: commit is None or commit.done)
        given_up = self._core.given_up()
        try:
            if given_up is not None:
                await self._call_listener(given_up)
        finally:
            left_ms = max(0, int(1000 * (deadline - self._asyncio_loop.time())))
            left = self._core.unsubscribe(reason, now(), left_ms, leave_group=leave_group)
            await self._until(lambda: left is None or left.done)

    # --- waiting

    async def _event_or_news(self) -> None:
        """An event, or something new in a file."""
        if not self._files.partitions:
            await self._event()
            return
        woken: set[int] = set()
        waiter = self._asyncio_loop.create_future()
        self._waiters.append(waiter)

        def readable(descriptor: int) -> None:
            woken.add(descriptor)
            if not waiter.done():
                waiter.set_result(None)

        descriptors = self._files.arm()
        try:
            for descriptor in descriptors:
                self._asyncio_loop.add_reader(descriptor, readable, descriptor)
            if not self._files.has_news:
                async with asyncio.timeout(SLEEP_SECONDS_MAX):
                    await waiter
        except TimeoutError:  # look at the files in any case
            pass
        finally:
            for descriptor in descriptors:
                self._asyncio_loop.remove_reader(descriptor)
            self._files.disarm(woken)

    async def _look_up(
        self, timestamps: Mapping[TopicPartition, int], timeout: float | None
    ) -> Mapping[TopicPartition, OffsetAndTimestamp]:
        self._check_open()
        lookup = self._core.look_up(timestamps, now(), self._timeout_ms(timeout))
        await self._until(lambda: lookup.done)
        if lookup.error is not None:
            raise lookup.error
        return lookup.result

    # --- callbacks

    async def _run_callbacks(self) -> None:
        self._interceptors.on_commits(self._committed_offsets)
        while (callback := self._core.member.next_callback()) is not None:
            try:
                await self._call_listener(callback)
            finally:
                self._core.member.callback_done(now())
                self._poke()

    async def _call_listener(self, callback: RebalanceCallback) -> None:
        listener = self._listener(callback)
        if listener is not None:
            result = listener(self, list(callback.partitions))
            if inspect.isawaitable(result):
                await result
