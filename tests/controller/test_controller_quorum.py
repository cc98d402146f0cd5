"""Several controllers: acknowledged changes survive any change of the leader, uncommitted ones are discarded."""

from __future__ import annotations

import errno
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest

from raylog.controller import voter
from raylog.controller.controller import Controller
from raylog.controller.features import raise_level
from raylog.controller.handlers import broker_heartbeat, envelope, fetch, fetch_snapshot
from raylog.controller.quorum.election_state import QUORUM_STATE_FILE
from raylog.controller.quorum.events import EpochSeen
from raylog.core.errors import ErrorCode, InvariantViolation, KafkaError
from raylog.core.ids import NO_BROKER_ID, BrokerId, LeaderEpoch, Offset
from raylog.core.outcome import Outcome
from raylog.metadata.image import MetadataImage
from raylog.metadata.levels import LATEST_LEVEL, SUPPORTED
from raylog.metadata.records import BrokerRegistered, BrokerUnfenced, ControllerElected, TopicCreated
from raylog.metadata.snapshot import SnapshotId
from raylog.metadata.snapshot_request import snapshot_request
from raylog.metadata.topic_names import METADATA_PARTITION, METADATA_TOPIC_ID
from raylog.protocol import registry
from raylog.protocol.fetch import FetchPartition, FetchRequest, FetchTopic
from raylog.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest
from raylog.protocol.messages.envelope import EnvelopeRequest
from raylog.transport.exchange import Exchange
from raylog.transport.node import Job
from tests.metadata.snapshots import encode_snapshot
from tests.support.direct_quorum import LOG_PATH, DirectQuorum
from tests.support.exchanges import Answers, exchange_on
from tests.support.forms import by_form
from tests.support.sim_disk import Killed

SMALL_SNAPSHOTS = {"metadata.log.max.record.bytes.between.snapshots": "2000"}
PARTITION_PATH = f"{LOG_PATH}/{METADATA_PARTITION}"
KILL_STEP = by_form(2, long=1)
"""A voter is killed at each so many-th operation of its disk."""


@pytest.fixture
def quorum() -> DirectQuorum:
    return DirectQuorum()


def others(quorum: DirectQuorum) -> list[Controller]:
    return [each for each in quorum.running if not each.is_active]


def names(controller: Controller) -> set[str]:
    return set(controller.image.topics)


def asks(quorum: DirectQuorum, controller: Controller, told: list[object] | None = None) -> Exchange:
    connection = controller.connection_opened(quorum.listener, "127.0.0.1", quorum.now())
    assert connection is not None
    exchange = exchange_on(controller, connection, registry.FETCH, 18, quorum.now())
    return Answers(exchange, (told if told is not None else []).append)


def wait_for_commit(controller: Controller, left: list[str]) -> None:
    """Note in `left` when everything decided so far is committed."""

    def done(codes: Sequence[ErrorCode]) -> None:
        if list(codes) == [ErrorCode.NONE]:
            left.append("told")

    point = controller.commit_point()
    assert point is not None
    controller.commits.wait((point,), deadline_ms=None, done=done)


class TestElections:
    def test_one_of_three_is_active_and_all_have_its_records(self, quorum: DirectQuorum) -> None:
        active = quorum.start_all()
        quorum.create_topic(active, "t")
        quorum.pass_time(1000)
        assert [names(each) for each in quorum.running] == [{"t"}] * 3
        assert {each.quorum.leader_id for each in quorum.running} == {active.quorum.node_id}
        assert {each.high_watermark for each in quorum.running} == {active.next_offset}

    def test_another_is_active_within_milliseconds_after_a_kill(self, quorum: DirectQuorum) -> None:
        active = quorum.start_all()
        quorum.create_topic(active, "t")
        quorum.settle()
        quorum.kill(quorum.number_of(active))
        quorum.pass_time(100)
        assert names(quorum.active) == {"t"}
        assert quorum.active.quorum.leader_epoch > active.quorum.leader_epoch

    def test_one_of_three_may_be_absent_but_not_two(self, quorum: DirectQuorum) -> None:
        active = quorum.start_all()
        first, second = (quorum.number_of(each) for each in others(quorum))
        quorum.kill(first)
        quorum.create_topic(active, "with two")
        quorum.settle()
        assert active.all_committed
        quorum.kill(second)
        quorum.create_topic(active, "alone")
        quorum.settle()
        assert not active.all_committed
        quorum.pass_time(10_000)
        assert not active.is_active
        quorum.start(first)
        quorum.pass_time(5_000)
        assert names(quorum.active) >= {"with two"}

    def test_everything_survives_a_power_failure_of_all(self, quorum: DirectQuorum) -> None:
        active = quorum.start_all()
        quorum.create_topic(active, "t")
        quorum.settle()
        for number in range(3):
            quorum.kill(number)
        for _ in range(3):
            again = quorum.start_all()
            assert names(again) == {"t"}
            for number in range(3):
                quorum.kill(number)

    def test_a_partitioned_leader_resigns_and_does_not_disrupt_the_others_when_it_returns(
        self, quorum: DirectQuorum
    ) -> None:
        active = quorum.start_all()
        quorum.cut_off.add(quorum.number_of(active))
        quorum.pass_time(8_000)
        assert not active.is_active
        led_by = quorum.active
        epoch = led_by.quorum.leader_epoch
        quorum.cut_off.clear()
        quorum.pass_time(8_000)
        assert (quorum.active, quorum.active.quorum.leader_epoch) == (led_by, epoch)

    def test_a_partitioned_follower_raises_no_epoch(self, quorum: DirectQuorum) -> None:
        active = quorum.start_all()
        epoch = active.quorum.leader_epoch
        follower = others(quorum)[0]
        quorum.cut_off.add(quorum.number_of(follower))
        quorum.pass_time(60_000)
        assert follower.quorum.leader_epoch == epoch
        quorum.cut_off.clear()
        quorum.pass_time(15_000)
        assert (quorum.active, active.quorum.leader_epoch) == (active, epoch)

    def test_a_voter_that_loses_one_link_to_the_leader_has_one_fetch_in_flight(self, quorum: DirectQuorum) -> None:
        active = quorum.start_all()
        follower = others(quorum)[0].voter
        for _ in range(3):
            follower._links.requests[active.quorum.node_id].disconnect()
            quorum.pass_time(1500)
        assert len(follower._links.fetches[active.quorum.node_id]._in_flight) == 1


