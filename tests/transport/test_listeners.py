"""Listeners follow Kafka's keys, and a configuration that no client could use is refused."""

from __future__ import annotations

import pytest

from raylog.config.table import broker_configs
from raylog.core.errors import ConfigError
from raylog.transport.endpoints import Endpoint, Listener
from raylog.transport.listeners import plan_controller_listeners, plan_listeners, with_last_ports


def plan(**texts: str) -> list[Listener]:
    return plan_listeners(broker_configs({name.replace("_", "."): text for name, text in texts.items()}))


def test_an_internal_listener_always_exists_and_is_last() -> None:
    client, internal = plan(listeners="PLAINTEXT://0.0.0.0:9092")
    assert (client.name, client.internal) == ("PLAINTEXT", False)
    assert (internal.name, internal.internal, internal.bind) == ("INTERNAL", True, Endpoint("127.0.0.1", 0))


def test_a_configured_internal_listener_is_used() -> None:
    planned = plan(
        listeners="INTERNAL://:9093,SASL_SSL://:9092,X://:9094",
        listener_security_protocol_map="X:SASL_PLAINTEXT,INTERNAL:PLAINTEXT,SASL_SSL:SASL_SSL",
    )
    assert [(listener.name, listener.internal, listener.security.value) for listener in planned] == [
        ("SASL_SSL", False, "SASL_SSL"),
        ("X", False, "SASL_PLAINTEXT"),
        ("INTERNAL", True, "PLAINTEXT"),
    ]


def test_the_advertised_endpoint_defaults_to_the_bound_one() -> None:
    (listener, _) = plan(listeners="PLAINTEXT://0.0.0.0:0", advertised_listeners="PLAINTEXT://kafka.example:19092")
    assert listener.advertised_to_clients(Endpoint("0.0.0.0", 4711), host_name="me") == Endpoint("kafka.example", 19092)
    (listener, _) = plan(listeners="PLAINTEXT://:0")
    assert listener.advertised_to_clients(Endpoint("", 4711), host_name="me") == Endpoint("me", 4711)
    (listener, _) = plan(listeners="PLAINTEXT://[::1]:0")
    assert str(listener.advertised_to_clients(Endpoint("::1", 4711), host_name="me")) == "[::1]:4711"


def test_the_last_port_is_remembered_where_any_port_will_do() -> None:
    planned = with_last_ports(plan(listeners="PLAINTEXT://:0"), {"PLAINTEXT": 4711, "INTERNAL": 4712})
    assert [(listener.bind.port, listener.last_port) for listener in planned] == [(0, 4711), (0, 4712)]
    fixed = with_last_ports(plan(listeners="PLAINTEXT://:9092"), {"PLAINTEXT": 4711})
    assert (fixed[0].bind.port, fixed[0].last_port) == (9092, 0)


@pytest.mark.parametrize(
    ("listeners", "ports"),
    [
        ("SSL://:0", [4711, 4713]),
        ("SASL_SSL://:0,SSL://:0", [4711, 4712, 4713]),
        ("SASL_SSL://:0,PLAINTEXT://:0", [4712, 4711, 4713]),
        ("SASL_SSL://:4711,SSL://:0", [0, 4712, 4713]),
        ("SASL_SSL://:9092", [0, 4713]),
    ],
)
def test_a_new_listener_gets_the_port_of_one_that_no_longer_exists(listeners: str, ports: list[int]) -> None:
    planned = with_last_ports(plan(listeners=listeners), {"PLAINTEXT": 4711, "HTTPS": 4712, "INTERNAL": 4713})
    assert [listener.last_port for listener in planned] == ports


def test_controllers_open_the_listeners_of_their_own_in_place_of_brokers() -> None:
    texts = {
        "listeners": "PLAINTEXT://:9092,CONTROLLER://:9093,SSL://:9094",
        "controller.listener.names": "controller, ssl, other",
        "advertised.listeners": "CONTROLLER://h:1,PLAINTEXT://h:2",
        "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL,INTERNAL:PLAINTEXT",
    }
    configs = broker_configs(texts)
    assert [each.name for each in plan_listeners(configs)] == ["PLAINTEXT", "INTERNAL"]
    found = plan_controller_listeners(configs)
    assert [(each.name, each.internal) for each in found] == [("CONTROLLER", False), ("SSL", False), ("INTERNAL", True)]
    assert found[0].advertised == Endpoint("h", 1)
    (only,) = plan_controller_listeners(broker_configs({}))
    assert only.internal


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        ({"listeners": "PLAINTEXT//h:1"}, "must be NAME://host:port"),
        ({"listeners": "PLAINTEXT://h:70000"}, "port up to 65535"),
        ({"listeners": ""}, "at least one listener"),
        ({"listeners": "A://h:1,A://h:2"}, "listeners: lists A twice"),
        ({"listeners": "PLAINTEXT://h:1,INTERNAL://h:1"}, "listeners: lists h:1 twice"),
        (
            {"listeners": "X://h:1"},
            "X has security protocol X, which is none of PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL",
        ),
        ({"listeners": "X://h:1", "listener_security_protocol_map": "X:TLS"}, "X has security protocol TLS"),
        (
            {"listeners": "PLAINTEXT://h:1,INTERNAL://h:2", "listener_security_protocol_map": "INTERNAL:SASL_SSL"},
            "INTERNAL authenticates nodes with the cluster's secret; its protocol must be PLAINTEXT or SSL",
        ),
        (
            {"listeners": "PLAINTEXT://h:1", "advertised_listeners": "OTHER://h:1"},
            "listeners has no OTHER",
        ),
        ({"listeners": "PLAINTEXT://h:1", "inter_broker_listener_name": "PLAINTEXT"}, "must be INTERNAL"),
        ({"listeners": "INTERNAL://h:1"}, "has none but INTERNAL"),
        ({"listeners": "C://h:1", "controller_listener_names": "C"}, "has security protocol C"),
        ({"listeners": "SSL://h:1", "controller_listener_names": "SSL"}, "has none but INTERNAL, SSL"),
        ({"listeners": "SSL://h:1", "controller_listener_names": "internal"}, "INTERNAL is for nodes"),
    ],
)
def test_invalid_listeners_are_refused(texts: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        plan(**texts)
