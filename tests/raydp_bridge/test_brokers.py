"""The arguments of a read or a write name the brokers of one cluster, once or several times."""

from __future__ import annotations

from typing import Any

import pytest

from raylog.client.bootstrap import Bootstrap, resolvers
from raylog.core.errors import ConfigError
from raylog.raydp_bridge.brokers import given_brokers

ONE, OTHER = {"bootstrap.servers": "one:9092"}, {"bootstrap.servers": "other:9092"}


@pytest.mark.parametrize(
    "arguments",
    [
        {"bootstrap_servers": "one:9092", "client_config": None},
        {"bootstrap_servers": None, "client_config": ONE},
        {"bootstrap_servers": "one:9092", "client_config": {"bootstrap.servers": ""}},
        {"bootstrap_servers": "one:9092", "client_config": ONE, "producer_config": ONE},
        {"bootstrap_servers": None, "client_config": ONE, "producer_config": ONE},
    ],
)
def test_equal_servers_may_be_repeated(arguments: dict[str, Any]) -> None:
    assert given_brokers(**arguments).bootstrap_servers == "one:9092"


def test_a_configuration_may_name_the_brokers_of_an_earlier_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(resolvers, "ray", lambda _: Bootstrap("two:9092,one:9092"))
    for servers in ("two:9092, one:9092", "ray://shop"):
        assert given_brokers(servers, ONE).properties == ONE
    assert given_brokers("one:9092", {"bootstrap.servers": "ray://shop"}).bootstrap_servers == "one:9092"
    with pytest.raises(
        ConfigError, match="'other:9092' in client_config: names other brokers than 'two:9092,one:9092'"
    ):
        given_brokers("ray://shop", OTHER)


@pytest.mark.parametrize(
    ("arguments", "argument"),
    [
        ({"bootstrap_servers": "one:9092", "client_config": OTHER}, "client_config"),
        ({"bootstrap_servers": "one:9092", "client_config": None, "producer_config": OTHER}, "producer_config"),
        ({"bootstrap_servers": None, "client_config": ONE, "producer_config": OTHER}, "producer_config"),
    ],
)
def test_different_servers_are_refused(arguments: dict[str, Any], argument: str) -> None:
    with pytest.raises(
        ConfigError, match=f"bootstrap.servers='other:9092' in {argument}: names other brokers than 'one:9092'"
    ):
        given_brokers(**arguments)
