"""Random interleavings of chunks, losses, duplicates, rebalances, seeks, drops and commits: each complete message is
delivered in the order of completion, and no committed offset is behind the first chunk of an unfinished message."""

from __future__ import annotations

from random import Random

import pytest

from raylog.client.chunks.envelope import SURPLUS, Chunk, chunk_headers, digest_text, new_digest
from raylog.client.chunks.pool import DropReason, ReassemblyPool
from raylog.client.consumer.fetched import ConsumerRecord
from raylog.core.ids import TopicPartition
from tests.support.forms import by_form

ROUNDS = by_form(300, quick=60, long=10_000)
ROUNDS_OF_A_CASE = max(1, ROUNDS // 10)
TPS = [TopicPartition("large", 0), TopicPartition("large", 1)]
USER = (("own", b"header"),)


def records_of(number: int, value: bytes, segment: int, tp: TopicPartition, key: bytes | None) -> list[ConsumerRecord]:
    """The chunks of a message, without offsets."""
    digest = new_digest()
    digest.update(value)
    pieces = [value[at : at + segment] for at in range(0, len(value), segment)]
    records = []
    for index, piece in enumerate(pieces):
        is_last = index == len(pieces) - 1
        chunk = Chunk(b"%032x" % number, index, len(pieces), len(value), digest_text(digest) if is_last else None)
        headers = (*chunk_headers(chunk), *(USER if is_last else ()))
        records.append(ConsumerRecord(tp.topic, tp.partition, -1, 7, 0, key, piece, headers))
    return records


class Log:
    """A partition's log, with what a naive reader of all of it knows: which offsets are the chunks of what."""

    def __init__(self, random: Random, tp: TopicPartition) -> None:
        self.records: list[ConsumerRecord] = []
        self.values: dict[int, bytes] = {}
        """By message number."""
        self.chunks: dict[int, list[tuple[int, int]]] = {}
        """The offset and the index of each chunk of a message, as they are in the log."""
        self.corrupt: set[int] = set()
        self.number_at: dict[int, int] = {}
        queues: list[tuple[int, list[ConsumerRecord]]] = []
        for number in range(random.randrange(1, 9)):
            value = random.randbytes(random.choice((1, 7, 30)))
            self.values[number], self.chunks[number] = value, []
            chunks = records_of(number, value, random.choice((1, 3, 8, 40)), tp, b"key")
            queues.append((number, self._damaged(random, number, chunks)))
        while queues:
            number, chunks = random.choice(queues)
            while random.random() < 0.15:
                self._append(tp, None if random.random() < 0.2 else random.randbytes(4), ())
            if random.random() < 0.05:
                self._append(tp, None, ((SURPLUS, b""),))
            if chunks:
                record = chunks.pop(0)
                index = int(record.headers[1][1] or b"")
                self.chunks[number].append((len(self.records), index))
                self.number_at[len(self.records)] = number
                self.records.append(record._replace(offset=len(self.records)))
            if not chunks:
                queues.remove((number, chunks))

    def _damaged(self, random: Random, number: int, chunks: list[ConsumerRecord]) -> list[ConsumerRecord]:
        kind = random.random()
        if kind < 0.1:
            del chunks[random.randrange(len(chunks))]
        elif kind < 0.2 and len(chunks) > 1:  # a producer sends smaller values as they are
            at = random.randrange(len(chunks))
            chunks.insert(random.randrange(at, len(chunks)) + 1, chunks[at])
        elif kind < 0.3:
            at = random.randrange(len(chunks))
            value = chunks[at].value
            chunks[at] = chunks[at]._replace(value=bytes([value[0] ^ 1]) + value[1:])
            self.corrupt.add(number)
        return chunks

    def _append(self, tp: TopicPartition, value: bytes | None, headers: tuple[tuple[str, bytes | None], ...]) -> None:
        self.records.append(ConsumerRecord(tp.topic, tp.partition, len(self.records), 7, 0, b"k", value, headers))

    def completion(self, number: int) -> tuple[int, int] | None:
        """The first and the last offset, by the plainest rule: its indexes come in order, duplicates left out."""
        if number in self.corrupt:
            return None
        seen: list[int] = []
        count = -1
        first = -1
        for offset, index in self.chunks[number]:
            chunk_count = int(self.records[offset].headers[2][1] or b"")
            count = chunk_count
            if index in seen:
                continue
            if index != len(seen):
                return None
            if index == 0:
                first = offset
            seen.append(index)
            if len(seen) == count:
                return first, offset
        return None

    def deliveries(self) -> list[tuple[int, bytes | None]]:
        """All that a reader of the whole log gets, in its order."""
        found: list[tuple[int, bytes | None]] = []
        ends = {}
        for number, value in self.values.items():
            if (completion := self.completion(number)) is not None:
                ends[completion[1]] = value
        for offset, record in enumerate(self.records):
            if offset in ends:
                found.append((offset, ends[offset]))
            elif offset not in self.number_at and (not record.headers or record.headers[0][0] != SURPLUS):
                found.append((offset, record.value))
        return found


class Reader:
    """A consumer of all partitions: pool, positions, and the committed offsets with their metadata."""

    def __init__(self, random: Random, logs: dict[TopicPartition, Log], **limits: int) -> None:
        self.random, self.logs = random, logs
        self.limits = {"bytes_max": 1000, "offset_gap_max": 1000, "age_ms_max": 1000, "tracked_max": 50} | limits
        self.pool = ReassemblyPool(**self.limits)
        self.positions = dict.fromkeys(logs, 0)
        self.committed = dict.fromkeys(logs, (0, ""))
        self.got: dict[TopicPartition, list[tuple[int, bytes | None]]] = {tp: [] for tp in logs}
        self.floors = dict.fromkeys(logs, 0)
        """From where on this owner of the partition has seen all."""
        self.delivered = dict.fromkeys(logs, 0)
        """What ends before this offset was delivered."""
        self.given_up: dict[TopicPartition, set[int]] = {tp: set() for tp in logs}
        """Messages that were dropped by a limit."""

    def poll(self, tp: TopicPartition) -> None:
        start = self.positions[tp]
        end = min(len(self.logs[tp].records), start + self.random.randrange(1, 6))
        found = self.pool.take(tp, self.logs[tp].records[start:end], start, end)
        self.positions[tp], self.delivered[tp] = end, max(self.delivered[tp], end)
        for record in found:
            self.got[tp].append((record.offset, record.value))
            if record.offset in self.logs[tp].number_at:
                assert (record.key, record.headers, record.timestamp_ms) == (b"key", USER, 7)
        self.note_dropped()
        self.check_bounds()

    def note_dropped(self) -> None:
        while self.pool.dropped:
            dropped = self.pool.dropped.popleft()
            self.given_up[dropped.tp].add(int(dropped.message_id, 16))

    def check_bounds(self) -> None:
        pool = self.pool
        assert 0 <= pool.used_bytes <= self.limits["bytes_max"]
        assert pool.used_bytes == sum(each.chunk.size for each in pool._all.values())
        for tp in self.logs:
            assert self.positions[tp] - self.safe(tp) <= self.limits["offset_gap_max"]

    def safe(self, tp: TopicPartition) -> int:
        return self.pool.safe_offset(tp, self.positions[tp])

    def commit(self, tp: TopicPartition) -> None:
        """No committed offset is behind the first chunk of a message that is to be completed after it."""
        safe, position = self.safe(tp), self.positions[tp]
        assert safe <= position
        for number in self.logs[tp].values:
            completion = self.logs[tp].completion(number)
            if completion is None or number in self.given_up[tp] or completion[1] < self.delivered[tp]:
                continue
            if completion[0] < position:
                assert safe <= completion[0], (number, completion, position, safe)
        self.committed[tp] = (safe, self.pool.committed_metadata(tp, position))

    def rebalance(self, tp: TopicPartition, *, clean: bool) -> None:
        """Another owner begins at the committed offset: nothing is delivered twice but what was not committed."""
        if clean:
            self.commit(tp)
        self.pool.keep_only({other for other in self.logs if other != tp})
        offset, metadata = self.committed[tp]
        self.pool.begin_at_committed(tp, offset, metadata)
        self.positions[tp] = offset
        delivered = int(metadata.partition("=")[2] or offset)
        self.got[tp] = [each for each in self.got[tp] if each[0] < delivered]
        self.floors[tp] = self.delivered[tp] = delivered

    def seek(self, tp: TopicPartition) -> None:
        """To the offset of something that was delivered, or the one behind it."""
        seen = [offset for offset, _ in self.got[tp] if offset >= self.floors[tp]]
        if not seen:
            return
        offset = self.random.choice(seen) + self.random.randrange(2)
        self.positions[tp] = self.pool.seek(tp, offset)
        assert self.positions[tp] <= offset
        self.got[tp] = [each for each in self.got[tp] if each[0] < offset]
        self.delivered[tp] = offset
        self.commit(tp)

    def finish(self) -> None:
        for tp, log in self.logs.items():
            while self.positions[tp] < len(log.records):
                self.poll(tp)


@pytest.mark.parametrize("case", range(10))
def test_complete_messages_are_delivered_once_in_the_order_of_completion(case: int) -> None:
    for seed in range(case * ROUNDS_OF_A_CASE, (case + 1) * ROUNDS_OF_A_CASE):
        random = Random(seed)
        logs = {tp: Log(random, tp) for tp in TPS}
        reader = Reader(random, logs)
        for _ in range(40):
            tp = random.choice(TPS)
            step = random.random()
            if step < 0.6:
                reader.poll(tp)
            elif step < 0.8:
                reader.commit(tp)
            elif step < 0.9:
                reader.rebalance(tp, clean=random.random() < 0.5)
            else:
                reader.seek(tp)
        reader.finish()
        for tp, log in logs.items():
            assert reader.got[tp] == log.deliveries(), f"seed {seed}, {tp}"


@pytest.mark.parametrize("case", range(10))
def test_with_narrow_limits_what_is_delivered_is_in_order_and_all_else_was_reported(case: int) -> None:
    for seed in range(case * ROUNDS_OF_A_CASE, (case + 1) * ROUNDS_OF_A_CASE):
        random = Random(-1 - seed)
        logs = {tp: Log(random, tp) for tp in TPS}
        limits = {"bytes_max": random.choice((5, 29, 60)), "tracked_max": random.choice((1, 3, 50))}
        limits |= {"offset_gap_max": random.choice((2, 10, 1000))}
        reader = Reader(random, logs, **limits)
        for _ in range(60):
            tp = random.choice(TPS)
            step = random.random()
            if step < 0.7:
                reader.poll(tp)
            elif step < 0.9:
                reader.commit(tp)
            else:
                reader.pool.now_ms += random.choice((1, 600))
                reader.pool.expire()
                reader.note_dropped()
        reader.finish()
        for tp, log in logs.items():
            expected = log.deliveries()
            ends = {log.completion(number): number for number in log.values}
            missing = [each for each in expected if each not in reader.got[tp]]
            assert reader.got[tp] == [each for each in expected if each in reader.got[tp]], f"seed {seed}"
            for offset, _ in missing:
                number = next(number for end, number in ends.items() if end is not None and end[1] == offset)
                assert number in reader.given_up[tp], f"seed {seed}: message {number} is missing without a report"


@pytest.mark.parametrize(
    ("limits", "reason"),
    [
        ({"bytes_max": 9}, DropReason.TOO_LARGE),
        ({"bytes_max": 15}, DropReason.CAPACITY),
        ({"tracked_max": 1}, DropReason.TRACKED),
        ({"offset_gap_max": 1}, DropReason.OFFSET_GAP),
        ({}, DropReason.AGE),
    ],
)
def test_each_limit_drops_the_oldest_message_and_says_which_it_was(limits: dict[str, int], reason: DropReason) -> None:
    tp = TPS[0]
    reader = Reader(Random(0), {}, **limits)
    chunks = [records_of(number, b"0123456789", 5, tp, None)[0]._replace(offset=number) for number in range(2)]
    reader.pool.take(tp, chunks[:1], 0, 1)
    reader.pool.now_ms = 999
    reader.pool.take(tp, chunks[1:], 1, 2)
    reader.pool.expire()
    if reason is DropReason.AGE:
        assert not reader.pool.dropped
        reader.pool.now_ms = 1000
        reader.pool.expire()
    dropped = reader.pool.dropped[0]
    assert (dropped.tp, dropped.first_offset, dropped.reason) == (tp, 0, reason)
    if reason is not DropReason.TOO_LARGE:
        assert reader.pool.safe_offset(tp, 2) == 1


def test_a_position_that_was_moved_forgets_what_was_to_be_skipped() -> None:
    tp = TPS[0]
    plain = [ConsumerRecord(tp.topic, 0, offset, 7, 0, None, b"plain", ()) for offset in range(5)]
    pool = Reader(Random(0), {}).pool
    pool.begin_at_committed(tp, 0, "raylog.deliver-from=3")
    assert [record.offset for record in pool.take(tp, plain, 0, 5)] == [3, 4]
    assert [record.offset for record in pool.take(tp, plain[1:], 1, 5)] == [1, 2, 3, 4]


def test_seek_does_not_go_back_to_a_message_that_would_be_dropped_on_the_way() -> None:
    tp = TPS[0]
    chunk = records_of(0, b"0123456789", 5, tp, None)[0]._replace(offset=0)
    pool = Reader(Random(0), {}, offset_gap_max=100).pool
    pool.take(tp, [chunk], 0, 1)
    assert pool.seek(tp, 100) == 0
    pool.take(tp, [chunk], 0, 1)
    assert pool.seek(tp, 101) == 101
    assert pool.seek(tp, 100) == 0  # it is not forgotten
