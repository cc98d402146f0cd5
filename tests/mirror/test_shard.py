"""A shard copies every record, once with exactly-once, whatever fails; what it cannot copy it shows and tries again."""

from __future__ import annotations

from collections.abc import Iterable
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from raylog.client.errors import AbortableError, TransactionAbortedError
from raylog.core.clock import Now
from raylog.core.errors import ErrorCode, KafkaError
from raylog.core.ids import TopicPartition
from raylog.mirror.batches import OutgoingBatch, outgoing_batches
from raylog.mirror.copied import Copied
from raylog.mirror.formats import BEFORE_FIRST
from raylog.mirror.progress import Progress
from raylog.mirror.shard import PartitionStatus, Shard, ShardSettings
from raylog.mirror.spread import Spread
from raylog.protocol.records.builder import NewRecord, build_batch
from tests.support.forms import by_form

TPS = [TopicPartition("t", number) for number in range(3)]
TARGETS = {tp: TopicPartition("A.t", tp.partition) for tp in TPS}
ONE = {TPS[0]: TARGETS[TPS[0]]}
REFUSED = KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "A.t: not permitted")
MODES = pytest.mark.parametrize("exactly_once", [False, True], ids=["at-least-once", "exactly-once"])


def at(ms: int) -> Now:
    return Now(ms, 1_000_000 + ms)


def shard(progress: dict[TopicPartition, int] | None = None, *, exactly_once: bool = True) -> Shard:
    made = Shard(0, ShardSettings(exactly_once=exactly_once, commit_interval_ms=100, backoff_ms=50), lambda: 1.0)
    made.progress_read({tp: Progress(offset) for tp, offset in (progress or {}).items()})
    return made


def batch(offset: int, count: int = 1) -> OutgoingBatch:
    records = [NewRecord(None, b"%d" % (offset + number), 999_000) for number in range(count)]
    (made,) = outgoing_batches(build_batch(records, base_offset=offset), start=offset, check_crcs=False)
    return made


def begin(of: Shard, begins: dict[TopicPartition, int], ms: int = 0) -> None:
    """The consumer is led to these offsets, and they are committed."""
    for tp, offset in begins.items():
        of.positioned(tp, offset)
    assert of.commit_due(at(ms))
    assert end(of, {}, ms)
    assert begins.items() <= reached(of).items()
    of.committed(at(ms))


def send(to: Shard, tp: TopicPartition, *offsets: int, ms: int = 0) -> None:
    assert to.fetched(tp, offsets[0])
    for offset in offsets:
        if not to.sent(tp, batch(offset), at(ms)):
            return
    to.passed(tp, offsets[-1] + 1, at(ms))
    to.source_ends(tp, 100)


def end(of: Shard, errors: dict[TopicPartition, Iterable[KafkaError | None]], ms: int = 0) -> bool:
    return of.ended(errors, at(ms))


def reached(by: Shard) -> dict[TopicPartition, int]:
    return {tp: progress.next_offset for tp, progress in by.progress().items()}


def status(of: Shard, tp: TopicPartition, ms: int = 0) -> PartitionStatus:
    return next(each for each in of.status(at(ms)) if each.partition == tp.partition)


def test_a_shard_goes_on_where_its_progress_is_and_elsewhere_where_the_source_begins() -> None:
    it = shard({TPS[0]: 7})
    assert it.assign(TARGETS, {})
    assert not it.assign(TARGETS, {})
    assert it.take_seeks(at(0)) == {TPS[0]: 7}
    assert it.take_seeks(at(0)) == {}
    begin(it, {TPS[1]: 40})
    send(it, TPS[1], 40, 41)
    assert end(it, {TPS[1]: [None, None]})
    assert reached(it) == {TPS[1]: 42}
    it.committed(at(10))
    shown = status(it, TPS[1], 20)
    assert (shown.next_offset, shown.lag, shown.records, shown.last_record_age_ms) == (42, 58, 2, 1_020)
    assert shown.records_per_sec == pytest.approx(2 / 30)
    assert shown.record_ages == Spread(1_000, 1_000, 1_000, 1_000)
    assert shown.replication_latencies == Spread(1_010, 1_010, 1_010, 1_010)
    assert not it.is_dirty


