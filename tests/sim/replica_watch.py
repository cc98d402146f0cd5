"""The guarantees of replication, checked on all brokers after every event.

- There is at most one leader per leader epoch, one incarnation of one broker, and it writes under its own epoch only.
- A batch of one epoch at one offset is the same in every log; within a log, offsets and epochs never decrease.
- Records below the high watermark of a leader are never lost: every elected leader and every member of the committed
  ISR has them at the same offsets.
- The high watermark of a leader never decreases while it leads.
- Records acknowledged with acks=all are readable by then, and were on at least min.insync.replicas brokers.
- The readable batches of an idempotent producer have no gaps and no duplicates.
- Requests with a leader epoch are answered by the leader of that epoch only.

After an event only the changes on its own host are checked. The contents of other logs are known from their last
events; a broker that is down must still have those when it returns.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple
from uuid import UUID

from raylog.broker.broker import Broker
from raylog.core.ids import NO_BROKER_ID, NO_LEADER_EPOCH, BrokerId, LeaderEpoch, Offset, TopicPartition
from raylog.logstore.log import Log
from raylog.metadata.records import IsrChanged, LeaderChanged, ReplicasChanged
from raylog.protocol.records.batch import split_batches
from raylog.replication.partition import Partition
from tests.sim.ledger import Leadership, MetadataLedger
from tests.sim.world import World

READ_BYTES = 1 << 20

ReplicatedPartition = tuple[UUID, int]


class Batch(NamedTuple):
    """A batch in a log. The checksum covers everything in it except offset and epoch."""

    base_offset: int
    next_offset: int
    leader_epoch: int
    crc: int
    producer_id: int
    producer_epoch: int
    base_sequence: int


class _State(NamedTuple):
    """The state of a replica after an event. If it did not change there is nothing to check."""

    topic_id: UUID
    log: Log
    generation: int
    log_end_offset: Offset
    high_watermark: Offset
    leader_epoch: LeaderEpoch
    is_leader: bool


@dataclass(slots=True)
class _Replica:
    """The contents of a broker's log as of the broker's last event."""

    batches: list[Batch] = field(default_factory=list)

    @property
    def next_offset(self) -> int:
        return self.batches[-1].next_offset if self.batches else 0


@dataclass(slots=True)
class _History:
    """The history of one partition, over all leader epochs."""

    name: TopicPartition
    readable: list[Batch] = field(default_factory=list)
    replicas: dict[BrokerId, _Replica] = field(default_factory=dict)
    written: dict[tuple[int, int], tuple[Batch, set[BrokerId]]] = field(default_factory=dict)
    """(leader epoch, base offset) -> the batch, and all brokers that ever had it."""
    next_sequences: dict[tuple[int, int], int] = field(default_factory=dict)
    """By producer id and epoch: sequences restart with each epoch."""

    @property
    def readable_upto(self) -> int:
        return self.readable[-1].next_offset if self.readable else 0


@dataclass(slots=True)
class _Led:
    """One leader epoch, and when its leader learned of it."""

    broker_id: BrokerId
    incarnation: int
    until_ms: int | None = None


class ReplicaWatch:
    """One for the whole run. Brokers' hosts call `after_event` after each event; clients call `acknowledged` and
    `answered`."""

    def __init__(self, world: World, ledger: MetadataLedger, *, min_insync_replicas: int) -> None:
        self._world = world
        self._ledger = ledger
        self._min_insync_replicas = min_insync_replicas
        self._histories: dict[ReplicatedPartition, _History] = {}
        self._led: dict[Leadership, _Led] = {}
        self._states: dict[BrokerId, tuple[int, dict[TopicPartition, _State]]] = {}
        """By broker: its incarnation, and the states of its replicas after its last event."""
        self._records_seen = 0
        self._last_epochs: dict[ReplicatedPartition, LeaderEpoch] = {}
        self.compacted: frozenset[str] = frozenset()
        """Topics whose records may vanish, which are not watched."""
        self.producers_give_up = False
        """Whether producers fail batches after a time, so that a partition may never see their first ones."""

    # --- after each event

    def after_event(self, broker: Broker, broker_id: BrokerId, incarnation: int) -> None:
        self._follow_ledger()
        known_incarnation, states = self._states.get(broker_id, (0, {}))
        if known_incarnation != incarnation:
            self._states[broker_id] = incarnation, (states := {})
            self._end_leaderships(broker_id, before=incarnation)
        if not states.keys() <= broker.partitions.keys():
            self._forget_removed(broker, broker_id, states)
        for tp, partition in broker.partitions.items():
            if tp.topic in self.compacted:
                continue
            log = partition.log
            before = states.get(tp)
            end_offset, high_watermark = log.log_end_offset, partition.high_watermark
            if (
                before is not None
                and before.log_end_offset == end_offset
                and before.high_watermark == high_watermark
                and before.leader_epoch == partition.leader_epoch
                and before.generation == log.generation
                and before.log is log
            ):
                continue
            if log.offline_reason is None:
                leader_epoch, leads = partition.leader_epoch, partition.is_leader
                now = _State(partition.topic_id, log, log.generation, end_offset, high_watermark, leader_epoch, leads)
                if before is not None and before.topic_id != now.topic_id:
                    before = None
                states[tp] = now
                self._look_at(partition, broker_id, incarnation, before, now)

    def _forget_removed(self, broker: Broker, broker_id: BrokerId, states: dict[TopicPartition, _State]) -> None:
        """Forget replicas that the broker has removed. If they return they start empty."""
        for tp in [tp for tp in states if tp not in broker.partitions]:
            state = states.pop(tp)
            key = state.topic_id, tp.partition
            self._histories[key].replicas.pop(broker_id, None)
            if state.is_leader:
                self._led[(*key, state.leader_epoch)].until_ms = self._world.time_ms

    def _look_at(
        self, partition: Partition, broker_id: BrokerId, incarnation: int, before: _State | None, now: _State
    ) -> None:
        history = self._histories.get((partition.topic_id, partition.topic_partition.partition))
        if history is None:
            key = partition.topic_id, partition.topic_partition.partition
            history = self._histories[key] = _History(partition.topic_partition)
        rewritten = before is None or before.log is not now.log or before.generation != now.generation
        if before is not None and before.log is now.log and now.log_end_offset < before.log_end_offset:
            self._world.marks["follower cut its log"] += 1
        leadership = (partition.topic_id, partition.topic_partition.partition, now.leader_epoch)
        leads_on = before is not None and before.log is now.log and before.leader_epoch == now.leader_epoch
        if before is not None and before.is_leader and not leads_on:
            self._led[(*leadership[:2], before.leader_epoch)].until_ms = self._world.time_ms
        self._read_on(history, broker_id, now, own_epoch=leads_on and now.is_leader, anew=rewritten)
        isr = self._committed_isr(leadership[:2])
        if rewritten and broker_id in isr:
            self._must_hold(history, [broker_id], "is in sync, but its log was opened or truncated")
        if before is not None and before.is_leader and not rewritten and not leads_on:
            # Within this event it may have been the only in-sync replica before it learned of the new leader: valid.
            self._now_readable(history, broker_id, now.high_watermark, isr)
        if now.is_leader:
            led = self._led.setdefault(leadership, _Led(broker_id, incarnation))
            assert (led.broker_id, led.incarnation) == (broker_id, incarnation), (
                f"{history.name}: epoch {now.leader_epoch} is led by broker {broker_id}, but was led by {led.broker_id}"
            )
            if leads_on and before is not None:
                assert now.high_watermark >= before.high_watermark, (
                    f"{history.name}: the high watermark went back from {before.high_watermark} to {now.high_watermark}"
                )
            self._now_readable(history, broker_id, now.high_watermark, isr)

    def _read_on(self, history: _History, broker_id: BrokerId, now: _State, *, own_epoch: bool, anew: bool) -> None:
        """Read the batches that were appended to the log, or with `anew` the whole log."""
        replica = history.replicas.setdefault(broker_id, _Replica())
        if anew:
            replica.batches.clear()
        last = replica.batches[-1] if replica.batches else None
        start = now.log.log_start_offset if last is None else last.next_offset
        for batch in _batches(now.log, Offset(start)):
            what = f"{history.name}: broker {broker_id} has {batch}"
            assert last is None or batch.base_offset == last.next_offset, f"{what} after {last}"
            assert last is None or batch.leader_epoch >= last.leader_epoch, f"{what} after {last}"
            assert not own_epoch or batch.leader_epoch == now.leader_epoch, (
                f"{what}, but leads epoch {now.leader_epoch}"
            )
            first, holders = history.written.setdefault((batch.leader_epoch, batch.base_offset), (batch, set()))
            assert batch == first, f"{what}, but {first} was written there"
            holders.add(broker_id)
            replica.batches.append(first)
            last = first

    def _now_readable(self, history: _History, leader: BrokerId, high_watermark: int, isr: Iterable[BrokerId]) -> None:
        upto = history.readable_upto
        if high_watermark <= upto:
            return
        grown = False
        for batch in _from(history.replicas[leader].batches, upto):
            if batch.next_offset > high_watermark:
                break
            if batch.producer_id >= 0 and batch.base_sequence >= 0:
                producer = batch.producer_id, batch.producer_epoch
                first = batch.base_sequence if self.producers_give_up else 0  # a leader without state takes any
                expected = history.next_sequences.get(producer, first)
                assert batch.base_sequence == expected, f"{history.name}: {batch}, but sequence {expected} was expected"
                count = batch.next_offset - batch.base_offset
                history.next_sequences[producer] = expected + count
            history.readable.append(batch)
            grown = True
        if grown:
            self._must_hold(
                history, {leader, *isr}, f"is in sync, and broker {leader} has exposed it to consumers", since=upto
            )

    def _must_hold(self, history: _History, members: Iterable[BrokerId], why: str, *, since: int = 0) -> None:
        """Check that the logs of these brokers have all readable records, at least from `since` on."""
        readable = _from(history.readable, since)
        if not readable:
            return
        for member in members:
            replica = history.replicas.get(member, _NOTHING)
            held = _from(replica.batches, readable[0].base_offset)
            if held and held[0].base_offset > readable[0].base_offset:  # retention has deleted what lay before it
                due = _from(readable, held[0].base_offset)
            else:
                due = readable
            if held[: len(due)] != due:
                wrong = next(number for number, batch in enumerate(due) if held[number : number + 1] != [batch])
                raise AssertionError(
                    f"{history.name}: {due[wrong]} was readable; broker {member} {why}: it has"
                    f" {held[wrong] if wrong < len(held) else 'nothing there'}, and ends at {replica.next_offset}"
                )

    def _end_leaderships(self, broker_id: BrokerId, *, before: int) -> None:
        for led in self._led.values():
            if led.broker_id == broker_id and led.incarnation < before and led.until_ms is None:
                led.until_ms = self._world.time_ms

    # --- committed metadata

    def _follow_ledger(self) -> None:
        records = self._ledger.records
        if self._records_seen == len(records):
            return
        for record in records[self._records_seen :]:
            if isinstance(record, LeaderChanged):
                key = record.topic_id, record.partition
                last = self._last_epochs.get(key, NO_LEADER_EPOCH)
                assert record.leader_epoch > last, (
                    f"an election started leader epoch {record.leader_epoch} after {last}"
                )
                self._last_epochs[key] = record.leader_epoch
            if isinstance(record, ReplicasChanged):
                key = record.topic_id, record.partition
                last = self._last_epochs.get(key, NO_LEADER_EPOCH)
                assert record.leader_epoch >= last, f"a reassignment went from epoch {last} to {record.leader_epoch}"
                self._last_epochs[key] = record.leader_epoch
            if isinstance(record, (LeaderChanged, IsrChanged, ReplicasChanged)):
                self._look_at_members((record.topic_id, record.partition))
        self._records_seen = len(records)

    def _look_at_members(self, key: ReplicatedPartition) -> None:
        history, topic = self._histories.get(key), self._ledger.image.topics_by_id.get(key[0])
        if history is None or topic is None:
            return
        shown = topic.partitions[key[1]]
        self._must_hold(history, shown.isr, f"joins the ISR (epoch {shown.leader_epoch})")
        if shown.leader != NO_BROKER_ID:
            self._must_hold(history, [shown.leader], f"was elected for epoch {shown.leader_epoch}")

    def _committed_isr(self, key: ReplicatedPartition) -> tuple[BrokerId, ...]:
        topic = self._ledger.image.topics_by_id.get(key[0])
        return () if topic is None else topic.partitions[key[1]].isr

    # --- responses to clients

    def acknowledged(
        self, topic_id: UUID, partition: int, *, base_offset: int, count: int, producer_id: int, base_sequence: int
    ) -> None:
        """A batch was acknowledged with acks=all; a duplicate may be acknowledged with its original offsets."""
        history = self._histories[topic_id, partition]
        what = f"{history.name}: sequence {base_sequence} was acknowledged at {base_offset}"
        assert base_offset + count <= history.readable_upto, f"{what}, but is above the high watermark"
        batch = _from(history.readable, base_offset)[0]
        assert batch[:2] == (base_offset, base_offset + count), f"{what}, but the log has {batch} there"
        assert (batch.producer_id, batch.base_sequence) == (producer_id, base_sequence), (
            f"{what}, but the log has {batch} there"
        )
        holders = history.written[batch.leader_epoch, batch.base_offset][1]
        assert len(holders) >= self._min_insync_replicas, f"{what}, but only {sorted(holders)} have it"

    def answered(self, broker_id: BrokerId, leadership: Leadership, *, asked_ms: int) -> None:
        """A broker has served a request with this leader epoch, which was sent at `asked_ms`."""
        led = self._led.get(leadership)
        assert led is not None, f"broker {broker_id} responds for epoch {leadership[2]}, which has no leader"
        assert led.broker_id == broker_id, f"broker {broker_id} responds for epoch {leadership[2]} of {led.broker_id}"
        assert led.until_ms is None or led.until_ms >= asked_ms, (
            f"broker {broker_id} responds for epoch {leadership[2]}, which was over at {led.until_ms}"
        )

    def elected(self, tp: TopicPartition) -> BrokerId:
        """The committed leader of the partition."""
        shown = self._ledger.image.partition(tp)
        return NO_BROKER_ID if shown is None else shown.leader


_NOTHING = _Replica()


def _from(batches: list[Batch], offset: int) -> list[Batch]:
    """The batches from the one that contains `offset` on."""
    low, high = 0, len(batches)
    while low < high:
        middle = (low + high) // 2
        if batches[middle].next_offset <= offset:
            low = middle + 1
        else:
            high = middle
    return batches[low:]


def _batches(log: Log, start: Offset) -> Iterator[Batch]:
    while start < log.log_end_offset:
        piece = log.read(start, max_bytes=READ_BYTES, upto=log.log_end_offset)
        for _, header in split_batches(piece.records):
            yield Batch(
                header.base_offset,
                header.next_offset,
                header.partition_leader_epoch,
                header.crc,
                header.producer_id,
                header.producer_epoch,
                header.base_sequence,
            )
        start = piece.next_offset
