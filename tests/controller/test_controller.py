"""A controller responds only after its records are on disk, and never loses what it has acknowledged."""

from __future__ import annotations

import errno
import random
from contextlib import suppress
from typing import Any
from uuid import UUID

import msgpack
import pytest

from raylog.config.table import broker_configs
from raylog.controller import features, topics
from raylog.controller.controller import Controller
from raylog.controller.features import NEW_CLUSTER
from raylog.controller.handlers import fetch as fetch_handler
from raylog.controller.reassignments import reassign
from raylog.core.clock import Now
from raylog.core.errors import ErrorCode, InvariantViolation, KafkaError
from raylog.core.ids import BrokerId, LeaderEpoch, Offset, TopicPartition
from raylog.core.outcome import Outcome
from raylog.metadata.features import REGISTERED
from raylog.metadata.levels import FIRST_LEVEL, LATEST_LEVEL, METADATA_FEATURE
from raylog.metadata.records import (
    BrokerFenced,
    BrokerRegistered,
    BrokerUnfenced,
    FeatureLevelChanged,
    MetadataRecord,
    TopicCreated,
    decode_batches,
)
from raylog.metadata.topic_names import METADATA_TOPIC_ID
from raylog.protocol import codec, registry
from raylog.protocol.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, decode_fetch_response
from raylog.protocol.framing import LENGTH_BYTES, frame
from raylog.protocol.header import decode_response_header, encode_request, encode_request_header
from raylog.protocol.messages.allocate_producer_ids import AllocateProducerIdsRequest
from raylog.protocol.messages.alter_partition import (
    AlterPartitionRequest,
    BrokerState,
    RequestPartitionData,
    RequestTopicData,
)
from raylog.protocol.messages.api_versions import ApiVersionsRequest
from raylog.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest
from raylog.protocol.messages.broker_registration import BrokerRegistrationRequest, Feature
from raylog.protocol.messages.broker_registration import Listener as RegisteredListener
from raylog.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from raylog.protocol.messages.envelope import EnvelopeRequest
from raylog.protocol.messages.metadata import MetadataRequest
from raylog.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from raylog.protocol.messages.sasl_handshake import SaslHandshakeRequest
from raylog.protocol.messages.unregister_broker import UnregisterBrokerRequest, UnregisterBrokerResponse
from raylog.protocol.records.builder import NewRecord, build_batch
from raylog.protocol.registry import api_for
from raylog.protocol.schema import Message
from raylog.security.cluster_secret import MECHANISM, NONCE_BYTES, SecretProver
from raylog.transport.accepted_connection import AcceptedConnection
from raylog.transport.listeners import plan_listeners
from raylog.transport.node import NodeIdentity
from tests.support.exchanges import Answers, exchange_on
from tests.support.sim_disk import Killed, SimDisk

SECRET = b"s" * 32
CLUSTER_ID = "Y29udHJvbGxlci10ZXN0"
ZERO = BrokerId(0)