@MODES
def test_where_a_partition_begins_is_committed_before_anything_of_it_is_sent(exactly_once: bool) -> None:
    it = shard(exactly_once=exactly_once)
    it.assign(ONE, {}, {"t": UUID(int=7)})
    assert it.paused(at(0)) == set(ONE)
    assert it.wait_ms(at(0), 500) < 500  # the position may be found at any time
    assert not it.commit_due(at(10_000), ending=True)
    it.positioned(TPS[0], 40)
    assert it.paused(at(0)) == set(ONE)
    assert not it.fetched(TPS[0], 40)
    assert it.commit_due(at(0))
    assert end(it, {})
    assert it.progress() == {TPS[0]: Progress(40, UUID(int=7))}
    assert it.paused(at(0)) == set(ONE)
    it.committed(at(0))
    assert it.paused(at(0)) == set()
    assert it.take_seeks(at(0)) == {TPS[0]: 40}
    assert it.fetched(TPS[0], 40)
    assert status(it, TPS[0]).next_offset == 40


def test_a_start_that_cannot_be_committed_is_shown_and_committed_later() -> None:
    for exactly_once in (False, True):
        it = shard(exactly_once=exactly_once)
        it.assign(ONE, {})
        it.positioned(TPS[0], 40)
        for ms in (0, 50, 150):
            assert it.commit_due(at(ms))
            assert end(it, {}, ms)
            (it.undone if exactly_once else it.not_committed)(REFUSED, at(ms))
            assert not it.commit_due(at(ms))
            assert status(it, TPS[0]).error == "A.t: not permitted"
            assert it.paused(at(100_000)) == set(ONE)
        it.positioned(TPS[0], 40)
        begin(it, {TPS[0]: 40}, 100_000)
        assert it.paused(at(100_000)) == set()
        assert status(it, TPS[0]).error is None


@MODES
def test_where_a_reset_leads_is_committed_after_what_was_sent_before(exactly_once: bool) -> None:
    it = shard({TPS[0]: 5}, exactly_once=exactly_once)
    it.assign(ONE, {})
    it.take_seeks(at(0))
    send(it, TPS[0], 5, 6)
    it.positioned(TPS[0], 20)  # the source has deleted offset 7
    assert it.commit_due(at(0))
    assert end(it, {TPS[0]: [None, None]})
    assert reached(it) == {TPS[0]: 7}
    it.committed(at(0))
    it.positioned(TPS[0], 20)
    assert it.paused(at(0)) == set(ONE)
    begin(it, {TPS[0]: 20})
    assert it.paused(at(0)) == set()
    assert it.fetched(TPS[0], 20)
    shown = status(it, TPS[0])
    assert (shown.next_offset, shown.lost, shown.records) == (20, 13, 2)


def test_a_partition_that_leaves_before_its_start_is_durable_begins_again() -> None:
    it = shard()
    it.assign(ONE, {})
    it.positioned(TPS[0], 40)
    it.undone(REFUSED, at(0))
    assert it.assign({}, {})
    assert it.assign(ONE, {})
    assert it.take_seeks(at(100)) == {}
    begin(it, {TPS[0]: 45}, 100)


def test_a_partition_that_returns_goes_on_where_it_was_also_if_nothing_of_it_could_be_sent() -> None:
    it = shard()
    it.assign(ONE, {})
    begin(it, {TPS[0]: 40})
    assert it.fetched(TPS[0], 40)
    it.stopped_at(TPS[0], REFUSED, at(0))
    assert it.assign({}, {})
    assert it.assign(ONE, {})
    assert it.take_seeks(at(0)) == {TPS[0]: 40}


def test_commits_are_due_by_time_by_bytes_and_at_the_end() -> None:
    it = shard()
    it.assign(ONE, {})
    begin(it, {TPS[0]: 0})
    assert not it.commit_due(at(10_000), ending=True)
    send(it, TPS[0], 0, ms=5)
    assert not it.commit_due(at(104))
    assert it.commit_due(at(104), ending=True)
    assert it.commit_due(at(105))
    assert it.wait_ms(at(60), 500) == 45
    large = Shard(0, ShardSettings(commit_bytes=1), lambda: 1.0)
    large.assign(ONE, {})
    begin(large, {TPS[0]: 0})
    send(large, TPS[0], 0)
    assert large.commit_due(at(0))


