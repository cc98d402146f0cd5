"""Requests of one connection are decided in order and only their waits overlap; connections do not delay others."""

from __future__ import annotations

from typing import Any

import pytest

from raylog.broker.handlers import fetch as fetch_handler
from raylog.broker.handlers import find_coordinator
from raylog.core.clock import Now
from raylog.core.errors import ErrorCode, InvariantViolation
from raylog.logstore import segment
from raylog.logstore.log import Log
from raylog.protocol import registry
from raylog.protocol.fetch import FetchPartition, FetchRequest, FetchTopic
from raylog.protocol.framing import LENGTH_BYTES, frame
from raylog.protocol.header import encode_request
from raylog.protocol.messages.api_versions import ApiVersionsRequest
from raylog.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from raylog.protocol.messages.find_coordinator import FindCoordinatorRequest
from raylog.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from raylog.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from raylog.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from raylog.protocol.messages.sasl_handshake import SaslHandshakeRequest
from raylog.protocol.produce import ProducePartition, ProduceRequest, ProduceTopic
from raylog.protocol.records.builder import NewRecord, build_batch
from raylog.protocol.records.compression import Codec
from raylog.protocol.schema import Message
from raylog.security.authenticator import NoSasl
from raylog.transport.accepted_connection import TURN_FRAMES_MAX, AcceptedConnection
from raylog.transport.exchange import Exchange
from raylog.transport.node import Job
from raylog.transport.server_connection import REQUESTS_MAX
from tests.logstore.batches import contents
from tests.support.direct_broker import DirectBroker
from tests.support.direct_cluster import DirectCluster, DirectMember


@pytest.fixture
def cluster() -> DirectCluster:
    """t-0 has three replicas; its leader comes first, and the others can be silenced."""
    cluster = DirectCluster(3)
    cluster.create_topic("t", on=[[0, 1, 2]])
    cluster.create_topic("alone", on=[0])
    cluster.pass_time(500)
    return cluster


def encoded(*requests: tuple[Message, int]) -> bytes:
    """All of them as one piece of a client's stream, numbered from 1 on."""
    return b"".join(
        b"".join(frame(encode_request(request, api_version=version, correlation_id=number, client_id="c")))
        for number, (request, version) in enumerate(requests, start=1)
    )


def produce(
    value: bytes, *, topic: str = "t", timeout_ms: int = 10_000, codec: Codec = Codec.NONE, producer_id: int = -1
) -> tuple[Message, int]:
    producer = min(producer_id, 0)  # epoch and sequence: 0, or -1 without an id
    batch = build_batch(
        [NewRecord(None, value, 0)],
        codec=codec,
        producer_id=producer_id,
        producer_epoch=producer,
        base_sequence=producer,
    )
    topics = [ProduceTopic(name=topic, partitions=[ProducePartition(index=0, records=memoryview(batch))])]
    return ProduceRequest(acks=-1, timeout_ms=timeout_ms, topics=topics), 9


def answered(member: DirectMember, connection: AcceptedConnection) -> list[int]:
    """The correlation ids of the answers that have left."""
    output = memoryview(b"".join(member.broker.take_output(connection)))
    ids = []
    while output:
        length = int.from_bytes(output[:LENGTH_BYTES], "big")
        ids.append(int.from_bytes(output[LENGTH_BYTES : LENGTH_BYTES + 4], "big"))
        output = output[LENGTH_BYTES + length :]
    return ids


def silence(cluster: DirectCluster, *, silent: bool = True) -> None:
    for member in cluster.brokers[1:]:
        member.silent = silent


def end_offset(member: DirectMember, topic: str = "t") -> int:
    return log_of(member, topic).log_end_offset


def log_of(member: DirectMember, topic: str = "t") -> Log:
    return next(one.log for tp, one in member.broker.partitions.items() if tp.topic == topic)


