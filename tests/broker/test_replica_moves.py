"""A replica is moved between log directories while it is written and read, and nothing is lost at any interruption."""

from __future__ import annotations

import errno
import random
from typing import Any

import pytest

from raylog.broker.replica_moves import ReplicaMoves
from raylog.core.clock import Now
from raylog.core.errors import ErrorCode
from raylog.core.ids import Offset, TopicPartition
from raylog.logstore import future_log
from raylog.logstore.log import Log
from raylog.logstore.log_dir import LogDir
from raylog.protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from raylog.protocol.messages.describe_log_dirs import DescribeLogDirsRequest
from raylog.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from raylog.protocol.records.builder import NewRecord, build_batch
from raylog.protocol.records.reader import read_batches
from tests.support.direct_cluster import DirectCluster, DirectMember
from tests.support.sim_disk import Killed

DIRS = ("/a", "/b", "/c")
CONFIG = {"log.dirs": ",".join(DIRS), "log.segment.bytes": 2000}
TP = TopicPartition("t", 0)
CONSUMER_TOPIC = TopicPartition("__consumer_offsets", 0)


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> DirectCluster:
    """t-0 is on both brokers and led by broker 0. A job copies little."""
    monkeypatch.setattr(future_log, "COPY_BYTES", 1000)
    return filled_cluster()


def filled_cluster() -> DirectCluster:
    cluster = DirectCluster(2, CONFIG)
    cluster.create_topic("t", on=[[0, 1]])
    cluster.pass_time(500)
    for number in range(30):
        produce(cluster.brokers[0], number)
    return cluster


def produce(member: DirectMember, number: int) -> None:
    assert member.produce([b"%d " % number + b"x" * 300], acks=-1).error_code == ErrorCode.NONE


def log_of(member: DirectMember, tp: TopicPartition = TP) -> Log:
    return member.broker.partitions[tp].log


def numbers(member: DirectMember) -> list[int]:
    """All records of the replica."""
    log = log_of(member)
    position, found = log.log_start_offset, []
    while position < log.log_end_offset:
        piece = log.read(position, max_bytes=1 << 20, upto=log.log_end_offset)
        found += [int((record.value or b"").split()[0]) for record in read_batches(piece.records, from_offset=position)]
        position = piece.next_offset
    return found


def move(member: DirectMember, path: str, tp: TopicPartition = TP) -> ErrorCode:
    topic = AlterReplicaLogDirTopic(name=tp.topic, partitions=(tp.partition,))
    answer = member.call(AlterReplicaLogDirsRequest(dirs=(AlterReplicaLogDir(path=path, topics=(topic,)),)))
    [[code]] = [[partition.error_code for partition in result.partitions] for result in answer.results]
    assert isinstance(code, ErrorCode)
    return code


def described(member: DirectMember) -> dict[str, list[tuple[str, bool]]]:
    """The logs in each directory, and whether they are future ones."""
    return {
        result.log_dir: [
            (f"{topic.name}-{each.partition_index}", each.is_future_key)
            for topic in result.topics
            for each in topic.partitions
        ]
        for result in member.call(DescribeLogDirsRequest(topics=None)).results
    }


def holder(member: DirectMember, tp: TopicPartition = TP) -> str:
    found = member.broker.table.log_dirs.holder(tp)
    assert found is not None
    return found.path


def directory_at(member: DirectMember, path: str) -> LogDir:
    return next(each for each in member.broker.table.log_dirs.dirs if each.path == path)


def set_rate(cluster: DirectCluster, bytes_per_second: int) -> None:
    """Of moves on broker 0."""
    entry = AlterableConfig(
        name="replica.alter.log.dirs.io.max.bytes.per.second", config_operation=0, value=str(bytes_per_second)
    )
    resource = AlterConfigsResource(resource_type=4, resource_name="0", configs=(entry,))
    [answer] = cluster.brokers[0].call(IncrementalAlterConfigsRequest(resources=(resource,))).responses
    assert answer.error_code == ErrorCode.NONE
    cluster.pass_time(100)