class TestCommit:
    def test_no_response_is_sent_before_a_majority_has_the_records_on_disk(self, quorum: DirectQuorum) -> None:
        active = quorum.start_all()
        left: list[str] = []
        outcome = Outcome(None, [ControllerElected(BrokerId(1000))])
        quorum.cut_off.update(quorum.number_of(each) for each in others(quorum))
        active.decide(outcome, quorum.now())
        wait_for_commit(active, left)
        active.run(quorum.now())
        quorum.settle()
        assert left == []
        quorum.cut_off.pop()
        quorum.settle()
        assert left == ["told"]

    def test_a_deposed_leader_discards_uncommitted_records_and_closes_connections(self, quorum: DirectQuorum) -> None:
        active = quorum.start_all()
        quorum.create_topic(active, "committed")
        quorum.settle()
        number = quorum.number_of(active)
        quorum.cut_off.add(number)
        left: list[str] = []
        quorum.create_topic(active, "lost")
        wait_for_commit(active, left)
        waiting = asks(quorum, active).connection
        quorum.pass_time(8_000)
        assert names(active) == {"committed"}
        assert waiting.closing
        quorum.create_topic(quorum.active, "after")
        quorum.cut_off.clear()
        quorum.pass_time(8_000)
        assert names(active) == {"committed", "after"}
        assert left == []
        assert active.metadata_log.flushed_end == quorum.active.metadata_log.flushed_end
        quorum.kill(number)
        assert "lost" not in names(quorum.start(number))

    def test_a_record_on_one_voter_is_committed_if_that_voter_is_elected(self, quorum: DirectQuorum) -> None:
        active = quorum.start_all()
        number = quorum.number_of(active)
        quorum.cut_off.update({0, 1, 2} - {number})
        quorum.create_topic(active, "t")
        for each in range(3):
            quorum.kill(each)
        quorum.cut_off.clear()
        again = quorum.start(number)
        quorum.start((number + 1) % 3)
        quorum.pass_time(5000)
        assert again.is_active, "the other one lacks what may have been committed"
        assert names(again) == {"t"}

    def test_a_full_disk_of_a_follower_delays_no_commit_and_recovers(self, quorum: DirectQuorum) -> None:
        active = quorum.start_all()
        follower = others(quorum)[0]
        disk = quorum.disks[quorum.number_of(follower)]
        disk.capacity_bytes = disk.used_bytes()
        quorum.create_topic(active, "t")
        quorum.pass_time(3000)
        assert active.all_committed
        assert names(follower) == set()
        disk.capacity_bytes = None
        quorum.pass_time(1000)
        assert names(follower) == {"t"}

    def test_a_leader_with_a_full_disk_ends_and_another_one_is_elected(self, quorum: DirectQuorum) -> None:
        full = quorum.start_all()
        number = quorum.number_of(full)
        disk = quorum.disks[number]
        disk.capacity_bytes = disk.used_bytes()
        with pytest.raises(InvariantViolation, match="the active controller cannot write"):
            quorum.create_topic(full, "refused")
        quorum.kill(number, power_cut=False)
        quorum.pass_time(1000)
        quorum.create_topic(quorum.active, "t")
        disk.capacity_bytes = None
        quorum.start(number)
        quorum.pass_time(1000)
        assert [names(each) for each in quorum.running] == [{"t"}] * 3

    def test_a_follower_with_a_failed_disk_ends(self, quorum: DirectQuorum) -> None:
        active = quorum.start_all()
        follower = others(quorum)[0]
        quorum.disks[quorum.number_of(follower)].fail_next("fsync", errno.EIO)
        quorum.create_topic(active, "t")
        with pytest.raises(InvariantViolation, match="cannot be flushed"):
            quorum.settle()

    def test_a_follower_that_cannot_flush_ends_and_continues_after_a_restart(
        self, quorum: DirectQuorum, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        active = quorum.start_all()
        follower = others(quorum)[0]
        number = quorum.number_of(follower)

        def full() -> None:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "no space for the leader epochs")

        monkeypatch.setattr(follower.metadata_log.log, "flush", full)
        quorum.create_topic(active, "t")
        with pytest.raises(InvariantViolation, match="cannot be flushed"):
            quorum.settle()
        quorum.kill(number, power_cut=False)
        quorum.start(number)
        quorum.create_topic(active, "u")
        quorum.pass_time(1000)
        assert [names(each) for each in quorum.running] == [{"t", "u"}] * 3

    def test_a_follower_that_cannot_truncate_uncommitted_records_ends(self, quorum: DirectQuorum) -> None:
        deposed = quorum.start_all()
        quorum.create_topic(deposed, "t")
        quorum.settle()
        number = quorum.number_of(deposed)
        quorum.cut_off.add(number)
        quorum.create_topic(deposed, "lost")
        [segment] = [name for name in quorum.disks[number].listdir(PARTITION_PATH) if name.endswith(".log")]
        quorum.disks[number].spoil(f"{PARTITION_PATH}/{segment}", reading=True)
        with pytest.raises(InvariantViolation, match="cannot be truncated"):
            quorum.pass_time(8000)

    def test_an_elected_voter_that_cannot_read_its_log_ends(
        self, quorum: DirectQuorum, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        active = quorum.start_all()
        number = quorum.number_of(active)

        def unreadable(*_: object, **__: object) -> None:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "too many open files")

        for follower in others(quorum):
            monkeypatch.setattr(follower.metadata_log, "replay_upto", unreadable)
        quorum.cut_off.add(number)
        with pytest.raises(InvariantViolation, match="the metadata log cannot be read"):
            quorum.pass_time(8000)

    def test_a_leader_deposed_before_its_flush_continues_as_follower(self, quorum: DirectQuorum) -> None:
        deposed = quorum.start_all()
        deposed.decide(Outcome(None, [TopicCreated("t", quorum.new_id())]), quorum.now())
        deposed.voter.step(EpochSeen(LeaderEpoch(deposed.leader_epoch + 1), NO_BROKER_ID), quorum.now())
        assert deposed.metadata_log.flushed_end.end_offset == deposed.next_offset
        quorum.cut_off.add(quorum.number_of(deposed))
        quorum.pass_time(5000)
        quorum.create_topic(quorum.active, "u")
        quorum.cut_off.clear()
        quorum.pass_time(5000)
        assert [names(each) for each in quorum.running] == [{"u"}] * 3


