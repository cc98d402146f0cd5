"""Every broker gets the cluster's configuration, with listeners that do not collide."""

from __future__ import annotations

import pytest

from raylog.actors.given_config import GivenConfig
from raylog.core.errors import ConfigError


def test_ports_are_consecutive_and_other_keys_are_equal() -> None:
    given = GivenConfig({"num.partitions": 3}, 9092)
    assert given.of_broker(0) == {"num.partitions": 3, "listeners": "PLAINTEXT://127.0.0.1:9092"}
    assert given.of_broker(7, "10.0.0.1") == {"num.partitions": 3, "listeners": "PLAINTEXT://10.0.0.1:9099"}


@pytest.mark.parametrize("port", [None, 0])
def test_port_0_applies_to_every_broker(port: int | None) -> None:
    assert GivenConfig(port=port).of_broker(7) == {"listeners": "PLAINTEXT://127.0.0.1:0"}


def test_configured_listeners_are_kept() -> None:
    listeners = {"listeners": "PLAINTEXT://0.0.0.0:0"}
    assert GivenConfig(listeners).of_broker(1, "10.0.0.1") == listeners
    with pytest.raises(ConfigError, match="exclude each other"):
        GivenConfig(listeners, 9092).of_broker(0)


def test_an_invalid_port_is_refused() -> None:
    assert GivenConfig(port=65535).of_broker(0) == {"listeners": "PLAINTEXT://127.0.0.1:65535"}
    with pytest.raises(ConfigError, match=r"between 0 and 65534, since broker 1 listens on port \+ 1"):
        GivenConfig(port=65535).of_broker(1)


@pytest.mark.parametrize(("listeners", "shared"), [("PLAINTEXT://:9092", True), ("PLAINTEXT://:0", False)])
def test_several_brokers_cannot_share_a_port(listeners: str, *, shared: bool) -> None:
    for key in ("listeners", "advertised.listeners"):
        given = GivenConfig({key: listeners})
        if shared:
            with pytest.raises(ConfigError, match="cannot share a port"):
                given.check_several()
        else:
            given.check_several()
