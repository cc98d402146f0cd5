"""Invalid bytes close their own connection: no exception, no memory growth, no effect on other connections."""

from __future__ import annotations

import random
import struct
import tracemalloc
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from raylog.broker.api_handlers import HANDLERS
from raylog.core.errors import ErrorCode
from raylog.protocol.framing import frame
from raylog.protocol.header import encode_request_header
from raylog.protocol.messages.api_versions import ApiVersionsRequest
from raylog.protocol.messages.metadata import MetadataRequest
from raylog.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from raylog.protocol.messages.sasl_handshake import SaslHandshakeRequest
from raylog.protocol.registry import APIS, KAFKA_APIS, ApiSpec
from raylog.security.cluster_secret import MECHANISM, NONCE_BYTES, SecretProver
from raylog.transport.accepted_connection import AcceptedConnection
from tests.support.direct_broker import DirectBroker
from tests.support.direct_cluster import SECRET

_broker = DirectBroker({"auto.create.topics.enable": "false"})
_broker.create_topic("t")


@settings(max_examples=400, deadline=None)
@given(st.binary(min_size=1, max_size=300))
def test_random_bytes(data: bytes) -> None:
    _send_and_check(data)


@settings(max_examples=1500, deadline=None)
@given(st.sampled_from(APIS), st.integers(-1, 20), st.binary(max_size=200))
def test_a_valid_header_with_a_random_body(spec: ApiSpec, version: int, body: bytes) -> None:
    key = spec.key
    head = struct.pack(">hhih", key, version, 1, -1)
    _send_and_check(b"".join(frame([head + body])))


@settings(max_examples=300, deadline=None)
@given(st.sampled_from(APIS), st.data())
def test_hostile_lengths_in_every_position(spec: ApiSpec, data: st.DataObject) -> None:
    version = data.draw(st.integers(spec.lowest, spec.highest))
    words = st.sampled_from([b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff\x0f", b"\x00", b"\x80\x00\x00\x00", b"\x01"])
    body = b"".join(data.draw(st.lists(words, max_size=20)))
    head = encode_request_header(spec.key, version, 1, "x")
    _send_and_check(b"".join(frame([head, body])))


def test_flipped_bits_in_valid_requests() -> None:
    rng = random.Random(4)
    good = b"".join(frame([encode_request_header(3, 12, 1, "x"), b"\x02", bytes(16), b"\x02t", b"\0", b"\1\0\0"]))
    for _ in range(2000):
        bad = bytearray(good)
        for _ in range(rng.randint(1, 4)):
            bad[rng.randrange(4, len(bad))] ^= 1 << rng.randrange(8)
        _send_and_check(bytes(bad))


def test_announced_lengths_allocate_no_memory() -> None:
    connections = []
    tracemalloc.start()
    for _ in range(50):
        connection = _broker.connect()
        _broker.send_bytes(struct.pack(">i", 100_000_000) + b"x" * 10, connection=connection)
        connections.append(connection)
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    for connection in connections:
        _broker.broker.connection_closed(connection, _broker.now())
    assert held < 50 * 40_000


def test_unknown_and_unsupported_requests_close_the_connection() -> None:
    served = set(HANDLERS)
    for key in [*sorted(set(KAFKA_APIS) - served), 999, -5]:
        connection = _broker.connect()
        _broker.send_bytes(b"".join(frame([struct.pack(">hhih", key, 0, 1, -1), b"\0" * 8])), connection=connection)
        assert connection.closing
        _broker.broker.connection_closed(connection, _broker.now())


def test_newer_api_versions_get_a_version_0_response() -> None:
    connection = _broker.connect()
    _broker.send_bytes(b"".join(frame([struct.pack(">hhih", 18, 99, 7, -1), b"whatever"])), connection=connection)
    output = b"".join(connection.take_output())
    assert struct.unpack_from(">iih", output) == (len(output) - 4, 7, ErrorCode.UNSUPPORTED_VERSION)
    (count,) = struct.unpack_from(">i", output, 10)
    assert count == len(HANDLERS)
    assert not connection.closing
    _broker.broker.connection_closed(connection, _broker.now())


class TestInternalListener:
    def test_nothing_is_served_before_authentication(self) -> None:
        connection = _broker.connect(internal=True)
        _broker.send(MetadataRequest(topics=None), connection=connection)
        assert connection.closing
        assert connection.take_output() == []

    def test_the_cluster_secret_authenticates(self) -> None:
        connection = _broker.connect(internal=True)
        _broker.call(ApiVersionsRequest(client_software_name="x", client_software_version="1"), connection=connection)
        prover = SecretProver(SECRET, b"n" * NONCE_BYTES)
        assert _handshake(connection).error_code == ErrorCode.NONE
        challenge = _authenticate(connection, prover.first_message)
        proof = prover.respond(challenge.auth_bytes) or b""
        assert _authenticate(connection, proof).error_code == ErrorCode.NONE
        assert _broker.call(MetadataRequest(topics=None), connection=connection).brokers

    def test_a_wrong_secret_gets_an_error_and_a_closed_connection(self) -> None:
        connection = _broker.connect(internal=True)
        _handshake(connection)
        prover = SecretProver(b"w" * 32, b"n" * NONCE_BYTES)
        challenge = _authenticate(connection, prover.first_message)
        assert len(challenge.auth_bytes) == 64
        sent = _broker.send(SaslAuthenticateRequest(auth_bytes=b"\0" * 32), connection=connection)
        _broker.pass_time(100)  # connection.failed.authentication.delay.ms
        refused = _broker.answer(sent, connection=connection)
        assert refused.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        assert connection.closing

    def test_another_mechanism_is_refused(self) -> None:
        connection = _broker.connect(internal=True)
        answer = _broker.call(SaslHandshakeRequest(mechanism="PLAIN"), connection=connection)
        assert answer.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM
        assert answer.mechanisms == (MECHANISM,)

    def test_a_client_listener_has_no_authentication(self) -> None:
        connection = _broker.connect()
        assert _handshake(connection).error_code == ErrorCode.ILLEGAL_SASL_STATE


def _handshake(connection: AcceptedConnection) -> Any:
    return _broker.call(SaslHandshakeRequest(mechanism=MECHANISM), connection=connection)


def _authenticate(connection: AcceptedConnection, message: bytes) -> Any:
    return _broker.call(SaslAuthenticateRequest(auth_bytes=message), connection=connection)


def _send_and_check(data: bytes) -> None:
    """The broker survives `data`, and serves another connection as before."""
    connection = _broker.connect()
    _broker.send_bytes(data, connection=connection)
    connection.take_output()
    _broker.broker.connection_closed(connection, _broker.now())
    assert len(_broker.broker.delayed) == 0
    witness = _broker.connect()
    assert _broker.call(MetadataRequest(topics=()), version=1, connection=witness).brokers
    _broker.broker.connection_closed(witness, _broker.now())