def test_with_at_least_once_a_failed_partition_goes_back_behind_its_last_record_and_others_are_committed() -> None:
    it = shard(exactly_once=False)
    it.assign(TARGETS, {})
    begin(it, {TPS[0]: 0, TPS[1]: 5, TPS[2]: 0})
    send(it, TPS[0], 0, 1, 2)
    send(it, TPS[1], 5)
    assert end(it, {TPS[0]: [None, REFUSED, None], TPS[1]: [None]})
    assert reached(it) == {TPS[0]: 1, TPS[1]: 6}
    it.committed(at(0))
    assert status(it, TPS[0]).error == "A.t: not permitted"
    assert (status(it, TPS[0]).state, status(it, TPS[1]).state) == ("failing", "running")
    assert it.paused(at(49)) == {TPS[0]}
    assert it.take_seeks(at(49)) == {}
    assert not it.fetched(TPS[0], 3)  # what was on its way
    assert it.take_seeks(at(50)) == {TPS[0]: 1}
    send(it, TPS[0], 1, 2, ms=50)
    assert end(it, {TPS[0]: [REFUSED]}, 50)  # alone
    it.committed(at(50))
    assert status(it, TPS[0]).attempts == 2
    assert it.paused(at(149)) == {TPS[0]}  # twice as long
    assert it.take_seeks(at(150)) == {TPS[0]: 1}
    send(it, TPS[0], 1, ms=150)
    assert end(it, {TPS[0]: [None]}, 150)
    it.committed(at(150))
    assert it.take_seeks(at(150)) == {TPS[0]: 2}
    send(it, TPS[0], 2, 3, ms=150)
    assert end(it, {TPS[0]: [None, None]}, 150)
    it.committed(at(150))
    assert (status(it, TPS[0]).error, status(it, TPS[0]).records) == (None, 4)
    it.assign(TARGETS, {TPS[1]: "no such topic"})
    assert (status(it, TPS[0]).state, status(it, TPS[1]).state) == ("running", "blocked")


@pytest.mark.parametrize("fails", [False, True])
def test_a_topic_that_was_created_again_is_copied_from_its_beginning(fails: bool) -> None:
    old, new = UUID(int=1), UUID(int=2)
    it = shard()
    it.progress_read({TPS[0]: Progress(5, old)})
    it.assign(ONE, {})
    it.take_seeks(at(0))
    assert it.fetched(TPS[0], 5, old)
    it.sent(TPS[0], batch(5), at(0))
    assert not it.fetched(TPS[0], 6, new)
    assert it.take_seeks(at(0)) == {}  # before that is committed
    assert end(it, {TPS[0]: [REFUSED if fails else None]}) is not fails
    if fails:
        it.undone(None, at(0))
    else:
        assert it.progress() == {TPS[0]: Progress(6, old)}
        it.committed(at(0))
    assert it.take_seeks(at(100)) == {TPS[0]: 0}
    assert it.fetched(TPS[0], 0, new)
    it.sent(TPS[0], batch(0), at(100))
    assert end(it, {TPS[0]: [None]}, 100)
    assert it.progress() == {TPS[0]: Progress(1, new)}
    it.committed(at(100))
    assert "created again" in str(status(it, TPS[0], 100).error)
    assert it.progress() == {}


def test_a_topic_that_was_created_again_while_no_worker_was_there_is_noticed() -> None:
    it = shard()
    it.progress_read({TPS[0]: Progress(5, UUID(int=1))})
    it.assign(ONE, {})
    assert it.take_seeks(at(0)) == {TPS[0]: 5}
    assert not it.fetched(TPS[0], 5, UUID(int=2))
    assert it.take_seeks(at(0)) == {TPS[0]: 0}
    assert it.fetched(TPS[0], 0, UUID(int=2))


def with_progress(progress: Progress, topic_id: UUID) -> Shard:
    """A shard with this progress, to which the partition is assigned as one of a topic with this id."""
    it = shard()
    it.progress_read({TPS[0]: progress})
    it.assign(ONE, {}, {"t": topic_id})
    return it