class TestVotersDisk:
    def test_a_voter_that_lost_its_log_does_not_start(self, quorum: DirectQuorum) -> None:
        active = quorum.start_all()
        number = quorum.number_of(others(quorum)[0])
        quorum.kill(number)
        quorum.disks[number].rmtree(LOG_PATH)
        with pytest.raises(KafkaError, match="has lost __cluster_metadata-0"):
            quorum.start(number)
        assert active.is_active

    @pytest.mark.parametrize("damage", ["missing", "garbage", "older"])
    def test_a_voter_that_lost_its_election_state_does_not_start(self, quorum: DirectQuorum, damage: str) -> None:
        active = quorum.start_all()
        quorum.create_topic(active, "t")
        quorum.settle()
        number = quorum.number_of(active)
        quorum.kill(number)
        path = f"{PARTITION_PATH}/{QUORUM_STATE_FILE}"
        if damage == "missing":
            quorum.disks[number].unlink(path)
        else:
            state = b"{}" if damage == "garbage" else b'{"leaderId":-1,"leaderEpoch":0,"votedId":-1,"data_version":1}'
            quorum.disks[number].overwrite(path, state)
        with pytest.raises(KafkaError, match=QUORUM_STATE_FILE):
            quorum.start(number)

    def test_a_single_voter_needs_no_election_state(self) -> None:
        quorum = DirectQuorum(count=1)
        quorum.create_topic(quorum.start(0), "t")
        quorum.kill(0)
        quorum.disks[0].unlink(f"{PARTITION_PATH}/{QUORUM_STATE_FILE}")
        again = quorum.start(0)
        assert names(again) == {"t"}
        assert again.leader_epoch == 2

    def test_a_truncation_that_fails_is_retried_and_the_log_end_is_reported_unchanged(
        self, quorum: DirectQuorum
    ) -> None:
        deposed = quorum.start_all()
        quorum.create_topic(deposed, "committed")
        quorum.settle()
        quorum.cut_off.add(quorum.number_of(deposed))
        quorum.create_topic(deposed, "lost")
        written = deposed.metadata_log.flushed_end
        quorum.pass_time(8000)
        disk = quorum.disks[quorum.number_of(deposed)]
        disk.fail_next("rename", errno.EIO, after=1)  # the epoch is saved, the checkpoint before the cut is not
        quorum.cut_off.clear()
        while deposed.voter._retry_ms is None:
            quorum.pass_time(1)
        assert deposed.metadata_log.flushed_end == written
        quorum.pass_time(1000)
        assert deposed.metadata_log.flushed_end == quorum.active.metadata_log.flushed_end
        assert names(deposed) == {"committed"}

    def test_after_a_kill_at_any_write_the_others_continue_and_the_voter_returns(self) -> None:
        for kill_at_op in range(1, 25, KILL_STEP):
            quorum = DirectQuorum(seed=kill_at_op)
            active = quorum.start_all()
            number = quorum.number_of(others(quorum)[0])
            quorum.disks[number].arm(kill_at_op=kill_at_op)
            topics = [f"t{each}" for each in range(12)]
            for topic in topics:
                try:
                    quorum.create_topic(active, topic)
                    quorum.settle()
                except BaseException:
                    quorum.kill(number)
                    quorum.settle()
            quorum.pass_time(1000)
            if quorum.controllers[number] is None:
                quorum.start(number)
            quorum.pass_time(5000)
            assert all(names(each) == set(topics) for each in quorum.running)