class Bench:
    """A controller over a simulated disk, and connections to it that have proven the secret."""

    def __init__(self, config: dict[str, str] | None = None, *, seed: int = 0, started: bool = True) -> None:
        self.rng = random.Random(seed)
        self.disk = SimDisk(self.rng)
        self.configs = broker_configs(config or {})
        self.listener = plan_listeners(self.configs)[-1]
        self.clock_ms = 1000
        if started:
            self.start()

    def start(self, *, may_be_new: bool = True) -> None:
        self.controller = Controller(
            NodeIdentity(BrokerId(1000), CLUSTER_ID, self.new_id(), SECRET),
            self.configs,
            self.disk,
            "/controller",
            may_be_new=may_be_new,
            new_id=self.new_id,
            new_nonce=self.rng.randbytes,
            now=self.now(),
        )

    def crash(self, *, power_cut: bool = True) -> None:
        self.disk.crash(power_cut=power_cut)
        self.start()

    def now(self) -> Now:
        return Now(self.clock_ms, 1_700_000_000_000 + self.clock_ms)

    def pass_time(self, ms: int) -> None:
        self.clock_ms += ms
        self.controller.tick(self.now())

    def new_id(self) -> UUID:
        return UUID(int=self.rng.getrandbits(128) | 1 << 127)

    def connect_unproven(self) -> AcceptedConnection:
        connection = self.controller.connection_opened(self.listener, "127.0.0.1", self.now())
        assert connection is not None
        return connection

    def connect(self) -> Peer:
        peer = Peer(self, self.connect_unproven())
        peer.call(SaslHandshakeRequest(mechanism=MECHANISM))
        prover = SecretProver(SECRET, self.rng.randbytes(NONCE_BYTES))
        challenge = peer.call(SaslAuthenticateRequest(auth_bytes=prover.first_message))
        peer.call(SaslAuthenticateRequest(auth_bytes=prover.respond(bytes(challenge.auth_bytes)) or b""))
        return peer

    def registered(self, broker_id: BrokerId = ZERO, *, unfenced: bool = True) -> tuple[Peer, int]:
        """A broker's connection and its epoch."""
        peer = self.connect()
        epoch = peer.call(registration(broker_id)).broker_epoch
        if unfenced:
            assert not peer.call(heartbeat(epoch, broker_id=broker_id, knows=epoch)).is_fenced
        return peer, epoch


class Peer:
    """One connection to the controller."""

    def __init__(self, bench: Bench, connection: AcceptedConnection) -> None:
        self.connection = connection
        self._bench = bench

    def send(self, request: Message) -> None:
        spec = api_for(request.api.key)
        assert spec is not None
        buffers = encode_request(request, api_version=spec.highest, correlation_id=1, client_id="test")
        data = b"".join(frame(buffers))
        self.connection.receive_buffer()[: len(data)] = data
        self._bench.controller.bytes_received(self.connection, len(data), self._bench.now())

    def answer(self, key: int) -> Any:
        """What lies in the output, or None."""
        output = memoryview(b"".join(self.connection.take_output()))
        if not output:
            return None
        spec = api_for(key)
        assert spec is not None
        assert int.from_bytes(output[:LENGTH_BYTES], "big") == len(output) - LENGTH_BYTES
        _, position = decode_response_header(key, spec.highest, output, LENGTH_BYTES)
        if key == registry.FETCH:
            return decode_fetch_response(spec.highest, output, position)
        return codec.decode(spec.response, spec.highest, output, position)

    def call(self, request: Message) -> Any:
        self.send(request)
        answer = self.answer(request.api.key)
        assert answer is not None, f"no answer: {self.connection.close_reason or 'parked'}"
        return answer

    def close(self) -> None:
        self._bench.controller.connection_closed(self.connection, self._bench.now())


def registration(
    broker_id: BrokerId = ZERO,
    *,
    incarnation: int = 1,
    cluster_id: str = CLUSTER_ID,
    levels: tuple[int, ...] = (LATEST_LEVEL,),
) -> Message:
    return BrokerRegistrationRequest(
        broker_id=broker_id,
        cluster_id=cluster_id,
        incarnation_id=UUID(int=incarnation + 10 * broker_id),
        listeners=(RegisteredListener(name="PLAINTEXT", host="h", port=9092),),
        rack=None,
        features=tuple(
            Feature(name=name, min_supported_version=lowest, max_supported_version=highest)
            for level in levels
            for name, lowest, highest in ((METADATA_FEATURE, level, level), *REGISTERED[1:])
        ),
    )


def heartbeat(epoch: int, *, knows: int, broker_id: BrokerId = ZERO, want_fence: bool = False) -> Message:
    return BrokerHeartbeatRequest(
        broker_id=broker_id, broker_epoch=epoch, current_metadata_offset=knows, want_fence=want_fence
    )


def create(*topics: str, num_partitions: int = 1) -> CreateTopicsRequest:
    wanted = (CreatableTopic(name=topic, num_partitions=num_partitions, replication_factor=1) for topic in topics)
    return CreateTopicsRequest(topics=tuple(wanted), timeout_ms=1000)