def test_a_new_topic_with_fewer_records_than_were_copied_of_the_former_one_is_noticed() -> None:
    """auto.offset.reset=latest would lead to its end."""
    it = with_progress(Progress(1_000, UUID(int=1), (999, 999)), UUID(int=2))
    assert it.take_seeks(at(0)) == {TPS[0]: 0}
    it.positioned(TPS[0], 0)
    assert not it.fetched(TPS[0], 0, UUID(int=2))
    assert it.take_found() == [Copied(TPS[0], BEFORE_FIRST, 999, 1)]
    assert it.take_seeks(at(0)) == {TPS[0]: 0}
    it.source_ends(TPS[0], 50)
    assert (status(it, TPS[0]).next_offset, status(it, TPS[0]).lag) == (0, 50)
    assert it.fetched(TPS[0], 0, UUID(int=2))


def test_a_topic_id_that_is_older_than_the_progress_has_nothing_copied_again() -> None:
    it = with_progress(Progress(1_000, UUID(int=2), (999, 999)), UUID(int=1))
    assert it.take_found() == []
    assert it.take_seeks(at(0)) == {TPS[0]: 0}
    it.positioned(TPS[0], 700)  # the first record that the source has
    assert not it.fetched(TPS[0], 700, UUID(int=2))
    assert it.take_found() == [Copied(TPS[0], 999, 999, 1)]
    assert it.take_seeks(at(0)) == {TPS[0]: 1_000}
    assert it.fetched(TPS[0], 1_000, UUID(int=2))
    assert (status(it, TPS[0]).lost, status(it, TPS[0]).error) == (0, None)


def test_a_newer_plan_with_the_known_topic_id_ends_the_doubt() -> None:
    it = with_progress(Progress(1_000, UUID(int=2)), UUID(int=1))
    assert it.take_seeks(at(0)) == {TPS[0]: 0}
    it.assign(ONE, {}, {"t": UUID(int=2)})
    assert it.take_seeks(at(0)) == {TPS[0]: 1_000}


def test_a_partition_that_stays_is_checked_when_a_newer_plan_has_another_topic_id() -> None:
    it = with_progress(Progress(5, UUID(int=1), (4, 40)), UUID(int=1))
    it.take_found()
    it.take_seeks(at(0))
    assert it.fetched(TPS[0], 5, UUID(int=1))
    it.sent(TPS[0], batch(5), at(0))
    assert not it.assign(ONE, {}, {"t": UUID(int=2)})
    assert not it.fetched(TPS[0], 6, UUID(int=1))  # what was on its way
    assert it.take_seeks(at(0)) == {TPS[0]: 0}
    assert not it.fetched(TPS[0], 0, UUID(int=2))
    assert it.take_seeks(at(0)) == {}  # before what was sent is committed
    assert end(it, {TPS[0]: [None]})
    assert it.progress() == {TPS[0]: Progress(6, UUID(int=1), (4, 40))}
    it.committed(at(0))
    assert it.take_seeks(at(0)) == {TPS[0]: 0}
    assert it.fetched(TPS[0], 0, UUID(int=2))


def test_with_exactly_once_a_failure_undoes_all_and_only_the_partition_that_failed_pauses() -> None:
    it = shard({TPS[1]: 5})
    it.assign(TARGETS, {})
    it.take_seeks(at(0))
    begin(it, {TPS[0]: 0, TPS[2]: 0})
    send(it, TPS[0], 0, 1)
    send(it, TPS[1], 5)
    victim = TransactionAbortedError("aborted before it was sent")
    assert not end(it, {TPS[0]: [None, REFUSED], TPS[1]: [victim]})
    it.undone(None, at(0))
    assert it.paused(at(0)) == {TPS[0]}
    assert it.take_seeks(at(0)) == {TPS[1]: 5}
    assert it.take_seeks(at(50)) == {TPS[0]: 0}
    assert reached(it) == {}
    assert status(it, TPS[0]).records == 0


def test_a_commit_that_fails_pauses_what_it_contained_for_longer_each_time() -> None:
    it = shard()
    it.assign(TARGETS, {})
    begin(it, dict.fromkeys(TPS, 0))
    for attempt, pause_ms in enumerate((50, 100, 200)):
        if attempt:
            assert it.take_seeks(at(1_000 * attempt)) == {TPS[0]: 0}
        send(it, TPS[0], 0, ms=1_000 * attempt)
        assert end(it, {TPS[0]: [None]})
        it.undone(AbortableError(ErrorCode.UNKNOWN_PRODUCER_ID, "lost"), at(1_000 * attempt))
        assert it.paused(at(1_000 * attempt + pause_ms - 1)) == {TPS[0]}
        assert it.paused(at(1_000 * attempt + pause_ms)) == set()