class TestSnapshots:
    def create_many(self, quorum: DirectQuorum, count: int) -> None:
        for number in range(count):
            quorum.create_topic(quorum.active, f"t{len(quorum.active.image.topics)}-{number}")
            quorum.pass_time(400)

    def test_each_controller_writes_its_own_and_keeps_the_log_from_the_previous_one(self) -> None:
        quorum = DirectQuorum(SMALL_SNAPSHOTS)
        quorum.start_all()
        self.create_many(quorum, 60)
        for controller in quorum.running:
            log = controller.metadata_log
            assert len(log.snapshots) == 2
            assert 0 < log.start_offset == log.snapshots[0].end_offset < log.snapshots[1].end_offset <= log.end_offset
            files = quorum.disks[quorum.number_of(controller)].listdir(PARTITION_PATH)
            assert sorted(each for each in files if each.endswith(".checkpoint")) == [
                each.file_name for each in log.snapshots
            ]

    def test_a_start_loads_the_snapshot_first(self) -> None:
        quorum = DirectQuorum(SMALL_SNAPSHOTS)
        quorum.start_all()
        self.create_many(quorum, 60)
        expected = vars(quorum.active.image)
        for number in range(3):
            quorum.kill(number)
        again = quorum.start_all()
        assert vars(again.image) == expected
        assert all(vars(each.image) == expected for each in quorum.running)

    def test_a_damaged_snapshot_is_skipped(self) -> None:
        quorum = DirectQuorum(SMALL_SNAPSHOTS)
        quorum.start_all()
        self.create_many(quorum, 60)
        number = quorum.number_of(quorum.active)
        expected, latest = vars(quorum.active.image), quorum.active.metadata_log.snapshots[-1]
        quorum.kill(number)
        path = f"{PARTITION_PATH}/{latest.file_name}"
        quorum.disks[number].overwrite(path, quorum.disks[number].read_file(path)[:-1])
        again = quorum.start(number)
        quorum.pass_time(5000)
        assert vars(again.image) == expected

    def test_a_damaged_snapshot_of_the_leader_that_was_not_installed_discards_no_records(self) -> None:
        quorum = DirectQuorum(SMALL_SNAPSHOTS)
        quorum.start_all()
        self.create_many(quorum, 10)
        voter = others(quorum)[0]
        number, promised = quorum.number_of(voter), voter.metadata_log.flushed_end
        quorum.kill(number)
        fetched = SnapshotId(Offset(promised.end_offset + 50), promised.last_epoch)
        quorum.disks[number].overwrite(f"{PARTITION_PATH}/{fetched.file_name}", b"damaged")
        again = quorum.start(number, settle=False)
        assert again.metadata_log.flushed_end == promised
        quorum.pass_time(3000)
        assert vars(again.image) == vars(quorum.active.image)

    def test_a_log_without_its_snapshot_is_refused(self) -> None:
        quorum = DirectQuorum(SMALL_SNAPSHOTS)
        quorum.start_all()
        self.create_many(quorum, 60)
        number = quorum.number_of(quorum.active)
        snapshots = quorum.active.metadata_log.snapshots
        quorum.kill(number)
        for snapshot in snapshots:
            quorum.disks[number].unlink(f"{PARTITION_PATH}/{snapshot.file_name}")
        with pytest.raises(KafkaError, match="no snapshot contains the records before it"):
            quorum.start(number)

    def test_a_voter_that_lags_far_behind_fetches_one(self) -> None:
        quorum = DirectQuorum(SMALL_SNAPSHOTS)
        quorum.start_all()
        number = quorum.number_of(others(quorum)[0])
        quorum.create_topic(quorum.active, "before")
        quorum.pass_time(1000)
        quorum.kill(number)
        self.create_many(quorum, 60)
        again = quorum.start(number)
        quorum.pass_time(3000)
        assert again.metadata_log.start_offset > 0
        assert vars(again.image) == vars(quorum.active.image)
        quorum.kill(number)
        assert vars(quorum.start(number).image)["topics"].keys() >= {"before"}

    def test_an_unreadable_snapshot_is_requested_with_a_pause(self, monkeypatch: pytest.MonkeyPatch) -> None:
        quorum = DirectQuorum(SMALL_SNAPSHOTS)
        quorum.start_all()
        number = quorum.number_of(others(quorum)[0])
        quorum.kill(number)
        self.create_many(quorum, 60)
        asked: list[int] = []

        def unreadable(*_: object, **__: object) -> None:
            asked.append(quorum.clock_ms)
            assert len(asked) < 100
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "a bad sector")

        with monkeypatch.context() as patch:
            patch.setattr(quorum.active.metadata_log, "read_snapshot", unreadable)
            again = quorum.start(number)
            quorum.pass_time(1000)
        assert 5 <= len(asked) <= 12
        quorum.pass_time(1000)
        assert vars(again.image) == vars(quorum.active.image)

    @pytest.mark.parametrize(("epochs_ago", "counts"), [(0, True), (1, False)])
    def test_a_voter_that_fetches_one_in_this_epoch_counts_as_alive(self, epochs_ago: int, counts: bool) -> None:
        quorum = DirectQuorum(SMALL_SNAPSHOTS)
        quorum.start_all()
        self.create_many(quorum, 40)
        active, follower = quorum.active, others(quorum)[0].quorum.node_id
        epoch = active.leader_epoch - epochs_ago
        quorum.cut_off.update({0, 1, 2} - {quorum.number_of(active)})
        for _ in range(10):
            quorum.pass_time(1000)
            wanted = snapshot_request(
                active.identity.cluster_id, follower, active.metadata_log.snapshots[-1], 0, leader_epoch=epoch
            )
            fetch_snapshot.handle(active, asks(quorum, active), wanted)
        assert active.is_active is counts
        quorum.pass_time(4000)
        assert not active.is_active

    def with_a_tail_of_its_own(self, seed: int) -> tuple[DirectQuorum, int]:
        """A voter, cut off, whose log goes farther than that of the others, with what was never committed."""
        quorum = DirectQuorum(SMALL_SNAPSHOTS, seed=seed)
        number = quorum.number_of(quorum.start_all())
        quorum.cut_off.add(number)
        deposed = quorum.active
        for each in range(100):
            quorum.create_topic(deposed, f"lost{each}")
        quorum.pass_time(8000)
        self.create_many(quorum, 50)
        assert 0 < quorum.active.metadata_log.start_offset < quorum.active.next_offset < deposed.next_offset
        return quorum, number

    def test_uncommitted_records_are_replaced_where_the_leaders_log_starts_later(self) -> None:
        quorum, number = self.with_a_tail_of_its_own(seed=0)
        quorum.cut_off.clear()
        quorum.pass_time(8000)
        log, expected = quorum.running[number].metadata_log, quorum.active.metadata_log
        assert log.flushed_end == expected.flushed_end
        assert vars(log.image) == vars(expected.image)
        assert log.log.leader_epochs.entries[0][0] > 1, "its log still holds what is of its own epoch"

    def test_a_fetch_from_offset_0_needs_a_matching_history(self) -> None:
        quorum = DirectQuorum(SMALL_SNAPSHOTS)
        quorum.kill(quorum.number_of(quorum.start_all()))
        quorum.pass_time(3000)
        self.create_many(quorum, 60)
        active, follower = quorum.active, others(quorum)[0]
        start, of_epoch = active.metadata_log.start_offset, active.leader_epoch
        for last_epoch, told in ((of_epoch, -1), (of_epoch - 1, active.metadata_log.snapshots[-1].end_offset)):
            request = observing(start, epoch=of_epoch)
            wanted = replace(request.topics[0].partitions[0], last_fetched_epoch=last_epoch)
            request = replace(
                request, replica_id=follower.quorum.node_id, topics=[replace(request.topics[0], partitions=[wanted])]
            )
            answer = fetch.handle(active, asks(quorum, active), request)
            assert answer is not None
            assert answer.responses[0].partitions[0].snapshot_id.end_offset == told

    @pytest.mark.slow
    def test_after_a_kill_during_the_replacement_of_a_longer_log_the_voter_returns(self) -> None:
        for kill_at_op in range(1, 40, KILL_STEP):
            quorum, number = self.with_a_tail_of_its_own(seed=kill_at_op)
            quorum.cut_off.clear()
            quorum.disks[number].arm(kill_at_op=kill_at_op)
            with suppress(Killed):
                quorum.pass_time(2000)
            quorum.kill(number)
            log = quorum.start(number, settle=False).metadata_log
            assert log.snapshots == [] or log.flushed_end >= (log.snapshots[-1].epoch, log.snapshots[-1].end_offset)

    def leave_behind(self, quorum: DirectQuorum) -> int:
        """A voter with records that no other voter has, while the logs of the others start at a later offset."""
        deposed = quorum.active
        number = quorum.number_of(deposed)
        quorum.cut_off.add(number)
        for topic in range(100):
            quorum.create_topic(deposed, f"lost-{topic}")
        committed = deposed.high_watermark
        quorum.pass_time(8000)
        self.create_many(quorum, 60)
        log = quorum.active.metadata_log
        assert committed < log.start_offset < log.snapshots[-1].end_offset < deposed.next_offset
        return number

    def start_and_die(self, quorum: DirectQuorum, number: int, kill_at_op: int) -> None:
        """At this operation of its disk, unless it is through with its start and what it fetches before that."""
        quorum.disks[number].arm(kill_at_op=kill_at_op)
        try:
            quorum.start(number)
            quorum.pass_time(2000)
        except BaseException:
            if quorum.controllers[number] is None:
                quorum.disks[number].crash(power_cut=True)
            else:
                quorum.kill(number)
        quorum.disks[number].arm(kill_at_op=None)

    def test_a_log_that_diverges_before_the_leaders_log_start_is_replaced_by_a_snapshot(self) -> None:
        quorum = DirectQuorum(SMALL_SNAPSHOTS)
        quorum.start_all()
        number = self.leave_behind(quorum)
        quorum.kill(number)
        quorum.cut_off.clear()
        again = quorum.start(number)
        quorum.pass_time(5000)
        assert vars(again.image) == vars(quorum.active.image)
        assert again.metadata_log.start_offset == quorum.active.metadata_log.snapshots[-1].end_offset

    @pytest.mark.slow
    def test_after_a_kill_during_the_replacement_of_uncommitted_records_the_voter_returns(self) -> None:
        for kill_at_op in range(1, 40, 2 * KILL_STEP):
            quorum = DirectQuorum(SMALL_SNAPSHOTS, seed=kill_at_op)
            quorum.start_all()
            number = self.leave_behind(quorum)
            quorum.kill(number)
            quorum.cut_off.clear()
            self.start_and_die(quorum, number, kill_at_op)
            again = quorum.controllers[number] or quorum.start(number, settle=False)
            high_watermark, log = again.high_watermark, again.metadata_log
            assert log.epoch_before(high_watermark) == quorum.active.metadata_log.epoch_before(high_watermark)
            quorum.pass_time(8000)
            assert all(vars(each.image) == vars(quorum.active.image) for each in quorum.running)

    @pytest.mark.slow
    def test_after_a_kill_during_the_installation_the_voter_returns(self) -> None:
        for kill_at_op in range(1, 40, KILL_STEP):
            quorum = DirectQuorum(SMALL_SNAPSHOTS, seed=kill_at_op)
            quorum.start_all()
            number = quorum.number_of(others(quorum)[0])
            quorum.kill(number)
            self.create_many(quorum, 40)
            self.start_and_die(quorum, number, kill_at_op)
            if quorum.controllers[number] is None:
                quorum.start(number)
            quorum.pass_time(8000)
            assert all(vars(each.image) == vars(quorum.active.image) for each in quorum.running)

    def test_the_loop_goes_on_while_it_is_written_and_a_change_of_the_leader_costs_no_second_one(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        quorum = DirectQuorum(SMALL_SNAPSHOTS)
        quorum.start_all()
        number = quorum.number_of(others(quorum)[0])
        quorum.kill(number)
        self.create_many(quorum, 60)
        pieces: list[SnapshotId] = []

        def request(cluster_id: str, replica_id: BrokerId, snapshot: SnapshotId, *place: int, **own: Any) -> Any:
            pieces.append(snapshot)
            return snapshot_request(cluster_id, replica_id, snapshot, *place, **own)

        monkeypatch.setattr(voter, "snapshot_request", request)
        behind = quorum.start(number, settle=False)
        jobs: list[Job] = []
        with monkeypatch.context() as held:
            held.setattr(behind, "add_job", jobs.append)
            quorum.pass_time(400)
            [job] = jobs
            assert not behind.metadata_log.snapshots
            fetched = len(pieces)
            quorum.kill(quorum.number_of(quorum.active))
            quorum.cut_off.add(number)
            quorum.pass_time(5000)
            quorum.cut_off.clear()
            job.run()
            behind.job_ended(job, None, quorum.now())
        for each in range(3):
            if quorum.controllers[each] is None:
                quorum.start(each)
        quorum.pass_time(8000)
        assert len(pieces) == fetched
        assert all(vars(each.image) == vars(quorum.active.image) for each in quorum.running)

    @pytest.mark.parametrize("after", range(6))
    def test_an_installation_that_fails_is_retried_and_the_log_end_is_reported_unchanged(self, after: int) -> None:
        quorum = DirectQuorum(SMALL_SNAPSHOTS)
        quorum.create_topic(quorum.start_all(), "promised")
        quorum.settle()
        behind = others(quorum)[0]
        number, promised = quorum.number_of(behind), behind.metadata_log.flushed_end
        quorum.cut_off.add(number)
        self.create_many(quorum, 60)
        expected = quorum.active.metadata_log
        while expected.snapshots[-1].end_offset < expected.end_offset:
            self.create_many(quorum, 1)
        quorum.disks[number].fail_next("rename", errno.ENOSPC, after=after)
        quorum.cut_off.clear()
        for _ in range(1000):
            quorum.pass_time(1)
            assert behind.metadata_log.flushed_end >= promised
        quorum.disks[number].heal()
        quorum.create_topic(quorum.active, "later")
        quorum.pass_time(1000)
        assert vars(behind.image) == vars(expected.image)

    def test_a_broker_fetches_one_in_parts(self) -> None:
        quorum = DirectQuorum(SMALL_SNAPSHOTS)
        active = quorum.start_all()
        self.create_many(quorum, 60)
        answer = fetch.handle(active, asks(quorum, active), observing(0))
        assert answer is not None
        told = answer.responses[0].partitions[0].snapshot_id
        latest = active.metadata_log.snapshots[-1]
        assert (told.end_offset, told.epoch) == latest
        wanted = snapshot_request(active.identity.cluster_id, BrokerId(0), latest, 10)
        piece = fetch_snapshot.handle(active, asks(quorum, active), wanted).topics[0].partitions[0]
        whole = quorum.disks[quorum.number_of(active)].read_file(f"{PARTITION_PATH}/{latest.file_name}")
        assert (piece.unaligned_records, piece.size) == (whole[10:], len(whole))
        beyond = snapshot_request(active.identity.cluster_id, BrokerId(0), latest, len(whole))
        unknown = snapshot_request(active.identity.cluster_id, BrokerId(0), latest._replace(end_offset=Offset(1)), 0)
        for request, code in (
            (beyond, ErrorCode.POSITION_OUT_OF_RANGE),
            (unknown, ErrorCode.SNAPSHOT_NOT_FOUND),
        ):
            refused = fetch_snapshot.handle(active, asks(quorum, active), request).topics[0].partitions[0]
            assert refused.error_code == code
        follower = others(quorum)[0]
        refused = fetch_snapshot.handle(follower, asks(quorum, follower), wanted).topics[0].partitions[0]
        assert refused.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


def observing(offset: int, *, max_wait_ms: int = 0, epoch: int = -1) -> FetchRequest:
    wanted = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20, current_leader_epoch=epoch)
    topics = [FetchTopic(topic_id=METADATA_TOPIC_ID, partitions=[wanted])]
    return FetchRequest(replica_id=0, max_wait_ms=max_wait_ms, min_bytes=1, max_bytes=1 << 20, topics=topics)


