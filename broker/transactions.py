"""The transactions this broker coordinates: a shard for each partition of __transaction_state that it leads.

What is decided is brought to its partitions once the decision itself is committed. So a shard is loaded as soon as its
partition is led: nobody may ask for a transaction whose producer is gone, and its end is waited for all the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import NamedTuple

from raylog.broker.coordinator_shards import CoordinatorShards, ShardLog
from raylog.broker.transaction_markers import MarkerSender
from raylog.core.clock import Now
from raylog.core.errors import ErrorCode, KafkaError
from raylog.core.ids import Offset, ProducerId, TopicPartition
from raylog.protocol.records.batch import BatchHeader
from raylog.protocol.records.reader import Record
from raylog.replication.partition import Partition, Uncommitted
from raylog.txncoord import records
from raylog.txncoord.records import ProducerIdentity, TransactionRecord, TransactionUpdated
from raylog.txncoord.transactions import TRANSACTIONAL_ID_BYTES_MAX, Transactions

TRANSACTION_TOPIC = "__transaction_state"
RETRY_MS = 100
"""How long it is waited until what could not be written is tried again."""


class _Decision(NamedTuple):
    """A transaction whose end is in the log, and where the log ended with it."""

    decided: TransactionUpdated
    end_offset: Offset


class TransactionShard:
    """One partition's transactional ids, over its log, for one leader epoch."""

    def __init__(self, partition: Partition, *, on_append: Callable[[TopicPartition], None]) -> None:
        """Reads the log. Raises KafkaError."""
        self.leader_epoch = partition.leader_epoch
        self.transactions = Transactions()
        self._partition = partition
        self._log: ShardLog[TransactionRecord] = ShardLog(
            partition, encode=records.encode, decode=_decode, replay=self.transactions.replay, on_append=on_append
        )
        self._log.load()
        self._decisions: list[_Decision] = []
        """In order of the log: what was not handed out yet by `take_certain`."""
        self._note(self.transactions.decided())

    def append(self, transaction_records: Sequence[TransactionRecord], now: Now) -> None:
        """Make them true. Raises KafkaError with what a client is told, and has changed nothing then."""
        self._log.append(transaction_records, now)
        self._note(
            record
            for record in transaction_records
            if isinstance(record, TransactionUpdated) and record.state.is_decided
        )

    def take_certain(self) -> list[TransactionUpdated]:
        """What was decided and is committed since this was asked last: all partitions are to hear of it."""
        high_watermark = self._partition.high_watermark
        certain = [each.decided for each in self._decisions if each.end_offset <= high_watermark]
        self._decisions = [each for each in self._decisions if each.end_offset > high_watermark]
        return certain

    @property
    def has_decisions(self) -> bool:
        """Whether there is anything to be taken, now or later."""
        return bool(self._decisions)

    @property
    def has_certain(self) -> bool:
        return bool(self._decisions) and self._decisions[0].end_offset <= self._partition.high_watermark

    def _note(self, decided: Iterable[TransactionUpdated]) -> None:
        end_offset = self._partition.log.log_end_offset
        self._decisions += [_Decision(each, end_offset) for each in decided]


