"""A broker serves once it is registered and has caught up, and registers again whenever it was fenced."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from raylog.broker.lifecycle import LifecycleState
from raylog.core.errors import ErrorCode, InvariantViolation
from raylog.core.ids import NO_PRODUCER_ID
from raylog.metadata.levels import LATEST_LEVEL, METADATA_FEATURE
from raylog.protocol import registry
from raylog.protocol.messages.broker_heartbeat import BrokerHeartbeatResponse
from raylog.protocol.messages.broker_registration import BrokerRegistrationResponse
from raylog.protocol.messages.init_producer_id import InitProducerIdRequest
from raylog.transport.node import Node
from tests.support.direct_cluster import DirectCluster, DirectMember

HEARTBEAT_MS, SESSION_MS = 100, 1000
CONFIG = {"broker.heartbeat.interval.ms": str(HEARTBEAT_MS), "broker.session.timeout.ms": str(SESSION_MS)}


@pytest.fixture
def cluster() -> DirectCluster:
    return DirectCluster(1, CONFIG)


def listen_in(node: Node, key: int, answer: Callable[[Any], Any] | None = None) -> list[Any]:
    """The requests with this key that the node will get; `answer` answers them in its place, where it gives one."""
    asked: list[Any] = []
    handler = node.handlers[key]

    def heard(serving: Any, context: Any, request: Any) -> Any:
        asked.append(request)
        answered = None if answer is None else answer(request)
        return handler(serving, context, request) if answered is None else answered

    node.handlers = {**node.handlers, key: heard}
    return asked


def leadership(cluster: DirectCluster) -> tuple[int, int]:
    partition = cluster.active.image.topics["t"].partitions[0]
    return partition.leader, partition.leader_epoch


class TestStart:
    def test_without_a_controller_its_listeners_stay_closed(self, cluster: DirectCluster) -> None:
        (member,) = cluster.brokers
        cluster.create_topic("t")
        member.stop()
        cluster.stop_controller()
        member.start(accepting=False)
        cluster.pass_time(60_000)
        assert (member.broker.accepting, member.broker.partitions) == (False, {})
        assert member.broker.lifecycle.state is LifecycleState.UNREGISTERED
        cluster.start_controller()
        cluster.pass_time(2000)
        assert member.broker.accepting
        assert member.produce([b"x"]).base_offset == 0

    def test_it_stays_fenced_and_opens_no_partition_until_it_has_caught_up(self, cluster: DirectCluster) -> None:
        (member,) = cluster.brokers
        cluster.create_topic("t")
        member.stop()
        heartbeats = listen_in(cluster.active, registry.BROKER_HEARTBEAT)
        cluster.brokers.remove(member)  # no bytes are delivered until the test calls for it
        member.start(accepting=False)
        follower_link, lifecycle_link = member.broker.links
        assert lifecycle_link is member.broker.lifecycle.link
        member.links.held = [follower_link]
        cluster.brokers.append(member)
        cluster.settle()
        cluster.pass_time(3 * HEARTBEAT_MS)
        assert member.broker.lifecycle.state is LifecycleState.CATCHING_UP
        assert heartbeats
        assert all(heartbeat.want_fence for heartbeat in heartbeats)
        assert (member.broker.accepting, member.broker.partitions) == (False, {})
        assert cluster.active.image.alive == set()
        member.links.held.clear()
        cluster.settle()
        cluster.pass_time(HEARTBEAT_MS)
        assert member.broker.accepting
        assert not heartbeats[-1].want_fence
        assert heartbeats[-1].current_metadata_offset >= member.broker.lifecycle.broker_epoch

    def test_a_refused_registration_is_retried_with_the_next_heartbeat(
        self, cluster: DirectCluster, caplog: pytest.LogCaptureFixture
    ) -> None:
        (member,) = cluster.brokers
        member.stop()
        duplicate = ErrorCode.DUPLICATE_BROKER_REGISTRATION
        refusals = [ErrorCode.NOT_CONTROLLER, duplicate, duplicate, ErrorCode.KAFKA_STORAGE_ERROR]
        registrations = listen_in(
            cluster.active,
            registry.BROKER_REGISTRATION,
            lambda _: BrokerRegistrationResponse(error_code=refusals.pop(0)) if refusals else None,
        )
        member.start(accepting=False)
        assert len(registrations) == 1
        cluster.pass_time(HEARTBEAT_MS)
        assert len(registrations) == 2
        assert not member.broker.accepting
        cluster.pass_time(3 * HEARTBEAT_MS)
        assert member.broker.accepting
        logged = [vars(record)["error"] for record in caplog.records if record.message == "registration refused"]
        assert logged == ["DUPLICATE_BROKER_REGISTRATION", "KAFKA_STORAGE_ERROR"], "each reason once"

    def test_a_controller_of_another_cluster_ends_it(self, cluster: DirectCluster) -> None:
        (member,) = cluster.brokers
        member.stop()
        refused = BrokerRegistrationResponse(error_code=ErrorCode.INCONSISTENT_CLUSTER_ID)
        listen_in(cluster.active, registry.BROKER_REGISTRATION, lambda _: refused)
        with pytest.raises(InvariantViolation, match="does not belong to cluster"):
            member.start(accepting=False)

    def test_an_unsupported_metadata_level_ends_it(self, cluster: DirectCluster) -> None:
        (member,) = cluster.brokers
        member.stop()
        refused = BrokerRegistrationResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
        asked = listen_in(cluster.active, registry.BROKER_REGISTRATION, lambda _: refused)
        with pytest.raises(
            InvariantViolation,
            match=rf"level of raylog\.metadata that this broker does not support: it supports 1 to {LATEST_LEVEL}",
        ):
            member.start(accepting=False)
        supported = [(each.name, each.min_supported_version, each.max_supported_version) for each in asked[0].features]
        assert supported == [
            (METADATA_FEATURE, 1, LATEST_LEVEL),
            ("transaction.version", 0, 2),
            ("group.version", 0, 1),
            ("share.version", 0, 1),
            ("streams.version", 0, 1),
            ("kraft.version", 0, 1),
        ]

    def test_a_lost_registration_response_has_no_effect(self, cluster: DirectCluster) -> None:
        (member,) = cluster.brokers
        member.stop()
        cluster.brokers.remove(member)
        member.start(accepting=False)
        registrations = listen_in(cluster.active, registry.BROKER_REGISTRATION)
        while not member.broker.lifecycle.link.ready:
            member.carry()
        member.links.carry(cluster.now(), answers=False)
        assert len(registrations) == 1
        member.links.cut(cluster.now())
        epoch = cluster.active.image.brokers[member.broker_id].registration.broker_epoch
        cluster.brokers.append(member)
        cluster.pass_time(1000)
        assert member.broker.accepting
        assert member.broker.lifecycle.broker_epoch == epoch

    def test_a_metadata_log_that_lost_records_ends_it(self, cluster: DirectCluster) -> None:
        cluster.create_topic("t")
        cluster.stop_controller()
        cluster.controller_disk.rmtree("/controller/__cluster_metadata-0")
        cluster.start_controller()
        with pytest.raises(InvariantViolation, match="has lost committed records, or belongs to another cluster"):
            cluster.pass_time(2000)


class TestFencing:
    def test_a_broken_connection_fences_it_until_it_reconnects(self, cluster: DirectCluster) -> None:
        (member,) = cluster.brokers
        cluster.create_topic("t")
        member.produce([b"x"])
        assert leadership(cluster) == (0, 0)
        member.links.cut(cluster.now())
        assert leadership(cluster) == (-1, 1)
        cluster.pass_time(HEARTBEAT_MS)
        assert leadership(cluster) == (0, 2)
        assert member.produce([b"y"]).base_offset == 1
        assert member.describe("t").topics[0].partitions[0].leader_epoch == 2

    def test_missing_heartbeats_fence_it_and_the_next_one_unfences_it(self, cluster: DirectCluster) -> None:
        (member,) = cluster.brokers
        cluster.create_topic("t")
        member.silent = True
        cluster.pass_time(SESSION_MS - HEARTBEAT_MS)
        assert leadership(cluster) == (0, 0)
        assert (
            member.produce([b"x"]).base_offset == 0
        )  # it does not know that it was fenced, and no other broker can lead
        cluster.pass_time(HEARTBEAT_MS)
        assert leadership(cluster) == (-1, 1)
        member.silent = False
        cluster.pass_time(HEARTBEAT_MS)
        assert leadership(cluster) == (0, 2)
        assert member.produce([b"y"]).base_offset == 1

    def test_heartbeats_are_sent_at_the_configured_interval(self, cluster: DirectCluster) -> None:
        heartbeats = listen_in(cluster.active, registry.BROKER_HEARTBEAT)
        cluster.pass_time(10 * HEARTBEAT_MS)
        assert len(heartbeats) == 10

    @pytest.mark.parametrize("code", [ErrorCode.STALE_BROKER_EPOCH, ErrorCode.BROKER_ID_NOT_REGISTERED])
    def test_it_registers_again_after_the_controller_forgot_it(self, cluster: DirectCluster, code: ErrorCode) -> None:
        refusals = [code]
        listen_in(
            cluster.active,
            registry.BROKER_HEARTBEAT,
            lambda _: BrokerHeartbeatResponse(error_code=refusals.pop()) if refusals else None,
        )
        registrations = listen_in(cluster.active, registry.BROKER_REGISTRATION)
        cluster.pass_time(3 * HEARTBEAT_MS)
        assert len(registrations) == 1
        assert cluster.brokers[0].broker.lifecycle.state is LifecycleState.CAUGHT_UP

    def test_a_lost_heartbeat_is_followed_by_the_next(self, cluster: DirectCluster) -> None:
        (member,) = cluster.brokers
        heartbeats = listen_in(cluster.active, registry.BROKER_HEARTBEAT)
        member.silent = True
        cluster.pass_time(HEARTBEAT_MS)
        member.links.cut(cluster.now())
        member.silent = False
        cluster.pass_time(3 * HEARTBEAT_MS)
        assert len(heartbeats) >= 2

    def test_a_restarted_controller_keeps_the_leaders(self, cluster: DirectCluster) -> None:
        cluster.create_topic("t")
        for clean in (True, False):
            cluster.stop_controller(clean=clean)
            assert cluster.brokers[0].produce([b"x"]).error_code == ErrorCode.NONE
            cluster.start_controller()
            cluster.pass_time(2 * SESSION_MS)
            assert leadership(cluster) == (0, 0)


class TestProducerIds:
    def ids(self, member: DirectMember, count: int) -> list[int]:
        request = InitProducerIdRequest(transaction_timeout_ms=-1)
        ids = [member.call(request).producer_id for _ in range(count)]
        assert NO_PRODUCER_ID not in ids
        return ids

    def test_no_id_is_allocated_twice_by_any_broker_or_incarnation(self) -> None:
        cluster = DirectCluster(2)
        given: list[int] = []
        for clean in (True, False):
            for member in cluster.brokers:
                given += self.ids(member, 1500)
                member.stop(clean=clean)
                member.start()
            cluster.stop_controller(clean=clean, power_cut=True)
            cluster.start_controller()
            cluster.pass_time(5000)
        assert len(set(given)) == len(given)

    def test_without_a_controller_the_current_block_is_used_up_and_then_clients_must_retry(
        self, cluster: DirectCluster
    ) -> None:
        (member,) = cluster.brokers
        cluster.stop_controller()
        first = self.ids(member, 1000)
        assert len(set(first)) == 1000
        answer = member.call(InitProducerIdRequest(transaction_timeout_ms=-1))
        assert (answer.error_code, answer.producer_id) == (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, -1)
        cluster.start_controller()
        cluster.pass_time(6000)
        member.call(InitProducerIdRequest(transaction_timeout_ms=-1))
        assert not set(first) & set(self.ids(member, 1000))

    def test_a_lost_response_is_requested_again(self, cluster: DirectCluster) -> None:
        (member,) = cluster.brokers
        member.silent = True
        first = self.ids(member, 1000)
        assert len(set(first)) == 1000
        member.links.cut(cluster.now())
        member.silent = False
        cluster.pass_time(1000)
        member.call(InitProducerIdRequest(transaction_timeout_ms=-1))
        assert not set(first) & set(self.ids(member, 1000))

    def test_the_next_block_is_requested_before_the_current_one_is_used_up(self, cluster: DirectCluster) -> None:
        asked = listen_in(cluster.active, registry.ALLOCATE_PRODUCER_IDS)
        ids = self.ids(cluster.brokers[0], 5000)
        assert len(set(ids)) == 5000
        assert len(asked) == 5
