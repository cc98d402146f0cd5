"""A link authenticates both ends, reconnects whenever it breaks, and ends each request once."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from raylog.config.network import ConnectionLimits
from raylog.core.clock import Now
from raylog.core.errors import ErrorCode, KafkaError
from raylog.core.ids import BrokerId
from raylog.protocol import registry
from raylog.protocol.messages.find_coordinator import FindCoordinatorRequest
from raylog.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from raylog.protocol.messages.sasl_authenticate import SaslAuthenticateResponse
from raylog.protocol.schema import Message
from raylog.security.principal import CLUSTER_PRINCIPAL
from raylog.transport.endpoints import Endpoint, Listener
from raylog.transport.exchange import Exchange
from raylog.transport.handlers import api_versions, sasl_authenticate, sasl_handshake
from raylog.transport.node import Node, NodeIdentity
from raylog.transport.peer_link import BETWEEN_NODES, LinkState, PeerLink
from tests.support.direct_link import DirectLinks
from tests.support.exchanges import log_in

SECRET, WRONG_SECRET = b"s" * 32, b"w" * 32
INTERNAL = Listener("INTERNAL", Endpoint("h", 1), None, internal=True)
LIMITS = ConnectionLimits(frame_bytes_max=1 << 20, connections_max=100, connections_per_host_max=100, idle_ms=-1)


class Peer(Node):
    """Answers Metadata with the client id it was asked by, or not at all while it is `silent`."""

    def __init__(self, secret: bytes) -> None:
        super().__init__(identity(1, secret), LIMITS, new_nonce=random.Random(1).randbytes, now=Now(0, 0))
        self.silent = False
        self.asked: list[str] = []

    def metadata(self, exchange: Exchange, request: Any) -> MetadataResponse | None:
        self.asked.append(request.topics[0].name if request.topics else "")
        if self.silent:
            return None
        return MetadataResponse(brokers=(), cluster_id=exchange.client_id, controller_id=-1, topics=())

    handlers = {  # noqa: RUF012 - the table of a node, as `Node` declares it
        registry.API_VERSIONS: api_versions.handle,
        registry.SASL_HANDSHAKE: sasl_handshake.handle,
        registry.SASL_AUTHENTICATE: sasl_authenticate.handle,
        registry.METADATA: metadata,
    }


def identity(node_id: int, secret: bytes) -> NodeIdentity:
    return NodeIdentity(BrokerId(node_id), "cluster", UUID(int=node_id), secret)


def _welcome(peer: Peer, exchange: Exchange, request: Any) -> SaslAuthenticateResponse:
    log_in(exchange.connection, CLUSTER_PRINCIPAL)
    return SaslAuthenticateResponse(auth_bytes=bytes(64))


class Bench:
    """A node with one link, the peer it leads to, and a clock."""

    def __init__(self, *, secret: bytes = SECRET, peer_secret: bytes = SECRET) -> None:
        self.node = Node(identity(0, secret), LIMITS, new_nonce=random.Random(0).randbytes, now=Now(0, 0))
        self.peer = Peer(peer_secret)
        self.events: list[str] = []
        self.ends: dict[str, list[str]] = {}
        self.reasons: list[str] = []
        """The messages of the errors in `ends`."""
        self.link: PeerLink = self.node.new_link(
            "peer", on_ready=lambda _: self.events.append("ready"), on_lost=lambda _: self.events.append("lost")
        )
        self.other = Peer(peer_secret)
        self.links = DirectLinks(self.node, INTERNAL, {"peer": self.peer, "other": self.other}.get)
        self.clock_ms = 0

    def now(self) -> Now:
        return Now(self.clock_ms, 0)

    def pass_time(self, ms: int, *, carry: bool = True) -> None:
        self.clock_ms += ms
        self.node.tick(self.now())
        if carry:
            self.settle()

    def settle(self) -> None:
        while self.links.carry(self.now()):
            pass

    def ask(self, name: str, *, timeout_ms: int = 1000) -> None:
        """Its end is found in `ends`: the answer's text, or the name of the error, once for each call."""
        ends = self.ends.setdefault(name, [])

        def answered(answer: MetadataResponse, now: Now) -> None:
            ends.append(f"answered {answer.cluster_id}")

        def failed(error: KafkaError, now: Now) -> None:
            ends.append(error.code.name)
            self.reasons.append(error.message)

        self.link.request(wanted(name), answered, failed, now=self.now(), timeout_ms=timeout_ms)


