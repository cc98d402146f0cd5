"""A listener with SASL: who has authenticated, for how long, and what is served before, without sockets."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from raylog.core.errors import ConfigError, ErrorCode, KafkaError
from raylog.core.password import Password
from raylog.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from raylog.protocol.messages.api_versions import ApiVersionsRequest
from raylog.protocol.messages.describe_user_scram_credentials import DescribeUserScramCredentialsRequest, UserName
from raylog.protocol.messages.metadata import MetadataRequest
from raylog.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from raylog.protocol.messages.sasl_handshake import SaslHandshakeRequest
from raylog.security.principal import Principal
from raylog.security.sasl.mechanism import SaslClient
from raylog.security.sasl.plain import PlainClient
from raylog.security.sasl.scram import ScramClient, ScramMechanism, salted_password
from raylog.transport.accepted_connection import AcceptedConnection
from tests.support.direct_broker import DirectBroker

PLAIN_LOGIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"
PREFIX = "listener.name.sasl_plaintext."
CONFIG: dict[str, Any] = {
    "listeners": "PLAINTEXT://127.0.0.1:9092,SASL_PLAINTEXT://127.0.0.1:9093",
    "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
    f"{PREFIX}plain.sasl.jaas.config": f'{PLAIN_LOGIN} user_alice="wonderland" user_bob="builder";',
    f"{PREFIX}connections.max.reauth.ms": 60_000,
    f"{PREFIX}scram-sha-512.connections.max.reauth.ms": 0,
}
SALT = b"0123456789"
calls: list[tuple[str, str]] = []


def check_password(user: str, password: str) -> bool:
    """Named in the configuration of a test."""
    calls.append((user, password))
    if user == "broken":
        raise RuntimeError("no connection to the directory")
    if user == "exit":
        sys.exit("no connection to the directory")
    return password == user[::-1]


@pytest.fixture
def broker() -> DirectBroker:
    return DirectBroker(CONFIG)


def connect(broker: DirectBroker) -> AcceptedConnection:
    return broker.connect(listener_name="SASL_PLAINTEXT")


def handshake(broker: DirectBroker, connection: AcceptedConnection, mechanism: str, *, version: int = 1) -> Any:
    return broker.call(SaslHandshakeRequest(mechanism=mechanism), version=version, connection=connection)


def say(broker: DirectBroker, connection: AcceptedConnection, message: bytes, *, version: int = 2) -> Any:
    """The answer to one message, which is delayed if it is an error."""
    sent = broker.send(SaslAuthenticateRequest(auth_bytes=message), version=version, connection=connection)
    answer = broker.answer(sent, connection=connection)
    if answer is None:
        broker.pass_time(100)
        answer = broker.answer(sent, connection=connection)
    return answer


def log_in(broker: DirectBroker, connection: AcceptedConnection, client: SaslClient) -> Any:
    """The last answer of the broker."""
    assert handshake(broker, connection, client.mechanism).error_code == ErrorCode.NONE
    answer = say(broker, connection, client.first_message)
    while answer.error_code == ErrorCode.NONE:
        message = client.respond(bytes(answer.auth_bytes))
        if message is None:
            break
        answer = say(broker, connection, message)
    return answer


def serves(broker: DirectBroker, connection: AcceptedConnection) -> bool:
    sent = broker.send(MetadataRequest(topics=None), connection=connection)
    return not connection.closing and broker.answer(sent, connection=connection) is not None


def scram(user: str, password: str, mechanism: ScramMechanism = ScramMechanism.SHA_256) -> ScramClient:
    return ScramClient(mechanism, user, Password(password), nonce=b"of the client")


def upsertion(user: str, password: str, *, mechanism: int = 1, **changed: Any) -> ScramCredentialUpsertion:
    salted = salted_password(ScramMechanism(mechanism), password, SALT, 4096) if mechanism in (1, 2) else b"x" * 32
    given = {"iterations": 4096, "salt": SALT, "salted_password": salted, **changed}
    return ScramCredentialUpsertion(name=user, mechanism=mechanism, **given)


def alter(broker: DirectBroker, *upsertions: ScramCredentialUpsertion, delete: Any = ()) -> dict[str, ErrorCode]:
    deletions = tuple(ScramCredentialDeletion(name=user, mechanism=mechanism) for user, mechanism in delete)
    sent = broker.send(AlterUserScramCredentialsRequest(deletions=deletions, upsertions=upsertions))
    broker.settle()
    answer = broker.answer(sent)
    return {result.user: result.error_code for result in answer.results}


def described(broker: DirectBroker, *users: str) -> Any:
    wanted = tuple(UserName(name=user) for user in users)
    return broker.call(DescribeUserScramCredentialsRequest(users=wanted or None)).results


class TestBefore:
    """Before authentication only ApiVersions and the SASL requests are served."""

    def test_api_versions_is_served(self, broker: DirectBroker) -> None:
        connection = connect(broker)
        request = ApiVersionsRequest(client_software_name="x", client_software_version="1")
        assert broker.call(request, connection=connection).api_keys
        assert log_in(broker, connection, PlainClient("alice", Password("wonderland"))).error_code == ErrorCode.NONE
        assert serves(broker, connection)

    def test_any_other_request_closes_the_connection(self, broker: DirectBroker) -> None:
        connection = connect(broker)
        assert not serves(broker, connection)
        assert connection.closing
        assert connection.take_output() == []

    def test_between_the_steps_too(self, broker: DirectBroker) -> None:
        connection = connect(broker)
        handshake(broker, connection, "SCRAM-SHA-256")
        say(broker, connection, scram("alice", "pencil").first_message)
        assert not serves(broker, connection)

    def test_an_exchange_without_handshake_is_refused(self, broker: DirectBroker) -> None:
        connection = connect(broker)
        assert say(broker, connection, b"\0alice\0wonderland").error_code == ErrorCode.ILLEGAL_SASL_STATE
        assert connection.closing

    def test_an_unknown_mechanism_is_refused_with_those_that_are_offered(self, broker: DirectBroker) -> None:
        connection = connect(broker)
        answer = handshake(broker, connection, "ANONYMOUS")
        assert answer.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM
        assert answer.mechanisms == ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
        assert connection.closing

    def test_a_second_handshake_in_an_exchange_is_refused(self, broker: DirectBroker) -> None:
        connection = connect(broker)
        handshake(broker, connection, "PLAIN")
        assert handshake(broker, connection, "PLAIN").error_code == ErrorCode.ILLEGAL_SASL_STATE
        assert connection.closing

    def test_a_large_request_closes_the_connection(self, broker: DirectBroker) -> None:
        connection = connect(broker)
        handshake(broker, connection, "PLAIN")
        broker.send_bytes((524_289).to_bytes(4, "big"), connection=connection)
        assert connection.closing

    def test_a_large_request_is_served_afterwards(self, broker: DirectBroker) -> None:
        connection = connect(broker)
        log_in(broker, connection, PlainClient("alice", Password("wonderland")))
        broker.send_bytes((600_000).to_bytes(4, "big"), connection=connection)
        assert not connection.closing

    def test_a_client_that_does_not_log_in_is_disconnected(self, broker: DirectBroker) -> None:
        silent, half = connect(broker), connect(broker)
        handshake(broker, half, "PLAIN")
        logged_in = connect(broker)
        log_in(broker, logged_in, PlainClient("alice", Password("wonderland")))
        broker.pass_time(25_000)
        assert not silent.closing
        broker.pass_time(15_000)
        assert silent.close_reason == half.close_reason == "not authenticated within 30 s"
        assert serves(broker, logged_in)

    def test_listeners_without_sasl_offer_none(self, broker: DirectBroker) -> None:
        answer = broker.call(SaslHandshakeRequest(mechanism="PLAIN"), version=1)
        assert (answer.error_code, answer.mechanisms) == (ErrorCode.ILLEGAL_SASL_STATE, ())
        assert serves(broker, broker.connection)


class TestPlain:
    def test_a_user_of_the_configuration(self, broker: DirectBroker) -> None:
        connection = connect(broker)
        answer = log_in(broker, connection, PlainClient("bob", Password("builder")))
        assert (answer.error_code, answer.session_lifetime_ms) == (ErrorCode.NONE, 60_000)
        assert connection.client.principal == Principal("User", "bob")
        assert serves(broker, connection)

    def test_a_failure_is_told_after_a_delay_and_closes_the_connection(self, broker: DirectBroker) -> None:
        connection = connect(broker)
        handshake(broker, connection, "PLAIN")
        sent = broker.send(SaslAuthenticateRequest(auth_bytes=b"\0bob\0wonderland"), connection=connection)
        assert not serves(broker, connection), "what the client sends meanwhile is not read"
        broker.pass_time(98)
        assert broker.answer(sent, connection=connection) is None
        broker.pass_time(2)
        answer = broker.answer(sent, connection=connection)
        assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        assert answer.error_message == "Authentication failed: Invalid username or password"
        assert connection.closing

    def test_a_client_that_leaves_during_the_delay_is_forgotten(self, broker: DirectBroker) -> None:
        connection = connect(broker)
        handshake(broker, connection, "PLAIN")
        broker.send(SaslAuthenticateRequest(auth_bytes=b"\0bob\0wonderland"), connection=connection)
        broker.broker.connection_closed(connection, broker.now())
        assert len(broker.broker.delayed) == 0
        broker.pass_time(200)

    @pytest.mark.parametrize(("user", "password", "works"), [("carol", "lorac", True), ("carol", "carol", False)])
    def test_a_function_of_the_operator(self, user: str, password: str, works: bool) -> None:
        handler = {f"{PREFIX}plain.sasl.server.callback.handler.class": f"{__name__}:check_password"}
        broker = DirectBroker({**CONFIG, **handler})
        connection = connect(broker)
        calls.clear()
        answer = log_in(broker, connection, PlainClient(user, Password(password)))
        assert calls == [(user, password)]
        assert (answer.error_code == ErrorCode.NONE) is works
        assert connection.closing is not works

    @pytest.mark.parametrize("user", ["broken", "exit"])
    def test_a_function_that_fails_authenticates_nobody(self, user: str, caplog: pytest.LogCaptureFixture) -> None:
        handler = {f"{PREFIX}plain.sasl.server.callback.handler.class": f"{__name__}:check_password"}
        broker = DirectBroker({**CONFIG, **handler})
        connection = connect(broker)
        answer = log_in(broker, connection, PlainClient(user, Password("secret")))
        assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        assert "no connection to the directory" in caplog.text
        assert "no connection" not in answer.error_message


class TestRawTokens:
    """After SaslHandshake v0 the messages come in frames of their own."""

    def test_authenticate(self, broker: DirectBroker) -> None:
        connection = connect(broker)
        handshake(broker, connection, "SCRAM-SHA-256", version=0)
        alter(broker, upsertion("alice", "pencil"))
        client = scram("alice", "pencil")
        message: bytes | None = client.first_message
        while message is not None:
            broker.send_bytes(len(message).to_bytes(4, "big") + message, connection=connection)
            answer = b"".join(broker.broker.take_output(connection))
            assert int.from_bytes(answer[:4], "big") == len(answer) - 4
            message = client.respond(answer[4:])
        assert connection.client.principal == Principal("User", "alice")
        assert serves(broker, connection)

    def test_an_empty_answer_is_an_empty_frame(self, broker: DirectBroker) -> None:
        connection = connect(broker)
        handshake(broker, connection, "PLAIN", version=0)
        broker.send_bytes(b"\0\0\0\x0e\0bob\0builder\0"[:3] + b"\x0c\0bob\0builder", connection=connection)
        assert b"".join(broker.broker.take_output(connection)) == b"\0\0\0\0"
        assert serves(broker, connection)

    @pytest.mark.parametrize("token", [b"", b"x", b"\0bob\0wrong"])
    def test_a_failure_closes_the_connection_without_an_answer(self, broker: DirectBroker, token: bytes) -> None:
        connection = connect(broker)
        handshake(broker, connection, "PLAIN", version=0)
        broker.send_bytes(len(token).to_bytes(4, "big") + token, connection=connection)
        broker.pass_time(100)
        assert connection.closing
        assert broker.broker.take_output(connection) == []


class TestReauthentication:
    """KIP-368: a session ends unless the client authenticates again, on the same connection and as the same user."""

    def test_a_session_ends(self, broker: DirectBroker) -> None:
        connection = connect(broker)
        log_in(broker, connection, PlainClient("bob", Password("builder")))
        broker.pass_time(59_000)
        assert serves(broker, connection)
        broker.pass_time(1_000)
        assert not serves(broker, connection)
        assert "session had expired" in (connection.close_reason or "")

    def test_it_is_prolonged(self, broker: DirectBroker) -> None:
        connection = connect(broker)
        for _ in range(3):
            answer = log_in(broker, connection, PlainClient("bob", Password("builder")))
            assert (answer.error_code, answer.session_lifetime_ms) == (ErrorCode.NONE, 60_000)
            broker.pass_time(59_000)
            assert serves(broker, connection)

    def test_an_expired_session_can_be_prolonged(self, broker: DirectBroker) -> None:
        connection = connect(broker)
        log_in(broker, connection, PlainClient("bob", Password("builder")))
        broker.pass_time(70_000)
        assert log_in(broker, connection, PlainClient("bob", Password("builder"))).error_code == ErrorCode.NONE
        assert serves(broker, connection)

    def test_requests_are_served_meanwhile(self, broker: DirectBroker) -> None:
        connection = connect(broker)
        log_in(broker, connection, PlainClient("bob", Password("builder")))
        broker.pass_time(2_000)
        handshake(broker, connection, "PLAIN")
        assert serves(broker, connection)
        assert say(broker, connection, b"\0bob\0builder").error_code == ErrorCode.NONE

    def test_its_messages_are_one_authentication(self, broker: DirectBroker) -> None:
        alter(broker, upsertion("alice", "pencil"))
        connection = connect(broker)
        for _ in range(2):
            client = scram("alice", "pencil")
            handshake(broker, connection, client.mechanism)
            first = say(broker, connection, client.first_message)
            final = client.respond(bytes(first.auth_bytes))
            assert final is not None
            last = say(broker, connection, final)
            assert [each.session_lifetime_ms for each in (first, last)] == [0, 60_000]
            broker.pass_time(2_000)
        assert connection.counts.authenticated == 2

    def test_not_as_somebody_else(self, broker: DirectBroker) -> None:
        connection = connect(broker)
        log_in(broker, connection, PlainClient("bob", Password("builder")))
        broker.pass_time(2_000)
        answer = log_in(broker, connection, PlainClient("alice", Password("wonderland")))
        assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        assert "Cannot change principals" in answer.error_message
        assert connection.closing
        assert connection.client.principal == Principal("User", "bob")

    def test_not_by_another_mechanism_and_not_at_once(self, broker: DirectBroker) -> None:
        connection = connect(broker)
        log_in(broker, connection, PlainClient("bob", Password("builder")))
        assert handshake(broker, connection, "PLAIN").error_code == ErrorCode.ILLEGAL_SASL_STATE
        broker.pass_time(2_000)
        assert handshake(broker, connection, "SCRAM-SHA-256").error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM

    def test_a_mechanism_has_a_limit_of_its_own(self, broker: DirectBroker) -> None:
        alter(broker, upsertion("alice", "pencil", mechanism=2))
        connection = connect(broker)
        answer = log_in(broker, connection, scram("alice", "pencil", ScramMechanism.SHA_512))
        assert (answer.error_code, answer.session_lifetime_ms) == (ErrorCode.NONE, 0)
        broker.pass_time(500_000)
        assert serves(broker, connection)


class TestScram:
    def test_a_user_of_the_metadata_log(self, broker: DirectBroker) -> None:
        assert alter(broker, upsertion("alice", "pencil")) == {"alice": ErrorCode.NONE}
        connection = connect(broker)
        assert log_in(broker, connection, scram("alice", "pencil")).error_code == ErrorCode.NONE
        assert connection.client.principal == Principal("User", "alice")
        refused = log_in(broker, connect(broker), scram("alice", "pencil", ScramMechanism.SHA_512))
        assert refused.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED, "she has a credential of the other kind"

    def test_a_changed_password_and_a_deleted_user_bind_the_next_login(self, broker: DirectBroker) -> None:
        alter(broker, upsertion("alice", "pencil"))
        connection = connect(broker)
        log_in(broker, connection, scram("alice", "pencil"))
        alter(broker, upsertion("alice", "pen"))
        assert log_in(broker, connect(broker), scram("alice", "pencil")).error_code != ErrorCode.NONE
        assert log_in(broker, connect(broker), scram("alice", "pen")).error_code == ErrorCode.NONE
        assert alter(broker, delete=[("alice", 1)]) == {"alice": ErrorCode.NONE}
        assert log_in(broker, connect(broker), scram("alice", "pen")).error_code != ErrorCode.NONE
        assert serves(broker, connection), "as in Kafka, connections stay until they must authenticate again"
        broker.pass_time(60_000)
        assert log_in(broker, connection, scram("alice", "pen")).error_code != ErrorCode.NONE

    def test_credentials_survive_a_restart_and_a_snapshot(self, broker: DirectBroker) -> None:
        alter(broker, upsertion("alice", "pencil"), upsertion("bob", "builder", mechanism=2))
        alter(broker, delete=[("bob", 2)])
        broker.restart()
        assert [result.user for result in described(broker)] == ["alice"]
        assert log_in(broker, connect(broker), scram("alice", "pencil")).error_code == ErrorCode.NONE

    def test_description(self, broker: DirectBroker) -> None:
        assert described(broker) == ()
        alter(broker, upsertion("b", "x", iterations=8192), upsertion("a", "x", mechanism=2), upsertion("a", "x"))
        shown = {
            result.user: [(info.mechanism, info.iterations) for info in result.credential_infos]
            for result in described(broker)
        }
        assert shown == {"a": [(1, 4096), (2, 4096)], "b": [(1, 8192)]}
        codes = [result.error_code for result in described(broker, "a", "nobody", "b", "b")]
        assert codes == [ErrorCode.NONE, ErrorCode.RESOURCE_NOT_FOUND, ErrorCode.DUPLICATE_RESOURCE]

    @pytest.mark.parametrize(
        ("change", "code"),
        [
            (upsertion("", "x"), ErrorCode.UNACCEPTABLE_CREDENTIAL),
            (upsertion("u" * 1001, "x"), ErrorCode.UNACCEPTABLE_CREDENTIAL),
            (upsertion("u", "x", mechanism=0), ErrorCode.UNSUPPORTED_SASL_MECHANISM),
            (upsertion("u", "x", mechanism=-1), ErrorCode.UNSUPPORTED_SASL_MECHANISM),
            (upsertion("u", "x", iterations=4095), ErrorCode.UNACCEPTABLE_CREDENTIAL),
            (upsertion("u", "x", iterations=16_385), ErrorCode.UNACCEPTABLE_CREDENTIAL),
            (upsertion("u", "x", iterations=-1), ErrorCode.UNACCEPTABLE_CREDENTIAL),
            (upsertion("u", "x", salt=b""), ErrorCode.UNACCEPTABLE_CREDENTIAL),
            (upsertion("u", "x", salt=b"s" * 1001), ErrorCode.UNACCEPTABLE_CREDENTIAL),
            (upsertion("u", "x", salted_password=b""), ErrorCode.UNACCEPTABLE_CREDENTIAL),
            (upsertion("u", "x", salted_password=b"x" * 64), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        ],
    )
    def test_an_unacceptable_credential(
        self, broker: DirectBroker, change: ScramCredentialUpsertion, code: ErrorCode
    ) -> None:
        other = upsertion("other", "x")
        assert alter(broker, change, other) == {change.name: code, "other": ErrorCode.NONE}
        assert [result.user for result in described(broker)] == ["other"]

    def test_one_user_twice_in_a_request(self, broker: DirectBroker) -> None:
        twice = upsertion("a", "x"), upsertion("a", "y"), upsertion("a", "z", mechanism=2)
        assert alter(broker, *twice) == {"a": ErrorCode.DUPLICATE_RESOURCE}
        assert alter(broker, upsertion("a", "x"), delete=[("a", 1)]) == {"a": ErrorCode.RESOURCE_NOT_FOUND}
        assert described(broker) == ()

    def test_too_many_changes_are_refused_before_the_first(self, broker: DirectBroker) -> None:
        many = [upsertion(f"u{number}", "x", salted_password=b"x" * 32) for number in range(3)] * 3334
        assert set(alter(broker, *many).values()) == {ErrorCode.POLICY_VIOLATION}
        assert described(broker) == ()

    def test_a_user_that_does_not_exist_cannot_be_deleted(self, broker: DirectBroker) -> None:
        assert alter(broker, delete=[("nobody", 1)]) == {"nobody": ErrorCode.RESOURCE_NOT_FOUND}


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        ({"sasl.enabled.mechanisms": "MAGIC"}, "must be one or more of"),
        ({"sasl.enabled.mechanisms": ""}, "must be one or more of"),
        ({f"{PREFIX}plain.sasl.jaas.config": None}, "sasl.jaas.config: must be set"),
        ({f"{PREFIX}plain.sasl.jaas.config": "hunter2"}, r"plain.sasl.jaas.config: must be one login module"),
        ({f"{PREFIX}plain.sasl.jaas.config": f"{PLAIN_LOGIN} username=hunter2;"}, "at least one user_"),
        ({f"{PREFIX}plain.sasl.jaas.config": f"{PLAIN_LOGIN} user_=hunter2;"}, "none of it empty"),
        ({"sasl.jaas.config": f"{PLAIN_LOGIN} user_a=hunter2;"}, r"must be set as listener.name.<name>.<mechanism>"),
        ({f"{PREFIX}sasl.jaas.config": f"{PLAIN_LOGIN} user_a=hunter2;"}, r"must be set as listener.name"),
        ({f"{PREFIX}plain.max.connections": "1"}, "cannot be set for a single SASL mechanism"),
        ({f"{PREFIX}magic.sasl.jaas.config": "hunter2"}, "unknown, or not supported"),
        ({f"{PREFIX}plain.sasl.server.callback.handler.class": "no_such_module:f"}, "cannot be imported"),
        ({f"{PREFIX}plain.sasl.server.callback.handler.class": "os:no_such"}, "cannot be imported"),
        ({f"{PREFIX}plain.sasl.server.callback.handler.class": "os:sep"}, "is not a function"),
        ({f"{PREFIX}plain.sasl.server.callback.handler.class": "os.sep"}, "must be module:name"),
    ],
)
def test_an_invalid_configuration(config: dict[str, Any], reason: str) -> None:
    given = {name: value for name, value in {**CONFIG, **config}.items() if value is not None}
    with pytest.raises((ConfigError, KafkaError), match=reason) as refused:
        DirectBroker(given)
    assert "hunter" not in str(refused.value)