def elsewhere(member: DirectMember, tp: TopicPartition = TP) -> str:
    """A directory that does not have the replica."""
    return next(path for path in DIRS if path != holder(member, tp))


def directories(member: DirectMember) -> list[str]:
    """Those of t-0 on the disk, deleted ones excepted."""
    names = [f"{path}/{name}" for path in DIRS for name in member.disk.listdir(path)]
    return [name for name in names if "/t-0" in name and not name.endswith("-delete")]


@pytest.mark.parametrize("broker_id", [0, 1])
def test_a_replica_is_moved_with_all_its_records(cluster: DirectCluster, broker_id: int) -> None:
    member = cluster.brokers[broker_id]
    target = elsewhere(member)
    assert move(member, target) == ErrorCode.NONE
    cluster.pass_time(2000)
    assert holder(member) == target
    assert directories(member) == [f"{target}/t-0"]
    assert numbers(member) == list(range(30))
    produce(cluster.brokers[0], 30)
    cluster.pass_time(1000)
    assert numbers(member) == list(range(31))
    topic_id = cluster.active.image.topics["t"].topic_id
    found = member.broker.table.log_dirs.holder(TP)
    assert found is not None
    assert cluster.active.image.directory_of(member.broker_id, topic_id, 0) == found.directory_id
    assert (0, {0, 1}) == leader_and_isr(cluster.brokers[1])
    cluster.pass_time(120_000)
    assert not [name for path in DIRS for name in member.disk.listdir(path) if name.endswith("-delete")]