def test_progress_that_cannot_be_written_is_written_later_and_records_are_not_sent_again() -> None:
    it = shard(exactly_once=False)
    it.assign(TARGETS, {})
    begin(it, dict.fromkeys(TPS, 0))
    send(it, TPS[0], 0)
    assert end(it, {TPS[0]: [None]})
    it.not_committed(REFUSED, at(0))
    assert status(it, TPS[0]).error == "A.t: not permitted"
    assert it.take_seeks(at(50)) == {}
    assert it.commit_due(at(50))
    assert end(it, {}, 50)
    assert reached(it) == {TPS[0]: 1}
    it.committed(at(50))
    assert (status(it, TPS[0]).next_offset, status(it, TPS[0]).records, status(it, TPS[0]).error) == (1, 1, None)


def test_records_that_the_source_has_deleted_are_reported_and_the_others_copied() -> None:
    it = shard({TPS[0]: 10})
    it.assign(ONE, {})
    it.take_seeks(at(0))
    begin(it, {TPS[0]: 25})
    send(it, TPS[0], 25)
    assert end(it, {TPS[0]: [None]})
    it.committed(at(0))
    shown = status(it, TPS[0])
    assert (shown.next_offset, shown.lost) == (26, 15)
    assert str(shown.error).startswith("offsets 10 to 24 are not copied: the source had deleted")


def test_records_without_a_timestamp_have_no_age() -> None:
    it = shard()
    it.assign(ONE, {})
    begin(it, {TPS[0]: 0})
    assert it.fetched(TPS[0], 0)
    (made,) = outgoing_batches(build_batch([NewRecord(None, b"x", -1)], base_offset=0), start=0, check_crcs=False)
    it.sent(TPS[0], made, at(0))
    assert end(it, {TPS[0]: [None]})
    it.committed(at(5))
    shown = status(it, TPS[0], 5)
    assert (shown.records, shown.record_ages, shown.replication_latencies, shown.last_record_age_ms) == (1, *[None] * 3)


def test_a_source_that_begins_anew_is_followed_and_reported() -> None:
    it = shard({TPS[0]: 10})
    it.assign(ONE, {})
    it.take_seeks(at(0))
    assert not it.fetched(TPS[0], 0)  # without a look at the position before
    assert it.take_seeks(at(0)) == {}
    begin(it, {TPS[0]: 0})
    assert it.take_seeks(at(0)) == {TPS[0]: 0}
    send(it, TPS[0], 0)
    assert end(it, {TPS[0]: [None]})
    assert reached(it) == {TPS[0]: 1}
    it.committed(at(0))
    assert "at offset 0, before 10" in str(status(it, TPS[0]).error)


def test_a_partition_without_a_place_in_the_target_waits_until_there_is_one() -> None:
    it = shard({TPS[0]: 4})
    it.assign(ONE, {TPS[0]: "the target has no topic 'A.t'"})
    assert it.paused(at(0)) == {TPS[0]}
    assert it.take_seeks(at(0)) == {}
    assert not it.fetched(TPS[0], 4)
    assert status(it, TPS[0]).error == "the target has no topic 'A.t'"
    assert not it.assign(ONE, {})
    assert it.take_seeks(at(0)) == {TPS[0]: 4}
    assert status(it, TPS[0]).error is None


def test_an_error_of_the_source_is_shown_at_its_partition_until_it_is_read_again() -> None:
    it = shard()
    it.assign(TARGETS, {})
    it.source_failed(KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "t-1: denied"))
    assert [status(it, tp).error for tp in TPS] == [None, "t-1: denied", None]
    begin(it, dict.fromkeys(TPS, 0))
    send(it, TPS[1], 0)
    assert status(it, TPS[1]).error is None


def test_a_partition_that_comes_back_goes_on_where_it_was() -> None:
    it = shard()
    it.assign(TARGETS, {})
    begin(it, {TPS[0]: 3})
    send(it, TPS[0], 3)
    assert end(it, {TPS[0]: [None]})
    it.committed(at(0))
    assert it.assign({}, {})
    assert it.assign(ONE, {})
    assert it.take_seeks(at(0)) == {TPS[0]: 4}


