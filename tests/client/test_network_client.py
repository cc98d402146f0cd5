"""A client's connections are made when needed, bounded, renewed and closed; its metadata follows the cluster."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest

from raylog.client.backoff import backoff_ms
from raylog.client.network_client import NetworkClient
from raylog.config.client_network import NetworkSettings
from raylog.config.network import ConnectionLimits
from raylog.core.clock import Now
from raylog.core.errors import ErrorCode, KafkaError
from raylog.core.ids import BrokerId, TopicPartition
from raylog.core.password import Password
from raylog.protocol import registry
from raylog.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from raylog.security.authenticator import Authenticator
from raylog.security.principal import Principal
from raylog.security.sasl.mechanism import Identity, SaslClient
from raylog.security.sasl.plain import PlainClient
from raylog.security.sasl.server import OfferedMechanism, SaslAuthenticator
from raylog.transport.accepted_connection import AcceptedConnection
from raylog.transport.endpoints import Endpoint, Listener
from raylog.transport.exchange import Exchange
from raylog.transport.handlers import api_versions, sasl_authenticate, sasl_handshake
from raylog.transport.node import Node, NodeIdentity
from raylog.transport.peer_link import PeerLink
from tests.support.direct_link import settle

LISTENER = Listener("PLAINTEXT", Endpoint("h", 1), None, internal=False)
LIMITS = ConnectionLimits(
    frame_bytes_max=1 << 20,
    connections_max=100,
    connections_per_host_max=100,
    idle_ms=-1,
    failed_authentication_delay_ms=0,
)
SETTINGS = NetworkSettings(request_timeout_ms=1000, metadata_age_ms_max=60_000, idle_ms_max=None)
TOPIC_ID = UUID(int=7)


class NoChance:
    """A random source without chance: pauses have their nominal length."""

    def uniform(self, low: float, high: float, /) -> float:
        return 1.0

    def randrange(self, stop: int, /) -> int:
        return 0


class OneMessage:
    """A SASL mechanism whose server accepts any message, or none."""

    identity: Identity | None = None

    def __init__(self, *, accepts: bool) -> None:
        self._accepts = accepts

    def respond(self, message: bytes) -> bytes | None:
        if not self._accepts:
            raise KafkaError(ErrorCode.SASL_AUTHENTICATION_FAILED, "wrong password")
        self.identity = Identity(Principal("User", "alice"), expires_ms=10_000)
        return b""


class Broker(Node):
    """Answers Metadata from the bench, and counts what is asked."""

    def __init__(self, bench: Bench, node_id: int) -> None:
        super().__init__(
            NodeIdentity(BrokerId(node_id), "cluster", UUID(int=node_id), b"s"),
            LIMITS,
            new_nonce=random.Random(1).randbytes,
            now=Now(0, 0),
        )
        self.bench = bench
        self.asked: list[str] = []
        self.silent = False

    def new_authenticator(self, listener: Listener, peer_host: str) -> Authenticator:
        if self.bench.accepts is None:
            return super().new_authenticator(listener, peer_host)
        accepts = self.bench.accepts
        return SaslAuthenticator({"PLAIN": OfferedMechanism(lambda: OneMessage(accepts=accepts))})

    def metadata(self, exchange: Exchange, request: Any) -> MetadataResponse | None:
        self.asked.append(request.topics[0].name)
        response = self.bench.metadata
        return None if self.silent else replace(response, controller_id=self.identity.node_id)

    handlers = {  # noqa: RUF012 - the table of a node, as `Node` declares it
        registry.API_VERSIONS: api_versions.handle,
        registry.SASL_HANDSHAKE: sasl_handshake.handle,
        registry.SASL_AUTHENTICATE: sasl_authenticate.handle,
        registry.METADATA: metadata,
    }


class Bench:
    """A client, the brokers that it may reach by their ports, and a clock."""

    def __init__(
        self, settings: NetworkSettings = SETTINGS, *, ports: Sequence[int] = (1,), accepts: bool | None = None
    ) -> None:
        self.clock_ms = 0
        self.accepts = accepts
        """Whether log-ins succeed; None: there are none."""
        self.metadata = shown([1])
        self.brokers: dict[int, Broker] = {}
        self.network = NetworkClient([("h", port) for port in ports], settings, NoChance(), in_flight_max=2)
        self.ends: list[str] = []
        self.refused_here: KafkaError | None = None
        self._connections: dict[PeerLink, tuple[Broker, AcceptedConnection]] = {}

    def now(self) -> Now:
        return Now(self.clock_ms, 0)

    def start(self, *ports: int) -> None:
        for port in ports:
            self.brokers[port] = Broker(self, port)

    def use(self) -> None:
        """Have the client keep metadata of the topic t."""
        self.network.services.append(self)
        self.network.metadata.want(["t"])
        self.network.run(self.now())
        self.settle()

    def run(self, now: Now) -> None:
        """As a service of the network."""

    def next_deadline_ms(self) -> int | None:
        return None

    def ask(self, node_id: int, key: str = "g") -> None:
        self.network.ask(
            node_id, MetadataRequest(topics=(MetadataRequestTopic(name=key),)), self._answered, self._failed, self.now()
        )
        self.network.run(self.now())

    def _answered(self, answer: Any, now: Now) -> None:
        self.ends.append(f"answered by {answer.controller_id}")

    def _failed(self, error: KafkaError, now: Now) -> None:
        self.ends.append(error.code.name)

    def pass_time(self, ms: int) -> None:
        self.clock_ms += ms
        for broker in self.brokers.values():
            broker.tick(self.now())
        self.network.tick(self.now())
        self.settle()

    def settle(self) -> None:
        while any([self._carry(link) for link in dict.fromkeys((*self.network.take_touched(), *self._connections))]):  # noqa: C419
            pass

    def cut(self) -> None:
        for link, (broker, connection) in list(self._connections.items()):
            del self._connections[link]
            broker.connection_closed(connection, self.now())
            self.network.link_lost(link, "cut", self.now())
        self.settle()

    @property
    def connected_to(self) -> list[int]:
        return sorted(int(broker.identity.node_id) for broker, _ in self._connections.values())

    def _login(self) -> SaslClient | None:
        return None if self.accepts is None else PlainClient("alice", Password("secret"))

    def _carry(self, link: PeerLink) -> bool:
        now = self.now()
        if link.wants_connection:
            broker = self.brokers.get(self.network.address(link).port)
            if broker is None:
                self.network.link_lost(link, "connection refused", now)
                return True
            connection = broker.connection_opened(LISTENER, "127.0.0.1", now)
            assert connection is not None
            self._connections[link] = broker, connection
            self.network.link_connected(link, self._login(), now)
        if link.wants_login:
            login = self._login()
            assert login is not None
            if self.refused_here is not None:
                self.network.link_refused(link, self.refused_here, now)
            else:
                self.network.login_renewed(link, login, now)
        if link not in self._connections:
            return False
        broker, connection = self._connections[link]
        if link.closing:
            del self._connections[link]
            broker.connection_closed(connection, now)
            self.network.link_lost(link, "closed here", now)
            return True
        data = b"".join(link.take_output())
        if data:
            connection.receive_buffer()[: len(data)] = data
            broker.bytes_received(connection, len(data), now)
        settle(broker, now)
        answered = b"".join(broker.take_output(connection))
        if answered:
            link.receive_buffer()[: len(answered)] = answered
            self.network.link_bytes_received(link, len(answered), now)
        return bool(data or answered)


def shown(
    nodes: Sequence[int],
    *,
    leader: int = 1,
    epoch: int = 5,
    error: ErrorCode = ErrorCode.NONE,
    ports: int = 0,
    partitions: int = 1,
) -> MetadataResponse:
    """Brokers by their ids, whose ports are the ids plus `ports`, and topic t."""
    parts = tuple(
        MetadataResponsePartition(partition_index=index, leader_id=leader, leader_epoch=epoch)
        for index in range(partitions)
    )
    topic = MetadataResponseTopic(name="t", topic_id=TOPIC_ID, error_code=error, partitions=parts)
    brokers = tuple(MetadataResponseBroker(node_id=node, host="h", port=node + ports) for node in nodes)
    return MetadataResponse(brokers=brokers, cluster_id="cluster", controller_id=1, topics=(topic,))


class TestConnections:
    def test_they_are_made_when_something_is_asked(self) -> None:
        bench = Bench()
        bench.start(1)
        bench.pass_time(1000)
        assert bench.connected_to == []
        bench.use()
        assert bench.connected_to == [1]  # that of bootstrap.servers
        bench.ask(1)
        bench.settle()
        assert (bench.ends, bench.connected_to) == (["answered by 1"], [1, 1])

    def test_no_more_requests_are_in_flight_than_the_client_permits(self) -> None:
        bench = Bench()
        bench.start(1)
        bench.use()
        bench.brokers[1].silent = True
        for number in range(5):
            bench.ask(1, f"g{number}")
        bench.settle()
        assert [asked for asked in bench.brokers[1].asked if asked != "t"] == ["g0", "g1"]
        assert not bench.network.link(1).has_room

    def test_an_unused_one_is_closed(self) -> None:
        bench = Bench(NetworkSettings(idle_ms_max=500))
        bench.start(1)
        bench.use()
        bench.pass_time(499)
        assert bench.connected_to == [1]
        bench.pass_time(1)
        assert bench.connected_to == []
        bench.pass_time(100_000)
        assert bench.connected_to == []

    def test_what_waits_fails_where_no_connection_can_be_made(self) -> None:
        bench = Bench()
        bench.start(1)
        bench.metadata = shown([1, 2])
        bench.use()
        bench.ask(2)
        bench.settle()
        assert bench.ends == ["NETWORK_EXCEPTION"]
        bench.ask(2)  # in backoff: it waits for the next attempt
        bench.settle()
        assert bench.ends == ["NETWORK_EXCEPTION"]
        bench.start(2)
        bench.pass_time(100)
        assert bench.ends == ["NETWORK_EXCEPTION", "answered by 2"]

    def test_a_broker_with_a_new_address_is_found_there(self) -> None:
        bench = Bench()
        bench.start(1)
        bench.use()
        bench.ask(1)
        bench.settle()
        bench.start(11)
        bench.metadata = shown([1], ports=10)
        bench.pass_time(60_000)
        bench.ask(1)
        bench.pass_time(50)
        assert bench.ends == ["answered by 1", "answered by 11"]


class TestLogins:
    def test_one_that_is_refused_fails_what_waits_with_its_error(self) -> None:
        bench = Bench(accepts=False)
        bench.start(1)
        bench.use()
        bench.pass_time(100)
        assert bench.network.metadata.failure is not None
        assert bench.network.metadata.failure.code is ErrorCode.SASL_AUTHENTICATION_FAILED

    def test_a_session_is_renewed_before_it_ends_on_the_same_connection(self) -> None:
        bench = Bench(accepts=True)
        bench.start(1)
        bench.use()
        asked = len(bench.brokers[1].asked)
        bench.pass_time(8_499)
        (link,) = bench._connections
        assert not link.wants_login
        before = set(bench._connections.values())
        bench.pass_time(1)
        bench.network.metadata.expire()
        bench.pass_time(1000)
        assert before <= set(bench._connections.values())
        assert len(bench.brokers[1].asked) > asked

    def test_credentials_that_cannot_be_had_close_the_connection(self) -> None:
        bench = Bench(accepts=True)
        bench.start(1)
        bench.use()
        bench.refused_here = KafkaError(ErrorCode.SASL_AUTHENTICATION_FAILED, "no token")
        bench.pass_time(8_500)
        assert bench.connected_to == []


class TestMetadata:
    def test_a_leader_never_goes_back_to_an_older_epoch(self) -> None:
        bench = Bench()
        bench.start(1)
        bench.metadata = shown([1, 2], leader=2, epoch=6)
        bench.use()
        bench.metadata = shown([1, 2], leader=1, epoch=5)
        bench.pass_time(60_000)
        leader = bench.network.metadata.leader(TopicPartition("t", 0))
        assert (bench.network.metadata.updates, leader and leader.broker_id) == (2, 2)

    def test_it_is_asked_for_again_after_its_time_and_after_a_failure(self) -> None:
        bench = Bench()
        bench.start(1)
        bench.use()
        bench.pass_time(59_999)
        assert bench.network.metadata.updates == 1
        bench.pass_time(1)
        assert bench.network.metadata.updates == 2
        bench.cut()
        bench.pass_time(200)
        assert bench.network.metadata.updates == 3

    def test_brokers_that_are_not_reached_for_some_time_are_reported(self, caplog: pytest.LogCaptureFixture) -> None:
        bench = Bench()
        bench.use()
        for _ in range(4):
            bench.pass_time(1000)
        assert bench.network.metadata.attempts == 5
        [warned] = caplog.records
        assert (warned.getMessage(), vars(warned)["reason"]) == (
            "brokers not reached",
            "cannot connect to h:1: connection refused",
        )
        for _ in range(55):
            bench.pass_time(1000)
        assert len(caplog.records) == 2
        bench.start(1)
        bench.pass_time(1000)
        for _ in range(3):
            bench.cut()
            bench.pass_time(1000)
        assert len(caplog.records) == 2

    def test_a_topic_that_may_still_appear_is_asked_for_with_pauses(self) -> None:
        bench = Bench()
        bench.start(1)
        bench.metadata = shown([1], error=ErrorCode.LEADER_NOT_AVAILABLE)
        bench.use()
        assert bench.network.next_tick_ms() == 100
        for _ in range(3):
            bench.pass_time(100)
        assert bench.network.metadata.updates == 4

    def test_a_new_topic_is_asked_for_at_once_unless_the_last_request_failed(self) -> None:
        bench = Bench()
        bench.start(1)
        bench.use()
        metadata, updates = bench.network.metadata, bench.network.metadata.updates
        metadata.want(["t", "u"])
        bench.pass_time(1)
        assert metadata.updates == updates + 1
        metadata.expire()
        bench.pass_time(1)
        assert metadata.updates == updates + 1  # a topic that was shown already may wait
        metadata.want_only(["t", "v"])
        bench.pass_time(1)
        assert metadata.updates == updates + 2
        bench.brokers[1].silent = True
        bench.pass_time(60_000)
        bench.pass_time(SETTINGS.request_timeout_ms)
        assert metadata.attempts == 1
        bench.brokers[1].silent = False
        metadata.want(["w"])
        assert metadata.next_request_ms() == bench.clock_ms + SETTINGS.retry_backoff_ms

    @pytest.mark.parametrize("rebootstrap", [True, False])
    def test_a_client_that_reaches_no_known_broker_begins_again(self, *, rebootstrap: bool) -> None:
        """KIP-899: the brokers it knew are gone, those of bootstrap.servers have other ids by now."""
        bench = Bench(NetworkSettings(rebootstrap=rebootstrap, metadata_age_ms_max=60_000))
        bench.start(1)
        bench.metadata = shown([3])
        bench.start(3)
        bench.use()
        del bench.brokers[3], bench.brokers[1]
        bench.cut()
        bench.start(1)
        bench.metadata = shown([1])
        for _ in range(20):
            bench.pass_time(500)
        assert (list(bench.network.metadata.nodes) == [1]) is rebootstrap

    def test_pauses_grow_up_to_a_limit(self) -> None:
        one: Callable[[], float] = lambda: 1.0  # noqa: E731
        assert [backoff_ms(attempt, 100, 1000, one) for attempt in (1, 2, 3, 4, 5, 500)] == [
            100, 200, 400, 800, 1000, 1000,
        ]  # fmt: skip
