"""A broker with several log directories spreads its replicas, and loses only those of a directory that fails."""

from __future__ import annotations

import errno

import pytest

from raylog.core.errors import ErrorCode, InvariantViolation, KafkaError
from raylog.core.ids import TopicPartition
from raylog.protocol.messages.describe_log_dirs import DescribeLogDirsRequest
from tests.support.direct_cluster import DirectCluster, DirectMember

DIRS = ("/a", "/b", "/c")
CONFIG = {"log.dirs": ",".join(DIRS)}
T0, T1, T2 = (TopicPartition("t", number) for number in range(3))


@pytest.fixture
def cluster() -> DirectCluster:
    """Of t-0, t-1 and t-2 broker 0 leads all, and has one in each directory; broker 1 follows."""
    cluster = DirectCluster(2, CONFIG)
    cluster.create_topic("t", on=[[0, 1]] * 3)
    cluster.pass_time(500)
    for number in range(3):
        produce(cluster.brokers[0], number, b"before")
    return cluster


def produce(member: DirectMember, partition: int, value: bytes) -> None:
    assert member.produce([value], partition=partition, acks=-1).error_code == ErrorCode.NONE


def holder(member: DirectMember, tp: TopicPartition) -> str:
    found = member.broker.table.log_dirs.holder(tp)
    assert found is not None
    return found.path


def leaders(member: DirectMember) -> list[tuple[int, set[int], set[int]]]:
    """Leader, ISR and offline replicas of each partition."""
    partitions = member.describe("t").topics[0].partitions
    return [(each.leader_id, set(each.isr_nodes), set(each.offline_replicas)) for each in partitions]


def ends(member: DirectMember) -> list[int]:
    return [member.broker.partitions[tp].log.log_end_offset for tp in (T0, T1, T2)]


def lose(member: DirectMember, path: str) -> None:
    """The disk is unmounted."""
    member.disk.rename(path, f"{path}-elsewhere")


def give_back(member: DirectMember, path: str) -> None:
    member.disk.rename(f"{path}-elsewhere", path)


def failed(member: DirectMember) -> set[str]:
    """The directories for which DescribeLogDirs has an error."""
    results = member.call(DescribeLogDirsRequest(topics=None)).results
    assert {result.log_dir for result in results} == set(DIRS)
    return {result.log_dir for result in results if result.error_code == ErrorCode.KAFKA_STORAGE_ERROR}


def test_new_replicas_go_to_the_directory_with_the_fewest(cluster: DirectCluster) -> None:
    first, second = cluster.brokers
    assert {holder(first, tp) for tp in (T0, T1, T2)} == {holder(second, tp) for tp in (T0, T1, T2)} == set(DIRS)
    cluster.create_topic("many", partitions=30, on=[0] * 30)
    cluster.pass_time(100)
    assert {path: len(first.disk.listdir(path)) for path in DIRS} == dict.fromkeys(
        DIRS, len(first.disk.listdir("/a"))
    ), "the internal files, and 11 partitions each"


def test_the_controller_knows_the_directory_of_every_replica(cluster: DirectCluster) -> None:
    for member in cluster.brokers:
        directories = {each.path: each.directory_id for each in member.broker.table.log_dirs.dirs}
        for tp in (T0, T1, T2):
            topic_id = cluster.active.image.topics["t"].topic_id
            known = cluster.active.image.directory_of(member.broker_id, topic_id, tp.partition)
            assert known == directories[holder(member, tp)]


def test_a_failed_directory_takes_only_its_replicas_offline(cluster: DirectCluster) -> None:
    first, second = cluster.brokers
    path = holder(first, T1)
    lose(first, path)
    cluster.pass_time(2000)
    assert leaders(second) == [(0, {0, 1}, set()), (1, {1}, {0}), (0, {0, 1}, set())]
    for number, member in ((0, first), (1, second), (2, first)):
        produce(member, number, b"after")
    assert first.produce([b"lost"], partition=1).error_code != ErrorCode.NONE
    assert failed(first) == set(first.broker.table.log_dirs.failed) == {path}
    assert first.broker.table.offline_reason is None
    cluster.pass_time(60_000)
    assert leaders(second)[1] == (1, {1}, {0})


def test_a_directory_is_back_after_a_restart(cluster: DirectCluster) -> None:
    first, second = cluster.brokers
    path = holder(first, T1)
    lose(first, path)
    cluster.pass_time(2000)
    first.shut_down()
    produce(second, 1, b"after")
    first.start()
    cluster.pass_time(2000)
    assert T1 not in first.broker.partitions, "a second copy must not be created while the first may come back"
    assert leaders(second)[1] == (1, {1}, {0})
    assert failed(first) == {path}
    first.shut_down()
    give_back(first, path)
    first.start()
    cluster.pass_time(2000)
    assert leaders(second)[1] == (1, {0, 1}, set())
    assert ends(first) == [1, 2, 1]
    assert holder(first, T1) == path


def test_an_empty_directory_replaces_a_lost_one(cluster: DirectCluster) -> None:
    first, second = cluster.brokers
    path = holder(first, T1)
    first.stop(clean=False)
    first.disk.rmtree(path)
    first.disk.mkdir(path)
    first.start()
    cluster.pass_time(2000)
    assert leaders(second)[1] == (1, {0, 1}, set())
    assert ends(first) == [1, 1, 1]
    assert holder(first, T1) == path