class World:
    """A source of which each partition has this many batches, and a target with transactions.

    auto.offset.reset leads each owner of the shard to a later batch than the one before.
    """

    def __init__(self, count: int, *, exactly_once: bool) -> None:
        self.exactly_once = exactly_once
        self.source = {tp: [batch(3 * number, 2) for number in range(count)] for tp in TPS}
        self.target: dict[TopicPartition, list[int]] = {tp: [] for tp in TPS}
        self.progress: dict[TopicPartition, int] = {}
        self.starts: dict[TopicPartition, int] = {}
        """The first progress of each partition."""
        self.owners = 0
        self.open: list[tuple[TopicPartition, int]] = []
        """What a transaction contains."""
        self.ms = 0
        self.begin()

    def begin(self) -> None:
        """A new owner: a transaction of the former one is aborted."""
        self.open = []
        self.shard = shard(self.progress, exactly_once=self.exactly_once)
        self.shard.assign(TARGETS, {})
        self.position = dict.fromkeys(TPS, 3 * self.owners)
        self.owners = min(self.owners + 1, 6)
        self.sent: dict[TopicPartition, list[int]] = {}

    def read(self, tp: TopicPartition, count: int, refused_at: int) -> None:
        self.shard.positioned(tp, self.position[tp])
        self.position |= self.shard.take_seeks(at(self.ms))
        start = self.position[tp]
        batches = [each for each in self.source[tp] if each.next_offset > start][:count]
        if tp in self.shard.paused(at(self.ms)) or not batches:
            return
        self.position[tp] = batches[-1].next_offset + 1  # a marker follows each batch
        if not self.shard.fetched(tp, start):
            return
        for number, each in enumerate(batches):
            if number == refused_at:
                self.shard.stopped_at(tp, REFUSED, at(self.ms))
                return
            self.sent.setdefault(tp, []).append(each.first_offset)
            if not self.shard.sent(tp, each, at(self.ms)):
                return
        self.shard.passed(tp, self.position[tp], at(self.ms))

    def commit(self, failed_at: int, fails: bool) -> None:
        errors: dict[TopicPartition, list[KafkaError | None]] = {}
        arrived = []
        for tp, offsets in self.sent.items():
            errors[tp] = [REFUSED if number == failed_at else None for number in range(len(offsets))]
            arrived += [(tp, each) for each, error in zip(offsets, errors[tp], strict=True) if error is None]
        self.sent = {}
        goes_on = self.shard.ended(errors, at(self.ms))
        if not self.exactly_once or (goes_on and not fails):
            for tp, offset in arrived:
                self.target[tp].append(offset)
        if not goes_on:
            self.shard.undone(None, at(self.ms))
        elif not fails:
            self.progress |= reached(self.shard)
            self.starts = self.progress | self.starts
            self.shard.committed(at(self.ms))
        elif self.exactly_once:
            self.shard.undone(REFUSED, at(self.ms))
        else:
            self.shard.not_committed(REFUSED, at(self.ms))


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("read"), st.integers(0, 2), st.integers(1, 4), st.integers(0, 8)),
        st.tuples(st.just("commit"), st.integers(0, 6), st.booleans(), st.just(0)),
        st.tuples(st.just("wait"), st.integers(0, 200), st.just(0), st.just(0)),
        st.tuples(st.just("crash"), st.just(0), st.just(0), st.just(0)),
    ),
    max_size=40,
)


@MODES
@settings(max_examples=by_form(150, long=5_000), deadline=None)
@given(steps=STEPS)
def test_the_target_has_all_records_in_order_whatever_fails(
    exactly_once: bool, steps: list[tuple[str, int, int, int]]
) -> None:
    world = World(8, exactly_once=exactly_once)
    for kind, first, second, third in steps:
        if kind == "read":
            world.read(TPS[first], second, third)
        elif kind == "commit":
            world.commit(first, bool(second))
        elif kind == "wait":
            world.ms += first
        else:
            world.begin()
        for tp in TPS:
            start, committed = world.starts.get(tp, 0), world.progress.get(tp, 0)
            wanted = [each.first_offset for each in world.source[tp] if start < each.next_offset <= committed]
            assert set(wanted) <= set(world.target[tp])
            assert all(offset >= start for offset in world.target[tp])
            if exactly_once:
                assert world.target[tp] == wanted
    for _ in range(20):
        world.ms += 100_000
        for tp in TPS:
            world.read(tp, 8, -1)
        world.commit(-1, False)
    for tp in TPS:
        wanted = [each.first_offset for each in world.source[tp] if each.next_offset > world.starts[tp]]
        assert (world.target[tp] if exactly_once else sorted(set(world.target[tp]))) == wanted