class TestOverlap:
    def test_batches_behind_a_waiting_one_are_appended_and_answered_in_order(self, cluster: DirectCluster) -> None:
        leader = cluster.brokers[0]
        connection = leader.connect()
        silence(cluster)
        requests = [produce(b"a"), produce(b"b"), produce(b"x", topic="alone"), produce(b"c")]
        leader.send_bytes(encoded(*requests), connection=connection)
        assert (end_offset(leader), end_offset(leader, "alone")) == (3, 1)
        assert answered(leader, connection) == [], "also what is certain waits for those before it"
        silence(cluster, silent=False)
        cluster.settle()
        assert answered(leader, connection) == [1, 2, 3, 4]

    def test_the_number_of_waiting_requests_is_limited(self, cluster: DirectCluster) -> None:
        leader = cluster.brokers[0]
        connection = leader.connect()
        silence(cluster)
        leader.send_bytes(encoded(*[produce(b"a")] * (REQUESTS_MAX + 50)), connection=connection)
        assert end_offset(leader) == REQUESTS_MAX
        silence(cluster, silent=False)
        cluster.settle()
        assert answered(leader, connection) == list(range(1, REQUESTS_MAX + 51))

    def test_fetches_of_a_connection_are_served_one_after_another(self, cluster: DirectCluster) -> None:
        leader = cluster.brokers[0]
        connection = leader.connect()
        waiting = len(leader.broker.delayed)
        leader.send_bytes(encoded(poll(offset=0), poll(offset=0), produce(b"x", topic="alone")), connection=connection)
        assert len(leader.broker.delayed) == waiting + 1
        assert end_offset(leader, "alone") == 0, "what stands behind the second Fetch waits with it"
        leader.produce([b"now"])
        cluster.settle()
        assert answered(leader, connection) == [1, 2, 3]

    def test_a_forwarded_request_holds_back_the_requests_behind_it(self, cluster: DirectCluster) -> None:
        leader = cluster.brokers[0]
        connection = leader.connect()
        create = CreateTopicsRequest(
            topics=(CreatableTopic(name="new", num_partitions=1, replication_factor=1),), timeout_ms=1000
        )
        ask = MetadataRequest(topics=(MetadataRequestTopic(name="new"),), allow_auto_topic_creation=False)
        leader.send_bytes(encoded((create, 5), (ask, 9)), connection=connection)
        cluster.settle()
        output = b"".join(leader.broker.take_output(connection))
        assert output.count(b"new") == 2
        assert ErrorCode.UNKNOWN_TOPIC_OR_PARTITION.to_bytes(2, "big") + b"\x04new" not in output

    def test_no_request_behind_a_refused_idempotent_batch_is_decided(self, cluster: DirectCluster) -> None:
        leader = cluster.brokers[0]
        connection = leader.connect()
        batch = memoryview(build_batch([NewRecord(None, b"a", 0)], producer_id=7, producer_epoch=0, base_sequence=0))
        topics = [ProduceTopic(name="missing", partitions=[ProducePartition(index=0, records=batch)])]
        refused = ProduceRequest(acks=-1, timeout_ms=1000, topics=topics), 9
        silence(cluster)
        leader.send_bytes(encoded(produce(b"before"), refused, produce(b"behind")), connection=connection)
        assert end_offset(leader) == 1
        silence(cluster, silent=False)
        cluster.settle()
        assert answered(leader, connection) == [1, 2]
        assert connection.closing

    def test_a_sasl_request_waits_until_all_before_it_are_answered(self, cluster: DirectCluster) -> None:
        """It may change the principal, under which the others were authorized."""
        leader = cluster.brokers[0]
        connection = leader.connect()
        chosen: list[str] = []

        class Sasl(NoSasl):
            def choose(self, mechanism: str, now: Now) -> None:
                chosen.append(mechanism)

        connection.authenticator = Sasl()
        silence(cluster)
        handshake = SaslHandshakeRequest(mechanism="PLAIN"), 1
        leader.send_bytes(encoded(produce(b"a"), handshake, produce(b"b")), connection=connection)
        assert (chosen, end_offset(leader)) == ([], 1)
        silence(cluster, silent=False)
        cluster.settle()
        assert (chosen, end_offset(leader)) == (["PLAIN"], 2)
        assert answered(leader, connection) == [1, 2, 3]

    def test_no_request_of_a_throttled_client_is_read(self, cluster: DirectCluster) -> None:
        leader = cluster.brokers[0]
        connection = leader.connect()

        def throttled(broker: Any, exchange: Exchange, request: Any) -> Any:
            exchange.throttle_ms = 500
            return find_coordinator.handle(broker, exchange, request)

        leader.broker.handlers = {**leader.broker.handlers, registry.FIND_COORDINATOR: throttled}
        ask = FindCoordinatorRequest(key="g", key_type=0), 1
        leader.send_bytes(encoded(ask, produce(b"x", topic="alone")), connection=connection)
        assert answered(leader, connection) == [1]
        cluster.pass_time(499)
        assert answered(leader, connection) == []
        cluster.pass_time(1)
        assert answered(leader, connection) == [2]