def test_records_that_only_a_lost_directory_had_need_an_unclean_election(cluster: DirectCluster) -> None:
    first, second = cluster.brokers
    second.stop()
    cluster.pass_time(20_000)
    for number in range(3):
        produce(first, number, b"alone")
    path = holder(first, T1)
    first.stop(clean=False)
    first.disk.rmtree(path)
    first.disk.mkdir(path)
    first.start()
    cluster.pass_time(1000)
    assert [leader for leader, _, _ in leaders(first)] == [0, -1, 0]
    second.start()
    cluster.pass_time(20_000)
    assert [leader for leader, _, _ in leaders(first)] == [0, -1, 0]
    assert ends(second) == [2, 1, 2]


def test_a_directory_that_cannot_be_read_at_the_start_is_offline(cluster: DirectCluster) -> None:
    first, second = cluster.brokers
    path = holder(first, T2)
    first.stop()
    first.disk.spoil(f"{path}/meta.properties", reading=True)
    first.start()
    cluster.pass_time(2000)
    assert leaders(second) == [(1, {0, 1}, set()), (1, {0, 1}, set()), (1, {1}, {0})]
    assert failed(first) == {path}


def test_a_partition_in_two_directories_is_refused(cluster: DirectCluster) -> None:
    first, _ = cluster.brokers
    first.stop()
    source = holder(first, T0)
    target = next(path for path in DIRS if path != source)
    first.disk.mkdir(f"{target}/t-0")
    with pytest.raises(KafkaError, match="contain t-0: move one of the two elsewhere"):
        first.start()
    first.disk.rmtree(f"{target}/t-0")
    first.start()


def test_a_directory_of_another_broker_is_refused(cluster: DirectCluster) -> None:
    first, _ = cluster.brokers
    first.stop()
    meta = first.disk.read_file("/b/meta.properties").replace(b"node.id=0", b"node.id=7")
    first.disk.overwrite("/b/meta.properties", meta)
    with pytest.raises(KafkaError, match=r"node\.id=7"):
        first.start()
    first.disk.overwrite("/b/meta.properties", first.disk.read_file("/a/meta.properties"))
    with pytest.raises(KafkaError, match=r"the same directory\.id"):
        first.start()


def test_the_last_directory_that_fails_fences_the_broker(cluster: DirectCluster) -> None:
    first, second = cluster.brokers
    for path in DIRS:
        lose(first, path)
        cluster.pass_time(2000)
    assert first.broker.table.offline_reason is not None
    assert [leader for leader, _, _ in leaders(second)] == [1, 1, 1]
    first.shut_down()
    with pytest.raises(KafkaError, match="cannot open log directory /c"):
        first.start()


def test_a_clean_stop_counts_only_if_every_directory_has_it(cluster: DirectCluster) -> None:
    first, _ = cluster.brokers
    epoch = first.broker.lifecycle.broker_epoch
    first.shut_down()
    first.start()
    assert first.broker.table.log_dirs.previous_broker_epoch == epoch
    first.shut_down()
    first.disk.unlink("/b/.kafka_cleanshutdown")
    first.start()
    assert first.broker.table.log_dirs.previous_broker_epoch == -1
    first.shut_down()
    lose(first, "/c")
    first.start()
    assert first.broker.table.log_dirs.previous_broker_epoch == -1


def test_a_broker_that_cannot_report_a_failed_directory_ends(cluster: DirectCluster) -> None:
    first, _ = cluster.brokers
    first.silent = True
    lose(first, holder(first, T1))
    cluster.pass_time(20_000)
    with pytest.raises(InvariantViolation, match=r"log\.dir\.failure\.timeout\.ms"):
        cluster.pass_time(20_000)


def test_a_new_partition_is_created_although_a_directory_has_failed(cluster: DirectCluster) -> None:
    first, _ = cluster.brokers
    lose(first, "/a")
    cluster.pass_time(2000)
    cluster.create_topic("new", partitions=4, on=[0] * 4)
    cluster.pass_time(100)
    for number in range(4):
        assert first.produce([b"x"], topic="new", partition=number).error_code == ErrorCode.NONE
        assert holder(first, TopicPartition("new", number)) != "/a"


def test_a_broker_gets_further_directories() -> None:
    cluster = DirectCluster(1)
    cluster.create_topic("t", on=[0])
    member = cluster.brokers[0]
    produce(member, 0, b"a")
    member.shut_down()
    member.disk.mkdir("/further")
    cluster.config["log.dirs"] = f"{member.log_path},/further"
    member.log_paths = (member.log_path, "/further")
    member.start()
    cluster.create_topic("new", partitions=1, on=[0])
    cluster.pass_time(100)
    assert holder(member, T0) == member.log_path
    assert holder(member, TopicPartition("new", 0)) == "/further"
    directories = {each.path: each.directory_id for each in member.broker.table.log_dirs.dirs}
    topic_id = cluster.active.image.topics["t"].topic_id
    assert cluster.active.image.directory_of(member.broker_id, topic_id, 0) == directories[member.log_path]


def test_a_directory_that_fails_while_replicas_are_created_in_it(cluster: DirectCluster) -> None:
    first, second = cluster.brokers
    first.disk.fail_next("mkdir", errno.EIO)
    cluster.create_topic("late", partitions=3, on=[[0, 1]] * 3)
    cluster.pass_time(1000)
    lose(first, "/a")
    cluster.pass_time(400_000)
    for number in range(3):
        leader = second.describe("late").topics[0].partitions[number].leader_id
        answer = cluster.brokers[leader].produce([b"x"], topic="late", partition=number, acks=-1)
        assert answer.error_code == ErrorCode.NONE
