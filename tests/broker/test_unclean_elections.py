"""With unclean.leader.election.enable any live replica may lead; by default only in-sync replicas may."""

from __future__ import annotations

from typing import Any

import pytest

from raylog.core.errors import ErrorCode
from raylog.core.ids import Offset, TopicPartition
from raylog.protocol.fetch import FetchPartition, FetchRequest, FetchTopic
from raylog.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from raylog.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from raylog.protocol.records.reader import read_batches
from tests.support.direct_cluster import DirectCluster, DirectMember

KEY = "unclean.leader.election.enable"
TP = TopicPartition("t", 0)
TOPIC, BROKER = 2, 4


def cluster_without_a_leader(
    config: dict[str, Any] | None = None, topic_configs: dict[str, str] | None = None
) -> DirectCluster:
    """Broker 0 has acknowledged a and b, of which broker 1 has a alone; broker 0 is dead then."""
    cluster = DirectCluster(2, config)
    cluster.create_topic("t", on=[[0, 1]], configs=topic_configs)
    cluster.pass_time(100)
    first, second = cluster.brokers
    assert first.produce([b"a"]).error_code == ErrorCode.NONE
    second.stop()
    cluster.pass_time(100)
    assert first.produce([b"b"]).error_code == ErrorCode.NONE
    first.stop(clean=False)
    second.start()
    cluster.pass_time(100)
    return cluster


def allow(member: DirectMember, kind: int, name: str, value: str = "true") -> None:
    entry = AlterableConfig(name=KEY, config_operation=0, value=value)
    resource = AlterConfigsResource(resource_type=kind, resource_name=name, configs=(entry,))
    [answer] = member.call(IncrementalAlterConfigsRequest(resources=(resource,))).responses
    assert answer.error_code == ErrorCode.NONE


def leader(member: DirectMember) -> tuple[int, tuple[int, ...]]:
    [partition] = member.describe("t").topics[0].partitions
    return partition.leader_id, partition.isr_nodes


def fetch(member: DirectMember) -> list[bytes | None]:
    wanted = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
    request = FetchRequest(max_wait_ms=0, min_bytes=1, topics=[FetchTopic(name="t", partitions=[wanted])])
    result = member.call(request, version=12, connection=member.connect()).responses[0].partitions[0]
    assert result.error_code == ErrorCode.NONE
    return [record.value for record in read_batches(b"".join(result.records or ()))]


def test_by_default_the_partition_waits() -> None:
    cluster = cluster_without_a_leader()
    first, second = cluster.brokers
    assert leader(second) == (-1, (0,))
    first.start()
    cluster.pass_time(2000)
    assert fetch(first) == [b"a", b"b"]


@pytest.mark.parametrize(("kind", "name"), [(TOPIC, "t"), (BROKER, "")])
def test_enabling_it_elects_a_leader_for_waiting_partitions_at_once(kind: int, name: str) -> None:
    cluster = cluster_without_a_leader()
    first, second = cluster.brokers
    allow(second, kind, name)
    assert leader(second) == (1, (1,))
    assert second.produce([b"c"]).error_code == ErrorCode.NONE
    assert fetch(second) == [b"a", b"c"]
    first.start()
    cluster.pass_time(2000)
    assert leader(second) == (1, (0, 1))
    assert first.broker.partitions[TP].log.leader_epochs.entries == (
        second.broker.partitions[TP].log.leader_epochs.entries
    ), "it has cut off what its successor lacks"


def test_if_enabled_the_first_replica_that_returns_leads() -> None:
    cluster = cluster_without_a_leader(topic_configs={KEY: "true"})
    assert leader(cluster.brokers[1]) == (1, (1,))


def test_the_static_configuration_enables_it() -> None:
    cluster = cluster_without_a_leader({KEY: "true"})
    assert leader(cluster.brokers[1]) == (1, (1,))


def test_a_leader_with_an_empty_log_is_followed() -> None:
    """A follower with more records, of epochs that the leader does not have, truncates to where the logs diverge."""
    cluster = DirectCluster(2)
    first, second = cluster.brokers
    second.stop()
    cluster.create_topic("t", on=[[0, 1]])
    assert first.produce([b"a", b"b"]).error_code == ErrorCode.NONE
    first.stop(clean=False)
    second.start()
    allow(second, TOPIC, "t")
    assert leader(second) == (1, (1,))
    assert second.produce([b"c"]).error_code == ErrorCode.NONE
    first.start()
    cluster.pass_time(2000)
    assert leader(second) == (1, (0, 1))
    assert fetch(second) == [b"c"]
    assert first.broker.partitions[TP].log.log_end_offset == 1


