"""The transactions that this node coordinates: a shard for each partition of __transaction_state that it leads.

Once the record of a decision (PrepareCommit, PrepareAbort) is committed, markers are sent to the partitions of the
transaction; once all have them, the record of its completion is written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import NamedTuple

from raylog.coordination.shards import Coordinated, Coordinates, CoordinatorShards, ShardLog
from raylog.core.clock import Now
from raylog.core.errors import ErrorCode, KafkaError
from raylog.core.ids import ProducerId, ProducerIdentity, TopicPartition
from raylog.protocol.records.batch import BatchHeader
from raylog.protocol.records.reader import Record
from raylog.replication.partition import Partition
from raylog.transport.commits import COMMITTED, CommitQueues
from raylog.txncoord import records
from raylog.txncoord.marker_sender import MarkerSender
from raylog.txncoord.records import TransactionRecord, TransactionUpdated
from raylog.txncoord.transactions import TRANSACTIONAL_ID_BYTES_MAX, VERSION_2, Transactions

TRANSACTION_TOPIC = "__transaction_state"
COMMIT_MS_MAX = 5000
"""How long a leader waits until the partition that it has added is committed."""
RETRY_MS = 100
"""Backoff before a completion that could not be written is tried again."""


class Completion(NamedTuple):
    """The key under which requests wait until the transaction of an id is completed (`transport.delayed`)."""

    transactional_id: str


class TransactionShard:
    """The transactional ids of one partition, over its log, for one leader epoch."""

    def __init__(
        self,
        partition: Partition,
        *,
        on_append: Callable[[TopicPartition, int], None],
        flexible: Callable[[], bool],
    ) -> None:
        """`flexible`: whether records are written in the flexible format."""
        self.leader_epoch = partition.leader_epoch
        self.transactions = Transactions()

        def encode(record: TransactionRecord) -> tuple[bytes, bytes | None]:
            return records.encode(record, flexible=flexible())

        self._log: ShardLog[TransactionRecord] = ShardLog(
            partition, encode=encode, decode=_decode, replay=self.transactions.replay, on_append=on_append
        )
        self.load_some = self._log.load_some
        self.commit_point = self._log.commit_point
        self.append = self._log.append
        self.on_loaded: Callable[[], None] = lambda: None

    def loaded(self, now: Now) -> None:
        """The log is replayed: complete the decided transactions."""
        self.on_loaded()


class TransactionShards:
    """All shards of this node. The node calls `tick` at `next_deadline_ms`."""

    def __init__(
        self,
        node: Coordinated,
        *,
        commits: CommitQueues,
        markers: MarkerSender,
        new_producer_id: Callable[[Now], ProducerId],
        timeout_ms_max: Callable[[], int],
        on_completed: Callable[[Completion], None],
        flexible: Callable[[], bool],
    ) -> None:
        def make(partition: Partition) -> TransactionShard:
            shard = TransactionShard(partition, on_append=node.partition_appended, flexible=flexible)
            shard.on_loaded = partial(self._loaded, shard)
            return shard

        self._shards = CoordinatorShards(TRANSACTION_TOPIC, node, make)
        self._commits = commits
        self._markers = markers
        self._new_producer_id = new_producer_id
        self._timeout_ms_max = timeout_ms_max
        self._on_completed = on_completed
        self._marked: list[tuple[TransactionShard, TransactionUpdated]] = []
        """Decisions with all markers written whose completion could not be appended: retried at `_retry_ms`."""
        self._retry_ms = 0

    # --- commands

    def shard(self, exchange: Coordinates, transactional_id: str) -> TransactionShard:
        """The shard of the id; from now on the response to `exchange` depends on its log. Raises KafkaError."""
        shard = self._of(transactional_id, exchange.now)
        exchange.depends_on(shard)
        return shard

    def verify(
        self, transactional_id: str, producer: ProducerIdentity, partitions: Iterable[TopicPartition], now: Now
    ) -> dict[TopicPartition, ErrorCode]:
        """Check that the partitions are in the producer's transaction; a code for each. Raises KafkaError."""
        return self._of(transactional_id, now).transactions.verify(transactional_id, producer, partitions)

    def _of(self, transactional_id: str, now: Now) -> TransactionShard:
        """Raises KafkaError: NOT_COORDINATOR, COORDINATOR_NOT_AVAILABLE, COORDINATOR_LOAD_IN_PROGRESS, the error of a
        log that cannot be read, or INVALID_REQUEST for an id of no or too many bytes."""
        if not 0 < len(transactional_id.encode()) <= TRANSACTIONAL_ID_BYTES_MAX:
            message = f"a transactional id must have 1 to {TRANSACTIONAL_ID_BYTES_MAX} bytes"
            raise KafkaError(ErrorCode.INVALID_REQUEST, message)
        return self._shards.of(transactional_id, now)

    def init_producer(
        self, exchange: Coordinates, transactional_id: str, *, timeout_ms: int, expected: ProducerIdentity
    ) -> ProducerIdentity:
        """The producer id and epoch. Raises KafkaError, for instance CONCURRENT_TRANSACTIONS, which is retriable."""
        shard, now = self.shard(exchange, transactional_id), exchange.now
        if not 0 < timeout_ms <= self._timeout_ms_max():
            message = f"transaction.timeout.ms={timeout_ms}: must be between 1 and {self._timeout_ms_max()}"
            raise KafkaError(ErrorCode.INVALID_TRANSACTION_TIMEOUT, message)
        outcome = shard.transactions.init_producer(
            transactional_id,
            timeout_ms=timeout_ms,
            expected=expected,
            new_producer_id=lambda: self._new_producer_id(now),
            now_ms=now.wall_ms,
        )
        self._append(shard, outcome.records, now)
        if outcome.response is None:
            raise KafkaError(ErrorCode.CONCURRENT_TRANSACTIONS)
        return outcome.response

    def add_partitions(
        self,
        exchange: Coordinates,
        transactional_id: str,
        producer: ProducerIdentity,
        partitions: Iterable[TopicPartition],
        *,
        client_version: int = 0,
    ) -> None:
        """Raises KafkaError."""
        shard, now = self.shard(exchange, transactional_id), exchange.now
        self._add(shard, transactional_id, producer, partitions, client_version, now)

    def add_as_leader(
        self,
        transactional_id: str,
        producer: ProducerIdentity,
        partitions: Iterable[TopicPartition],
        now: Now,
        then: Callable[[ErrorCode], None],
    ) -> None:
        """Add partitions that this node leads, for a batch of version 2; `then` is called once that is committed.

        A batch that was appended earlier would hang if the record was lost. Raises KafkaError.
        """
        shard = self._of(transactional_id, now)
        self._add(shard, transactional_id, producer, partitions, VERSION_2, now)
        point = shard.commit_point()
        if point is None:
            then(ErrorCode.NONE)
            return

        def settled(codes: Sequence[ErrorCode]) -> None:
            then(ErrorCode.NONE if codes[0] in COMMITTED else ErrorCode.COORDINATOR_NOT_AVAILABLE)

        self._commits.wait((point,), deadline_ms=now.monotonic_ms + COMMIT_MS_MAX, done=settled)

    def _add(
        self,
        shard: TransactionShard,
        transactional_id: str,
        producer: ProducerIdentity,
        partitions: Iterable[TopicPartition],
        client_version: int,
        now: Now,
    ) -> None:
        outcome = shard.transactions.add_partitions(
            transactional_id, producer, partitions, client_version=client_version, now_ms=now.wall_ms
        )
        self._append(shard, outcome.records, now)

    def end(self, exchange: Coordinates, transactional_id: str, producer: ProducerIdentity, *, committed: bool) -> None:
        """Raises KafkaError."""
        shard, now = self.shard(exchange, transactional_id), exchange.now
        outcome = shard.transactions.end(transactional_id, producer, committed=committed, now_ms=now.wall_ms)
        self._append(shard, outcome.records, now)

    def end_2(
        self, exchange: Coordinates, transactional_id: str, producer: ProducerIdentity, *, committed: bool
    ) -> ProducerIdentity:
        """The producer's identity in its next transaction. Raises KafkaError."""
        shard, now = self.shard(exchange, transactional_id), exchange.now
        outcome = shard.transactions.end_2(
            transactional_id,
            producer,
            committed=committed,
            new_producer_id=lambda: self._new_producer_id(now),
            now_ms=now.wall_ms,
        )
        self._append(shard, outcome.records, now)
        return outcome.response

    def all(self, exchange: Coordinates) -> Iterator[TransactionShard]:
        """All shards of this node; the response depends on all of them.

        Raises KafkaError(COORDINATOR_LOAD_IN_PROGRESS) while one is not loaded.
        """
        if self._shards.loading:
            raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        for shard in self._shards.all():
            exchange.depends_on(shard)
            yield shard

    def coordinated(self) -> Iterator[TransactionShard]:
        """The loaded shards of this node, for metrics: not all that they show is committed."""
        return self._shards.all()

    # --- time and leadership

    def next_deadline_ms(self) -> int | None:
        due_ms = self._markers.retry_ms
        if self._marked and (due_ms is None or self._retry_ms < due_ms):
            due_ms = self._retry_ms
        return due_ms

    def tick(self, now: Now) -> None:
        """Send markers, and write the completions that could not be written before."""
        if self._marked and now.monotonic_ms >= self._retry_ms:
            marked, self._marked = self._marked, []
            for shard, decided in marked:
                self._complete(shard, decided, now)
        self._markers.tick(now)

    def time_out(self, now: Now) -> None:
        """Abort transactions that have exceeded their timeout; appends that fail are retried at the next check."""
        for shard in self._shards.all():
            self._append_if_possible(shard, shard.transactions.time_out(now_ms=now.wall_ms), now)

    def expire(self, *, expiration_ms: int, now: Now) -> None:
        """Remove transactional ids not used for this long; appends that fail are retried at the next check."""
        for shard in self._shards.all():
            expired = shard.transactions.expire(expiration_ms=expiration_ms, now_ms=now.wall_ms)
            self._append_if_possible(shard, expired, now)

    def leadership_changed(self, tp: TopicPartition, now: Now) -> None:
        """The leader or leader epoch of a partition has changed, or the partition was deleted."""
        shard = self._shards.leadership_changed(tp, now)
        if shard is not None:
            for decided in shard.transactions.decided():
                self._markers.forget(shard.leader_epoch, decided)
            self._marked = [entry for entry in self._marked if entry[0] is not shard]

    def _complete(self, shard: TransactionShard, decided: TransactionUpdated, now: Now) -> None:
        """All partitions have their markers: complete the transaction."""
        try:
            self._append(shard, shard.transactions.complete(decided, now_ms=now.wall_ms).records, now)
        except KafkaError:
            self._marked.append((shard, decided))
            self._retry_ms = now.monotonic_ms + RETRY_MS
            return
        self._on_completed(Completion(decided.transactional_id))

    def _append_if_possible(self, shard: TransactionShard, events: Sequence[TransactionRecord], now: Now) -> None:
        for event in events:  # one by one: the size of a batch is limited
            try:
                self._append(shard, [event], now)
            except KafkaError:
                return

    def _append(self, shard: TransactionShard, events: Sequence[TransactionRecord], now: Now) -> None:
        shard.append(events, now)
        self._mark_when_committed(
            shard, [each for each in events if isinstance(each, TransactionUpdated) and each.state.is_decided]
        )

    def _loaded(self, shard: TransactionShard) -> None:
        self._mark_when_committed(shard, list(shard.transactions.decided()))

    def _mark_when_committed(self, shard: TransactionShard, decisions: Sequence[TransactionUpdated]) -> None:
        """Send the markers of decisions that were just appended or loaded, once they are committed."""
        if not decisions:
            return

        def committed(codes: Sequence[ErrorCode]) -> None:
            if codes[0] in COMMITTED:
                for decided in decisions:
                    self._markers.send(decided, shard.leader_epoch, partial(self._complete, shard))

        point = shard.commit_point()
        if point is None:
            committed((ErrorCode.NONE,))
        else:
            self._commits.wait((point,), deadline_ms=None, done=committed)


def _decode(header: BatchHeader, record: Record) -> TransactionRecord | None:
    return None if header.is_control else records.decode(record.key or b"", record.value)