def fetch(offset: int, *, max_wait_ms: int = 0, topic_id: UUID = METADATA_TOPIC_ID, partition: int = 0) -> FetchRequest:
    wanted = FetchPartition(partition=partition, fetch_offset=offset, partition_max_bytes=1 << 20)
    topics = [FetchTopic(topic_id=topic_id, partitions=[wanted])]
    return FetchRequest(max_wait_ms=max_wait_ms, min_bytes=1, max_bytes=1 << 20, topics=topics)


def records(answer: Any, *, offset: int = 0) -> list[MetadataRecord]:
    batches = b"".join(answer.responses[0].partitions[0].records or ())
    return [record for _, record in decode_batches(batches, from_offset=Offset(offset))]


def records_of(bench: Bench) -> list[MetadataRecord]:
    """All that is committed."""
    return records(bench.connect().call(fetch(0)))


@pytest.fixture
def bench() -> Bench:
    return Bench()


class Spy:
    """A disk whose fsync looks at what has left the controller so far."""

    def __init__(self, bench: Bench, connections: list[AcceptedConnection]) -> None:
        self.fsyncs = 0
        self._connections = connections
        self._fsync = bench.disk.fsync
        bench.disk.fsync = self._look  # type: ignore[method-assign]

    def _look(self, handle: Any) -> None:
        self.fsyncs += 1
        assert not any(connection.take_output() for connection in self._connections), "told before it was durable"
        self._fsync(handle)


class TestCommit:
    def test_no_response_is_sent_before_the_fsync_and_one_fsync_covers_all(self, bench: Bench) -> None:
        broker, _ = bench.registered()
        follower = bench.connect()
        follower.send(fetch(bench.controller.high_watermark, max_wait_ms=5000))
        assert follower.answer(registry.FETCH) is None
        offset = bench.controller.high_watermark
        spy = Spy(bench, [broker.connection, follower.connection])
        answer = broker.call(create("t", "u"))
        assert [topic.error_code for topic in answer.topics] == [ErrorCode.NONE, ErrorCode.NONE]
        assert spy.fsyncs == 1
        news = records(follower.answer(registry.FETCH), offset=offset)
        assert [record.topic for record in news if isinstance(record, TopicCreated)] == ["t", "u"]

    def test_acknowledged_changes_survive_a_power_failure(self, bench: Bench) -> None:
        for seed in range(20):
            bench = Bench(seed=seed)
            broker, _ = bench.registered()
            topic_id = broker.call(create("t")).topics[0].topic_id
            ids = broker.call(AllocateProducerIdsRequest(broker_id=0, broker_epoch=0))
            bench.crash()
            assert bench.controller.image.topics["t"].topic_id == topic_id
            assert bench.controller.image.next_producer_id == ids.producer_id_start + ids.producer_id_len

    def test_after_a_kill_at_any_point_a_change_is_complete_or_was_not_acknowledged(self) -> None:
        for kill_at_op in range(1, 12):
            bench = Bench(seed=kill_at_op)
            broker, _ = bench.registered()
            bench.disk.arm(kill_at_op=kill_at_op)
            told = False
            try:
                told = broker.call(create("t", num_partitions=3)).topics[0].error_code == ErrorCode.NONE
            except Killed:
                assert broker.connection.take_output() == []
            bench.crash()
            topic = bench.controller.image.topics.get("t")
            assert topic is None or len(topic.partitions) == 3
            assert topic is not None or not told

    def test_a_read_waits_for_earlier_uncommitted_changes(self, bench: Bench) -> None:
        bench.registered()
        other, _ = bench.registered(BrokerId(1))
        outcome = topics.create_topic(
            bench.controller.image, "t", topic_id=bench.new_id(), num_partitions=1, replication_factor=1
        )
        bench.controller.decide(outcome, bench.now())
        spy = Spy(bench, [other.connection])
        assert not bench.controller.all_committed
        other.call(heartbeat(0, broker_id=BrokerId(1), knows=0))
        assert spy.fsyncs == 1
        assert bench.controller.all_committed

    def test_a_failed_fsync_ends_the_controller_and_no_response_is_sent(self, bench: Bench) -> None:
        broker, _ = bench.registered()
        bench.disk.fail_next("fsync", errno.EIO)
        with pytest.raises(InvariantViolation, match="cannot be flushed"):
            broker.send(create("t"))
        assert broker.connection.take_output() == []
        assert bench.controller.high_watermark < bench.controller.next_offset

    def test_a_full_disk_refuses_the_change_and_leaves_no_trace(self, bench: Bench) -> None:
        broker, _ = bench.registered()
        bench.disk.capacity_bytes = bench.disk.used_bytes()
        (refused,) = broker.call(create("t")).topics
        assert refused.error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert bench.controller.image.topics == {}
        bench.disk.capacity_bytes = None
        assert broker.call(create("t")).topics[0].error_code == ErrorCode.NONE

    def test_an_offline_log_ends_the_controller(self, bench: Bench) -> None:
        broker, _ = bench.registered()
        bench.disk.fail_next("pwrite", errno.EIO)
        assert broker.call(create("t")).topics[0].error_code == ErrorCode.KAFKA_STORAGE_ERROR
        with pytest.raises(InvariantViolation, match="append failed"):
            bench.pass_time(1)
        bench.crash(power_cut=False)
        again, _ = bench.registered()
        assert again.call(create("t")).topics[0].error_code == ErrorCode.NONE