def test_logs_that_diverged_in_several_epochs_become_equal() -> None:
    """The follower truncates in several rounds, as the leader knows none of its last epochs."""
    cluster = DirectCluster(2)
    cluster.create_topic("t", on=[[0, 1]], configs={KEY: "true"})
    cluster.create_topic("u", on=[[0, 1]])
    cluster.pass_time(2000)
    first, second = cluster.brokers
    running, stopped = first, second
    stopped.stop(clean=False)
    cluster.pass_time(500)
    for batches in (3, 1, 1, 1):  # each broker leads twice, without the records of the other
        for _ in range(batches):
            assert running.produce([b"x"], acks=1).error_code == ErrorCode.NONE
        running.stop(clean=False)
        cluster.pass_time(500)
        stopped.start()
        cluster.pass_time(1000)
        running, stopped = stopped, running
    assert running.produce([b"x"], acks=1).error_code == ErrorCode.NONE
    stopped.start()
    cluster.pass_time(3000)
    logs = [member.broker.partitions[TP].log for member in cluster.brokers]
    assert logs[0].leader_epochs.entries == logs[1].leader_epochs.entries
    assert leader(running) == (running.broker_id, (0, 1))


def delete_all(member: DirectMember) -> None:
    topic = DeleteRecordsTopic(name="t", partitions=(DeleteRecordsPartition(partition_index=0, offset=-1),))
    member.call(DeleteRecordsRequest(topics=(topic,), timeout_ms=0), version=2)


def empty_log_ahead_of_an_unclean_leader(produced: int) -> DirectCluster:
    """Broker 0 has deleted a, b and c: its log is empty and begins at 3. Broker 1 has a, was then elected, and has
    appended so many records when broker 0 returns."""
    cluster = DirectCluster(2, {"replica.fetch.wait.max.ms": "100"})
    cluster.create_topic("t", on=[[0, 1]])
    cluster.pass_time(100)
    first, second = cluster.brokers
    assert first.produce([b"a"]).error_code == ErrorCode.NONE
    second.stop()
    cluster.pass_time(100)
    for value in (b"b", b"c"):
        assert first.produce([value]).error_code == ErrorCode.NONE
    delete_all(first)
    cluster.pass_time(70_000)
    first.stop(clean=False)
    second.start()
    cluster.pass_time(100)
    allow(second, TOPIC, "t")
    for number in range(produced):
        assert second.produce([b"%d" % number]).error_code == ErrorCode.NONE
    first.start()
    cluster.pass_time(3000)
    return cluster


@pytest.mark.parametrize("produced", [1, 2, 4])
def test_a_follower_whose_empty_log_begins_beyond_records_of_the_leader_copies_them(produced: int) -> None:
    """The log of the leader ends before the start of the follower's, there, or after it."""
    cluster = empty_log_ahead_of_an_unclean_leader(produced)
    first, second = cluster.brokers
    assert leader(second) == (1, (0, 1))
    assert second.produce([b"last"]).error_code == ErrorCode.NONE
    second.stop(clean=False)
    cluster.pass_time(3000)
    assert leader(first) == (0, (0,))
    assert fetch(first) == [b"a", *(b"%d" % number for number in range(produced)), b"last"]


def test_a_follower_in_the_isr_keeps_its_log_end_offset() -> None:
    """Elected with a lower one, it would use the offsets of committed records again."""
    cluster = DirectCluster(2, {"replica.fetch.wait.max.ms": "100", "replica.lag.time.max.ms": "5000"})
    cluster.create_topic("t", on=[[0, 1]])
    cluster.pass_time(100)
    first, second = cluster.brokers
    assert first.produce([b"a", b"b"]).error_code == ErrorCode.NONE
    delete_all(first)
    cluster.pass_time(1000)
    first.broker.table.restart(TP, Offset(0))  # as if its disk had lost the records
    cluster.pass_time(1000)
    assert (leader(second), second.broker.partitions[TP].log.log_end_offset) == ((0, (0, 1)), 2)
    cluster.pass_time(10_000)
    assert (leader(second), second.broker.partitions[TP].log.log_end_offset) == ((0, (0, 1)), 0)


def test_a_follower_in_the_isr_may_have_deleted_more_records_than_the_leader() -> None:
    cluster = DirectCluster(2, {"replica.fetch.wait.max.ms": "100"})
    cluster.create_topic("t", on=[[0, 1]])
    cluster.pass_time(100)
    first, second = cluster.brokers
    assert first.produce([b"a", b"b"]).error_code == ErrorCode.NONE
    cluster.pass_time(1000)
    log = second.broker.partitions[TP].log
    log.delete_records_before(Offset(2))
    cluster.pass_time(1000)
    assert first.produce([b"c"]).error_code == ErrorCode.NONE
    assert (leader(first), log.log_start_offset, log.log_end_offset) == ((0, (0, 1)), 2, 3)
