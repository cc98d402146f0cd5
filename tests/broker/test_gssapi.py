"""A listener with GSSAPI, whose Kerberos library is replaced: requests, raw tokens, and which settings are invalid."""

from __future__ import annotations

from typing import Any

import pytest

from raylog.core.errors import ConfigError, ErrorCode, KafkaError
from raylog.security.principal import Principal
from raylog.security.sasl import kerberos
from raylog.security.sasl.gssapi import GssapiClient, GssContext
from raylog.transport import authentication
from tests.broker.test_sasl import connect, handshake, log_in, serves
from tests.security.sasl.test_gssapi import FakeContext
from tests.support.direct_broker import DirectBroker

PREFIX = "listener.name.sasl_plaintext."
LOGIN = "com.sun.security.auth.module.Krb5LoginModule required useKeyTab=true"
PRINCIPAL = 'keyTab="/k.keytab" principal="kafka/host@R"'
CONFIG: dict[str, Any] = {
    "listeners": "PLAINTEXT://127.0.0.1:9092,SASL_PLAINTEXT://127.0.0.1:9093",
    "sasl.enabled.mechanisms": "GSSAPI",
    f"{PREFIX}gssapi.sasl.jaas.config": f"{LOGIN} {PRINCIPAL};",
    f"{PREFIX}gssapi.connections.max.reauth.ms": 60_000,
}
used: list[tuple[str, str]] = []


class FakeAcceptor:
    default_realm = "R"

    def __init__(self, principal: str, keytab: str) -> None:
        used.append((principal, keytab))

    def new_context(self) -> GssContext:
        return FakeContext(initiator="Alice/admin@R")


@pytest.fixture(autouse=True)
def library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(authentication, "check_package", lambda: None)
    monkeypatch.setattr(authentication, "Acceptor", FakeAcceptor)


def test_a_client_is_authenticated_with_the_short_name_of_its_principal() -> None:
    used.clear()
    rules = "RULE:[2:$1;$2](.*;admin)s/;admin//L,DEFAULT"
    broker = DirectBroker({**CONFIG, "sasl.kerberos.principal.to.local.rules": rules})
    assert used == [("kafka/host@R", "/k.keytab")]
    connection = connect(broker)
    answer = log_in(broker, connection, GssapiClient(FakeContext(initiates=True)))
    assert (answer.error_code, answer.session_lifetime_ms) == (ErrorCode.NONE, 60_000)
    assert connection.client.principal == Principal("User", "alice")
    assert serves(broker, connection)


def test_a_failure_is_reported_and_closes_the_connection() -> None:
    broker = DirectBroker(CONFIG)
    connection = connect(broker)
    client = GssapiClient(FakeContext(initiates=True))
    client.first_message = b"nonsense"
    answer = log_in(broker, connection, client)
    assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert connection.closing


def test_after_a_handshake_of_version_0_the_last_message_has_no_answer() -> None:
    """As in Kafka: the exchange ends with the client's choice, and its next frame is a request."""
    broker = DirectBroker(CONFIG)
    connection = connect(broker)
    handshake(broker, connection, "GSSAPI", version=0)
    answers = []
    for message in (b"token 1", b"", b"wrapped \x01\0\0\0"):
        broker.send_bytes(len(message).to_bytes(4, "big") + message, connection=connection)
        answers.append(b"".join(broker.broker.take_output(connection)))
    assert answers == [b"\0\0\0\x07token 1", b"\0\0\0\x0cwrapped \x01\0\0\0", b""]
    assert connection.client.principal == Principal("User", "Alice")
    assert serves(broker, connection)


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({f"{PREFIX}gssapi.sasl.jaas.config": None}, r"gssapi\.sasl\.jaas\.config: must be set"),
        ({f"{PREFIX}gssapi.sasl.jaas.config": "hunter2"}, "must be one login module"),
        ({f"{PREFIX}gssapi.sasl.jaas.config": f"x.PlainLoginModule required {PRINCIPAL};"}, "must be an entry of com"),
        ({f"{PREFIX}gssapi.sasl.jaas.config": f'{LOGIN} principal="kafka/h@R";'}, "must contain keyTab"),
        ({f"{PREFIX}gssapi.sasl.jaas.config": f'{LOGIN} keyTab="/k";'}, "must contain keyTab"),
        ({"sasl.kerberos.service.name": "other"}, r"sasl\.kerberos\.service\.name: is not that of the principal"),
        (
            {"sasl.kerberos.principal.to.local.rules": "RULE:[1"},
            r"principal\.to\.local\.rules='RULE:\[1': must be DEFAULT",
        ),
    ],
)
def test_an_invalid_configuration(changed: dict[str, Any], reason: str) -> None:
    given = {name: value for name, value in {**CONFIG, **changed}.items() if value is not None}
    with pytest.raises((ConfigError, KafkaError), match=reason) as refused:
        DirectBroker(given)
    assert "hunter2" not in str(refused.value)


def test_a_service_name_that_is_that_of_the_principal() -> None:
    DirectBroker({**CONFIG, "sasl.kerberos.service.name": "kafka"})


def test_a_missing_package_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> None:
        raise ModuleNotFoundError(f"No module named {name!r}")

    monkeypatch.setattr(kerberos, "import_module", missing)
    monkeypatch.setattr(authentication, "check_package", kerberos.check_package)
    with pytest.raises((ConfigError, KafkaError), match="gssapi, of raylog's extra `kerberos`"):
        DirectBroker(CONFIG)