class TestFetch:
    def test_it_ends_at_the_high_watermark(self, bench: Bench) -> None:
        bench.registered()
        before = bench.controller.high_watermark
        outcome = topics.create_topic(
            bench.controller.image, "t", topic_id=bench.new_id(), num_partitions=1, replication_factor=1
        )
        bench.controller.decide(outcome, bench.now())
        assert bench.controller.next_offset == before + 2
        connection = bench.connect_unproven()
        exchange = Answers(exchange_on(bench.controller, connection, registry.FETCH, 18, bench.now()), _never)
        answer = fetch_handler.handle(bench.controller, exchange, fetch(before))
        assert isinstance(answer, FetchResponse)
        assert records(answer, offset=before) == []
        assert answer.responses[0].partitions[0].high_watermark == before
        assert fetch_handler.handle(bench.controller, exchange, fetch(before, max_wait_ms=9)) is None

    def test_a_commit_completes_waiting_fetches(self, bench: Bench) -> None:
        broker, _ = bench.registered()
        follower = bench.connect()
        offset = bench.controller.high_watermark
        follower.send(fetch(offset, max_wait_ms=5000))
        assert follower.answer(registry.FETCH) is None
        broker.call(create("t"))
        news = records(follower.answer(registry.FETCH), offset=offset)
        assert isinstance(news[0], TopicCreated)
        assert len(news) == 2

    def test_without_changes_it_waits_for_max_wait_ms(self, bench: Bench) -> None:
        follower = bench.connect()
        follower.send(fetch(bench.controller.high_watermark, max_wait_ms=500))
        bench.pass_time(499)
        assert follower.answer(registry.FETCH) is None
        bench.pass_time(1)
        assert records(follower.answer(registry.FETCH)) == []

    def test_other_partitions_are_unknown(self, bench: Bench) -> None:
        for request in (fetch(0, topic_id=UUID(int=5)), fetch(0, partition=1), FetchRequest(topics=[])):
            assert bench.connect().call(request).error_code == ErrorCode.INVALID_REQUEST

    def test_a_fetch_beyond_the_log_end_is_an_error(self, bench: Bench) -> None:
        answer = bench.connect().call(fetch(7, max_wait_ms=5000))
        assert answer.responses[0].partitions[0].error_code == ErrorCode.OFFSET_OUT_OF_RANGE