def wanted(name: str) -> MetadataRequest:
    return MetadataRequest(topics=(MetadataRequestTopic(name=name),))


@pytest.fixture
def bench() -> Bench:
    return Bench()


class TestExchange:
    def test_from_down_to_ready(self, bench: Bench) -> None:
        assert bench.link.state is LinkState.DOWN
        assert not bench.link.wants_connection
        bench.pass_time(0, carry=False)
        assert bench.link.wants_connection
        assert list(bench.node.take_effects().links) == [bench.link]
        bench.settle()
        assert bench.link.ready
        assert bench.events == ["ready"]

    def test_a_response_is_matched_with_its_request(self, bench: Bench) -> None:
        bench.pass_time(0)
        bench.ask("a")
        bench.ask("b")
        bench.settle()
        assert bench.ends == {"a": ["answered node-0"], "b": ["answered node-0"]}

    def test_requests_wait_in_order_until_the_link_is_authenticated(self, bench: Bench) -> None:
        bench.ask("first")
        bench.ask("second")
        bench.links.carry(bench.now())
        assert bench.peer.asked == []
        bench.pass_time(0)
        assert bench.peer.asked == ["first", "second"]

    @pytest.mark.parametrize(("secret", "peer_secret"), [(WRONG_SECRET, SECRET), (SECRET, WRONG_SECRET)])
    def test_a_peer_without_the_secret_gets_no_request(self, secret: bytes, peer_secret: bytes) -> None:
        bench = Bench(secret=secret, peer_secret=peer_secret)
        bench.ask("a", timeout_ms=500)
        for _ in range(60):
            bench.pass_time(10)
            assert not bench.link.ready
        assert (bench.events, bench.peer.asked) == ([], [])
        assert bench.ends == {"a": ["REQUEST_TIMED_OUT"]}

    def test_a_peer_that_accepts_any_client_must_prove_the_secret_too(self, bench: Bench) -> None:
        bench.peer.handlers = {**bench.peer.handlers, registry.SASL_AUTHENTICATE: _welcome}
        bench.ask("a", timeout_ms=100)
        for _ in range(10):
            bench.pass_time(10)
        assert (bench.events, bench.peer.asked) == ([], [])

    def test_a_peer_that_does_not_authenticate_in_time_is_disconnected(self, bench: Bench) -> None:
        bench.pass_time(0, carry=False)
        bench.link.connected(None, bench.now())
        assert bench.link.next_tick_ms() == BETWEEN_NODES.connect_ms_max
        bench.pass_time(BETWEEN_NODES.connect_ms_max - 1, carry=False)
        assert not bench.link.closing
        bench.pass_time(1, carry=False)
        assert bench.link.closing
        bench.link.lost("hung up", bench.now())
        assert bench.link.next_tick_ms() == bench.clock_ms + BETWEEN_NODES.backoff_ms

    def test_invalid_bytes_end_the_connection(self, bench: Bench) -> None:
        bench.pass_time(0)
        bench.ask("a")
        noise = b"\xff" * 8
        bench.link.receive_buffer()[: len(noise)] = noise
        bench.link.bytes_received(len(noise), bench.now())
        assert bench.link.closing
        bench.settle()
        assert bench.ends == {"a": ["NETWORK_EXCEPTION"]}
        assert bench.reasons == ["the connection to peer was lost: a frame of -1 bytes is outside [4, 2147483647]"]

    @pytest.mark.parametrize(
        ("request_", "code"),
        [
            (FindCoordinatorRequest(key="g"), ErrorCode.UNSUPPORTED_VERSION),
            (wanted("\ud800"), ErrorCode.INVALID_REQUEST),  # it cannot be encoded
        ],
        ids=["not supported", "not encodable"],
    )
    def test_a_request_that_cannot_be_sent_fails_alone(self, bench: Bench, request_: Message, code: ErrorCode) -> None:
        bench.pass_time(0)
        codes: list[ErrorCode] = []
        bench.link.request(
            request_,
            lambda _, now: codes.append(ErrorCode.NONE),
            lambda error, now: codes.append(error.code),
            now=bench.now(),
            timeout_ms=100,
        )
        bench.ask("a")
        bench.settle()
        assert codes == [code]
        assert bench.ends == {"a": ["answered node-0"]}