class TestStandby:
    def test_requests_get_the_active_controller(self, quorum: DirectQuorum) -> None:
        active = quorum.start_all()
        for follower in others(quorum):
            answer = fetch.handle(follower, asks(quorum, follower), observing(0, max_wait_ms=500))
            assert answer is not None
            result = answer.responses[0].partitions[0]
            assert result.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
            assert result.current_leader.leader_id == active.quorum.node_id

    def test_without_a_leader_requests_wait_for_an_election(self, quorum: DirectQuorum) -> None:
        lonely = quorum.start(0)
        told: list[object] = []
        asking = asks(quorum, lonely, told)
        assert fetch.handle(lonely, asking, observing(0, max_wait_ms=60_000)) is None
        quorum.start(1)
        quorum.start(2)
        quorum.pass_time(3000)
        assert len(told) == 1

    def test_changes_are_refused(self, quorum: DirectQuorum) -> None:
        quorum.start_all()
        follower = others(quorum)[0]
        with pytest.raises(KafkaError) as refusal:
            quorum.create_topic(follower, "t")
        assert refusal.value.code == ErrorCode.NOT_CONTROLLER
        heartbeat = BrokerHeartbeatRequest(broker_id=0, broker_epoch=1, current_metadata_offset=1)
        answer = broker_heartbeat.handle(follower, asks(quorum, follower), heartbeat)
        assert answer.error_code == ErrorCode.NOT_CONTROLLER
        wrapped = EnvelopeRequest(request_data=b"", client_host_address=b"")
        assert envelope.handle(follower, asks(quorum, follower), wrapped).error_code == ErrorCode.NOT_CONTROLLER

    def test_nodes_of_another_cluster_get_nothing(self, quorum: DirectQuorum) -> None:
        active = quorum.start_all()
        own_id = active.identity.cluster_id
        for cluster_id, code in (("other", ErrorCode.INCONSISTENT_CLUSTER_ID), (own_id, ErrorCode.NONE)):
            answer = fetch.handle(active, asks(quorum, active), replace(observing(0), cluster_id=cluster_id))
            assert answer is not None
            assert (answer.error_code, len(answer.responses)) == (code, code is ErrorCode.NONE)
            wanted = snapshot_request(cluster_id, BrokerId(0), SnapshotId(Offset(1), LeaderEpoch(1)), 0)
            part = fetch_snapshot.handle(active, asks(quorum, active), wanted)
            assert (part.error_code, len(part.topics)) == (code, code is ErrorCode.NONE)

    def test_a_fetch_from_a_negative_offset_is_refused(self, quorum: DirectQuorum) -> None:
        active = quorum.start_all()
        for replica_id in (BrokerId(0), others(quorum)[0].quorum.node_id):
            request = replace(observing(-1), replica_id=replica_id)
            answer = fetch.handle(active, asks(quorum, active), request)
            assert answer is not None
            assert answer.responses[0].partitions[0].error_code == ErrorCode.OFFSET_OUT_OF_RANGE

    def test_a_fetch_from_offset_0_gets_records_while_there_is_no_snapshot(self, quorum: DirectQuorum) -> None:
        active = quorum.start_all()
        assert not active.metadata_log.snapshots
        for replica_id in (BrokerId(0), others(quorum)[0].quorum.node_id):
            request = observing(0)
            wanted = replace(request.topics[0].partitions[0], last_fetched_epoch=5)
            topics = [replace(request.topics[0], partitions=[wanted])]
            request = replace(request, replica_id=replica_id, topics=topics)
            answer = fetch.handle(active, asks(quorum, active), request)
            assert answer is not None
            assert answer.responses[0].partitions[0].records

    def test_a_leader_without_a_committed_record_of_its_epoch_serves_no_brokers(self, quorum: DirectQuorum) -> None:
        active = quorum.start_all()
        active.quorum.epoch_start_offset = active.high_watermark  # as if it had just been elected
        answer = fetch.handle(active, asks(quorum, active), observing(0))
        assert answer is not None
        told = answer.responses[0].partitions[0]
        assert (told.error_code, told.high_watermark, told.records) == (ErrorCode.NONE, 0, ())

    @pytest.mark.parametrize(("by", "code"), [(-1, ErrorCode.FENCED_LEADER_EPOCH), (1, ErrorCode.UNKNOWN_LEADER_EPOCH)])
    def test_a_fetch_with_another_epoch_is_refused(self, quorum: DirectQuorum, by: int, code: ErrorCode) -> None:
        active = quorum.start_all()
        request = observing(0, epoch=LeaderEpoch(active.leader_epoch + by))
        answer = fetch.handle(active, asks(quorum, active), request)
        assert answer is not None
        assert answer.responses[0].partitions[0].error_code == code


