"""A share-partition agrees with a naive one, offset by offset, through failures of storing and changes of the leader.

A record is acquired by one member at a time, delivered at least once until it is acknowledged, rejected or archived at
the delivery limit, and the counts of deliveries are right.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from raylog.broker.share.share_partition import (
    Acknowledgement,
    Decided,
    RecordState,
    ShareLimits,
    SharePartition,
    Span,
    StateBatch,
)
from raylog.core.errors import ErrorCode, KafkaError
from raylog.protocol.share import AcknowledgeType, AcquireMode
from raylog.sharecoord.records import SharePartitionKey
from raylog.sharecoord.records import StateBatch as StoredBatch
from raylog.sharecoord.states import ShareStates, Write
from tests.support.forms import by_form

KEY = SharePartitionKey("g", UUID(int=7), 0)
MEMBERS = ("a", "b", "c")
LIMITS = ShareLimits(lock_duration_ms=100, delivery_count_max=4, in_flight_max=20)
SUSPECT = 2
"""The number of deliveries after which a record is delivered with fewer others."""
AVAILABLE, ACQUIRED, ACKNOWLEDGED, ARCHIVED = RecordState


@dataclass
class Offset:
    """One offset of the naive share-partition."""

    state: RecordState = AVAILABLE
    count: int = 0
    member: str = ""
    deadline_ms: int = 0
    ticket: int | None = None
    then: tuple[RecordState, int] = (AVAILABLE, 0)

    @property
    def done(self) -> bool:
        return self.state in (ACKNOWLEDGED, ARCHIVED)

    @property
    def released(self) -> tuple[RecordState, int]:
        return (AVAILABLE if self.count < LIMITS.delivery_count_max else ARCHIVED), self.count


class Model(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.now_ms = self.leader_epoch = 0
        self.log: list[Span] = []
        self.log_start = self.log_end = 0
        self.coordinator = ShareStates(updates_max=lambda: 3, exists=lambda topic_id, number: True)
        self.replay(self.coordinator.initialize(KEY, state_epoch=0, start_offset=0, now_ms=0).records)
        self.queue: list[Decided] = []
        self.machine = SharePartition(0, (), limits=lambda: LIMITS)
        self.offsets: dict[int, Offset] = {}
        self.start = 0

    def replay(self, records: Sequence[Any]) -> None:
        for record in records:
            self.coordinator.replay(record)

    def advance(self) -> None:
        while self.start in self.offsets and self.offsets[self.start].done:
            del self.offsets[self.start]
            self.start += 1

    def has_record(self, number: int) -> bool:
        return any(span.first_offset <= number <= span.last_offset and span.is_delivered for span in self.log)

    # --- what happens

    @rule(length=st.integers(1, 6), gap=st.integers(0, 2), delivers=st.integers(0, 4))
    def append(self, length: int, gap: int, delivers: int) -> None:
        first = self.log_end + gap
        self.log.append(Span(first, first + length - 1, delivers > 0))
        self.log_end = first + length

    @rule(member=st.sampled_from(MEMBERS), most=st.integers(1, 8), mode=st.sampled_from(AcquireMode))
    def acquire(self, member: str, most: int, mode: AcquireMode) -> None:
        offset = self.machine.fetch_offset()
        if offset is None or offset >= self.log_end:
            return
        spans = [span for span in self.log if span.last_offset >= offset]
        got = self.machine.acquire(
            member, spans, next_offset=self.log_end, max_records=most, mode=mode, now_ms=self.now_ms
        )
        counts = {number: count for first, last, count in got for number in range(first, last + 1)}
        assert list(counts) == sorted(counts)
        if mode is AcquireMode.RECORD_LIMIT:
            assert len(counts) <= most
        elif len(counts) > most:
            last_batch = next(span for span in spans if span.last_offset >= max(counts))
            assert sum(number < last_batch.first_offset for number in counts) < most
        upto = self.log_end - 1 if len(counts) < most else max(counts)
        suspect = next(
            (
                number
                for number, each in sorted(self.offsets.items())
                if number >= offset and each.state is AVAILABLE and each.count >= SUSPECT and self.has_record(number)
            ),
            None,
        )
        if suspect is not None and suspect in counts:
            upto = max(counts)
            assert min(counts) == suspect, "a suspect was delivered with others"
            assert len(set(counts.values())) == 1
            assert len(counts) == 1 or counts[suspect] == SUSPECT + 1
            shares_batch = next(each for each in self.log if each.first_offset <= suspect <= each.last_offset)
            assert len(counts) <= max(1, (shares_batch.last_offset - suspect + 1) // 2)
        elif suspect is not None and counts:
            upto = min(upto, suspect - 1)
        end = max(self.start + LIMITS.in_flight_max - 1, *self.offsets, -1)
        for number in range(offset, min(upto, end) + 1):
            known = self.offsets.setdefault(number, Offset())
            if known.state is not AVAILABLE:
                assert number not in counts, f"{number} is {known}"
            elif not self.has_record(number):
                assert number not in counts
                known.state = ARCHIVED
            else:
                assert counts.pop(number) == known.count + 1 <= LIMITS.delivery_count_max
                known.state, known.member, known.count = ACQUIRED, member, known.count + 1
                known.deadline_ms = self.now_ms + LIMITS.lock_duration_ms
        assert not counts, "offsets were acquired twice, or beyond the limit"
        self.advance()

    @rule(data=st.data(), member=st.sampled_from(MEMBERS), kind=st.sampled_from(AcknowledgeType))
    def acknowledge(self, data: st.DataObject, member: str, kind: AcknowledgeType) -> None:
        mine = [number for number, each in self.offsets.items() if (each.state, each.member) == (ACQUIRED, member)]
        if not mine:
            return
        first = data.draw(st.sampled_from(mine))
        last = data.draw(st.integers(first, first + 3))
        found = [self.offsets.get(number) for number in range(first, last + 1)]
        wanted = [Acknowledgement(first, last, kind)]
        each: Offset | None
        if any(each is None or (each.state, each.member, each.ticket) != (ACQUIRED, member, None) for each in found):
            before = list(self.machine.states())
            with pytest.raises(KafkaError) as refused:
                self.machine.acknowledge(member, wanted, self.now_ms)
            assert refused.value.code is ErrorCode.INVALID_RECORD_STATE
            assert list(self.machine.states()) == before
            return
        decided = self.machine.acknowledge(member, wanted, self.now_ms)
        assert (decided is None) == (kind is AcknowledgeType.RENEW)
        for each in found:
            assert each is not None
            if decided is None:
                each.deadline_ms = self.now_ms + LIMITS.lock_duration_ms
                continue
            each.ticket = decided.ticket
            each.then = ARCHIVED, each.count
            if kind is AcknowledgeType.ACCEPT:
                each.then = ACKNOWLEDGED, each.count
            elif kind is AcknowledgeType.RELEASE:
                each.then = each.released
        if decided is not None:
            self.queue.append(decided)

    @rule(member=st.sampled_from(MEMBERS))
    def acknowledge_what_another_member_has(self, member: str) -> None:
        for number, each in self.offsets.items():
            if each.state is ACQUIRED and each.member != member:
                wanted = [Acknowledgement(number, number, AcknowledgeType.ACCEPT)]
                with pytest.raises(KafkaError):
                    self.machine.acknowledge(member, wanted, self.now_ms)

    @precondition(lambda self: self.queue)
    @rule(stored=st.booleans())
    def settle(self, stored: bool) -> None:
        """All decisions are stored by one write, or fail with it."""
        queue, self.queue = self.queue, []
        if stored:
            batches = tuple(StoredBatch(*batch) for decided in queue for batch in decided.batches)
            write = Write(KEY, 0, self.leader_epoch, *self.machine.to_store(), batches)
            self.replay(self.coordinator.write(write, now_ms=0).records)
        for decided in queue:
            self.machine.settle(decided.ticket, stored=stored)
            for each in self.offsets.values():
                if each.ticket == decided.ticket:
                    each.ticket = None
                    if stored:
                        (each.state, each.count), each.member = each.then, ""
        self.advance()
        if stored:
            assert self.coordinator.states[KEY].snapshot.start_offset == self.start

    @rule(elapsed_ms=st.integers(0, 80))
    def time_passes(self, elapsed_ms: int) -> None:
        self.now_ms += elapsed_ms
        due_ms = self.machine.next_deadline_ms()
        self.end_acquisitions(
            self.machine.tick(self.now_ms),
            [each for each in self.acquired() if each.deadline_ms <= self.now_ms],
            counts=True,
        )
        assert (due_ms is not None and due_ms <= self.now_ms) == self.ended

    @rule(member=st.sampled_from(MEMBERS), orderly=st.booleans())
    def leave(self, member: str, orderly: bool) -> None:
        mine = [each for each in self.acquired() if each.member == member]
        self.end_acquisitions(self.machine.release(member, orderly=orderly), mine, counts=not orderly)

    def acquired(self) -> list[Offset]:
        return [each for each in self.offsets.values() if each.state is ACQUIRED and each.ticket is None]

    def end_acquisitions(self, decided: Decided | None, ended: Sequence[Offset], *, counts: bool) -> None:
        self.ended = bool(ended)
        assert (decided is not None) == self.ended
        for each in ended:
            (each.state, each.count), each.member = each.released if counts else (AVAILABLE, each.count - 1), ""
        if decided is not None:
            self.queue.append(decided)
        self.advance()

    @rule(data=st.data())
    def delete_records(self, data: st.DataObject) -> None:
        self.log_start = data.draw(st.integers(self.log_start, self.log_end))
        self.log = [span for span in self.log if span.last_offset >= self.log_start]
        self.follow_log_start()

    def follow_log_start(self) -> None:
        self.machine.log_starts_at(self.log_start)
        if self.log_start > self.start:
            self.offsets = {number: each for number, each in self.offsets.items() if number >= self.log_start}
            self.start = self.log_start
        self.advance()

    @rule()
    def another_leader(self) -> None:
        """What was not stored is lost: those records are available again."""
        self.leader_epoch += 1
        outcome = self.coordinator.read(KEY, leader_epoch=self.leader_epoch)
        self.replay(outcome.records)
        state = outcome.response
        self.queue.clear()
        batches = [StateBatch(*batch) for batch in state.batches]
        self.machine = SharePartition(state.start_offset, batches, limits=lambda: LIMITS)
        self.start, self.offsets = state.start_offset, {}
        for first, last, delivery_state, count in batches:
            for number in range(first, last + 1):
                self.offsets[number] = Offset(RecordState(delivery_state), count)
        self.advance()
        self.follow_log_start()

    # --- what holds

    @invariant()
    def both_agree(self) -> None:
        assert self.machine.start_offset == self.start
        shown = {
            number: (state, count, member)
            for first, last, state, count, member in self.machine.states()
            for number in range(first, last + 1)
        }
        fresh = (AVAILABLE, 0, "")
        naive = {number: (each.state, each.count, each.member) for number, each in self.offsets.items()}
        for number in shown.keys() | naive.keys():
            assert shown.get(number, fresh) == naive.get(number, fresh), number
        assert list(shown) == list(range(self.start, self.start + self.machine.in_flight))
        assert self.machine.in_flight <= LIMITS.in_flight_max

    def teardown(self) -> None:
        """Whatever has happened, all that is left can be delivered and accepted, and nothing is passed over."""
        for member in MEMBERS:
            while self.queue:
                self.settle(stored=True)
            self.leave(member, orderly=False)
        while self.queue:
            self.settle(stored=True)
        wanted = {
            number
            for number in range(self.start, self.log_end)
            if self.has_record(number) and not (number in self.offsets and self.offsets[number].done)
        }
        got: set[int] = set()
        while (offset := self.machine.fetch_offset()) is not None and offset < self.log_end:
            spans = [span for span in self.log if span.last_offset >= offset]
            acquired = self.machine.acquire(
                "z", spans, next_offset=self.log_end, max_records=9, mode=AcquireMode.BATCH_OPTIMIZED, now_ms=0
            )
            for first, last, _ in acquired:
                got.update(range(first, last + 1))
                decided = self.machine.acknowledge("z", [Acknowledgement(first, last, AcknowledgeType.ACCEPT)], 0)
                assert decided is not None
                self.machine.settle(decided.ticket, stored=True)
        assert got == wanted
        assert self.machine.in_flight == 0


TestModel = Model.TestCase
TestModel.settings = settings(max_examples=by_form(30, long=3000), stateful_step_count=40, deadline=None)