class TestBrokers:
    def test_registered_fenced_caught_up_unfenced(self, bench: Bench) -> None:
        broker, epoch = bench.registered(unfenced=False)
        assert bench.controller.image.alive == set()
        behind = broker.call(heartbeat(epoch, knows=epoch - 1))
        assert (behind.is_caught_up, behind.is_fenced) == (False, True)
        unwilling = broker.call(heartbeat(epoch, knows=epoch, want_fence=True))
        assert (unwilling.is_caught_up, unwilling.is_fenced) == (True, True)
        there = broker.call(heartbeat(epoch, knows=epoch))
        assert (there.is_caught_up, there.is_fenced) == (True, False)
        assert [type(record) for record in records_of(bench)[-2:]] == [BrokerRegistered, BrokerUnfenced]

    def test_the_broker_epoch_is_the_offset_of_the_registration(self, bench: Bench) -> None:
        _, first = bench.registered(BrokerId(0))
        _, second = bench.registered(BrokerId(1))
        assert [record.broker_epoch for record in records_of(bench) if isinstance(record, BrokerRegistered)] == [
            first,
            second,
        ]
        before = 1 + len(NEW_CLUSTER)
        assert (first, second) == (before, before + 2), "behind ControllerElected and FeatureLevelChanged"

    def test_a_lost_connection_fences_at_once(self, bench: Bench) -> None:
        broker, _ = bench.registered()
        broker.call(create("t"))
        broker.close()
        assert bench.controller.image.alive == set()
        assert bench.controller.image.topics["t"].partitions[0].leader == -1
        assert bench.controller.all_committed
        assert isinstance(records_of(bench)[-2], BrokerFenced)

    def test_a_broker_that_does_not_support_the_metadata_level_is_refused(self, bench: Bench) -> None:
        broker = bench.connect()
        for levels in ((), (FIRST_LEVEL,), (LATEST_LEVEL + 1,)):
            refused = broker.call(registration(levels=levels))
            assert refused.error_code == ErrorCode.UNSUPPORTED_VERSION
        assert not bench.controller.image.brokers
        assert broker.call(registration()).error_code == ErrorCode.NONE

    def test_a_broker_with_any_number_of_partitions_is_fenced_in_one_batch(self, bench: Bench) -> None:
        broker, _ = bench.registered()
        for number in range(4):
            created = broker.call(create(f"t-{number}", num_partitions=10_000)).topics[0]
            assert created.error_code == ErrorCode.NONE
        broker.close()
        assert bench.controller.image.alive == set()
        assert bench.controller.image.topics["t-3"].partitions[-1].leader == -1

    def test_a_broker_without_heartbeats_is_fenced_after_the_session_timeout(self) -> None:
        bench = Bench({"broker.session.timeout.ms": "1000", "broker.heartbeat.interval.ms": "500"})
        broker, epoch = bench.registered()
        bench.pass_time(600)
        broker.call(heartbeat(epoch, knows=epoch))
        assert bench.controller.next_tick_ms() <= bench.clock_ms + 1000
        bench.pass_time(999)
        assert bench.controller.image.alive == {ZERO}
        bench.pass_time(1)
        assert bench.controller.image.alive == set()
        assert not broker.call(heartbeat(epoch, knows=epoch)).is_fenced
        assert bench.controller.image.alive == {ZERO}

    def test_a_replaced_incarnation_gets_stale_broker_epoch(self, bench: Bench) -> None:
        old, old_epoch = bench.registered()
        new = bench.connect()
        assert new.call(registration(incarnation=2)).error_code == ErrorCode.DUPLICATE_BROKER_REGISTRATION
        old.close()
        answer = new.call(registration(incarnation=2))
        assert answer.broker_epoch > old_epoch
        late = bench.connect()
        assert late.call(heartbeat(old_epoch, knows=99)).error_code == ErrorCode.STALE_BROKER_EPOCH
        ids = late.call(AllocateProducerIdsRequest(broker_id=0, broker_epoch=old_epoch))
        assert (ids.error_code, ids.producer_id_len) == (ErrorCode.STALE_BROKER_EPOCH, 0)
        late.close()
        assert new.call(heartbeat(answer.broker_epoch, knows=99)).error_code == ErrorCode.NONE
        assert bench.controller.image.alive == {ZERO}

    def test_brokers_of_another_cluster_and_unregistered_ones_are_refused(self, bench: Bench) -> None:
        stranger = bench.connect()
        assert stranger.call(registration(cluster_id="other")).error_code == ErrorCode.INCONSISTENT_CLUSTER_ID
        assert stranger.call(heartbeat(0, knows=0)).error_code == ErrorCode.BROKER_ID_NOT_REGISTERED
        assert bench.controller.image.brokers == {}

    def test_fencing_is_retried_after_a_full_disk(self) -> None:
        bench = Bench({"broker.session.timeout.ms": "1000", "broker.heartbeat.interval.ms": "500"})
        broker, _ = bench.registered()
        bench.disk.capacity_bytes = bench.disk.used_bytes()
        broker.close()
        assert bench.controller.image.alive == {ZERO}
        bench.disk.capacity_bytes = None
        bench.pass_time(1000)
        assert bench.controller.image.alive == set()


