"""A login reaches the brokers as it was typed, and adds nothing else to the configuration."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raylog.client.client_config import checked_properties
from raylog.console.logins import anonymous, logged_in, mechanisms, needs_login
from raylog.core.errors import KafkaError
from raylog.core.password import Password
from raylog.security.sasl.jaas import parse_jaas

TLS: dict[str, str | Password] = {"security.protocol": "SASL_SSL", "ssl.truststore.location": "/ca.pem"}
OWN: dict[str, str | Password] = {
    "sasl.mechanism": "SCRAM-SHA-256",
    "sasl.jaas.config": Password("secret"),
    "sasl.login.x": "y",
}
TEXTS = st.text(min_size=1, max_size=40).filter(lambda text: "\0" not in text and text.isprintable())


@given(TEXTS, TEXTS)
def test_names_and_passwords_of_any_characters(user: str, password: str) -> None:
    found = logged_in(TLS, user=user, password=password, mechanism="PLAIN")
    jaas = found["sasl.jaas.config"]
    assert isinstance(jaas, Password)
    assert parse_jaas(jaas.reveal()).options == {"username": user, "password": password}


def test_the_identity_of_the_console_s_own_configuration_is_not_used() -> None:
    assert anonymous({**TLS, **OWN}) == TLS
    found = logged_in({**TLS, **OWN}, user="bob", password="pw", mechanism="SCRAM-SHA-512")
    assert found.keys() == TLS.keys() | {"sasl.mechanism", "sasl.jaas.config"}
    assert "pw" not in str(found)
    assert found["sasl.mechanism"] == "SCRAM-SHA-512"


@pytest.mark.parametrize(
    ("user", "password", "mechanism"),
    [
        ("", "x", "PLAIN"),
        ("x", "", "PLAIN"),
        ("x" * 2000, "x", "PLAIN"),
        ("a\0admin", "x", "PLAIN"),
        ("a", "x", "GSSAPI"),
        ("a", "x", 'PLAIN"; other required'),
    ],
)
def test_refusals(user: str, password: str, mechanism: str) -> None:
    with pytest.raises(KafkaError):
        logged_in(TLS, user=user, password=password, mechanism=mechanism)


def test_a_login_is_needed_where_the_listener_has_sasl() -> None:
    assert [
        needs_login({"security.protocol": name}) for name in ("SASL_SSL", "sasl_plaintext", "SSL", "PLAINTEXT")
    ] == [True, True, False, False]
    assert not needs_login({})


def test_the_mechanism_of_the_configuration_is_offered_first() -> None:
    assert mechanisms({})[0] == "SCRAM-SHA-512"
    assert mechanisms({"sasl.mechanism": "PLAIN"})[0] == "PLAIN"
    assert sorted(mechanisms({})) == ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]


def test_the_properties_are_those_of_a_client() -> None:
    found = logged_in({"security.protocol": "SASL_PLAINTEXT"}, user="bob", password='p"w\\', mechanism="PLAIN")
    assert checked_properties(found)["sasl.mechanism"] == "PLAIN"