def test_a_broker_that_stopped_with_the_active_controller_is_fenced_by_its_successor_at_once(
    quorum: DirectQuorum,
) -> None:
    """And one that is still connected is given its time."""
    active = quorum.start_all()
    for broker_id in (0, 1):
        registered = BrokerRegistered(BrokerId(broker_id), quorum.new_id(), broker_id + 1, (("X", "h", 1),))
        unfenced = BrokerUnfenced(BrokerId(broker_id), broker_id + 1)
        active.decide(Outcome(None, [registered, unfenced]), quorum.now())
    active.run(quorum.now())
    quorum.settle()
    for standby in others(quorum):
        for broker_id in (0, 1):
            asking = asks(quorum, standby)
            heartbeat = BrokerHeartbeatRequest(broker_id=broker_id, broker_epoch=broker_id + 1)
            assert broker_heartbeat.handle(standby, asking, heartbeat).error_code == ErrorCode.NOT_CONTROLLER
            if broker_id == 0:
                standby.connection_closed(asking.connection, quorum.now())
    quorum.kill(quorum.number_of(active))
    quorum.pass_time(200)
    assert quorum.active.image.alive == {1}


def test_a_new_leader_sends_no_high_watermark_before_it_is_known(quorum: DirectQuorum) -> None:
    active = quorum.start_all()
    active.quorum.epoch_start_offset = active.high_watermark
    asked = fetch.handle(active, asks(quorum, active), observing(0, max_wait_ms=500))
    assert asked is None
    now = fetch.handle(active, asks(quorum, active), observing(0))
    assert now is not None
    result = now.responses[0].partitions[0]
    assert (result.error_code, result.high_watermark, list(result.records or ())) == (ErrorCode.NONE, 0, [])