class TestAlterPartition:
    @pytest.mark.parametrize(
        ("target", "code"), [((1,), ErrorCode.NEW_LEADER_ELECTED), ((0, 1), ErrorCode.NONE)], ids=["goes", "stays"]
    )
    def test_a_leader_that_lost_its_leadership_gets_new_leader_elected(
        self, bench: Bench, target: tuple[int, ...], code: ErrorCode
    ) -> None:
        """What it has proposed is then no ISR of its own: another one leads, or it does under another epoch."""
        (leader, epoch), (_, other) = bench.registered(BrokerId(0)), bench.registered(BrokerId(1))
        image, topic_id = bench.controller.image, bench.new_id()
        created = topics.create_topic(
            image, "t", topic_id=topic_id, num_partitions=1, replication_factor=1, assignments=[[0]]
        )
        bench.controller.decide(created, bench.now())
        bench.controller.decide(reassign(image, TopicPartition("t", 0), target), bench.now())
        wanted = RequestPartitionData(
            partition_index=0,
            leader_epoch=0,
            new_isr_with_epochs=(
                BrokerState(broker_id=0, broker_epoch=epoch),
                BrokerState(broker_id=1, broker_epoch=other),
            ),
            partition_epoch=1,
        )
        asked = RequestTopicData(topic_id=topic_id, partitions=(wanted,))
        [topic] = leader.call(AlterPartitionRequest(broker_id=0, broker_epoch=epoch, topics=(asked,))).topics
        assert topic.partitions[0].error_code == code
        assert not image.topics["t"].partitions[0].is_reassigning