class TransactionShards:
    """All shards of this broker. `tick` is to be called whenever `next_deadline_ms` has come."""

    def __init__(
        self,
        led: Callable[[TopicPartition], Partition | None],
        count: Callable[[str], int],
        *,
        markers: MarkerSender,
        new_producer_id: Callable[[Now], ProducerId],
        timeout_ms_max: Callable[[], int],
        on_append: Callable[[TopicPartition], None],
    ) -> None:
        """`led` and `count` are those of `CoordinatorShards`."""

        def load(partition: Partition, now: Now) -> TransactionShard:
            shard = TransactionShard(partition, on_append=on_append)
            self._look_after(shard)
            return shard

        self._shards = CoordinatorShards(TRANSACTION_TOPIC, led, count, load)
        self._markers = markers
        self._new_producer_id = new_producer_id
        self._timeout_ms_max = timeout_ms_max
        self._deciding: list[TransactionShard] = []
        """Those with decisions that are not handed out: looked at after every event of the broker."""
        self._elected = False
        """Whether partitions are led from now on whose shards are not loaded."""
        self._told: list[tuple[TransactionShard, TransactionUpdated]] = []
        """Those of which every partition has heard, and which could not be completed yet: at `_retry_ms` again."""
        self._retry_ms = 0

    # --- commands

    def shard(self, transactional_id: str, now: Now) -> TransactionShard:
        """Raises KafkaError: NOT_COORDINATOR, COORDINATOR_NOT_AVAILABLE, INVALID_REQUEST for what can be no id, or that
        the log cannot be read."""
        if not 0 < len(transactional_id.encode()) <= TRANSACTIONAL_ID_BYTES_MAX:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "a transactional id of no or too many bytes")
        return self._shards.of(transactional_id, now)

    def init_producer(
        self, transactional_id: str, *, timeout_ms: int, expected: ProducerIdentity, now: Now
    ) -> ProducerIdentity:
        """The id and epoch to write with. Raises KafkaError, CONCURRENT_TRANSACTIONS among them: to come again."""
        shard = self.shard(transactional_id, now)
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
        self, transactional_id: str, producer: ProducerIdentity, partitions: Iterable[TopicPartition], now: Now
    ) -> None:
        """Raises KafkaError."""
        shard = self.shard(transactional_id, now)
        outcome = shard.transactions.add_partitions(transactional_id, producer, partitions, now_ms=now.wall_ms)
        self._append(shard, outcome.records, now)

    def end(self, transactional_id: str, producer: ProducerIdentity, *, committed: bool, now: Now) -> None:
        """Raises KafkaError."""
        shard = self.shard(transactional_id, now)
        outcome = shard.transactions.end(transactional_id, producer, committed=committed, now_ms=now.wall_ms)
        self._append(shard, outcome.records, now)

    def all(self, now: Now) -> Iterator[TransactionShard]:
        """Every shard of this broker whose log can be read."""
        return self._shards.all(now)

    def uncommitted(self) -> list[Uncommitted]:
        """The ends of those logs of which not everything is committed yet: any answer may tell of it."""
        return self._shards.uncommitted()

    # --- time and leadership

    def next_deadline_ms(self) -> int | None:
        if self._elected or any(shard.has_certain for shard in self._deciding):
            return 0
        deadlines = [self._markers.retry_ms, self._retry_ms if self._told else None]
        return min((ms for ms in deadlines if ms is not None), default=None)

    def tick(self, now: Now) -> None:
        """Load what is newly led, send what is certain, complete what all have heard of."""
        if self._elected:
            self._elected = False
            for _ in self._shards.all(now):
                pass  # it is loaded
        for shard in self._deciding:
            for decided in shard.take_certain():
                self._markers.send(decided, shard.leader_epoch, partial(self._all_told, shard))
        self._deciding = [shard for shard in self._deciding if shard.has_decisions]
        if self._told and now.monotonic_ms >= self._retry_ms:
            told, self._told = self._told, []
            for shard, decided in told:
                self._all_told(shard, decided, now)
        self._markers.tick(now)

    def time_out(self, now: Now) -> None:
        """Abort what has been open for longer than its producer has asked for; what cannot be is tried again later."""
        for shard in self._shards.all(now):
            self._append_if_possible(shard, shard.transactions.time_out(now_ms=now.wall_ms), now)

    def expire(self, *, expiration_ms: int, now: Now) -> None:
        """Forget ids that nobody has used for so long; what cannot be written now is tried again the next time."""
        for shard in self._shards.all(now):
            expired = shard.transactions.expire(expiration_ms=expiration_ms, now_ms=now.wall_ms)
            self._append_if_possible(shard, expired, now)

    def leadership_changed(self, tp: TopicPartition) -> None:
        """To be told of each partition that has another leader, or another leader epoch, or is gone."""
        if tp.topic != TRANSACTION_TOPIC:
            return
        shard = self._shards.leadership_changed(tp)
        if shard is not None:
            self._deciding = [each for each in self._deciding if each is not shard]
            for decided in shard.transactions.decided():
                self._markers.forget(decided)
            self._told = [entry for entry in self._told if entry[0] is not shard]
        self._elected = True

    def _all_told(self, shard: TransactionShard, decided: TransactionUpdated, now: Now) -> None:
        try:
            self._append(shard, shard.transactions.complete(decided, now_ms=now.wall_ms).records, now)
        except KafkaError:
            self._told.append((shard, decided))
            self._retry_ms = now.monotonic_ms + RETRY_MS

    def _append_if_possible(self, shard: TransactionShard, events: Sequence[TransactionRecord], now: Now) -> None:
        for event in events:  # one by one: a batch has a largest size
            try:
                self._append(shard, [event], now)
            except KafkaError:
                return

    def _append(self, shard: TransactionShard, events: Sequence[TransactionRecord], now: Now) -> None:
        shard.append(events, now)
        self._look_after(shard)

    def _look_after(self, shard: TransactionShard) -> None:
        if shard.has_decisions and shard not in self._deciding:
            self._deciding.append(shard)


def _decode(header: BatchHeader, record: Record) -> TransactionRecord | None:
    return None if header.is_control else records.decode(record.key or b"", record.value)
