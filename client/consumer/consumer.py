"""(shell) The blocking consumer, for one thread at a time.

with raylog.Consumer(bootstrap_servers="127.0.0.1:9092", group_id="boarding") as consumer:
    consumer.subscribe("flights")
    for record in consumer:
        print(record.key, record.value)
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING, Any, Self, TypeVar

from raylog.client.chunks.references import ValueStore
from raylog.client.consumer.assignors import Assignor
from raylog.client.consumer.calls import ConsumerCalls, Offsets, committed_offsets
from raylog.client.consumer.fetched import ConsumerRecord
from raylog.client.consumer.fetcher import CLOSE_MS_MAX
from raylog.client.consumer.interceptors import ConsumerInterceptor
from raylog.client.consumer.local_files import LocalFiles, read_files
from raylog.client.consumer.offset_lookup import OffsetAndTimestamp
from raylog.client.consumer.offset_requests import OffsetCommit
from raylog.client.consumer.rebalance_callbacks import RebalanceCallback
from raylog.client.consumer.records import Deserializer, Deserializers, arrow_batches
from raylog.client.consumer.subscription import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP
from raylog.client.errors import ClientClosedError
from raylog.client.faces import BlockingFace
from raylog.client.given_config import given_config
from raylog.client.given_values import (
    Partition,
    check_topic_names,
    checked_count,
    checked_function,
    checked_partitions,
    checked_seconds,
)
from raylog.client.group_offsets import OffsetAndMetadata
from raylog.client.network_loop import NetworkLoop
from raylog.config.consumer import CONSUMER_CONFIG
from raylog.core.errors import KafkaError
from raylog.core.ids import TopicPartition
from raylog.transport.system_time import now

if TYPE_CHECKING:
    import pyarrow as pa

OnCommit = Callable[[KafkaError | None, dict[TopicPartition, OffsetAndMetadata]], None]
CLOSE_SECONDS = 30.0
Found = TypeVar("Found")


class Consumer(BlockingFace, ConsumerCalls):
    """Reads records of topics, alone or as a member of a consumer group.

    Open from `__init__` to `close`; a context manager. Only `wakeup` may be called by another thread meanwhile.
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
        """`config` has Kafka's keys of a consumer; `settings` are the same keys with underscores in place of dots.

        `assignors` are used in place of partition.assignment.strategy. `interceptors` see what poll() returns, and what
        is committed. `value_store` has large values in place of large.message.store.url. Partitions whose leader is on
        this machine are read from its mapped files, if `mapped`.

        Raises ConfigError.
        """
        super().__init__("consumer")
        given = given_config(CONSUMER_CONFIG, config, settings)
        deserializers = Deserializers(key_deserializer, value_deserializer)
        self._configure(given, random.Random(), deserializers, assignors, interceptors, value_store)
        self._files = LocalFiles(given.dialer.user, self._core.settings, enabled=mapped)
        self._commits: list[tuple[OffsetCommit, OnCommit]] = []
        """Those whose `on_commit` was not called yet."""
        self._loop = NetworkLoop(
            self._core.network, given.dialer, self._thread.loop, lock=self._changed, after_event=self._after_event
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __iter__(self) -> Iterator[ConsumerRecord]:
        """Records without end; waits for each. What was not yet returned counts as not read."""
        while not self._core.closed:
            yield from self.poll(max_records=1)

    # --- records

    def poll(self, timeout: float = 1.0, *, max_records: int | None = None) -> list[ConsumerRecord]:
        """The next records, at most max.poll.records, in order within each partition; none after `timeout` seconds.

        It must be called again within max.poll.interval.ms. Rebalance callbacks are called here. Raises KafkaError:
        what has gone wrong since the last call, each once; WakeupError. Records that an exception kept from being
        returned are returned by the next call.
        """
        count = checked_count(max_records, self._core.settings.poll_records)
        with self._used():
            try:
                taken = self._polled(timeout, lambda: self._core.take(count))
                found = taken if self._values is None else self._with_values(self._values.fetched(taken))
                returned = self._interceptors.on_consume(self._deserializers.records(found, self.seek))
                self._core.taken = []
                return returned
            except BaseException:
                with self._changed:
                    taken, self._core.taken = self._core.taken, []
                    self._core.take_back(taken)
                raise

    def poll_arrow(self, timeout: float = 1.0, *, columns: Sequence[str] | None = None) -> list[pa.RecordBatch]:
        """The next records as Arrow record batches, of one partition each; none after `timeout` seconds.

        There are as many as one response or one piece of a file had; deserializers are not used. Requires the extra
        `arrow`. Raises as `poll`, and ConfigError for unknown columns.
        """
        from raylog.protocol.records.arrow import choose_columns

        chosen = choose_columns(columns)
        deadline = monotonic() + checked_seconds(timeout)
        with self._used():
            try:
                while taken := self._polled(max(0.0, deadline - monotonic()), self._core.take_batches):
                    batches = arrow_batches(taken[0], chosen, self.seek)
                    self._core.taken_batches = None
                    if batches:
                        return batches
            except KafkaError:
                self._core.taken_batches = None
                raise
            except BaseException:
                with self._changed:
                    self._core.take_batches_back()
                raise
        return []

    def _polled(self, timeout: float, take: Callable[[], list[Found]]) -> list[Found]:
        """What `take` returns, once that is something."""
        deadline = monotonic() + checked_seconds(timeout)
        core = self._core
        with self._changed:
            self._begin_poll()
            poked = False
            try:
                while True:
                    self._run_callbacks()
                    self._check_open()
                    self._raise_wakeup()
                    core.raise_error()
                    batches_taken = core.batches_taken
                    found = take()
                    if found:
                        return found
                    if core.batches_taken != batches_taken:
                        poked = False  # the next ones can be fetched
                    if read_files(core, self._files, now(), self._unlocked):
                        poked = False
                        continue
                    if not poked:  # every event runs the services, so that once is enough
                        poked = True
                        self._poke_if_needed()
                    if not self._wait_for_event(deadline):
                        return []
            finally:
                self._end_poll()

    # --- offsets

    def commit(self, offsets: Offsets | None = None, *, timeout: float | None = None) -> None:
        """Commit these offsets, those of the next records to read, or the positions. Raises KafkaError."""
        with self._used(), self._changed:
            self._check_open()
            wanted = committed_offsets(offsets)
            commit = self._core.commit(wanted, now(), self._timeout_ms(timeout), retries=True)
            self._wait_until(lambda: commit.done)
            self._call_on_commit()
            if commit.error is not None:
                raise commit.error

    def commit_async(self, offsets: Offsets | None = None, *, on_commit: OnCommit | None = None) -> None:
        """Commit, and do not wait. It is not repeated after an error.

        `on_commit(error, offsets)` is called by a later poll(), commit() or close(). Raises KafkaError.
        """
        checked_function("on_commit", on_commit)
        with self._used(), self._changed:
            self._check_open()
            commit = self._core.commit(committed_offsets(offsets), now(), self._timeout_ms(None), retries=False)
            if on_commit is not None:
                self._commits.append((commit, on_commit))
            self._poke()

    def committed(
        self, partitions: Iterable[Partition], *, timeout: float | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """The committed offsets of the group; None where there is none. Raises KafkaError."""
        wanted = checked_partitions(partitions)
        with self._used(), self._changed:
            self._check_open()
            fetch = self._core.committed(wanted, now(), self._timeout_ms(timeout))
            self._wait_until(lambda: fetch.done)
            if fetch.error is not None:
                raise fetch.error
            return {tp: fetch.result.get(tp) for tp in wanted}

    def position(self, partition: Partition, *, timeout: float | None = None) -> int:
        """The offset of the next record. Waits until it is known. Raises KafkaError."""
        with self._used(), self._changed:
            state = self._state(partition)

            def found() -> bool:
                self._core.raise_error()
                return state.positioned

            with self._awaiting(state):
                if not self._wait_until(found, self._timeout_ms(timeout) / 1000):
                    raise self._no_position(state)
                return self._core.safe_position(state)

    def beginning_offsets(
        self, partitions: Iterable[Partition], *, timeout: float | None = None
    ) -> dict[TopicPartition, int]:
        """Raises KafkaError."""
        found = self._look_up(dict.fromkeys(checked_partitions(partitions), EARLIEST_TIMESTAMP), timeout)
        return {tp: each.offset for tp, each in found.items()}

    def end_offsets(
        self, partitions: Iterable[Partition], *, timeout: float | None = None
    ) -> dict[TopicPartition, int]:
        """One past the last offset that can be read now. Raises KafkaError."""
        found = self._look_up(dict.fromkeys(checked_partitions(partitions), LATEST_TIMESTAMP), timeout)
        return {tp: each.offset for tp, each in found.items()}

    def offsets_for_times(
        self, timestamps_ms: Mapping[Partition, int], *, timeout: float | None = None
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """The first record of each partition at or after its timestamp; None if there is none. Raises KafkaError."""
        found = self._look_up(self._checked_timestamps(timestamps_ms), timeout)
        return {tp: each if each.offset >= 0 else None for tp, each in found.items()}

    def partitions_for_topic(self, topic: str, *, timeout: float | None = None) -> range:
        """Waits for the topic's metadata. Raises KafkaError."""
        check_topic_names([topic])
        with self._used(), self._changed:
            self._check_open()
            with self._asking_for(topic):
                if not self._wait_until(lambda: self._topic_is_known(topic), self._timeout_ms(timeout) / 1000):
                    raise self._no_topic(topic)
                return range(len(self._core.network.metadata.topics[topic].partitions))

    # --- the end

    def unsubscribe(self) -> None:
        """Read nothing any more, and leave the group. `on_revoke` is called. Raises KafkaError."""
        with self._used(), self._changed:
            self._check_open()
            self._leave("the consumer has unsubscribed", CLOSE_SECONDS)

    def close(self, timeout: float = CLOSE_SECONDS, *, leave_group: bool | None = None) -> None:
        """Commit if enable.auto.commit says so, leave the group, and close the connections. Can be called twice.

        By default a member with group.instance.id stays in the group (KIP-345); `leave_group` decides otherwise
        (KIP-1092). What a callback raises is raised once everything is closed.
        """
        deadline = monotonic() + checked_seconds(timeout)
        with self._used():
            if self._core.closed:
                return
            try:
                with self._changed:
                    try:
                        self._leave("the consumer was closed", timeout, leave_group=leave_group)
                        self._core.close_fetch_sessions(now())
                        left = min(CLOSE_MS_MAX / 1000, max(0.0, deadline - monotonic()))
                        self._wait_until(lambda: self._core.fetch_sessions_closed, left)
                    finally:
                        self._core.closed = True
                        self._core.abandon(ClientClosedError("the consumer was closed"))
                        self._files.close()
                        self._call_on_commit()
            finally:
                try:
                    self._interceptors.close()
                finally:
                    self._close_connections()

    def _leave(self, reason: str, timeout: float, *, leave_group: bool | None = None) -> None:
        core = self._core
        deadline = monotonic() + timeout
        commit = core.commit_positions(now(), int(1000 * timeout))
        self._wait_until(lambda: commit is None or commit.done)
        given_up = core.given_up()
        try:
            if given_up is not None:
                self._call_listener(given_up)
        finally:
            left = core.unsubscribe(
                reason, now(), max(0, int(1000 * (deadline - monotonic()))), leave_group=leave_group
            )
            self._wait_until(lambda: left is None or left.done)

    # --- waiting

    def _wait_for_event(self, deadline: float) -> bool:
        """Whether something has happened before the deadline."""
        files = self._files
        if not files.partitions:
            return super()._wait_for_event(deadline)
        self._waiting = True
        try:
            self._unlocked(lambda: files.wait(max(0.0, deadline - monotonic())))
            return monotonic() < deadline
        finally:
            self._waiting = False

    def _notify(self) -> None:
        super()._notify()
        self._files.wake()

    def _look_up(
        self, timestamps: Mapping[TopicPartition, int], timeout: float | None
    ) -> Mapping[TopicPartition, OffsetAndTimestamp]:
        with self._used(), self._changed:
            self._check_open()
            lookup = self._core.look_up(timestamps, now(), self._timeout_ms(timeout))
            self._wait_until(lambda: lookup.done)
            if lookup.error is not None:
                raise lookup.error
            return lookup.result

    # --- callbacks

    def _run_callbacks(self) -> None:
        self._call_on_commit()
        while (callback := self._core.member.next_callback()) is not None:
            try:
                self._call_listener(callback)
            finally:
                self._core.member.callback_done(now())
                self._poke()

    def _call_listener(self, callback: RebalanceCallback) -> None:
        """Without the lock: the callback may use the consumer."""
        listener = self._listener(callback)
        if listener is not None:
            self._unlocked(lambda: listener(self, list(callback.partitions)))

    def _call_on_commit(self) -> None:
        if self._committed_offsets:
            self._unlocked(partial(self._interceptors.on_commits, self._committed_offsets))
        done = [each for each in self._commits if each[0].done]
        self._commits = [each for each in self._commits if not each[0].done]
        with ExitStack() as calls:  # what one raises is raised after all of them
            for commit, on_commit in reversed(done):
                calls.callback(self._unlocked, partial(on_commit, commit.error, dict(commit.offsets)))