def test_the_progress_has_the_last_copied_record_and_the_next_owner_begins_with_it() -> None:
    it = shard()
    it.progress_read({TPS[0]: Progress(5, None, (4, 40))})
    it.assign(ONE, {})
    assert it.take_found() == [Copied(TPS[0], 4, 40, 1)]
    assert it.take_found() == []
    it.take_seeks(at(0))
    send(it, TPS[0], 5, 6)
    assert end(it, {TPS[0]: [None, None]})
    it.appended([Copied(TPS[0], 5, 50, 1), Copied(TPS[0], 6, 51, 1)])
    assert it.progress() == {TPS[0]: Progress(7, None, (6, 51))}
    it.undone(None, at(0))
    it.take_seeks(at(0))
    send(it, TPS[0], 5)
    assert end(it, {TPS[0]: [None]})
    assert it.progress() == {TPS[0]: Progress(6, None, (4, 40))}, "of what was undone nothing is left"


def test_a_record_that_is_sent_again_is_not_the_last_copied_one() -> None:
    it = shard(exactly_once=False)
    it.progress_read({TPS[0]: Progress(5, None, (4, 40))})
    it.assign(ONE, {})
    it.take_seeks(at(0))
    send(it, TPS[0], 5, 6)
    assert end(it, {TPS[0]: [REFUSED, None]})
    it.appended([Copied(TPS[0], 6, 51, 1)])
    assert it.progress() == {}


def test_the_last_copied_record_of_a_source_that_was_truncated_is_forgotten() -> None:
    it = shard()
    it.progress_read({TPS[0]: Progress(5, None, (4, 40))})
    it.assign(ONE, {})
    it.take_seeks(at(0))
    it.positioned(TPS[0], 2)
    assert end(it, {}, 1_000)
    assert it.progress() == {TPS[0]: Progress(2)}


def test_the_last_copied_record_of_a_topic_that_was_created_again_is_not_told() -> None:
    it = shard()
    it.progress_read({TPS[0]: Progress(5, UUID(int=1), (4, 40)), TPS[1]: Progress(5, UUID(int=2), (4, 40))})
    it.assign(TARGETS, {}, {"t": UUID(int=2)})
    assert it.take_found() == [Copied(TPS[1], 4, 40, 1)]


@pytest.mark.parametrize(("known", "last"), [((4, 40), 40), (None, -1)])
def test_where_the_copies_of_a_topic_begin_that_was_created_again_is_told(
    known: tuple[int, int] | None, last: int
) -> None:
    it = shard()
    it.progress_read({TPS[0]: Progress(5, UUID(int=1), known)})
    it.assign(ONE, {})
    it.take_found()
    it.take_seeks(at(0))
    assert not it.fetched(TPS[0], 5, UUID(int=2))
    assert it.take_found() == [Copied(TPS[0], BEFORE_FIRST, last, 1)]
    assert it.take_found() == []


def test_a_source_without_topic_ids_that_goes_on_at_its_first_record_is_told_too() -> None:
    it = shard()
    it.progress_read({TPS[0]: Progress(5, None, (4, 40))})
    it.assign(ONE, {})
    it.take_found()
    it.take_seeks(at(0))
    it.positioned(TPS[0], 0)
    assert it.take_found() == [Copied(TPS[0], BEFORE_FIRST, 40, 1)]


def test_a_new_topic_at_whose_beginning_the_consumer_is_already_is_told_once() -> None:
    """Its leader may say that the log was truncated before it is known that this is another topic's."""
    it = shard()
    it.progress_read({TPS[0]: Progress(5, UUID(int=1), (4, 40))})
    it.assign(ONE, {})
    it.take_found()
    it.take_seeks(at(0))
    it.positioned(TPS[0], 0)
    assert end(it, {})
    it.committed(at(0))
    assert it.fetched(TPS[0], 0, UUID(int=2))
    assert it.take_found() == [Copied(TPS[0], BEFORE_FIRST, 40, 1)]