class TestRestart:
    @pytest.mark.parametrize("power_cut", [False, True])
    def test_live_brokers_get_a_new_session(self, power_cut: bool) -> None:
        bench = Bench({"broker.session.timeout.ms": "1000", "broker.heartbeat.interval.ms": "500"})
        _, epoch = bench.registered(BrokerId(0))
        bench.registered(BrokerId(1))
        bench.clock_ms += 5000
        bench.crash(power_cut=power_cut)
        assert bench.controller.image.alive == {0, 1}
        bench.pass_time(500)
        assert not bench.connect().call(heartbeat(epoch, knows=epoch)).is_fenced
        bench.pass_time(500)
        assert bench.controller.image.alive == {ZERO}

    def test_a_new_incarnation_does_not_wait_for_the_session_of_the_old_one(self, bench: Bench) -> None:
        _, epoch = bench.registered()
        bench.crash()
        answer = bench.connect().call(registration(incarnation=2))
        assert (answer.error_code, answer.broker_epoch > epoch) == (ErrorCode.NONE, True)

    def test_a_clean_stop_fences_no_broker(self, bench: Bench) -> None:
        bench.registered()
        bench.controller.close(bench.now())
        bench.start()
        assert bench.controller.image.alive == {ZERO}

    def test_a_lost_metadata_log_is_not_treated_as_a_new_cluster(self, bench: Bench) -> None:
        bench.controller.close(bench.now())
        bench.disk.rmtree("/controller/__cluster_metadata-0")
        with pytest.raises(KafkaError, match="has lost __cluster_metadata-0"):
            bench.start(may_be_new=False)
        bench.start(may_be_new=True)  # the directory was given back

    def test_a_metadata_log_whose_creation_was_interrupted_is_recreated(self) -> None:
        for kill_at_op in range(3, 20):  # the log directory itself is there by then
            for seed in range(5):
                bench = Bench(seed=seed, started=False)
                bench.disk.arm(kill_at_op=kill_at_op)
                with suppress(Killed):
                    bench.start()
                bench.crash(power_cut=False)
                broker, _ = bench.registered()
                broker.call(create("t"))
                bench.crash(power_cut=True)
                assert set(bench.controller.image.topics) == {"t"}, f"killed at operation {kill_at_op}"

    def test_unsynced_records_of_a_crash_are_synced_before_they_are_served(self) -> None:
        for seed in range(10):
            bench = Bench(seed=seed)
            bench.registered()
            outcome = topics.create_topic(
                bench.controller.image, "t", topic_id=bench.new_id(), num_partitions=1, replication_factor=1
            )
            bench.controller.decide(outcome, bench.now())  # and the process dies
            bench.crash(power_cut=False)
            assert [record for record in records_of(bench) if isinstance(record, TopicCreated)]
            bench.crash(power_cut=True)
            assert set(bench.controller.image.topics) == {"t"}


class TestEnvelope:
    def enveloped(self, bench: Bench, request: Message, *, version: int | None = None) -> Any:
        spec = api_for(request.api.key)
        assert spec is not None
        version = spec.highest if version is None else version
        data = b"".join(encode_request(request, api_version=version, correlation_id=77, client_id="client"))
        return bench.connect().call(EnvelopeRequest(request_data=data, client_host_address=b"\x7f\0\0\1"))

    def test_it_contains_the_response_for_the_client(self, bench: Bench) -> None:
        bench.registered()
        answer = self.enveloped(bench, create("t"), version=5)
        assert answer.error_code == ErrorCode.NONE
        data = memoryview(answer.response_data)
        correlation_id, position = decode_response_header(registry.CREATE_TOPICS, 5, data)
        response = codec.decode(CreateTopicsResponse, 5, data, position)
        assert (correlation_id, response.topics[0].name, response.topics[0].error_code) == (77, "t", ErrorCode.NONE)

    def test_a_broker_unregistered_before_its_first_heartbeat_may_stay_silent(self, bench: Bench) -> None:
        broker, epoch = bench.registered(unfenced=False)
        answer = self.enveloped(bench, UnregisterBrokerRequest(broker_id=ZERO))
        data = memoryview(answer.response_data)
        _, position = decode_response_header(registry.UNREGISTER_BROKER, 0, data)
        assert codec.decode(UnregisterBrokerResponse, 0, data, position).error_code == ErrorCode.NONE
        assert broker.call(heartbeat(epoch, knows=epoch)).error_code == ErrorCode.BROKER_ID_NOT_REGISTERED
        broker.close()
        bench.pass_time(60_000)
        assert bench.controller.image.brokers == {}

    def test_internal_topics_are_refused_for_clients_and_created_for_brokers(self, bench: Bench) -> None:
        broker, _ = bench.registered()
        answer = self.enveloped(bench, create("__consumer_offsets"))
        data = memoryview(answer.response_data)
        _, position = decode_response_header(registry.CREATE_TOPICS, 7, data)
        refused = codec.decode(CreateTopicsResponse, 7, data, position)
        assert refused.topics[0].error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
        assert broker.call(create("__consumer_offsets")).topics[0].error_code == ErrorCode.NONE

    def test_other_requests_and_invalid_bytes_are_refused(self, bench: Bench) -> None:
        assert self.enveloped(bench, heartbeat(0, knows=0)).error_code == ErrorCode.UNSUPPORTED_VERSION
        for data in (b"", b"\0\x13", encode_request_header(registry.CREATE_TOPICS, 7, 1, "x") + b"\xff\xff\xff\x7f"):
            envelope = EnvelopeRequest(request_data=data, client_host_address=b"")
            assert bench.connect().call(envelope).error_code == ErrorCode.INVALID_REQUEST


