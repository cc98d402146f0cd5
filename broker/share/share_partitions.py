"""The share-partitions of the partitions that this broker leads.

Their state is loaded from the share coordinator when it is first
used, stored there with every decision, and dropped with the leadership or with the last session of their group.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from raylog.broker.share.share_partition import Decided, RecordState, ShareLimits, SharePartition, StateBatch
from raylog.core.clock import Now
from raylog.core.errors import ErrorCode, InvariantViolation, KafkaError
from raylog.core.ids import LeaderEpoch, TopicPartition
from raylog.groupcoord.deadlines import Deadlines
from raylog.replication.partition import Partition
from raylog.sharecoord import records
from raylog.sharecoord.persister import Persister
from raylog.sharecoord.records import SharePartitionKey
from raylog.sharecoord.states import UNINITIALIZED_START_OFFSET, Write

RETRY_MS: Final = 500
"""When state that could not be read is asked for again."""
_FENCED: Final = (ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.FENCED_STATE_EPOCH)

OnStored = Callable[[KafkaError | None], None]
"""Called once: None if the decision is stored."""


class Acquirable(NamedTuple):
    """Key of a ShareFetch that waits: records of the share-partition are available, or its state is loaded."""

    key: SharePartitionKey


class _Storing(NamedTuple):
    ticket: int | None
    """Of the decision; None for what a leader stores when it begins."""
    batches: Sequence[StateBatch]
    on_stored: OnStored


@dataclass(slots=True, eq=False)
class _Entry:
    key: SharePartitionKey
    tp: TopicPartition
    leader_epoch: LeaderEpoch
    state_epoch: int = 0
    machine: SharePartition | None = None
    """None until the state is loaded."""
    refused: KafkaError | None = None
    """Why it cannot be loaded; reported once."""
    retry_ms: int | None = None
    queue: list[_Storing] = field(default_factory=list)
    """Decisions to be stored by the next request."""
    writing: list[_Storing] = field(default_factory=list)
    """Decisions of the request that is under way: there is one at a time, so that none overtakes another."""
    unused: bool = False
    """The last session of the group has ended: the share-partition is dropped once all decisions are stored."""
    gone: bool = False


class SharePartitions:
    """All share-partitions of this broker. The node calls `tick` at `next_deadline_ms`."""

    def __init__(
        self,
        persister: Persister,
        *,
        led: Callable[[TopicPartition], Partition | None],
        limits: Callable[[str], ShareLimits],
        first_offset: Callable[[str, Partition, Now], int],
        on_available: Callable[[Hashable], None],
    ) -> None:
        """`limits` are those of a group; `first_offset` is where a group without a start offset begins, or raises
        KafkaError if that is not known yet."""
        self._entries: dict[SharePartitionKey, _Entry] = {}
        self._by_group: dict[str, set[SharePartitionKey]] = {}
        self._by_partition: dict[TopicPartition, set[SharePartitionKey]] = {}
        self._persister = persister
        self._led = led
        self._limits = limits
        self._first_offset = first_offset
        self._on_available = on_available
        self._deadlines: Deadlines[SharePartitionKey] = Deadlines()

    def __len__(self) -> int:
        return len(self._entries)

    # --- for requests

    def open(self, key: SharePartitionKey, partition: Partition, now: Now) -> SharePartition | None:
        """The share-partition of a partition that this broker leads; None while its state is being loaded.

        Raises KafkaError(NOT_LEADER_OR_FOLLOWER) if another broker leads it, as its share coordinator says.
        """
        entry = self._entries.get(key)
        if entry is not None and entry.leader_epoch != partition.leader_epoch:
            self._drop(entry)
            entry = None
        if entry is None:
            entry = self._entries[key] = _Entry(key, partition.topic_partition, partition.leader_epoch)
            self._by_group.setdefault(key.group, set()).add(key)
            self._by_partition.setdefault(entry.tp, set()).add(key)
            self._load(entry, now)
        entry.unused = False
        if entry.refused is not None:
            self._drop(entry)
            raise entry.refused
        if entry.machine is not None:
            entry.machine.log_starts_at(partition.log.log_start_offset)
        return entry.machine

    def loaded(self, key: SharePartitionKey) -> SharePartition | None:
        """The share-partition, if its state is loaded."""
        entry = self._entries.get(key)
        return None if entry is None else entry.machine

    def store(self, key: SharePartitionKey, decided: Decided | None, on_stored: OnStored, now: Now) -> None:
        """Have a decision stored, and settle it; without one there is nothing to store."""
        entry = self._entries[key]
        self._set_deadline(entry)
        if decided is None:
            on_stored(None)
            return
        entry.queue.append(_Storing(decided.ticket, decided.batches, on_stored))
        self._flush(entry, now)

    def acquired(self, key: SharePartitionKey) -> None:
        """Records were acquired: their locks may end earlier than all others."""
        self._set_deadline(self._entries[key])

    # --- for sessions

    def release(self, group: str, member_id: str, now: Now, *, orderly: bool) -> None:
        """The session of a member has ended: release what it has acquired."""
        for key in sorted(self._by_group.get(group, ())):
            entry = self._entries[key]
            decided = entry.machine and entry.machine.release(member_id, orderly=orderly)
            if decided:
                self.store(key, decided, _ignored, now)
                self._on_available(Acquirable(key))

    def group_unused(self, group: str) -> None:
        """No member of the group has a session any more: forget its share-partitions, which are stored."""
        for key in sorted(self._by_group.get(group, ())):
            entry = self._entries[key]
            entry.unused = True
            self._drop_unused(entry)

    # --- leadership and time

    def leadership_changed(self, tp: TopicPartition) -> None:
        """The leader or leader epoch of a partition has changed, or the partition was deleted."""
        partition = self._led(tp)
        for key in sorted(self._by_partition.get(tp, ())):
            entry = self._entries[key]
            if partition is None or partition.leader_epoch != entry.leader_epoch:
                self._drop(entry)

    def next_deadline_ms(self) -> int | None:
        return self._deadlines.next_ms()

    def tick(self, now: Now) -> None:
        """End acquisition locks that have timed out, and load again what could not be loaded."""
        for key in self._deadlines.expired(now.monotonic_ms):
            entry = self._entries.get(key)
            if entry is None:
                continue
            if entry.machine is None:
                if entry.retry_ms is not None and entry.retry_ms <= now.monotonic_ms:
                    entry.retry_ms = None
                    self._load(entry, now)
                continue
            self.store(key, entry.machine.tick(now.monotonic_ms), _ignored, now)
            self._on_available(Acquirable(key))

    # --- loading

    def _load(self, entry: _Entry, now: Now) -> None:
        def read(result: Any, now: Now) -> None:
            if entry.gone:
                return
            if isinstance(result, KafkaError):
                self._not_loaded(entry, result, now)
                return
            try:
                self._begin(entry, result, now)
            except KafkaError as error:
                self._not_loaded(entry, error, now)

        self._persister.read(entry.key, leader_epoch=entry.leader_epoch, on_result=read, now=now)

    def _begin(self, entry: _Entry, state: Any, now: Now) -> None:
        partition = self._led(entry.tp)
        if partition is None:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        start_offset = state.start_offset
        is_new = start_offset == UNINITIALIZED_START_OFFSET
        if is_new:
            start_offset = self._first_offset(entry.key.group, partition, now)
        end_offset = partition.log.log_end_offset
        stored = [
            StateBatch(each.first_offset, each.last_offset, each.delivery_state, each.delivery_count)
            for each in state.state_batches
        ]
        batches = [
            batch._replace(last_offset=min(batch.last_offset, end_offset - 1))
            for batch in stored
            if batch.first_offset < end_offset
        ]
        lost = _after(end_offset, stored)
        is_behind = start_offset > end_offset
        group = entry.key.group
        try:
            entry.machine = SharePartition(min(start_offset, end_offset), batches, limits=lambda: self._limits(group))
        except InvariantViolation as error:  # what another node has stored
            raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, str(error)) from error
        entry.state_epoch = state.state_epoch
        if is_new or is_behind or lost:  # else another leader might begin elsewhere, and records would be passed over
            entry.queue.append(_Storing(None, lost, _ignored))
            self._flush(entry, now)
        self._on_available(Acquirable(entry.key))

    def _not_loaded(self, entry: _Entry, error: KafkaError, now: Now) -> None:
        if error.code in (*_FENCED, ErrorCode.NOT_LEADER_OR_FOLLOWER):
            entry.refused = KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
            self._on_available(Acquirable(entry.key))
        else:  # the coordinator is not available, or the group does not know of the partition yet
            entry.retry_ms = now.monotonic_ms + RETRY_MS
            self._deadlines.set(entry.key, entry.retry_ms)

    # --- storing

    def _flush(self, entry: _Entry, now: Now) -> None:
        if entry.writing or not entry.queue or entry.machine is None:
            return
        entry.writing, entry.queue = entry.queue, []
        batches = [batch for storing in entry.writing for batch in storing.batches]
        write = Write(
            entry.key,
            entry.state_epoch,
            entry.leader_epoch,
            *entry.machine.to_store(),
            tuple(records.StateBatch(*batch) for batch in batches),
        )

        def written(result: Any, now: Now) -> None:
            self._written(entry, result if isinstance(result, KafkaError) else None, now)

        self._persister.write(write, on_result=written, now=now)

    def _written(self, entry: _Entry, error: KafkaError | None, now: Now) -> None:
        settled, entry.writing = entry.writing, []
        for storing in settled:
            if entry.machine is not None and storing.ticket is not None:
                entry.machine.settle(storing.ticket, stored=error is None)
        if not entry.gone:
            self._set_deadline(entry)
            if error is not None and error.code in _FENCED:
                self._drop(entry)
        for storing in settled:
            storing.on_stored(error)
        if not entry.gone:
            self._on_available(Acquirable(entry.key))
            self._flush(entry, now)
            self._drop_unused(entry)

    def _drop_unused(self, entry: _Entry) -> None:
        if entry.unused and not entry.queue and not entry.writing and not entry.gone:
            self._drop(entry)

    def _set_deadline(self, entry: _Entry) -> None:
        due_ms = None if entry.machine is None else entry.machine.next_deadline_ms()
        if due_ms is None:
            self._deadlines.discard(entry.key)
        else:
            self._deadlines.set(entry.key, due_ms)

    def _drop(self, entry: _Entry) -> None:
        """Forget the share-partition; decisions that are not on their way fail."""
        entry.gone = True
        if self._entries.get(entry.key) is entry:
            del self._entries[entry.key]
            self._deadlines.discard(entry.key)
            _remove(self._by_group, entry.key.group, entry.key)
            _remove(self._by_partition, entry.tp, entry.key)
        queue, entry.queue = entry.queue, []
        for storing in queue:
            storing.on_stored(KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER))
        self._on_available(Acquirable(entry.key))


def _after(end_offset: int, stored: Iterable[StateBatch]) -> tuple[StateBatch, ...]:
    """What is to be stored of the records that were lost in an unclean election: others will have their offsets."""
    last_offset = max((batch.last_offset for batch in stored), default=-1)
    return (StateBatch(end_offset, last_offset, RecordState.AVAILABLE, 0),) if last_offset >= end_offset else ()


def _remove(index: dict[Any, set[SharePartitionKey]], place: Hashable, key: SharePartitionKey) -> None:
    keys = index[place]
    keys.discard(key)
    if not keys:
        del index[place]


def _ignored(_: KafkaError | None) -> None:
    """No request waits for it: if it is not stored, the records are delivered once more."""
