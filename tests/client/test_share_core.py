"""A share consumer's core: each record is acquired once, told of once, and outlives or names what goes wrong."""

from __future__ import annotations

from typing import Any

import pytest

from raylog.client.consumer.fetched import FetchedBatches
from raylog.client.share.core import results
from raylog.core.errors import ErrorCode, KafkaError
from raylog.core.ids import TopicPartition
from raylog.protocol.records.batch import MalformedBatch
from raylog.protocol.share import AcknowledgeType
from tests.client.share_bench import (
    INTERVAL_MS,
    LOCK_MS,
    TOPIC_ID,
    Bench,
    acquired,
    batch,
    batches_in,
    forgotten_in,
    partitions_in,
    told,
)

ACCEPT, RELEASE, REJECT, RENEW = list(AcknowledgeType)[1:]
GAP = AcknowledgeType.GAP
T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


@pytest.fixture
def bench() -> Bench:
    """A member of the group with partition 0, whose first fetch is in flight."""
    made = Bench()
    made.join(0)
    return made


def accept(bench: Bench, *offsets: int, kind: AcknowledgeType = ACCEPT) -> None:
    for offset in offsets:
        bench.core.acknowledge(("t", 0, offset), kind)


def values(records: list[object]) -> list[int]:
    return [int(record.value) for record in records]  # type: ignore[attr-defined]


