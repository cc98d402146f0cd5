"""(shell) Reads the partitions whose leader is on this machine from its mapped log files, without requests.

The consumer plans under its lock what to read, reads without it, and puts what was read where a response would go. It
waits for the brokers' doorbells and for its own connections at once.

A partition is read so only after its leader has answered a fetch in its current leader epoch: that has checked that
what was read before is still in the log.
"""

from __future__ import annotations

import os
import select
import time
from collections.abc import Callable, Iterable, Set
from dataclasses import dataclass

from raylog.client.cluster_view import Node
from raylog.client.consumer.core import ConsumerCore
from raylog.client.consumer.fetched import FetchedBatches
from raylog.client.local_broker import SLEEP_SECONDS_MAX, LocalBroker, open_local
from raylog.client.local_reader import LocalPartitionReader
from raylog.config.consumer import ConsumerSettings
from raylog.core.clock import Now
from raylog.core.errors import ErrorCode, KafkaError
from raylog.core.ids import TopicPartition
from raylog.logstore.shared_page import PageSnapshot

RETRY_SECONDS = 1.0
"""A broker that is not on this machine, or does not admit this process, is not tried again earlier."""


@dataclass(slots=True)
class Wanted:
    """A partition to read, and what was read."""

    tp: TopicPartition
    node: Node
    position: int
    moves: int
    """The partition's, to recognize that the user has moved the position meanwhile."""
    fetched: FetchedBatches | None = None
    page: PageSnapshot | None = None
    error: KafkaError | None = None


@dataclass(slots=True)
class _Open:
    node_id: int
    reader: LocalPartitionReader
    page: PageSnapshot | None = None
    """As it was last seen."""


class LocalFiles:
    """The mapped partitions of a consumer. Used by one thread."""

    def __init__(self, user: str | None, settings: ConsumerSettings, *, enabled: bool) -> None:
        """`user` is the name that the consumer logs in with: files are read with the rights of that one alone."""
        self.enabled = enabled
        self._user = user
        self._settings = settings
        self._brokers: dict[int, LocalBroker] = {}
        self._tried: dict[Node, float] = {}
        self._open: dict[TopicPartition, _Open] = {}
        self._wanted: set[TopicPartition] = set()
        """Those of the last read. Changes of others, such as paused ones, do not end a wait."""
        self._wake = -1

    @property
    def partitions(self) -> frozenset[TopicPartition]:
        """Those that are read so."""
        return frozenset(self._open)

    def look_for_brokers(self, nodes: Iterable[Node]) -> set[int]:
        """The ids of those that are on this machine."""
        for node in nodes:
            if node.broker_id not in self._brokers and time.monotonic() >= self._tried.get(node, 0.0):
                self._tried[node] = time.monotonic() + RETRY_SECONDS
                broker = open_local(node.cluster_id, node.broker_id, user=self._user)
                if broker is not None:
                    self._brokers[node.broker_id] = broker
                    if self._wake < 0:
                        self._wake = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        return set(self._brokers)

    def read(self, wanted: list[Wanted]) -> None:
        """Read the next batches of each, as far as there are any."""
        self._wanted = {each.tp for each in wanted}
        for each in wanted:
            try:
                entry = self._reader(each)
                chunk = entry.reader.read(max_bytes=max(1, self._settings.partition_bytes_max))
                each.page = entry.page = entry.reader.page()
                if chunk is not None:
                    records = bytes(chunk.records)
                    if entry.reader.accept(chunk):
                        each.fetched = FetchedBatches(each.tp, records, each.position, chunk.aborted, check_crcs=False)
                        each.fetched.topic_id = entry.reader.topic_id
            except KafkaError as error:
                each.error = error
                self._close(each.tp)
                if error.code is ErrorCode.NETWORK_EXCEPTION:
                    self._close_broker(each.node.broker_id)

    def keep_only(self, partitions: Iterable[TopicPartition]) -> None:
        """Close the files of all other partitions."""
        for tp in self._open.keys() - set(partitions):
            self._close(tp)

    def wait(self, seconds: float) -> None:
        """Until a broker has rung for something new, `wake` is called, or the time is over; may return early."""
        woken: list[tuple[int, int]] = []
        poller = select.poll()
        poller.register(self._wake, select.POLLIN)
        try:
            for descriptor in self.arm():
                poller.register(descriptor, select.POLLIN)
            woken = poller.poll(0.0 if self.has_news else 1000 * min(seconds, SLEEP_SECONDS_MAX))
        finally:
            self.disarm({descriptor for descriptor, _ in woken})
        if any(descriptor == self._wake for descriptor, _ in woken):
            os.eventfd_read(self._wake)

    def arm(self) -> list[int]:
        """Descriptors that are readable when a broker has rung or ended. Look for `has_news` before waiting for them;
        `disarm` follows."""
        return [each for broker in self._brokers.values() if broker.connected for each in broker.arm()]

    @property
    def has_news(self) -> bool:
        """Whether a partition that is wanted has changed since it was read."""
        return any(entry.reader.has_changed(entry.page) for tp, entry in self._open.items() if tp in self._wanted)

    def disarm(self, woken: Set[int]) -> None:
        """`woken` are the descriptors that were found readable."""
        for broker in self._brokers.values():
            broker.disarm()
            broker.notice_end(woken)

    def wake(self) -> None:
        """End `wait`; any thread may call it."""
        if self._wake >= 0:
            os.eventfd_write(self._wake, 1)

    def close(self) -> None:
        for node_id in list(self._brokers):
            self._close_broker(node_id)
        if self._wake >= 0:
            os.close(self._wake)
            self._wake = -1

    def _reader(self, wanted: Wanted) -> _Open:
        """Raises KafkaError."""
        entry = self._open.get(wanted.tp)
        if entry is not None and entry.node_id != wanted.node.broker_id:
            self._close(wanted.tp)
            entry = None
        if entry is None:
            broker = self._brokers[wanted.node.broker_id]
            reader = broker.open(
                wanted.tp, wanted.position, committed=self._settings.committed, check_crc=self._settings.check_crcs
            )
            entry = self._open[wanted.tp] = _Open(wanted.node.broker_id, reader)
        elif entry.reader.position != wanted.position:
            entry.reader.seek(wanted.position)
        return entry

    def _close(self, tp: TopicPartition) -> None:
        entry = self._open.pop(tp, None)
        if entry is not None:
            entry.reader.close()

    def _close_broker(self, node_id: int) -> None:
        broker = self._brokers.pop(node_id, None)
        if broker is not None:
            broker.close()  # first: its handles end with the connection, and it may not respond
        for tp in [tp for tp, entry in self._open.items() if entry.node_id == node_id]:
            self._close(tp)


def read_files(core: ConsumerCore, files: LocalFiles, now: Now, unlocked: Callable[[Callable[[], None]], None]) -> bool:
    """Read what is wanted of local partitions; whether anything was. `unlocked` calls without the consumer's lock."""
    if not files.enabled:
        return False
    nodes = list(core.network.metadata.nodes.values())
    found: set[int] = set()
    unlocked(lambda: found.update(files.look_for_brokers(nodes)))
    core.local_nodes(found)
    if not found:
        return False
    files.keep_only(core.subscription.partitions)
    wanted = [Wanted(state.tp, node, position, state.moves) for state, node, position in core.local_partitions(now)]
    unlocked(lambda: files.read(wanted))
    for each in wanted:
        core.read_locally(each.tp, each.moves, each.fetched, each.page, each.error, now)
    return any(each.fetched is not None or each.error is not None for each in wanted)
