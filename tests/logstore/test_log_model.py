"""A log and a plain list agree after any sequence of appends, reads, truncations, retention, restarts and crashes."""

from __future__ import annotations

import random

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from raylog.core.errors import ErrorCode, KafkaError
from raylog.core.ids import Offset
from raylog.logstore.settings import LogSettings
from raylog.protocol.records.compression import Codec
from raylog.protocol.records.reader import read_batches
from tests.logstore.batches import NOW, append, batch, contents, marker, open_log
from tests.support.forms import by_form
from tests.support.sim_disk import Killed, SimDisk

RETENTION_MS = 1000
MARKER = b"(a marker)"


class LogAgainstList(RuleBasedStateMachine):
    """`values[n]` is the record at offset `first + n`; `durable` is the offset up to which nothing may be lost."""

    @initialize(
        seed=st.integers(0, 1 << 30), flush_each=st.booleans(), segment_bytes=st.sampled_from([300, 900, 1 << 20])
    )
    def begin(self, seed: int, flush_each: bool, segment_bytes: int) -> None:
        self.disk = SimDisk(random.Random(seed))
        self.disk.mkdir("/data")
        self.disk.fsync_dir("")
        self.settings = LogSettings(
            segment_bytes=segment_bytes,
            index_interval_bytes=150,
            flush_messages=1 if flush_each else 1 << 60,
            retention_ms=RETENTION_MS,
        )
        self.log = open_log(self.disk, self.settings)
        self.values: dict[int, bytes] = {}
        self.first = 0
        self.epoch = 0
        self.now_ms = NOW
        self.written = 0
        self.batches: list[tuple[int, int]] = []  # (first, last) offset of every batch
        self.sequence = 0
        self.producer_id = 5
        self.sent: list[tuple[int, int, bytearray]] = []  # idempotent batches still there: (first, last, bytes)
        self.writers = [100, 101, 102]  # producer ids that write in transactions
        self.next_sequences = dict.fromkeys(self.writers, 0)
        self.transactional: list[tuple[int, int, str]] = []  # (offset, producer id, "data", "commit" or "abort")

    @property
    def end(self) -> int:
        return self.first + len(self.values)

    def values_for(self, count: int) -> list[bytes]:
        self.written += count
        return [b"%d" % (self.written - n) * 5 for n in range(count)]

    def note(self, first: int, values: list[bytes]) -> None:
        for number, value in enumerate(values, first):
            self.values[number] = value
        self.batches.append((first, first + len(values) - 1))

    # What a leader does

    @rule(count=st.integers(1, 4), codec=st.sampled_from([Codec.NONE, Codec.LZ4]), sets=st.integers(1, 2))
    def append_plain(self, count: int, codec: Codec, sets: int) -> None:
        parts = [self.values_for(count) for _ in range(sets)]
        first = self.end
        record_sets = [batch(*values, codec=codec, timestamp_ms=self.now_ms) for values in parts]
        if sum(map(len, record_sets)) > self.settings.segment_bytes:
            return
        info = append(self.log, *record_sets, now_ms=self.now_ms, epoch=self.epoch)
        assert (info.first_offset, info.last_offset) == (first, first + count * sets - 1)
        for values in parts:
            self.note(self.end, values)

    @rule(count=st.integers(1, 3))
    def append_idempotent(self, count: int) -> None:
        values = self.values_for(count)
        record_set = batch(*values, timestamp_ms=self.now_ms, producer=(self.producer_id, 0, self.sequence))
        info = append(self.log, record_set, now_ms=self.now_ms, epoch=self.epoch)
        assert (info.first_offset, info.duplicate) == (self.end, False)
        self.sent.append((self.end, self.end + count - 1, record_set))
        self.sequence += count
        self.note(self.end, values)

    @rule(writer=st.integers(0, 2), count=st.integers(1, 2))
    def append_in_transaction(self, writer: int, count: int) -> None:
        values = self.values_for(count)
        producer_id = self.writers[writer]
        sequence = self.next_sequences[producer_id]
        record_set = batch(*values, timestamp_ms=self.now_ms, producer=(producer_id, 0, sequence), transactional=True)
        info = append(self.log, record_set, now_ms=self.now_ms, epoch=self.epoch, from_client=False)
        assert (info.first_offset, info.duplicate) == (self.end, False)
        self.next_sequences[producer_id] += count
        self.transactional += [(self.end + number, producer_id, "data") for number in range(count)]
        self.note(self.end, values)

    @precondition(lambda self: self.open_transactions())
    @rule(which=st.integers(0, 5), committed=st.booleans())
    def end_transaction(self, which: int, committed: bool) -> None:
        still_open = sorted(self.open_transactions())
        producer_id = still_open[which % len(still_open)]
        append(
            self.log,
            marker(producer_id, committed=committed, timestamp_ms=self.now_ms),
            now_ms=self.now_ms,
            epoch=self.epoch,
            from_client=False,
        )
        self.transactional.append((self.end, producer_id, "commit" if committed else "abort"))
        self.note(self.end, [MARKER])

    def open_transactions(self) -> dict[int, list[int]]:
        """Producer id -> offsets of its records, of those that the list says are open."""
        return self.transactions_of_list()[0]

    def transactions_of_list(self) -> tuple[dict[int, list[int]], list[tuple[int, int, int]]]:
        """(open ones, aborted ones as (producer id, first offset, offset of the marker))."""
        still_open: dict[int, list[int]] = {}
        aborted: list[tuple[int, int, int]] = []
        for offset, producer_id, what in self.transactional:
            if what == "data":
                still_open.setdefault(producer_id, []).append(offset)
                continue
            offsets = still_open.pop(producer_id, None)
            if what == "abort" and offsets is not None:
                aborted.append((producer_id, offsets[0], offset))
        return still_open, aborted

    @precondition(lambda self: self.sent)
    @rule(back=st.integers(1, 5))
    def retry(self, back: int) -> None:
        first, last, record_set = self.sent[-min(back, len(self.sent))]
        info = append(self.log, record_set, now_ms=self.now_ms, epoch=self.epoch)
        assert (info.duplicate, info.first_offset, info.last_offset) == (True, first, last)

    @precondition(lambda self: self.sent and self.sequence)
    @rule()
    def skip_a_sequence(self) -> None:
        record_set = batch(b"", producer=(self.producer_id, 0, self.sequence + 1))
        with pytest.raises(KafkaError) as caught:
            append(self.log, record_set, now_ms=self.now_ms, epoch=self.epoch)
        assert caught.value.code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER

    @rule(start=st.integers(0, 1 << 16), max_bytes=st.integers(1, 2000), span=st.integers(0, 30))
    def read(self, start: int, max_bytes: int, span: int) -> None:
        start = self.first + start % (len(self.values) + 1)
        upto = min(start + span, self.end)
        piece = self.log.read(Offset(start), max_bytes=max_bytes, upto=Offset(upto))
        assert piece.next_offset <= max(upto, start)
        read = [(r.offset, r.value) for r in read_batches(piece.records, from_offset=start)]
        served = [(n, self.values[n]) for n in range(start, piece.next_offset)]
        assert read == [one for one in served if one[1] is not MARKER]
        begin = next((b for b in self.batches if b[0] <= start <= b[1]), None)
        if begin is not None and begin[1] < upto:
            assert piece.records, "a whole batch lies below the bound and was not served"

    @rule()
    def check_files(self) -> None:
        self.log.check_files()
        assert self.log.offline_reason is None

    @rule()
    def new_epoch(self) -> None:
        self.epoch += 1

    @rule()
    def roll(self) -> None:
        self.log.roll(self.now_ms)

    @rule()
    def flush(self) -> None:
        self.log.flush()
        assert self.log.recovery_point == self.end

    @rule(ms=st.integers(1, 800))
    def wait_and_retain(self, ms: int) -> None:
        self.now_ms += ms
        self.log.apply_retention(self.now_ms)
        self.adopt_start()

    @rule(back=st.integers(0, 6))
    def truncate(self, back: int) -> None:
        if not self.batches:
            return
        first, _ = self.batches[-min(back + 1, len(self.batches))]
        self.epoch += 1
        self.log.truncate_to(Offset(first))
        self.keep_below(first)

    @rule(at=st.integers(0, 1 << 16))
    def delete_records(self, at: int) -> None:
        if not self.batches:
            return
        first = self.batches[at % len(self.batches)][0]
        self.log.delete_records_before(Offset(first))
        self.adopt_start()

    # How it ends, and begins again

    @rule()
    def reopen_clean(self) -> None:
        self.log.close()
        self.reopen(clean=True)
        assert self.log.log_end_offset == self.end
        self.adopt_start()

    @rule(kill_at=st.integers(1, 12), power_cut=st.booleans(), checkpointed=st.booleans())
    def crash(self, kill_at: int, power_cut: bool, checkpointed: bool) -> None:
        durable = self.log.recovery_point if power_cut else self.end
        self.disk.arm(kill_at_op=kill_at)
        values = self.values_for(2)
        record_set = batch(*values, timestamp_ms=self.now_ms)
        first = self.end
        try:
            append(self.log, record_set, now_ms=self.now_ms, epoch=self.epoch)
            self.note(first, values)
            if self.settings.flush_messages == 1:
                durable = self.end
            self.log.roll(self.now_ms)
            self.log.flush()
            durable = self.end
            self.disk.arm(kill_at_op=None)
        except Killed:
            if first not in self.values:
                self.note(first, values)  # it may have been written, and may not
        recovery_point = self.log.recovery_point if checkpointed else min(self.first, self.log.recovery_point)
        self.disk.crash(power_cut=power_cut)
        self.reopen(clean=False, recovery_point=recovery_point)
        assert durable <= self.log.log_end_offset <= self.end
        self.keep_below(self.log.log_end_offset)
        self.adopt_start()

    def reopen(self, *, clean: bool, recovery_point: int = 0) -> None:
        start = self.log.log_start_offset
        self.log = open_log(
            self.disk,
            self.settings,
            clean=clean,
            recovery_point=recovery_point,
            log_start_offset=start,
            now_ms=self.now_ms,
        )

    def adopt_start(self) -> None:
        start = self.log.log_start_offset
        assert self.first <= start <= max(self.end, self.first)
        for offset in range(self.first, start):
            del self.values[offset]
        if any(self.first <= offset < start for offset, *_ in self.transactional):
            self.change_writers()
        self.first = start
        self.batches = [one for one in self.batches if one[1] >= start]
        self.sent = [one for one in self.sent if one[0] >= start]
        if not self.sent:
            self.producer_id, self.sequence = self.producer_id + 1, 0

    def keep_below(self, end: int) -> None:
        if self.transactional and self.transactional[-1][0] >= end:
            self.transactional = [one for one in self.transactional if one[0] < end]
            self.change_writers()
        for offset in [offset for offset in self.values if offset >= end]:
            del self.values[offset]
        self.batches = [one for one in self.batches if one[1] < end]
        if self.sent and self.sent[-1][1] >= end:  # what was lost cannot be continued: another producer takes over
            self.sent = [one for one in self.sent if one[1] < end]
            self.producer_id, self.sequence = self.producer_id + 1, 0

    def change_writers(self) -> None:
        """What the log knew of their sequences may be lost."""
        self.writers = [producer_id + 10 for producer_id in self.writers]
        self.next_sequences.update(dict.fromkeys(self.writers, 0))

    @invariant()
    def agrees(self) -> None:
        if not hasattr(self, "log"):
            return
        assert (self.log.log_start_offset, self.log.log_end_offset) == (self.first, self.end)
        expected = [one for one in sorted(self.values.items()) if one[1] is not MARKER]
        assert contents(self.log, max_bytes=500) == expected

    @invariant()
    def transactions_agree(self) -> None:
        """Where a transaction's beginning has been deleted, only what is left of it counts, if anything."""
        if not hasattr(self, "log"):
            return
        still_open, aborted = self.transactions_of_list()
        begun = [offsets[0] for offsets in still_open.values() if offsets[0] >= self.first]
        left = [offset for offsets in still_open.values() for offset in offsets if offset >= self.first]
        stable = self.log.last_stable_offset(Offset(self.end))
        if len(begun) == len(still_open):
            assert stable == min([*begun, self.end])
        else:
            assert self.first <= stable <= min([*left, self.end])
        middle = (self.first + self.end) // 2
        for start, upto in ((self.first, self.end), (middle, self.end), (self.first, middle)):
            found = self.log.aborted_transactions(Offset(start), Offset(upto))
            told = {(one.producer_id, one.first_offset, one.last_offset) for one in found}
            whole = {one for one in aborted if one[1] >= self.first and one[2] >= start and one[1] < upto}
            assert whole <= told
            for producer_id, first, last in told:
                listed = next(one[1] for one in aborted if one[0] == producer_id and one[2] == last)
                assert listed == first or listed < self.first


LogAgainstList.TestCase.settings = settings(
    max_examples=by_form(120, quick=50, long=5000),
    stateful_step_count=30,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
TestLogAgainstList = LogAgainstList.TestCase