class TestMembership:
    """Heartbeats."""

    def test_the_first_heartbeat_names_the_topics_and_the_next_ones_do_not(self) -> None:
        bench = Bench({"client.rack": "b"})
        bench.pass_time(10_000)
        assert not bench.beats, "it does not join before it polls"
        bench.poll()
        first = bench.beat(assigned=[0])
        assert (first.member_epoch, first.subscribed_topic_names, first.rack_id) == (0, ("t",), "b")
        bench.pass_time(INTERVAL_MS - 1)
        assert not bench.beats
        bench.pass_time(1)
        idle = bench.beat()
        assert (idle.member_epoch, idle.subscribed_topic_names, idle.rack_id) == (1, None, None)

    def test_another_subscription_is_said_at_once(self, bench: Bench) -> None:
        bench.core.subscribe(["t", "u"])
        bench.core.run(bench.now)
        assert bench.beat().subscribed_topic_names == ("t", "u")

    @pytest.mark.parametrize("code", [ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID])
    def test_a_fenced_member_joins_again_with_the_same_id(self, bench: Bench, code: ErrorCode) -> None:
        bench.pass_time(INTERVAL_MS)
        before = bench.beat(code=code)
        assert bench.core.sessions.assigned == frozenset()
        bench.pass_time(5000)
        assert not bench.beats, "not before it polls"
        bench.poll()
        again = bench.beat(assigned=[0])
        assert (again.member_epoch, again.member_id) == (0, before.member_id)

    def test_an_error_that_does_not_pass_is_raised_by_each_poll(self) -> None:
        bench = Bench()
        bench.poll()
        bench.beat(code=ErrorCode.GROUP_AUTHORIZATION_FAILED)
        for _ in range(2):
            with pytest.raises(KafkaError) as raised:
                bench.poll()
            assert raised.value.code is ErrorCode.GROUP_AUTHORIZATION_FAILED
        bench.pass_time(60_000)
        assert not bench.beats

    def test_an_error_that_passes_is_retried_after_a_pause(self) -> None:
        bench = Bench()
        bench.poll()
        bench.beat(code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        assert not bench.beats
        bench.pass_time(200)
        assert bench.beat(assigned=[0]).member_epoch == 0
        assert bench.poll() == []

    def test_it_leaves_when_poll_is_not_called_and_comes_back(self, bench: Bench) -> None:
        bench.answer(acquired(0, (0, 1, 1)))
        assert len(bench.poll()) == 2
        for _ in range(300_000 // INTERVAL_MS):
            bench.pass_time(INTERVAL_MS)
            if bench.beats and bench.beats[0][0].member_epoch > 0:
                bench.beat()
        assert [request.member_epoch for request, _, _ in bench.beats] == [-1]

    def test_leaving_says_so(self, bench: Bench) -> None:
        request = bench.core.unsubscribe("test", bench.now, 1000)
        bench.core.run(bench.now)
        assert bench.beat(-1).member_epoch == -1
        assert request is not None
        assert (request.done, request.error) == (True, None)


class TestAcquiring:
    """ShareFetch: what is asked for when, and what is made of it."""

    def test_records_have_their_delivery_counts_and_only_acquired_ones_are_returned(self, bench: Bench) -> None:
        bench.answer(acquired(0, (2, 3, 1), (6, 6, 4), records=batch(0, 5) + batch(5, 3)))
        found = bench.poll()
        assert [(each.offset, each.value, each.delivery_count) for each in found] == [
            (2, b"2", 1),
            (3, b"3", 1),
            (6, b"6", 4),
        ]

    def test_offsets_without_a_record_are_told_to_be_gaps(self, bench: Bench) -> None:
        bench.answer(acquired(0, (0, 6, 1), records=batch(1, 2) + batch(4, 1)))
        assert values(bench.poll()) == [1, 2, 4]
        accept(bench, 1, 2, 4)
        bench.poll()
        assert batches_in(bench.fetch()) == [(0, 6, (GAP, ACCEPT, ACCEPT, GAP, ACCEPT, GAP, GAP))]

    def test_gaps_alone_are_told_without_a_word_of_the_program(self, bench: Bench) -> None:
        bench.answer(acquired(0, (0, 2, 1), records=b""))
        assert bench.poll() == []
        assert bench.poll() == []
        assert batches_in(bench.fetch()) == [(0, 2, (GAP,))]

    def test_a_batch_that_cannot_be_read_is_rejected_and_the_others_are_returned(self, bench: Bench) -> None:
        broken = bytearray(batch(2, 2))
        broken[-1] ^= 1
        bench.answer(acquired(0, (0, 4, 1), records=batch(0, 2) + bytes(broken) + batch(4, 1)))
        assert values(bench.poll()) == [0, 1]
        accept(bench, 0, 1)
        with pytest.raises(MalformedBatch, match="2 to 3") as raised:
            bench.poll()
        assert raised.value.tp == T0
        assert values(bench.poll()) == [4]
        assert batches_in(bench.acknowledgement()) == [(0, 3, (ACCEPT, ACCEPT, REJECT, REJECT))]

    @pytest.mark.parametrize(
        "ranges",
        [
            ((5, 2, 1),),
            ((0, 3, 1), (2, 5, 1)),
            ((-5, 0, 1),),
            ((0, (1 << 63) - 1, 1),),
        ],
        ids=["backwards", "overlapping", "negative", "endless"],
    )
    def test_what_no_leader_acquires_is_an_error(self, bench: Bench, ranges: tuple[tuple[int, int, int], ...]) -> None:
        bench.answer(acquired(0, *ranges, records=batch(0, 1)))
        with pytest.raises(KafkaError, match="cannot be"):
            bench.poll()
        assert bench.poll() == []

    def test_garbage_is_released(self, bench: Bench) -> None:
        old_format = bytearray(batch(0, 1))
        old_format[16] = 1
        bench.answer(acquired(0, (0, 0, 1), records=bytes(old_format)))
        with pytest.raises(KafkaError, match="t-0, offset 0"):
            bench.poll()
        bench.poll()
        assert batches_in(bench.fetch()) == [(0, 0, (RELEASE,))]

    def test_nothing_is_acquired_while_records_are_left(self, bench: Bench) -> None:
        bench.answer(acquired(0, (0, 9, 1)))
        assert values(bench.poll(4)) == [0, 1, 2, 3]
        assert not bench.sent
        accept(bench, 0, 1, 2, 3)
        assert values(bench.poll(6)) == [4, 5, 6, 7, 8, 9]
        assert batches_in(bench.acknowledgement()) == [(0, 3, (ACCEPT,))]

    def test_nothing_is_acquired_for_a_program_that_does_not_poll(self, bench: Bench) -> None:
        bench.answer(acquired(0))
        assert not bench.sent
        bench.pass_time(1000)
        assert not bench.sent
        bench.poll()
        assert bench.fetch().share_session_epoch == 1

    def test_records_whose_locks_have_timed_out_are_not_returned(self, bench: Bench) -> None:
        bench.answer(acquired(0, (0, 9, 1)))
        assert len(bench.poll(4)) == 4
        accept(bench, 0, 1, 2, 3)
        bench.ms += LOCK_MS
        assert bench.poll() == []
        assert bench.core.sessions.lock_timeout_ms == LOCK_MS

    def test_limits_and_modes_of_the_request(self) -> None:
        bench = Bench({"max.poll.records": "7", "share.acquire.mode": "record_limit", "fetch.max.wait.ms": "9"})
        bench.join(0)
        request = bench.fetch()
        assert (request.max_records, request.share_acquire_mode, request.max_wait_ms) == (7, 1, 9)

    def test_with_a_limit_of_records_one_leader_is_asked_after_the_other(self) -> None:
        bench = Bench({"share.acquire.mode": "record_limit"})
        bench.join(0, 1)
        asked = []
        for _ in range(3):
            (node_id,) = bench.sent
            asked.append(node_id)
            bench.answer(acquired(node_id - 1), node_id=node_id)
            bench.poll()
        assert asked in ([1, 2, 1], [2, 1, 2])

    def test_a_broker_without_the_mode_is_an_error(self) -> None:
        bench = Bench({"share.acquire.mode": "record_limit"}, version=1)
        bench.join(0)
        with pytest.raises(KafkaError, match="batch_optimized only"):
            bench.poll()


class TestSessions:
    """Epochs, partitions that come and go, leaders that move, and what is lost with a session."""

    def test_each_request_has_the_next_epoch_and_names_what_has_changed(self) -> None:
        bench = Bench()
        bench.lead(1, 1)
        bench.join(0)
        assert (bench.fetch().share_session_epoch, partitions_in(bench.fetch())) == (0, [0])
        bench.answer(acquired(0))
        bench.core.member.assigned = frozenset({(TOPIC_ID, 0), (TOPIC_ID, 1)})
        bench.poll()
        assert (bench.fetch().share_session_epoch, partitions_in(bench.fetch())) == (1, [1])
        bench.answer(acquired(0))
        bench.core.member.assigned = frozenset({(TOPIC_ID, 1)})
        bench.poll()
        request = bench.fetch()
        assert (request.share_session_epoch, partitions_in(request), forgotten_in(request)) == (2, [], [0])

    def test_the_epoch_after_the_highest_is_1(self, bench: Bench) -> None:
        bench.answer(acquired(0))
        bench.core.sessions._sessions[1].epoch = (1 << 31) - 1
        bench.poll()
        assert bench.fetch().share_session_epoch == (1 << 31) - 1
        bench.answer(acquired(0))
        bench.poll()
        assert bench.fetch().share_session_epoch == 1

    @pytest.mark.parametrize(
        "code", [ErrorCode.SHARE_SESSION_NOT_FOUND, ErrorCode.INVALID_SHARE_SESSION_EPOCH, None], ids=str
    )
    def test_a_lost_session_begins_anew_and_what_was_buffered_is_dropped(
        self, bench: Bench, code: ErrorCode | None
    ) -> None:
        bench.answer(acquired(0, (0, 4, 1)))
        assert values(bench.poll(2)) == [0, 1]
        accept(bench, 0, 1)
        (sent,) = bench.commit()
        if code is None:
            bench.lose()
        else:
            bench.answer(code=code)
        assert sent.error is not None
        assert sent.error.code is (code or ErrorCode.NETWORK_EXCEPTION)
        assert bench.poll() == []
        assert not bench.sent, "there is a pause"
        bench.pass_time(200)
        assert bench.poll() == []
        assert (bench.fetch().share_session_epoch, partitions_in(bench.fetch())) == (0, [0])

    def test_an_acknowledgement_cannot_outlive_its_session(self, bench: Bench) -> None:
        bench.answer(acquired(0, (0, 1, 1)))
        bench.poll()
        bench.commit()
        accept(bench, 0, 1)
        bench.core.sessions._sessions[1].end()
        (sent,) = bench.commit()
        assert sent.error is not None
        assert sent.error.code is ErrorCode.SHARE_SESSION_NOT_FOUND
        assert not bench.sent

    def test_a_partition_whose_leader_has_moved_is_fetched_from_the_new_one(self, bench: Bench) -> None:
        bench.answer(acquired(0, (0, 1, 1)))
        assert len(bench.poll()) == 2
        accept(bench, 0, 1)
        bench.lead(2, 2, epoch=1)
        bench.poll()
        assert partitions_in(bench.fetch(2)) == [0]
        assert batches_in(bench.acknowledgement(1)) == [(0, 1, (ACCEPT,))], "who has given them out is told"

    def test_a_leader_that_is_none_any_more(self, bench: Bench) -> None:
        bench.answer(acquired(0, error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER))
        bench.poll()
        assert not bench.sent, "there is a pause"
        assert bench.core.network.metadata.next_request_ms() is not None
        bench.lead(2, 2, epoch=1)
        bench.pass_time(200)
        assert partitions_in(bench.fetch(2)) == [0]

    def test_acknowledgements_to_a_broker_that_is_gone_fail(self, bench: Bench) -> None:
        bench.answer(acquired(0, (0, 1, 1)))
        bench.poll()
        accept(bench, 0, 1)
        bench.lead(2, 2, brokers=[2], epoch=1)
        (sent,) = bench.commit()
        assert results([sent])[T0] is not None
        assert sent.error is not None
        assert sent.error.code is ErrorCode.NOT_LEADER_OR_FOLLOWER

    def test_an_error_of_permissions_is_raised_and_tried_again(self, bench: Bench) -> None:
        bench.answer(acquired(0, error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED))
        with pytest.raises(KafkaError) as raised:
            bench.poll()
        assert raised.value.code is ErrorCode.TOPIC_AUTHORIZATION_FAILED
        bench.pass_time(200)
        bench.poll()
        assert (bench.fetch().share_session_epoch, forgotten_in(bench.fetch())) == (1, [])

    def test_closing_sends_what_was_said_and_ends_the_session(self, bench: Bench) -> None:
        bench.answer(acquired(0, (0, 3, 1)))
        assert len(bench.poll(3)) == 3
        accept(bench, 0)
        accept(bench, 1, kind=REJECT)
        bench.core.end_sessions(bench.now, 1000)
        bench.core.run(bench.now)
        request = bench.acknowledgement()
        assert request.share_session_epoch == -1
        assert batches_in(request) == [(0, 1, (ACCEPT, REJECT))]
        assert not bench.core.sessions.closed
        bench.answer(told())
        assert bench.core.sessions.closed
        assert not bench.sent

    def test_closing_waits_for_the_fetch_in_flight_and_returns_nothing_of_it(self, bench: Bench) -> None:
        bench.core.end_sessions(bench.now, 1000)
        bench.core.run(bench.now)
        bench.answer(acquired(0, (0, 3, 1)))
        assert bench.acknowledgement().share_session_epoch == -1
        assert not bench.core.sessions.buffered


class TestAcknowledging:
    """What the program says, and how it comes to the leader."""

    def test_acknowledgements_travel_with_the_next_fetch(self, bench: Bench) -> None:
        bench.answer(acquired(0, (0, 4, 1)))
        assert len(bench.poll()) == 5
        for offset, kind in enumerate((ACCEPT, ACCEPT, RELEASE, REJECT, ACCEPT)):
            accept(bench, offset, kind=kind)
        bench.poll()
        request = bench.fetch()
        assert batches_in(request) == [(0, 4, (ACCEPT, ACCEPT, RELEASE, REJECT, ACCEPT))]
        assert request.share_session_epoch == 1

    def test_offsets_that_are_not_neighbours_are_told_in_batches_of_their_own(self, bench: Bench) -> None:
        bench.answer(acquired(0, (0, 4, 1)))
        assert len(bench.poll()) == 5
        accept(bench, 0, 1, 4)
        accept(bench, 3, kind=RELEASE)
        bench.commit()
        assert batches_in(bench.acknowledgement()) == [(0, 1, (ACCEPT,)), (3, 4, (RELEASE, ACCEPT))]

    def test_the_result_in_a_fetch_is_that_of_the_acknowledgement(self, bench: Bench) -> None:
        reported: list[Any] = []
        bench.core.sessions.on_acknowledged = reported.append
        bench.answer(acquired(0, (0, 0, 1)))
        bench.poll()
        accept(bench, 0)
        bench.poll()
        bench.answer(acquired(0, acknowledge_error_code=ErrorCode.INVALID_RECORD_STATE))
        (result,) = reported
        assert (result.offsets, result.error.code) == ([0], ErrorCode.INVALID_RECORD_STATE)

    def test_in_the_implicit_mode_the_next_poll_and_a_commit_accept(self) -> None:
        bench = Bench({"share.acknowledgement.mode": "implicit"})
        bench.join(0)
        bench.answer(acquired(0, (0, 3, 1)))
        assert len(bench.poll(2)) == 2
        assert len(bench.poll(1)) == 1
        assert batches_in(bench.acknowledgement()) == [(0, 1, (ACCEPT,))]
        bench.answer(told())
        (sent,) = bench.commit()
        assert batches_in(bench.acknowledgement()) == [(2, 2, (ACCEPT,))]
        bench.answer(told())
        assert (sent.done, sent.error) == (True, None)
        with pytest.raises(KafkaError, match="is implicit"):
            accept(bench, 2)

    def test_in_the_implicit_mode_closing_accepts_nothing(self) -> None:
        bench = Bench({"share.acknowledgement.mode": "implicit"})
        bench.join(0)
        bench.answer(acquired(0, (0, 3, 1)))
        assert len(bench.poll(2)) == 2
        bench.core.end_sessions(bench.now, 1000)
        bench.core.run(bench.now)
        assert batches_in(bench.acknowledgement()) == []

    def test_every_record_must_be_acknowledged_before_the_next_poll(self, bench: Bench) -> None:
        bench.answer(acquired(0, (0, 2, 1)))
        bench.poll()
        accept(bench, 0, 2)
        with pytest.raises(KafkaError, match="1 are not, the first of which is t-0, offset 1") as raised:
            bench.poll()
        assert raised.value.code is ErrorCode.INVALID_REQUEST
        accept(bench, 1)
        assert bench.poll() == []

    def test_the_last_word_before_it_is_sent_counts_and_none_after(self, bench: Bench) -> None:
        bench.answer(acquired(0, (0, 0, 1)))
        bench.poll()
        accept(bench, 0, kind=RELEASE)
        accept(bench, 0, kind=REJECT)
        bench.commit()
        assert batches_in(bench.acknowledgement()) == [(0, 0, (REJECT,))]
        with pytest.raises(KafkaError) as raised:
            accept(bench, 0)
        assert raised.value.code is ErrorCode.INVALID_RECORD_STATE

    @pytest.mark.parametrize("place", [("t", 0, 99), ("t", 1, 0), ("other", 0, 0)])
    def test_a_record_that_was_not_returned(self, bench: Bench, place: tuple[str, int, int]) -> None:
        bench.answer(acquired(0, (0, 0, 1)))
        bench.poll()
        with pytest.raises(KafkaError) as raised:
            bench.core.acknowledge(place, ACCEPT)
        assert raised.value.code is ErrorCode.INVALID_RECORD_STATE
        with pytest.raises(KafkaError, match="GAP"):
            bench.core.acknowledge(("t", 0, 0), GAP)

    def test_a_commit_waits_for_the_request_in_flight_and_names_each_partition_once(self, bench: Bench) -> None:
        bench.answer(acquired(0, (0, 2, 1)))
        bench.poll()
        accept(bench, 0)
        bench.commit()
        assert batches_in(bench.acknowledgement()) == [(0, 0, (ACCEPT,))]
        accept(bench, 1)
        bench.commit()
        accept(bench, 2)
        bench.commit()
        bench.answer(told())
        assert batches_in(bench.acknowledgement()) == [(1, 1, (ACCEPT,))]
        bench.answer(told())
        assert batches_in(bench.acknowledgement()) == [(2, 2, (ACCEPT,))]

    def test_an_error_that_passes_is_retried_until_the_deadline(self, bench: Bench) -> None:
        bench.answer(acquired(0, (0, 0, 1)))
        bench.poll()
        accept(bench, 0)
        (sent,) = bench.commit(1000)
        bench.answer(told(code=ErrorCode.COORDINATOR_NOT_AVAILABLE))
        assert not sent.done
        assert not bench.sent
        bench.pass_time(200)
        assert batches_in(bench.acknowledgement()) == [(0, 0, (ACCEPT,))]
        bench.answer(told(code=ErrorCode.COORDINATOR_NOT_AVAILABLE))
        bench.pass_time(1000)
        assert sent.done
        assert sent.error.code is ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert not bench.sent

    def test_an_error_that_does_not_pass_ends_it(self, bench: Bench) -> None:
        bench.answer(acquired(0, (0, 0, 1)))
        bench.poll()
        accept(bench, 0)
        sent = bench.commit()
        assert results(sent)[T0].code is ErrorCode.REQUEST_TIMED_OUT  # type: ignore[union-attr]
        bench.answer(told(code=ErrorCode.INVALID_RECORD_STATE))
        assert results(sent)[T0].code is ErrorCode.INVALID_RECORD_STATE  # type: ignore[union-attr]

    def test_a_partition_that_the_response_lacks_is_not_taken_for_acknowledged(self, bench: Bench) -> None:
        bench.answer(acquired(0, (0, 0, 1)))
        bench.poll()
        accept(bench, 0)
        sent = bench.commit()
        bench.answer()
        assert results(sent)[T0].code is ErrorCode.UNKNOWN_SERVER_ERROR  # type: ignore[union-attr]

    def test_a_renewed_record_comes_again_before_new_ones(self, bench: Bench) -> None:
        bench.answer(acquired(0, (0, 1, 2)))
        bench.poll()
        accept(bench, 0, kind=RENEW)
        accept(bench, 1)
        assert bench.poll() == []
        request = bench.acknowledgement()
        assert (request.is_renew_ack, batches_in(request)) == (True, [(0, 1, (RENEW, ACCEPT))])
        bench.answer(told())
        assert not bench.sent, "nothing new is acquired before the program has it again"
        (again,) = bench.poll()
        assert (again.offset, again.delivery_count) == (0, 2)
        with pytest.raises(KafkaError, match="must be acknowledged"):
            bench.poll()
        accept(bench, 0)
        bench.poll()
        assert batches_in(bench.fetch()) == [(0, 0, (ACCEPT,))]

    def test_a_renewal_that_is_refused_gives_the_record_up(self, bench: Bench) -> None:
        bench.answer(acquired(0, (0, 0, 1)))
        bench.poll()
        accept(bench, 0, kind=RENEW)
        bench.poll()
        bench.answer(told(code=ErrorCode.INVALID_RECORD_STATE))
        assert bench.poll() == []
        with pytest.raises(KafkaError, match="is not one of the last poll"):
            accept(bench, 0)

    def test_a_broker_that_cannot_renew(self) -> None:
        bench = Bench(version=1)
        bench.join(0)
        bench.answer(acquired(0, (0, 0, 1)))
        bench.poll()
        accept(bench, 0, kind=RENEW)
        (sent,) = bench.commit()
        assert sent.error is not None
        assert sent.error.code is ErrorCode.UNSUPPORTED_VERSION

    def test_a_record_that_cannot_be_deserialized_is_released_unless_it_is_rejected(self, bench: Bench) -> None:
        bench.answer(acquired(0, (0, 1, 1)))
        bench.poll()
        for offset in (0, 1):
            bench.core.not_deserialized(("t", 0, offset), KafkaError(ErrorCode.INVALID_RECORD, "no number"))
        accept(bench, 1, kind=REJECT)
        with pytest.raises(KafkaError, match="no number"):
            bench.poll()
        assert batches_in(bench.fetch()) == [(0, 1, (RELEASE, REJECT))]

    @pytest.mark.parametrize("mode", ["implicit", "explicit"])
    def test_records_that_were_taken_and_not_returned_are_released(self, mode: str) -> None:
        bench = Bench({"share.acknowledgement.mode": mode})
        bench.join(0)
        bench.answer(acquired(0, (0, 2, 1)))
        assert values(bench.poll()) == [0, 1, 2]
        bench.core.release_taken()
        assert bench.poll() == []
        assert batches_in(bench.fetch()) == [(0, 2, (RELEASE,))]

    def test_a_renewed_record_that_was_not_returned_is_released(self, bench: Bench) -> None:
        bench.answer(acquired(0, (0, 0, 1)))
        bench.poll()
        accept(bench, 0, kind=RENEW)
        bench.commit()
        bench.answer(told())
        assert values(bench.poll()) == [0]
        bench.core.release_taken()
        bench.commit()
        assert batches_in(bench.acknowledgement()) == [(0, 0, (RELEASE,))]

    def test_records_whose_decoding_is_interrupted_are_never_told_to_be_gaps(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """They are dropped, and come again once their locks time out. Those decoded before are released."""
        bench = Bench()
        bench.join(0, 1)
        bench.answer(acquired(0, (0, 0, 1)), node_id=1)
        bench.answer(acquired(1, (5, 7, 1)), node_id=2)
        right = FetchedBatches.take

        def take(self: FetchedBatches, count: int) -> Any:
            found = right(self, count)
            if self.tp == T1:
                raise KeyboardInterrupt
            return found

        monkeypatch.setattr(FetchedBatches, "take", take)
        with pytest.raises(KeyboardInterrupt):
            bench.poll(2)
        bench.core.release_taken()
        assert bench.poll() == []
        assert batches_in(bench.fetch(1)) == [(0, 0, (RELEASE,))]
        assert batches_in(bench.fetch(2), 1) == []

    def test_two_leaders_are_told_each_of_its_own(self) -> None:
        bench = Bench()
        bench.join(0, 1)
        bench.answer(acquired(0, (0, 0, 1)), node_id=1)
        bench.answer(acquired(1, (5, 5, 1)), node_id=2)
        assert values(bench.poll()) == [0, 5]
        accept(bench, 0)
        bench.core.acknowledge(("t", 1, 5), RELEASE)
        sent = bench.commit()
        assert batches_in(bench.acknowledgement(1)) == [(0, 0, (ACCEPT,))]
        assert batches_in(bench.acknowledgement(2), 1) == [(5, 5, (RELEASE,))]
        bench.answer(told(0), node_id=1)
        bench.answer(told(1, ErrorCode.INVALID_RECORD_STATE), node_id=2)
        found = results(sent)
        assert found[T0] is None
        assert found[T1] is not None