def poll(offset: int, *, topic: str = "t", max_wait_ms: int = 60_000, **more: Any) -> tuple[Message, int]:
    wanted = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)
    topics = [FetchTopic(name=topic, partitions=[wanted])]
    return FetchRequest(max_wait_ms=max_wait_ms, min_bytes=1, max_bytes=64 << 20, topics=topics, **more), 11


class TestEnds:
    def test_a_wait_ends_by_its_deadline(self, cluster: DirectCluster) -> None:
        leader = cluster.brokers[0]
        silence(cluster)
        connection = leader.connect()
        leader.send_bytes(encoded(produce(b"a", timeout_ms=300)), connection=connection)
        cluster.pass_time(299)
        assert answered(leader, connection) == []
        cluster.pass_time(1)
        assert answered(leader, connection) == [1]
        assert len(leader.broker.commits) == 0

    def test_a_closed_connection_drops_reads_and_completes_writes(self, cluster: DirectCluster) -> None:
        leader = cluster.brokers[0]
        silence(cluster)
        reading, writing = leader.connect(), leader.connect()
        leader.send_bytes(encoded(poll(offset=0)), connection=reading)
        leader.send_bytes(encoded(produce(b"a")), connection=writing)
        assert (len(leader.broker.delayed), len(leader.broker.commits)) == (1, 1), "those of the followers are answered"
        exchanges = [*reading.unfinished, *writing.unfinished]
        for connection in (reading, writing):
            leader.broker.connection_closed(connection, cluster.now())
        assert [getattr(exchange, "request", "") for exchange in exchanges] == [None, None], "they hold on to no buffer"
        assert (len(leader.broker.delayed), len(leader.broker.commits)) == (0, 1)
        silence(cluster, silent=False)
        cluster.settle()
        assert len(leader.broker.commits) == 0
        leader.call(poll(offset=0, max_wait_ms=0)[0], version=11)

    def test_lost_leadership_ends_a_wait(self, cluster: DirectCluster) -> None:
        leader = cluster.brokers[0]
        connection = leader.connect()
        silence(cluster)
        leader.send_bytes(encoded(produce(b"a")), connection=connection)
        leader.links.cut(cluster.now())
        silence(cluster, silent=False)
        cluster.pass_time(3000)
        assert answered(leader, connection) == [1]
        assert len(leader.broker.commits) == 0


class TestTurns:
    def test_a_flood_on_one_connection_does_not_starve_others(self) -> None:
        broker = DirectBroker()
        flooding, other = broker.connect(), broker.connect()
        ask = (ApiVersionsRequest(client_software_name="x", client_software_version="1"), 3)
        fill(broker, flooding, encoded(*[ask] * 400))
        assert len(answered(broker, flooding)) == TURN_FRAMES_MAX
        assert broker.broker.wants_turn
        fill(broker, other, encoded(ask))
        assert answered(broker, other) == [1], "it does not wait for the flood"
        turns = 0
        while broker.broker.wants_turn:
            broker.broker.next_turn(broker.now())
            assert len(answered(broker, flooding)) <= TURN_FRAMES_MAX
            turns += 1
        assert turns == 400 // TURN_FRAMES_MAX

    def test_no_more_bytes_are_read_while_enough_wait_for_their_turn(self) -> None:
        """Requests without a response, which no bound on responses slows down."""
        broker = DirectBroker()
        connection = broker.connect()
        data = encoded(*[(ProduceRequest(acks=0, timeout_ms=0, topics=[]), 9)] * 80_000)
        read_bytes, unread_bytes_max = 64 << 10, 1 << 20
        while data:
            if connection.wants_bytes:
                room = connection.receive_buffer()
                count = min(len(room), len(data), read_bytes)
                room[:count] = data[:count]
                data = data[count:]
                broker.broker.bytes_received(connection, count, broker.now())
            else:
                broker.broker.next_turn(broker.now())
            assert connection.buffered_bytes < unread_bytes_max + read_bytes
        while broker.broker.wants_turn:
            broker.broker.next_turn(broker.now())
        assert (connection.buffered_bytes, connection.closing) == (0, False)

    def test_connections_of_brokers_and_controllers_are_served_before_clients(self) -> None:
        broker = DirectBroker()
        clients, node = [broker.connect() for _ in range(3)], broker.connect(internal=True)
        ask = (ApiVersionsRequest(client_software_name="x", client_software_version="1"), 3)
        for connection in (*clients, node):
            fill(broker, connection, encoded(*[ask] * 100))
            answered(broker, connection)
        broker.broker.next_turn(broker.now())
        assert len(answered(broker, node)) == TURN_FRAMES_MAX
        assert all(answered(broker, connection) == [] for connection in clients)


