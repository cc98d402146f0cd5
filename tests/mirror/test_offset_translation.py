"""A translated offset never skips a record that its group has not consumed: a model that knows every copy judges."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from raylog.core.ids import TopicPartition
from raylog.mirror.formats import BEFORE_FIRST, OffsetSync
from raylog.mirror.offset_translation import OffsetSyncEmitter, OffsetSyncStore, latest_syncs
from tests.support.forms import by_form

TP = TopicPartition("orders", 0)


def sync(upstream: int, downstream: int) -> OffsetSync:
    return OffsetSync(TP, upstream, downstream)


def store_of(*syncs: OffsetSync) -> OffsetSyncStore:
    store = OffsetSyncStore()
    store.loaded()
    for each in syncs:
        store.add(each)
    return store


@pytest.mark.parametrize(
    ("offset", "expected"), [(99, None), (100, 10), (101, 11), (149, 11), (150, 40), (151, 41), (9_999, 41)]
)
def test_a_translation_is_the_nearest_sync_plus_at_most_one(offset: int, expected: int | None) -> None:
    assert store_of(sync(100, 10), sync(150, 40)).translate(TP, offset) == expected


@pytest.mark.parametrize(("offset", "expected"), [(9, None), (10, 100), (11, 101), (39, 101), (40, 150), (99, 151)])
def test_the_way_back_is_the_nearest_sync_plus_at_most_one(offset: int, expected: int | None) -> None:
    assert store_of(sync(100, 10), sync(150, 40)).translate_back(TP, offset) == expected


def test_other_partitions_have_other_syncs() -> None:
    assert store_of(sync(100, 10)).translate(TopicPartition("orders", 1), 100) is None


def test_nothing_is_translated_before_the_topic_was_read() -> None:
    store = OffsetSyncStore()
    store.add(sync(100, 10))
    assert store.translate(TP, 100) is None
    store.loaded()
    assert store.translate(TP, 100) == 10


def test_of_the_syncs_that_compaction_left_only_the_latest_counts() -> None:
    store = OffsetSyncStore()
    for each in (sync(100, 100), sync(200, 150)):  # between them the topic was created again, which compaction removed
        store.add(each)
    store.loaded()
    assert store.translate(TP, 150) is None
    assert store.translate(TP, 200) == 150


@pytest.mark.parametrize("again", [sync(90, 5), sync(300, 5)])
def test_a_target_that_was_created_again_makes_earlier_syncs_void(again: OffsetSync) -> None:
    store = store_of(sync(80, 8), sync(100, 10), again)
    assert store.translate(TP, 85) is None
    assert store.translate(TP, again.upstream_offset) == again.downstream_offset


def test_second_copies_count_once_they_have_passed_the_first() -> None:
    store = store_of(sync(80, 8), sync(100, 10), sync(90, 20))
    assert [store.translate(TP, offset) for offset in (85, 90, 100, 101)] == [9, 9, 10, 11]
    store.add(sync(100, 30))
    assert [store.translate(TP, offset) for offset in (90, 100, 101)] == [9, 30, 31]


def test_a_source_topic_that_was_created_again_begins_anew() -> None:
    store = store_of(sync(80, 8), sync(100, 10), sync(BEFORE_FIRST, 10))
    assert [store.translate(TP, offset) for offset in (0, 100)] == [11, 11]
    assert [store.translate_back(TP, offset) for offset in (9, 10, 11)] == [None, 0, 0]
    store.add(sync(5, 20))
    assert [store.translate(TP, offset) for offset in (4, 5, 100)] == [11, 20, 21]


def test_of_a_source_topic_that_was_created_again_before_the_syncs_were_read_the_latest_one_counts() -> None:
    store = OffsetSyncStore()
    for each in (sync(80, 8), sync(100, 10), sync(5, 20)):
        store.add(each)
    store.loaded()
    assert [store.translate(TP, offset) for offset in (4, 5, 100)] == [None, 20, 21]


def test_the_latest_syncs_keep_the_beginning_of_a_topic_that_was_created_again() -> None:
    syncs = [sync(80, 8), sync(100, 10), sync(BEFORE_FIRST, 10), sync(5, 20), sync(200, 1000)]
    assert latest_syncs(syncs) == [sync(BEFORE_FIRST, 10), sync(200, 1000)]
    assert latest_syncs(syncs[:2]) == [sync(100, 10)]
    assert latest_syncs(syncs[:3]) == [sync(BEFORE_FIRST, 10)]
    store = store_of(sync(100, 10), *latest_syncs(syncs))
    assert [store.translate(TP, offset) for offset in (4, 200)] == [11, 1000]


def test_old_syncs_are_thinned_out_and_recent_ones_are_precise() -> None:
    store = store_of(*(sync(n * 100, n * 100) for n in range(20_000)))
    assert len(store) <= 128
    newest = 1_999_900
    for age in (0, 100, 1_000, 10_000, 100_000, 1_000_000):
        translated = store.translate(TP, newest - age)
        assert translated is not None
        assert newest - age - translated <= 2 * age + 100


def emitted(lag: int, *runs: tuple[int, int, int]) -> list[list[tuple[int, int]]]:
    """Of each run."""
    emitter = OffsetSyncEmitter(lag)
    return [[(each.upstream_offset, each.downstream_offset) for each in emitter.observe(TP, *run)] for run in runs]


def test_a_sync_is_due_at_first_after_the_lag_after_a_gap_and_after_going_back() -> None:
    assert emitted(100, (5, 0, 10)) == [[(5, 0)]]
    assert emitted(100, (5, 0, 102)) == [[(5, 0), (106, 101)]]
    assert emitted(100, (0, 0, 1), (1, 1, 99), (100, 100, 1), (101, 101, 1)) == [[(0, 0)], [], [], [(101, 101)]]
    assert emitted(100, (0, 0, 5), (7, 5, 5)) == [[(0, 0)], [(7, 5)]]
    assert emitted(100, (0, 50, 5), (5, 3, 5)) == [[(0, 50)], [(5, 3)]]
    assert emitted(0, (0, 0, 1), (1, 1, 1), (2, 2, 1)) == [[(0, 0)], [(1, 1)], [(2, 2)]]


def test_a_group_within_the_first_batch_is_translated() -> None:
    emitter = OffsetSyncEmitter(100)
    store = store_of(*emitter.observe(TP, 10, 0, 5000), *emitter.pending())
    assert [store.translate(TP, offset) for offset in (9, 10, 17, 5009)] == [None, 0, 1, 4999]


def test_what_is_left_behind_the_last_sync_is_pending_once() -> None:
    emitter = OffsetSyncEmitter(100)
    emitter.observe(TP, 0, 0)
    emitter.observe(TP, 1, 1, 20)
    assert emitter.pending() == [sync(20, 20)]
    assert emitter.pending() == []
    assert emitter.observe(TP, 21, 21, 100) == []
    emitter.forget(TP)
    assert emitter.pending() == []
    assert emitter.observe(TP, 121, 121) == [sync(121, 121)]


@dataclass
class Copying:
    """A partition whose records are copied by workers that die, and the syncs that they write."""

    lag: int
    source: list[int] = field(default_factory=list)
    """The offsets of the source's records, which have gaps."""
    copies: list[tuple[int, int]] = field(default_factory=list)
    """Of each record that is committed in the target: its offset in the source and in the target."""
    end: int = 0
    """Of the target."""
    copied: int = 0
    """How many of the source's records the present worker has behind it."""

    def __post_init__(self) -> None:
        self.emitter = OffsetSyncEmitter(self.lag)
        self.topic: list[OffsetSync] = []

    def produce(self, gap: int, count: int) -> None:
        begin = self.source[-1] + 1 + gap if self.source else gap
        self.source += range(begin, begin + count)

    def copy(self, count: int, marker: int) -> None:
        """In runs without gaps, as the contract of `observe` requires."""
        batch = self.source[self.copied : self.copied + count]
        self.copied += len(batch)
        at = 0
        while at < len(batch):
            run = next((n for n in range(at + 1, len(batch)) if batch[n] != batch[n - 1] + 1), len(batch)) - at
            self.copies += [(batch[at + n], self.end + n) for n in range(run)]
            self.topic += self.emitter.observe(TP, batch[at], self.end, run)
            self.end += run
            at += run
        self.end += marker

    def restart(self, behind: int) -> None:
        """Another worker begins with records that were copied before."""
        self.copied = max(0, self.copied - behind)
        self.emitter.forget(TP)

    def create_again(self) -> None:
        self.source, self.copies, self.copied = [], [], 0
        self.topic += self.emitter.observe(TP, BEFORE_FIRST, self.end - 1)

    def quiet(self) -> None:
        self.topic += self.emitter.pending()

    def check(self, store: OffsetSyncStore) -> None:
        """The records that the present worker has yet to copy are copied behind the present end."""
        behind = set(self.source[: self.copied])
        last = {upstream: downstream for upstream, downstream in self.copies if upstream in behind}
        for offset in range(self.source[-1] + 3 if self.source else 3):
            translated = store.translate(TP, offset)
            if translated is None:
                continue
            assert translated <= self.end
            skipped = [
                upstream for upstream, downstream in last.items() if upstream >= offset and downstream < translated
            ]
            assert not skipped, (offset, translated, skipped)
        self.check_back(store)

    def check_back(self, store: OffsetSyncStore) -> None:
        """What is before an offset that was translated back is copied before the offset in the target."""
        first: dict[int, int] = {}
        for upstream, downstream in self.copies:
            first.setdefault(upstream, downstream)
        for offset in range(self.end + 1):
            back = store.translate_back(TP, offset)
            if back is not None:
                unread = [each for each in self.source if each < back and first.get(each, self.end) >= offset]
                assert not unread, (offset, back, unread)