class TestDeadlines:
    def test_a_request_that_cannot_be_sent_in_time_fails_and_is_never_sent(self, bench: Bench) -> None:
        bench.ask("a", timeout_ms=100)
        bench.ask("b", timeout_ms=200)
        assert bench.link.next_tick_ms() == 0  # to be connected
        bench.pass_time(0, carry=False)
        assert bench.link.next_tick_ms() == 100
        bench.pass_time(99, carry=False)
        assert bench.ends == {"a": [], "b": []}
        bench.pass_time(1, carry=False)
        assert bench.ends == {"a": ["REQUEST_TIMED_OUT"], "b": []}
        bench.settle()
        assert bench.peer.asked == ["b"]

    def test_a_peer_that_does_not_respond_in_time_is_disconnected(self, bench: Bench) -> None:
        bench.pass_time(0)
        bench.peer.silent = True
        bench.ask("a", timeout_ms=100)
        bench.ask("b", timeout_ms=500)
        bench.settle()
        assert bench.link.next_tick_ms() == 100
        bench.pass_time(99)
        assert bench.ends == {"a": [], "b": []}
        bench.pass_time(1)
        assert bench.ends == {"a": ["NETWORK_EXCEPTION"], "b": ["NETWORK_EXCEPTION"]}
        assert bench.reasons == ["the connection to peer was lost: no response in time"] * 2
        assert bench.events == ["ready", "lost"]

    def test_after_disconnecting_it_requests_the_next_connection(self, bench: Bench) -> None:
        bench.pass_time(0)
        bench.peer.silent = True
        bench.ask("a", timeout_ms=100)
        bench.pass_time(100)
        due_ms = bench.link.next_tick_ms()
        assert due_ms == 100 + BETWEEN_NODES.backoff_ms
        bench.peer.silent = False
        bench.pass_time(BETWEEN_NODES.backoff_ms)
        assert bench.link.ready


class TestLoss:
    def test_sent_requests_fail_and_waiting_ones_use_the_next_connection(self, bench: Bench) -> None:
        bench.pass_time(0)
        bench.peer.silent = True
        bench.ask("sent")
        bench.settle()
        bench.links.cut(bench.now())
        assert bench.ends == {"sent": ["NETWORK_EXCEPTION"]}
        assert bench.events == ["ready", "lost"]
        bench.peer.silent = False
        bench.ask("waits")
        bench.pass_time(BETWEEN_NODES.backoff_ms)
        assert bench.ends["waits"] == ["answered node-0"]
        assert bench.peer.asked == ["sent", "waits"]

    def test_a_request_repeated_on_failure_is_not_failed_at_once(self, bench: Bench) -> None:
        bench.pass_time(0)
        bench.peer.silent = True

        def again(error: KafkaError, now: Now) -> None:
            bench.ask("again")

        bench.link.request(wanted("a"), lambda _, now: None, again, now=bench.now(), timeout_ms=1000)
        bench.settle()
        bench.links.cut(bench.now())
        bench.peer.silent = False
        bench.pass_time(BETWEEN_NODES.backoff_ms)
        assert bench.ends == {"again": ["answered node-0"]}

    def test_the_backoff_doubles_up_to_one_second_and_is_reset_by_success(self, bench: Bench) -> None:
        pauses = []
        for _ in range(8):
            bench.pass_time(bench.link.next_tick_ms() - bench.clock_ms, carry=False)  # type: ignore[operator]
            bench.link.lost("refused", bench.now())
            pauses.append(bench.link.next_tick_ms() - bench.clock_ms)  # type: ignore[operator]
        assert pauses == [20, 40, 80, 160, 320, 640, BETWEEN_NODES.backoff_ms_max, BETWEEN_NODES.backoff_ms_max]
        assert bench.events == []
        bench.pass_time(BETWEEN_NODES.backoff_ms_max)
        bench.links.cut(bench.now())
        assert bench.link.next_tick_ms() == bench.clock_ms + BETWEEN_NODES.backoff_ms

    def test_losing_a_lost_link_changes_nothing(self, bench: Bench) -> None:
        bench.pass_time(0)
        bench.links.cut(bench.now())
        bench.link.lost("again", bench.now())
        assert bench.link.next_tick_ms() == BETWEEN_NODES.backoff_ms
        assert bench.events == ["ready", "lost"]

    def test_a_refusal_of_credentials_after_the_connection_was_lost_changes_nothing(self, bench: Bench) -> None:
        bench.pass_time(0)
        bench.link.lost("closed", bench.now())
        bench.link.refuse(KafkaError(ErrorCode.SASL_AUTHENTICATION_FAILED))
        assert not bench.link.closing
        assert bench.link.next_tick_ms() is not None

    def test_a_response_that_its_receiver_cannot_use_ends_the_connection(self, bench: Bench) -> None:
        bench.pass_time(0)

        def refuse(answer: Any, now: Now) -> None:
            raise KafkaError(ErrorCode.OFFSET_NOT_AVAILABLE)

        failures: list[KafkaError] = []
        bench.link.request(wanted("a"), refuse, lambda e, now: failures.append(e), now=bench.now(), timeout_ms=10)
        bench.settle()
        assert not bench.link.ready
        assert failures == []
        assert bench.events == ["ready", "lost"]