class TestListeners:
    def test_nothing_is_served_before_authentication(self, bench: Bench) -> None:
        peer = Peer(bench, bench.connect_unproven())
        peer.send(registration())
        assert peer.connection.closing
        assert bench.controller.image.brokers == {}

    def test_internal_requests_are_refused_on_a_client_listener(self, bench: Bench) -> None:
        client_listener = plan_listeners(bench.configs)[0]
        assert not client_listener.internal
        internal = [registration(), heartbeat(0, knows=0), AllocateProducerIdsRequest(broker_id=0, broker_epoch=0)]
        for request in [*internal, EnvelopeRequest(request_data=b"", client_host_address=b"")]:
            connection = bench.controller.connection_opened(client_listener, "127.0.0.1", bench.now())
            assert connection is not None
            Peer(bench, connection).send(request)
            assert connection.closing
            assert connection.take_output() == []

    def test_only_requests_of_controllers_are_advertised_and_served(self, bench: Bench) -> None:
        peer = bench.connect()
        answer = peer.call(ApiVersionsRequest(client_software_name="x", client_software_version="1"))
        assert {entry.api_key for entry in answer.api_keys} == set(bench.controller.handlers)
        peer.send(MetadataRequest(topics=None))
        assert peer.connection.closing


def _never(_: Any) -> None:
    raise AssertionError("no response may be sent")


class TestMetadataLevel:
    def test_a_new_cluster_finalizes_the_newest_level_once(self, bench: Bench) -> None:
        expected = list(NEW_CLUSTER)
        assert records_of(bench)[1:] == expected
        bench.crash()
        assert [each for each in records_of(bench) if isinstance(each, FeatureLevelChanged)] == expected
        assert bench.controller.image.metadata_level == LATEST_LEVEL

    def test_api_versions_returns_it(self, bench: Bench) -> None:
        request = ApiVersionsRequest(client_software_name="x", client_software_version="1")
        told = bench.connect().call(request)
        supported = {each.name: (each.min_version, each.max_version) for each in told.supported_features}
        finalized = {each.name: each.max_version_level for each in told.finalized_features}
        assert supported[METADATA_FEATURE] == (1, LATEST_LEVEL)
        assert finalized[METADATA_FEATURE] == LATEST_LEVEL
        assert told.finalized_features_epoch == bench.controller.next_offset - 1

    def test_a_record_of_a_later_level_is_not_written(self, bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(features, "required_level", lambda _: LATEST_LEVEL + 1)
        before = bench.controller.next_offset
        with pytest.raises(KafkaError, match="BrokerFenced needs"):
            bench.controller.decide(Outcome(None, [BrokerFenced(ZERO, 1)]), bench.now())
        assert bench.controller.next_offset == before

    @pytest.mark.parametrize("value", [msgpack.packb([18, METADATA_FEATURE, LATEST_LEVEL + 1]), msgpack.packb([99, 1])])
    def test_a_log_of_a_later_level_is_refused_with_the_level_it_needs(self, bench: Bench, value: bytes) -> None:
        log = bench.controller.metadata_log.log
        batch = build_batch([NewRecord(None, value, 5)])
        log.append_as_leader(memoryview(batch), leader_epoch=LeaderEpoch(1), now_ms=5, from_client=False)
        with pytest.raises(
            KafkaError, match=rf"level {LATEST_LEVEL + 1}.* this version of raylog supports 1 to {LATEST_LEVEL}"
        ):
            bench.crash(power_cut=False)