STEPS = st.one_of(
    st.tuples(st.just("produce"), st.integers(0, 3), st.integers(1, 30)),
    st.tuples(st.just("copy"), st.integers(1, 20), st.integers(0, 2)),
    st.tuples(st.just("restart"), st.integers(0, 15)),
    st.tuples(st.just("quiet")),
    st.tuples(st.just("create_again")),
    st.tuples(st.just("reload")),
)


@settings(max_examples=by_form(200, quick=50, long=20_000), deadline=None)
@given(st.integers(0, 30), st.lists(STEPS, max_size=25), st.integers(0, 5))
def test_no_record_that_a_group_has_not_read_is_before_its_translated_offset(
    lag: int, steps: list[tuple[object, ...]], unread: int
) -> None:
    copying, store, added = Copying(lag), OffsetSyncStore(), 0
    store.loaded()
    for name, *arguments in steps:
        if name == "reload":  # compaction leaves the last ones
            store, added = OffsetSyncStore(), max(0, len(copying.topic) - 1 - unread)
            for each in copying.topic[added:]:
                store.add(each)
            store.loaded()
            added = len(copying.topic)
        else:
            getattr(copying, str(name))(*arguments)
        behind = 0 if name == "create_again" else unread  # the reader of the topic
        while len(copying.topic) - added > behind:
            store.add(copying.topic[added])
            added += 1
        copying.check(store)