_steps = st.lists(
    st.one_of(
        st.tuples(st.just("ask"), st.integers(1, 400)),
        st.tuples(st.just("pass"), st.integers(0, 300)),
        st.tuples(st.just("carry"), st.integers(1, 4)),
        st.tuples(st.just("cut"), st.just(0)),
        st.tuples(st.just("silence"), st.integers(0, 1)),
    ),
    max_size=40,
)


@settings(max_examples=300, deadline=None)
@given(_steps)
def test_each_request_ends_exactly_once(steps: list[tuple[str, int]]) -> None:
    bench = Bench()
    act: dict[str, Callable[[int], object]] = {
        "ask": lambda timeout_ms: bench.ask(f"{len(bench.ends)}", timeout_ms=timeout_ms),
        "pass": lambda ms: bench.pass_time(ms, carry=False),
        "carry": lambda times: [bench.links.carry(bench.now()) for _ in range(times)],
        "cut": lambda _: bench.links.cut(bench.now()),
        "silence": lambda silent: setattr(bench.peer, "silent", bool(silent)),
    }
    for kind, argument in steps:
        act[kind](argument)
        due_ms = bench.link.next_tick_ms()
        assert due_ms is None or bench.node.next_tick_ms() <= due_ms
        assert all(len(ends) <= 1 for ends in bench.ends.values())
    for _ in range(3):
        bench.pass_time(500)
    assert all(len(ends) == 1 for ends in bench.ends.values()), bench.ends


class TestRedirection:
    def test_it_takes_effect_with_the_next_connection(self, bench: Bench) -> None:
        bench.pass_time(0)
        bench.peer.silent = True
        bench.ask("lost on the way")
        bench.settle()
        bench.link.redirect("other")
        assert not bench.link.ready
        bench.ask("waits")
        bench.settle()
        assert bench.ends == {"lost on the way": ["NETWORK_EXCEPTION"], "waits": []}
        bench.pass_time(BETWEEN_NODES.backoff_ms)
        assert bench.ends["waits"] == ["answered node-0"]
        assert (bench.peer.asked, bench.other.asked) == (["lost on the way"], ["waits"])

    def test_redirecting_to_the_current_peer_changes_nothing(self, bench: Bench) -> None:
        bench.pass_time(0)
        bench.link.redirect("peer")
        assert bench.link.ready

    def test_a_connection_attempt_to_the_previous_peer_is_abandoned(self, bench: Bench) -> None:
        bench.pass_time(0, carry=False)
        assert bench.link.wants_connection
        bench.link.redirect("other")
        bench.node.link_connected(bench.link, bench.now())
        assert bench.link.closing
        bench.node.link_lost(bench.link, "hung up", bench.now())
        bench.pass_time(BETWEEN_NODES.backoff_ms)
        bench.ask("a")
        bench.settle()
        assert (bench.peer.asked, bench.other.asked) == ([], ["a"])

    def test_closing_the_connection_does_not_report_a_lost_peer(self, bench: Bench) -> None:
        gone: list[str] = []
        link = bench.node.new_link("peer", on_gone=lambda _: gone.append("gone"))
        bench.pass_time(0)
        link.redirect("other")
        bench.settle()
        assert (link.state, gone) == (LinkState.DOWN, [])
        bench.pass_time(BETWEEN_NODES.backoff_ms)
        assert link.ready
        bench.links.cut(bench.now())
        assert gone == ["gone"]

    def test_a_peer_that_was_never_reached_is_reported_as_gone(self, bench: Bench) -> None:
        gone: list[str] = []
        link = bench.node.new_link("peer", on_gone=lambda _: gone.append("gone"))
        bench.pass_time(0, carry=False)
        bench.node.link_lost(link, "refused", bench.now())
        assert (gone, bench.events) == (["gone"], [])