def test_a_written_snapshot_that_was_not_yet_recorded_is_used_at_the_start() -> None:
    quorum = DirectQuorum(count=1)
    quorum.create_topic(quorum.start(0), "old")
    image = MetadataImage()
    image.replay(TopicCreated("new", quorum.new_id()))
    quorum.kill(0, power_cut=False)
    later = SnapshotId(Offset(500), LeaderEpoch(1))
    quorum.disks[0].overwrite(f"{PARTITION_PATH}/{later.file_name}", encode_snapshot(image, now_ms=1))
    again = quorum.start(0)
    assert names(again) == {"new"}
    assert again.metadata_log.start_offset == 500
    assert again.high_watermark == 501


def test_the_level_is_raised_only_while_all_voters_are_connected() -> None:
    quorum = DirectQuorum()
    active = quorum.start_all()
    assert active.voter.levels.of_all(active.quorum.voters.ids) == dict.fromkeys(quorum.voters, SUPPORTED)
    killed = next(number for number in range(3) if quorum.controllers[number] is not active)
    quorum.kill(killed)
    with pytest.raises(KafkaError, match=f"Controller {quorum.voters[killed]} is not connected"):
        raise_level(MetadataImage(), LATEST_LEVEL, voters=active.voter.levels.of_all(active.quorum.voters.ids))
    quorum.start(killed)
    quorum.pass_time(3000)
    known = quorum.active.voter.levels.of_all(quorum.active.quorum.voters.ids)
    assert raise_level(MetadataImage(), LATEST_LEVEL, voters=known).records
