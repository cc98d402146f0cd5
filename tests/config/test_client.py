"""The properties of a Kafka client: which are used, which are ignored, and which are refused."""

from __future__ import annotations

import pytest

from raylog.config.client import client_settings
from raylog.core.errors import ConfigError
from raylog.core.password import Password


def test_without_properties_connections_have_no_protection() -> None:
    settings = client_settings({})
    assert settings.tls is None
    assert settings.sasl_mechanism == ""


@pytest.mark.parametrize(
    ("protocol", "has_tls", "mechanism"),
    [("PLAINTEXT", False, ""), ("SSL", True, ""), ("SASL_PLAINTEXT", False, "PLAIN"), ("SASL_SSL", True, "PLAIN")],
)
def test_the_protocol_decides_which_properties_count(protocol: str, has_tls: bool, mechanism: str) -> None:
    settings = client_settings({"security.protocol": protocol, "sasl.mechanism": "PLAIN"})
    assert (settings.tls is not None, settings.sasl_mechanism) == (has_tls, mechanism)


def test_values_are_those_of_the_java_client() -> None:
    settings = client_settings(
        {
            "bootstrap.servers": "one:9092,two:9092",
            "security.protocol": "SASL_SSL",
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": "/ca.pem",
            "ssl.endpoint.identification.algorithm": "",
            "sasl.mechanism": "GSSAPI",
            "sasl.kerberos.service.name": "kafka",
            "sasl.jaas.config": Password("a module required;"),
        }
    )
    assert settings.bootstrap_servers == "one:9092,two:9092"
    assert settings.tls is not None
    assert (settings.tls.trust.type, settings.tls.trust.location) == ("PEM", "/ca.pem")
    assert not settings.check_host_name
    assert settings.kerberos_service == "kafka"
    assert settings.jaas == Password("a module required;")


@pytest.mark.parametrize(
    "name",
    ["client.id", "retries", "sasl.login.refresh.window.factor", "sasl.kerberos.kinit.cmd", "ssl.protocol", "acks"],
)
def test_properties_without_a_meaning_here_are_ignored(name: str) -> None:
    assert client_settings({name: "anything"}) == client_settings({})


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("security.protocoll", "SSL", "security.protocoll: unknown, or not supported by raylog"),
        (
            "sasl.username",
            "alice",
            "or not supported by raylog; it is set by sasl.jaas.config here, as in Kafka's Java",
        ),
        ("ssl.cafile", "ca.pem", "or not supported by raylog; it is set by ssl.truststore.location here"),
        ("ssl.engine.magic", "x", "ssl.engine.magic: unknown, or not supported by raylog"),
        ("security.protocol", "TLS", "must be one of PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL"),
        ("sasl.mechanism", "LDAP", "must be one of PLAIN, SCRAM-SHA-256"),
        ("ssl.endpoint.identification.algorithm", "ldaps", "must be https or empty"),
        ("sasl.oauthbearer.token.endpoint.url", "ftp://host/", "must be a URL: https:, http: or file:"),
    ],
)
def test_a_property_that_would_not_protect_is_refused(name: str, value: str, message: str) -> None:
    with pytest.raises(ConfigError) as refused:
        client_settings({name: value})
    assert refused.value.message.startswith(name)
    assert message in refused.value.message