def fill(broker: DirectBroker, connection: AcceptedConnection, data: bytes) -> None:
    """One event: bytes arrive, and the connection has its turn."""
    room = connection.receive_buffer()
    while len(room) < len(data):
        connection.bytes_received(0)
        room = connection.receive_buffer()
        if len(room) < len(data):
            count = len(room)
            room[:] = data[:count]
            connection.bytes_received(count)
            data = data[count:]
            room = connection.receive_buffer()
    room[: len(data)] = data
    broker.broker.bytes_received(connection, len(data), broker.now())


class TestClientsThatDoNotRead:
    def test_responses_are_produced_as_the_client_reads_them(self) -> None:
        broker = DirectBroker({"message.max.bytes": "2000000"})
        broker.create_topic()
        for _ in range(8):
            broker.produce([bytes(1 << 20)])
        connection = broker.connect()
        connection_requests = encoded(*[poll(offset=0, max_wait_ms=0)] * 60)
        broker.send_bytes(connection_requests, connection=connection)
        held = sum(len(buffer) for buffer in connection.take_output())
        assert held <= 3 << 20, "one answer of a megabyte, and no sixty"

    def test_responses_are_smaller_while_many_clients_do_not_read(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(fetch_handler, "UNSENT_BYTES_MAX", 5 << 20)
        broker = DirectBroker({"message.max.bytes": "2000000"})
        broker.create_topic()
        for _ in range(40):
            broker.produce([bytes(100 << 10)])
        sizes = []
        for _ in range(60):
            connection = broker.connect()
            broker.send_bytes(encoded(poll(offset=0, max_wait_ms=0)), connection=connection)
            unsent = sum(len(buffer) for buffer in broker.broker.take_output(connection))
            broker.broker.unsent(connection, unsent)
            sizes.append(unsent)
        assert broker.broker.unsent_bytes == sum(sizes) < (5 << 20) + (1 << 20) + 60 * (300 << 10)
        assert min(sizes) > 100 << 10, "each gets a batch at least"


class TestCheckingInAJob:
    LARGE = produce(bytes(1 << 20), codec=Codec.ZSTD)

    @pytest.fixture
    def broker(self) -> DirectBroker:
        broker = DirectBroker()
        broker.create_topic()
        return broker

    def test_a_batch_that_decompresses_to_much_delays_its_own_connection_only(self, broker: DirectBroker) -> None:
        connection, other = broker.connect(), broker.connect()
        fill(broker, connection, encoded(self.LARGE, produce(b"behind it")))
        [job] = broker.broker.take_effects().jobs
        fill(broker, other, encoded(produce(b"of another client")))
        assert (answered(broker, connection), answered(broker, other)) == ([], [1])
        job.run()
        assert end_offset(broker) == 1
        broker.broker.job_ended(job, None, broker.now())
        broker.settle()
        assert answered(broker, connection) == [1, 2]
        values = [bytes(value or b"")[:20] for _, value in contents(log_of(broker), max_bytes=2 << 20)]
        assert values == [b"of another client", bytes(20), b"behind it"]

    def test_it_is_appended_even_if_its_connection_closes(self, broker: DirectBroker) -> None:
        connection = broker.connect()
        fill(broker, connection, encoded(self.LARGE))
        [job] = broker.broker.take_effects().jobs
        broker.broker.connection_closed(connection, broker.now())
        job.run()
        broker.broker.job_ended(job, None, broker.now())
        assert end_offset(broker) == 1

    def test_a_partition_that_is_gone_by_then_is_an_error(self, broker: DirectBroker) -> None:
        connection = broker.connect()
        fill(broker, connection, encoded(produce(bytes(1 << 20), codec=Codec.ZSTD, producer_id=5), produce(b"behind")))
        [job] = broker.broker.take_effects().jobs
        job.run()
        broker.cluster.delete_topic("t")
        broker.broker.job_ended(job, None, broker.now())
        broker.settle()
        assert answered(broker, connection) == [1]
        assert connection.closing, "the next batch of an idempotent producer must not be taken for its first one"

    def test_the_frame_may_change_once_the_job_has_begun(self, broker: DirectBroker) -> None:
        connection = broker.connect()
        fill(broker, connection, encoded(self.LARGE))
        [job] = broker.broker.take_effects().jobs
        fill(broker, connection, encoded(*[produce(b"x" * 100)] * 20))
        job.run()
        broker.broker.job_ended(job, None, broker.now())
        broker.settle()
        assert answered(broker, connection) == [1, *range(1, 21)]
        assert contents(log_of(broker), max_bytes=2 << 20)[0] == (0, bytes(1 << 20))


class TestJobs:
    @pytest.fixture(autouse=True)
    def _nothing_is_recent(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(segment, "RECENT_BYTES", -1)

    def test_a_cold_page_is_read_by_a_job(self) -> None:
        broker = DirectBroker()
        broker.create_topic()
        broker.produce([b"old"])
        broker.disk.cold = True
        connection = broker.connect()
        fill(broker, connection, encoded(poll(offset=0, max_wait_ms=0), produce(b"new")))
        assert broker.disk.cold_reads == 0
        [job] = broker.broker.take_effects().jobs
        assert answered(broker, connection) == []
        job.run()
        assert broker.disk.cold_reads == 1
        broker.broker.job_ended(job, None, broker.now())
        broker.settle()
        assert answered(broker, connection) == [1, 2]

    def test_a_connection_closed_during_a_job_gets_no_response(self) -> None:
        broker = DirectBroker()
        broker.create_topic()
        broker.produce([b"old"])
        broker.disk.cold = True
        connection = broker.connect()
        fill(broker, connection, encoded(poll(offset=0, max_wait_ms=0)))
        [job] = broker.broker.take_effects().jobs
        broker.broker.connection_closed(connection, broker.now())
        job.run()
        broker.broker.job_ended(job, None, broker.now())
        assert len(broker.broker.delayed) == 0

    def test_an_unexpected_exception_in_a_job_ends_the_node(self) -> None:
        broker = DirectBroker()
        ended: list[OSError | None] = []
        job = Job(lambda: None, ended.append)
        error = OSError(5, "Input/output error")
        broker.broker.job_ended(job, error, broker.now())
        assert ended == [error]
        with pytest.raises(InvariantViolation, match="ValueError"):
            broker.broker.job_ended(job, ValueError("a bug"), broker.now())


def test_a_loading_coordinator_returns_an_error_and_delays_nothing_else() -> None:
    broker = DirectBroker({"offsets.topic.num.partitions": "1"})
    broker.create_topic()
    while broker.call(FindCoordinatorRequest(coordinator_keys=("g",))).coordinators[0].error_code != ErrorCode.NONE:
        broker.pass_time(100)
    commit_often(broker, 3000)
    broker.broker.groups._shards.loaded.clear()  # as at an election
    ask = OffsetFetchRequest(groups=(OffsetFetchRequestGroup(group_id="g", topics=None),)), 8
    connection, other = broker.connect(), broker.connect()
    fill(broker, connection, encoded(ask))
    assert ErrorCode.COORDINATOR_LOAD_IN_PROGRESS.to_bytes(2, "big") in b"".join(connection.take_output())
    turns = 0
    while broker.broker.wants_turn:
        fill(broker, other, encoded(produce(b"x")))
        assert answered(broker, other) == [1]
        broker.broker.next_turn(broker.now())
        turns += 1
    assert turns > 3
    assert broker.call(ask[0], version=8).groups[0].topics[0].partitions[0].committed_offset == 2999


def commit_often(broker: DirectBroker, count: int) -> None:
    for offset in range(count):
        position = OffsetCommitRequestPartition(partition_index=0, committed_offset=offset, committed_metadata="x" * 50)
        topic = OffsetCommitRequestTopic(name="t", partitions=(position,))
        broker.call(OffsetCommitRequest(group_id="g", topics=(topic,)), version=8)
