"""The metrics of brokers and controllers agree with what clients did, in a cluster without sockets."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from prometheus_client.parser import text_string_to_metric_families

from raylog.broker import metrics as broker_metrics
from raylog.controller import metrics as controller_metrics
from raylog.core.errors import ErrorCode
from raylog.core.ids import NO_BROKER_ID, TopicPartition
from raylog.core.metrics import AnyMetrics
from raylog.protocol.fetch import FetchPartition, FetchRequest, FetchTopic
from raylog.protocol.messages.find_coordinator import FindCoordinatorRequest
from raylog.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from raylog.transport import node_metrics
from raylog.transport.node import Node
from tests.broker.test_quotas import limit
from tests.support.direct_broker import DirectBroker
from tests.support.direct_cluster import DirectCluster, DirectMember

Scraped = Callable[..., float | None]


def scraped(node: Node, pieces: Iterator[str]) -> Scraped:
    """Looks up a series of one scrape by name and labels; None if there is none.

    The parser adds `_total` to the name of every counter, as OpenMetrics requires it. Prometheus does not.
    """
    text = "".join([*node_metrics.scrape(node), *pieces])
    found = {
        (
            sample.name.replace("_count_total", "_count"),
            frozenset((name, value) for name, value in sample.labels.items() if value),
        ): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }
    return lambda name, **labels: found.get((name, frozenset(labels.items())))


def of_broker(member: object) -> Scraped:
    broker = member.broker  # type: ignore[attr-defined]
    return scraped(broker, broker_metrics.scrape(broker))


def of_controller(cluster: DirectCluster) -> Scraped:
    return scraped(cluster.active, controller_metrics.scrape(cluster.active))


@pytest.fixture
def broker() -> DirectBroker:
    broker = DirectBroker()
    broker.create_topic("t", partitions=2)
    return broker


TOPICS = "kafka_server_brokertopicmetrics_"
REPLICAS = "kafka_server_replicamanager_"
CONTROLLER = "kafka_controller_kafkacontroller_"


@pytest.mark.parametrize(
    "metrics", [node_metrics.NODE_METRICS, broker_metrics.BROKER_METRICS, controller_metrics.CONTROLLER_METRICS]
)
def test_a_table_has_each_name_once(metrics: AnyMetrics) -> None:
    names = [metric.name for metric in metrics]
    assert len(names) == len(set(names))


class TestTraffic:
    def test_what_clients_produce_is_counted_by_topic_and_in_all(self, broker: DirectBroker) -> None:
        broker.create_topic("u")
        broker.produce([b"a", b"b", b"c"], partition=1)
        broker.produce([b"d"], topic="u")
        found = of_broker(broker)
        assert found(f"{TOPICS}messagesin_total", topic="t") == 3
        assert found(f"{TOPICS}messagesin_total", topic="u") == 1
        assert found(f"{TOPICS}messagesin_total") == 4
        assert found(f"{TOPICS}totalproducerequests_total", topic="t") == 1
        size_of_t, size_of_all = (
            found(f"{TOPICS}bytesin_total", topic="t"),
            found(f"{TOPICS}bytesin_total"),
        )
        assert size_of_t == broker.broker.partitions[TopicPartition("t", 1)].log.size_bytes
        assert size_of_all is not None
        assert size_of_all > size_of_t

    def test_a_change_of_the_quotas_resets_no_counter(self, broker: DirectBroker) -> None:
        broker.produce([b"a"])
        limit(broker, producer_byte_rate=1e9)
        assert of_broker(broker)(f"{TOPICS}messagesin_total", topic="t") == 1

    def test_a_repeated_batch_is_not_counted_again(self, broker: DirectBroker) -> None:
        for _ in range(2):
            result = broker.produce([b"a"], producer_id=7, producer_epoch=0, base_sequence=0)
            assert result.error_code == ErrorCode.NONE
        found = of_broker(broker)
        assert found(f"{TOPICS}messagesin_total") == 1
        assert found(f"{TOPICS}totalproducerequests_total") == 2

    def test_what_consumers_fetch_is_counted(self, broker: DirectBroker) -> None:
        broker.produce([b"a" * 1000])
        records = fetched(broker, "t", 0)
        found = of_broker(broker)
        assert found(f"{TOPICS}bytesout_total", topic="t") == len(records) > 1000
        assert found(f"{TOPICS}totalfetchrequests_total", topic="t") == 1
        assert found(f"{TOPICS}replicationbytesout_total") == 0

    def test_a_fetch_that_waits_is_counted_once(self, broker: DirectBroker) -> None:
        waiting = broker.connect()
        sent = broker.send(fetch_request("t", 0, 0, max_wait_ms=1000), version=11, connection=waiting)
        broker.produce([b"a"])
        answer = broker.answer(sent, connection=waiting)
        size_bytes = len(b"".join(answer.responses[0].partitions[0].records))
        found = of_broker(broker)
        assert found(f"{TOPICS}bytesout_total") == size_bytes > 0
        assert found(f"{TOPICS}totalfetchrequests_total") == 1

    def test_a_refused_batch_is_a_failed_request_unless_kafka_does_not_count_it(self, broker: DirectBroker) -> None:
        assert broker.produce_bytes(b"").error_code == ErrorCode.INVALID_RECORD
        assert broker.produce([b"a"], topic="u").error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        broker.create_topic("small", max_message_bytes="100")
        assert broker.produce([b"a" * 200], topic="small").error_code == ErrorCode.MESSAGE_TOO_LARGE
        found = of_broker(broker)
        assert found(f"{TOPICS}failedproducerequests_total") == 1
        assert found(f"{TOPICS}failedproducerequests_total", topic="t") == 1
        assert found(f"{TOPICS}bytesrejected_total", topic="small") > 200  # type: ignore[operator]
        assert found(f"{TOPICS}messagesin_total") == 0

    def test_clients_cannot_make_the_labels_grow(self, broker: DirectBroker) -> None:
        for number in range(50):
            broker.produce([b"a"], topic=f"unknown-{number}")
            fetched(broker, f"unknown-{number}", 0)
        assert set(broker.broker.traffic.topics) <= {"t"}

    def test_a_deleted_topic_has_no_series_and_stays_in_the_total(self, broker: DirectBroker) -> None:
        broker.produce([b"a", b"b"])
        broker.cluster.delete_topic("t")
        found = of_broker(broker)
        assert found(f"{TOPICS}messagesin_total", topic="t") is None
        assert found(f"{TOPICS}messagesin_total") == 2

    def test_copies_are_counted_on_both_sides_and_are_no_traffic_of_clients(self) -> None:
        cluster = DirectCluster(2)
        cluster.create_topic("t", on=[[0, 1]])
        leader, follower = leader_first(cluster, TopicPartition("t", 0))
        leader.produce([b"a" * 1000], acks=1)
        cluster.pass_time(2000)
        size_bytes = leader.broker.partitions[TopicPartition("t", 0)].log.size_bytes
        assert of_broker(leader)(f"{TOPICS}replicationbytesout_total") == size_bytes
        assert of_broker(follower)(f"{TOPICS}replicationbytesin_total") == size_bytes
        assert of_broker(leader)(f"{TOPICS}bytesout_total") == 0
        assert of_broker(follower)(f"{TOPICS}messagesin_total") == 0


class TestPartitions:
    def test_sizes_and_offsets_are_those_of_the_log(self, broker: DirectBroker) -> None:
        for _ in range(5):
            broker.produce([b"a" * 300])
        found, log = of_broker(broker), broker.broker.partitions[TopicPartition("t", 0)].log
        where = {"topic": "t", "partition": "0"}
        assert found("kafka_log_log_size", **where) == log.size_bytes
        assert found("kafka_log_log_logendoffset", **where) == 5
        assert found("kafka_log_log_logstartoffset", **where) == log.log_start_offset
        assert found("kafka_log_log_numlogsegments", **where) == log.segment_count

    def test_a_dead_follower_leaves_the_partition_under_replicated_until_it_returns(self) -> None:
        cluster = DirectCluster(2)
        cluster.create_topic("t", on=[[0, 1]], configs={"min.insync.replicas": "2"})
        leader, follower = leader_first(cluster, TopicPartition("t", 0))
        before = of_broker(leader)
        assert before(f"{REPLICAS}leadercount") == 1
        assert before(f"{REPLICAS}underreplicatedpartitions") == 0
        assert before(f"{REPLICAS}atminisrpartitioncount") == 1
        follower.stop(clean=False)
        cluster.pass_time(40_000)
        during = of_broker(leader)
        assert during(f"{REPLICAS}underreplicatedpartitions") == 1
        assert during(f"{REPLICAS}underminisrpartitioncount") == 1
        assert of_controller(cluster)(f"{CONTROLLER}fencedbrokercount") == 1
        follower.start()
        cluster.pass_time(40_000)
        after = of_broker(leader)
        assert after(f"{REPLICAS}underreplicatedpartitions") == 0
        assert after(f"{REPLICAS}isrexpands_total") == 1
        assert of_controller(cluster)(f"{CONTROLLER}fencedbrokercount") == 0

    def test_a_follower_that_does_not_fetch_is_a_shrink(self) -> None:
        cluster = DirectCluster(2)
        cluster.create_topic("t", on=[[0, 1]])
        leader, follower = leader_first(cluster, TopicPartition("t", 0))
        follower.silent = True
        leader.produce([b"a"], acks=1)
        cluster.pass_time(8000)  # sessions last 9 s, replica.lag.time.max.ms is shorter here
        cluster.pass_time(60_000)
        found = of_broker(leader)
        assert found(f"{REPLICAS}underreplicatedpartitions") == 1

    def test_partitions_without_a_leader_are_offline(self) -> None:
        cluster = DirectCluster(2)
        cluster.create_topic("t", on=[[0], [1], [1]])
        assert of_controller(cluster)(f"{CONTROLLER}offlinepartitionscount") == 0
        cluster.brokers[1].stop(clean=False)
        cluster.pass_time(20_000)
        found = of_controller(cluster)
        shown = [each.leader for each in cluster.active.image.topics["t"].partitions]
        assert found(f"{CONTROLLER}offlinepartitionscount") == shown.count(NO_BROKER_ID) > 0
        assert found(f"{CONTROLLER}activebrokercount") == 1

    def test_an_unclean_election_is_counted(self) -> None:
        cluster = DirectCluster(2)
        configs = {"unclean.leader.election.enable": "true"}
        cluster.create_topic("t", on=[[0, 1]], configs=configs)
        leader, follower = leader_first(cluster, TopicPartition("t", 0))
        follower.stop(clean=False)
        cluster.pass_time(20_000)
        assert of_controller(cluster)("kafka_controller_controllerstats_uncleanleaderelections_total") == 0
        leader.produce([b"only the leader has it"], acks=1)
        leader.stop(clean=False)
        cluster.pass_time(20_000)
        follower.start()
        cluster.pass_time(20_000)
        assert cluster.active.image.topics["t"].partitions[0].leader == follower.broker_id
        assert of_controller(cluster)("kafka_controller_controllerstats_uncleanleaderelections_total") == 1


class TestRequests:
    def test_requests_are_counted_by_version(self, broker: DirectBroker) -> None:
        broker.describe("t", version=9)
        broker.describe("t", version=12)
        broker.describe("t", version=12)
        found = of_broker(broker)
        name = "kafka_network_requestmetrics_requests_total"
        assert found(name, request="Metadata", version="9") == 1
        assert found(name, request="Metadata", version="12") == 2
        assert found("kafka_network_requestmetrics_totaltimems_count", request="Metadata") == 3

    def test_the_wait_for_data_is_remote_time(self, broker: DirectBroker) -> None:
        waiting = broker.connect()
        sent = broker.send(fetch_request("t", 0, 0, max_wait_ms=500), version=11, connection=waiting)
        broker.pass_time(600)
        assert broker.answer(sent, connection=waiting) is not None
        found = of_broker(broker)
        times = {"request": "FetchConsumer", "quantile": "0.99"}
        assert found("kafka_network_requestmetrics_remotetimems", **times) == 500
        assert found("kafka_network_requestmetrics_localtimems", **times) == 0
        assert found("kafka_network_requestmetrics_totaltimems", **times) == 500

    def test_the_wait_for_commits_is_remote_time(self) -> None:
        cluster = DirectCluster(2)
        cluster.create_topic("t", on=[[0, 1]])
        leader, follower = leader_first(cluster, TopicPartition("t", 0))
        follower.silent = True
        assert leader.produce([b"a"], acks=-1) is None
        assert (
            of_broker(leader)("kafka_server_delayedoperationpurgatory_purgatorysize", delayedOperation="Produce") == 1
        )
        cluster.pass_time(300)
        follower.silent = False
        cluster.settle()
        cluster.pass_time(1)
        remote = of_broker(leader)("kafka_network_requestmetrics_remotetimems", request="Produce", quantile="0.99")
        assert remote is not None
        assert remote >= 300

    def test_connections_and_their_bytes_are_counted(self, broker: DirectBroker) -> None:
        where = {"listener": "PLAINTEXT", "door": "tcp"}
        connections = "kafka_server_socket_server_metrics_connection_count"
        before = of_broker(broker)(connections, **where)
        assert before is not None
        another = broker.connect()
        assert of_broker(broker)(connections, **where) == before + 1
        broker.describe("t")
        found = of_broker(broker)
        assert found("kafka_server_socket_server_metrics_incoming_byte_total", **where) > 0  # type: ignore[operator]
        assert found("kafka_server_socket_server_metrics_outgoing_byte_total", **where) > 0  # type: ignore[operator]
        broker.broker.connection_closed(another, broker.now())
        assert of_broker(broker)(connections, **where) == before


class TestGroups:
    def test_commits_are_counted_and_shown_by_the_coordinator(self, broker: DirectBroker) -> None:
        commit(broker, "g", "t", 0, 5)
        found = of_broker(broker)
        assert found("kafka_coordinator_group_groupmetadatamanager_numoffsets") == 1
        assert found("kafka_server_group_coordinator_metrics_offset_commit_count") == 1


def test_every_metric_of_a_broker_is_read_while_it_has_everything(broker: DirectBroker) -> None:
    """No read fails, whatever has happened between two pieces."""
    broker.produce([b"a"])
    commit(broker, "g", "t", 0, 1)
    for _ in broker_metrics.scrape(broker.broker):
        broker.produce([b"a"])
        broker.cluster.delete_topic("t") if "t" in broker.broker.image.topics else broker.create_topic("t")
        broker.settle()


def leader_first(cluster: DirectCluster, tp: TopicPartition) -> tuple[DirectMember, DirectMember]:
    """The leader of a partition with two replicas, and its follower."""
    shown = cluster.active.image.topics[tp.topic].partitions[tp.partition]
    [other] = set(shown.replicas) - {shown.leader}
    return cluster.brokers[shown.leader], cluster.brokers[other]


def fetch_request(topic: str, partition: int, offset: int, *, max_wait_ms: int = 0) -> FetchRequest:
    wanted = FetchPartition(partition=partition, fetch_offset=offset, partition_max_bytes=1 << 20)
    return FetchRequest(
        max_wait_ms=max_wait_ms, min_bytes=1, max_bytes=1 << 20, topics=[FetchTopic(name=topic, partitions=[wanted])]
    )


def fetched(broker: DirectBroker, topic: str, offset: int) -> bytes:
    answer = broker.call(fetch_request(topic, 0, offset), version=11)
    return b"".join(answer.responses[0].partitions[0].records or ())


def commit(broker: DirectMember, group: str, topic: str, partition: int, offset: int) -> None:
    broker.call(FindCoordinatorRequest(key=group), version=2)
    broker.cluster.settle()
    wanted = OffsetCommitRequestPartition(partition_index=partition, committed_offset=offset, committed_metadata="")
    request = OffsetCommitRequest(group_id=group, topics=(OffsetCommitRequestTopic(name=topic, partitions=(wanted,)),))
    answer = broker.call(request, version=8)
    assert answer.topics[0].partitions[0].error_code == ErrorCode.NONE