def test_moves_are_throttled(cluster: DirectCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """30 records of some 370 bytes in pieces of 1,000 bytes, after a burst of the first second."""
    set_rate(cluster, 1000)
    member = cluster.brokers[0]
    target = elsewhere(member)
    assert move(member, target) == ErrorCode.NONE
    cluster.pass_time(3000)
    [future] = [each for _, each in member.broker.table.moves.futures(directory_at(member, target))]
    assert 2000 <= future.size_bytes <= 6000
    cluster.pass_time(3000)
    assert holder(member) != target
    cluster.pass_time(10_000)
    assert holder(member) == target
    assert numbers(member) == list(range(30))


def test_a_higher_rate_holds_for_a_move_that_waits(cluster: DirectCluster) -> None:
    set_rate(cluster, 0)
    member = cluster.brokers[0]
    target = elsewhere(member)
    assert move(member, target) == ErrorCode.NONE
    cluster.pass_time(60_000)
    assert holder(member) != target
    set_rate(cluster, 1 << 20)
    cluster.pass_time(3000)
    assert holder(member) == target


def leader_and_isr(member: DirectMember) -> tuple[int, set[int]]:
    [partition] = member.describe("t").topics[0].partitions
    return partition.leader_id, set(partition.isr_nodes)


def test_records_are_produced_while_the_replica_is_moved(cluster: DirectCluster) -> None:
    member = cluster.brokers[0]
    target = elsewhere(member)
    began = False

    def keep_producing() -> int:
        nonlocal began
        number = 30
        while holder(member) != target:
            produce(member, number)
            number += 1
            began = began or (("t-0", True) in described(member)[target])
            if number % 3 == 0:
                cluster.pass_time(1)
            assert number < 3000
        return number

    assert move(member, target) == ErrorCode.NONE
    end = keep_producing()
    assert numbers(member) == list(range(end))
    assert described(member)[target] == [("t-0", False)]
    member.shut_down()
    member.start()
    cluster.pass_time(2000)
    assert numbers(member) == list(range(end))


def test_a_move_is_cancelled_by_one_to_the_present_directory(cluster: DirectCluster, stopped: list[Log]) -> None:
    member = cluster.brokers[0]
    source = holder(member)
    target = elsewhere(member)
    move(member, target)
    assert ("t-0", True) in described(member)[target]
    assert move(member, source) == ErrorCode.NONE
    stopped.clear()
    cluster.pass_time(2000)
    assert directories(member) == [f"{source}/t-0"]
    assert not member.broker.table.directories._creating


@pytest.fixture
def stopped(monkeypatch: pytest.MonkeyPatch, cluster: DirectCluster) -> list[Log]:
    """While it is not empty, moves begin, but copy nothing."""
    held: list[Log] = [log_of(cluster.brokers[0])]
    run_next = ReplicaMoves._run_next

    def run_later(self: ReplicaMoves, tp: TopicPartition, move: Any, now: Now) -> bool:
        return not held and run_next(self, tp, move, now)

    monkeypatch.setattr(ReplicaMoves, "_run_next", run_later)
    return held


def test_the_errors_are_those_of_kafka(cluster: DirectCluster) -> None:
    first, second = cluster.brokers
    assert move(first, "/nowhere") == ErrorCode.LOG_DIR_NOT_FOUND
    assert move(first, holder(first)) == ErrorCode.NONE
    assert move(first, "/a", TopicPartition("t", 1)) == ErrorCode.REPLICA_NOT_AVAILABLE
    log_of(second).take_offline("for the test")
    assert move(second, elsewhere(second)) == ErrorCode.KAFKA_STORAGE_ERROR
    other = elsewhere(first)
    first.disk.rename(other, f"{other}-elsewhere")
    cluster.pass_time(2000)
    assert move(first, other) == ErrorCode.KAFKA_STORAGE_ERROR


def test_the_directory_of_a_new_replica_can_be_chosen(cluster: DirectCluster) -> None:
    member = cluster.brokers[0]
    chosen = TopicPartition("chosen", 0)
    for path in DIRS:
        assert move(member, path, chosen) == ErrorCode.REPLICA_NOT_AVAILABLE
    assert move(member, holder(member), chosen) == ErrorCode.REPLICA_NOT_AVAILABLE
    cluster.create_topic("chosen", on=[0])
    cluster.pass_time(100)
    assert holder(member, chosen) == holder(member)


def test_a_deleted_topic_ends_the_move(cluster: DirectCluster) -> None:
    member = cluster.brokers[0]
    move(member, elsewhere(member))
    cluster.delete_topic("t")
    cluster.pass_time(2000)
    assert directories(member) == []
    cluster.create_topic("t", on=[0])
    produce(member, 0)
    assert numbers(member) == [0]


def test_a_failed_target_leaves_the_replica_where_it_is(cluster: DirectCluster) -> None:
    member = cluster.brokers[0]
    source = holder(member)
    member.disk.fail_next("mkdir", errno.EIO)
    move(member, elsewhere(member))
    cluster.pass_time(2000)
    assert holder(member) == source
    produce(member, 30)
    move(member, elsewhere(member))
    cluster.pass_time(2000)
    assert holder(member) != source
    assert numbers(member) == list(range(31))


@pytest.mark.parametrize("fails", ["rename of the current log", "rename of the future log", "sync of the target"])
def test_an_exchange_that_fails_is_undone(
    cluster: DirectCluster, stopped: list[Log], fails: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    member = cluster.brokers[0]
    source, target = holder(member), elsewhere(member)
    move(member, target)
    failed: list[str] = []
    rename, fsync_dir = member.disk.rename, member.disk.fsync_dir

    def fail(what: str, *, when: bool) -> None:
        if what == fails and when and not failed:
            failed.append(what)
            raise OSError(errno.EIO, "for the test")

    def failing_rename(before: str, after: str) -> None:
        fail("rename of the current log", when=before == f"{source}/t-0")
        fail("rename of the future log", when=after == f"{target}/t-0")
        rename(before, after)

    def failing_sync(path: str) -> None:
        fail("sync of the target", when=path == target and member.disk.exists(f"{target}/t-0"))
        fsync_dir(path)

    monkeypatch.setattr(member.disk, "rename", failing_rename)
    monkeypatch.setattr(member.disk, "fsync_dir", failing_sync)
    stopped.clear()
    cluster.pass_time(2000)
    assert failed == [fails]
    assert member.broker.table.offline_reason is None
    assert directories(member) == [f"{source}/t-0"]
    assert numbers(member) == list(range(30))
    produce(member, 30)
    move(member, target)
    cluster.pass_time(2000)
    assert holder(member) == target
    assert numbers(member) == list(range(31))


def test_a_target_that_fails_during_the_exchange_fails_alone(
    cluster: DirectCluster, stopped: list[Log], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither the new name of the copy can be made durable, nor the old one be restored."""
    member = cluster.brokers[0]
    source, target = holder(member), elsewhere(member)
    move(member, target)
    rename, fsync_dir = member.disk.rename, member.disk.fsync_dir
    failed: list[str] = []

    def failing_rename(before: str, after: str) -> None:
        if failed and before.startswith(target):
            raise OSError(errno.EROFS, "for the test")
        rename(before, after)

    def failing_sync(path: str) -> None:
        if failed or (path == target and member.disk.exists(f"{target}/t-0")):
            failed.append(path)
        if failed and path == target:
            raise OSError(errno.EIO, "for the test")
        fsync_dir(path)

    monkeypatch.setattr(member.disk, "rename", failing_rename)
    monkeypatch.setattr(member.disk, "fsync_dir", failing_sync)
    stopped.clear()
    cluster.pass_time(2000)
    assert source in failed  # where the old name is durable again
    assert [each.path for each in member.broker.table.log_dirs.dirs if each.offline_reason] == [target]
    produce(member, 30)
    assert numbers(member) == list(range(31))


def test_a_truncated_follower_begins_its_move_again(cluster: DirectCluster, stopped: list[Log]) -> None:
    member = cluster.brokers[1]
    target = elsewhere(member)
    move(member, target)
    [log_dir] = [each for each in member.broker.table.log_dirs.dirs if each.path == target]
    [(_, before)] = member.broker.table.moves.futures(log_dir)
    member.broker.table.truncate(TP, Offset(20))
    cluster.pass_time(2000)
    [(_, after)] = member.broker.table.moves.futures(log_dir)
    assert after is not before
    stopped.clear()
    cluster.pass_time(3000)
    assert holder(member) == target
    assert numbers(member) == list(range(30))


def test_deleted_records_stay_deleted(cluster: DirectCluster) -> None:
    member = cluster.brokers[0]
    log_of(member).delete_records_before(Offset(13))
    move(member, elsewhere(member))
    cluster.pass_time(2000)
    assert log_of(member).log_start_offset == 13
    assert numbers(member) == list(range(13, 30))
    member.shut_down()
    member.start()
    cluster.pass_time(2000)
    assert log_of(member).log_start_offset == 13


def test_an_empty_replica_is_moved(cluster: DirectCluster) -> None:
    member = cluster.brokers[0]
    log_of(member).delete_records_before(Offset(30))
    log_of(member).truncate_fully_and_start_at(Offset(30))
    target = elsewhere(member)
    move(member, target)
    cluster.pass_time(2000)
    assert holder(member) == target
    produce(member, 30)
    assert numbers(member) == [30]


def test_a_coordinator_keeps_its_state(cluster: DirectCluster) -> None:
    """It holds the log of its partition for long."""
    log = log_of(cluster.brokers[0])
    move(cluster.brokers[0], elsewhere(cluster.brokers[0]))
    cluster.pass_time(2000)
    assert log.offline_reason == "the log is closed"
    assert log_of(cluster.brokers[0]).generation == log.generation + 1, "so that readers of its files look again"


@pytest.mark.parametrize("power_cut", [False, True])
def test_a_kill_at_every_disk_operation_loses_nothing(monkeypatch: pytest.MonkeyPatch, *, power_cut: bool) -> None:
    """With flush.messages=1, so that a power cut may lose nothing either."""
    monkeypatch.setattr(future_log, "COPY_BYTES", 3000)
    rng = random.Random(1)
    kill_at_op, moved = 0, 0
    while True:
        kill_at_op += 1 if kill_at_op < 5 else rng.randint(1, 4)
        cluster = DirectCluster(1, {**CONFIG, "log.flush.interval.messages": 1}, seed=kill_at_op)
        cluster.create_topic("t", on=[0])
        member = cluster.brokers[0]
        for number in range(12):
            produce(member, number)
        source, target = holder(member), elsewhere(member)
        member.disk.arm(kill_at_op=kill_at_op)
        killed = False
        try:
            move(member, target)
            cluster.pass_time(1000)
        except Killed:
            killed = True
        member.disk.arm(kill_at_op=None)
        if not killed:
            break
        member.stop(clean=False, power_cut=power_cut)
        member.start()
        moved += holder(member) == target
        assert numbers(member) == list(range(12)), f"killed at {kill_at_op}"
        cluster.pass_time(3000)
        assert directories(member) in ([f"{source}/t-0"], [f"{target}/t-0"])
        produce(member, 12)
        assert numbers(member) == list(range(13)), f"killed at {kill_at_op}"
    assert moved, "no kill was after the exchange had begun"


def test_a_broker_killed_before_anything_is_copied_goes_on_with_the_move() -> None:
    cluster = DirectCluster(1, CONFIG)
    cluster.create_topic("t", on=[0])
    member = cluster.brokers[0]
    produce(member, 0)
    target = elsewhere(member)
    member.broker.table.move(TP, target)  # as the handler does, which then answers
    member.stop(clean=False)
    member.start()
    cluster.pass_time(3000)
    assert (holder(member), directories(member), numbers(member)) == (target, [f"{target}/t-0"], [0])


def test_a_compacted_replica_survives_a_crash_after_its_move() -> None:
    """The offset up to which it is compacted is saved before the move, as for a log that stays."""
    cluster = DirectCluster(1, {**CONFIG, "log.cleaner.min.cleanable.ratio": "0", "log.cleaner.backoff.ms": 100})
    cluster.create_topic("t", on=[0], configs={"cleanup.policy": "compact"})
    member = cluster.brokers[0]
    for number in range(120):
        key = b"x" if number % 10 else b"kept %d" % number
        record = NewRecord(key, b"%d " % number + b"x" * 300, cluster.now().wall_ms)
        assert member.produce_bytes(bytes(build_batch([record])), acks=-1).error_code == ErrorCode.NONE
    cluster.pass_time(30_000)
    kept = numbers(member)
    assert len(kept) < 30, "it was compacted"
    cleaned_upto = log_of(member).cleaned_upto
    target = elsewhere(member)
    move(member, target)
    cluster.pass_time(100)
    assert holder(member) == target
    assert log_of(member).cleaned_upto == cleaned_upto > 0
    member.stop(clean=False)
    member.start()
    assert log_of(member).cleaned_upto == cleaned_upto
    assert numbers(member) == kept


def test_a_log_is_compacted_after_its_move_and_not_during_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """A copy begins again when its log was compacted: that of a large log would never end."""
    monkeypatch.setattr(future_log, "COPY_BYTES", 1000)
    cluster = DirectCluster(1, CONFIG)
    cluster.create_topic("t", on=[0], configs={"cleanup.policy": "compact"})
    member = cluster.brokers[0]
    set_rate(cluster, 1000)
    for number in range(120):
        record = NewRecord(b"key", b"%d " % number + b"x" * 300, cluster.now().wall_ms)
        assert member.produce_bytes(bytes(build_batch([record])), acks=-1).error_code == ErrorCode.NONE
    target = elsewhere(member)
    move(member, target)
    cluster.pass_time(20_000)
    assert holder(member) != target
    assert log_of(member).cleaned_upto == 0
    cluster.pass_time(60_000)
    assert holder(member) == target
    assert log_of(member).cleaned_upto > 0
