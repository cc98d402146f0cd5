"""Every broker gets the cluster's configuration, with listeners that do not collide."""

from __future__ import annotations

import pickle
from dataclasses import replace

import pytest

from raylog.actors.config_check import check_config
from raylog.actors.given_config import GivenConfig, NewConfig, with_passwords
from raylog.core.errors import ConfigError
from raylog.core.password import Password


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
                given.check_addresses([0, 1])
        else:
            given.check_addresses([0, 1])


def test_a_single_broker_overrides_the_configuration_of_all() -> None:
    given = GivenConfig({"broker.rack": "r", "num.partitions": 3}, 9092, of_single={1: {"broker.rack": "s"}})
    assert given.of_broker(0)["broker.rack"] == "r"
    assert given.of_broker(1) == {
        "broker.rack": "s",
        "num.partitions": 3,
        "listeners": "PLAINTEXT://127.0.0.1:9093",
    }
    own = GivenConfig(port=9092, of_single={1: {"listeners": "PLAINTEXT://h:1"}})
    assert own.of_broker(1) == {"listeners": "PLAINTEXT://h:1"}
    assert own.of_controller() == {"listeners": "PLAINTEXT://127.0.0.1:0"}


def test_controllers_have_no_keys_of_listeners_of_single_brokers() -> None:
    keys = {f"listener.name.{name}.ssl.client.auth": "none" for name in ("internal", "ssl", "sasl_ssl")}
    given = GivenConfig(keys, of_single={0: {"listeners": "SASL_SSL://h:1"}})
    assert given.of_controller().keys() == {"listeners", "listener.name.internal.ssl.client.auth"}
    of_all = GivenConfig({**keys, "listeners": "PLAINTEXT://h:0, SSL://h:0"}).of_controller()
    assert of_all.keys() == {*keys, "listeners"} - {"listener.name.sasl_ssl.ssl.client.auth"}


def test_ports_follow_the_first_id() -> None:
    given = GivenConfig({"node.id": "100"}, 9092, first_broker_id=100)
    assert given.given_first_id() == 100
    assert given.of_broker(102) == {"listeners": "PLAINTEXT://127.0.0.1:9094"}
    assert given.of_controller() == {"listeners": "PLAINTEXT://127.0.0.1:0"}


def test_a_port_gives_controllers_a_listener_for_clients() -> None:
    given = GivenConfig(controller_port=9093)
    texts = given.of_controller(2, "10.0.0.1")
    assert texts["listeners"] == "CONTROLLER://10.0.0.1:9095"
    assert texts["controller.listener.names"] == "CONTROLLER"
    assert texts["listener.security.protocol.map"].endswith(",CONTROLLER:PLAINTEXT")
    assert given.of_broker(0) == {"listeners": "PLAINTEXT://127.0.0.1:0"}
    secure = replace(given, secure=True, controller_port=0).of_controller(2)
    assert secure["listeners"] == "CONTROLLER://127.0.0.1:0"
    assert secure["listener.security.protocol.map"].endswith(",CONTROLLER:SASL_SSL")
    for port in (-1, 65535):
        with pytest.raises(ConfigError, match="must be between 0 and 65534"):
            GivenConfig(controller_port=port).of_controller(1)
    with pytest.raises(ConfigError, match="exclude each other"):
        GivenConfig({"controller.listener.names": "C"}, controller_port=1).of_controller()


def test_a_fixed_port_of_controllers_is_for_one_of_them() -> None:
    texts = {"listeners": "PLAINTEXT://:0, CONTROLLER://:9093", "controller.listener.names": "controller"}
    given = GivenConfig(texts)
    given.check_addresses([0, 1, 2])
    given.check_controller_addresses(1)
    with pytest.raises(ConfigError, match="several controllers cannot share a port"):
        given.check_controller_addresses(3)


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        ({"node.id": 1000}, "node.id='1000': must be below 1000, the id of the first controller"),
        ({"broker.id": "-1"}, "node.id='-1': must be at least 0"),
        ({"node.id": "a"}, "node.id='a': must be a whole number"),
        ({"node.id": 1, "broker.id": 1}, "broker.id and node.id are the same key: set only one of them"),
    ],
)
def test_an_invalid_first_id_is_refused(texts: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError) as refused:
        GivenConfig(texts).given_first_id()
    assert refused.value.message == message


def test_without_an_id_the_first_one_is_that_of_the_directory() -> None:
    assert GivenConfig().given_first_id() is None


@pytest.mark.parametrize("key", ["node.id", "broker.id"])
def test_a_single_broker_cannot_choose_its_id(key: str) -> None:
    with pytest.raises(ConfigError, match=f"{key} cannot be set for a single broker"):
        GivenConfig(of_single={1: {key: 7}}).of_broker(1)


@pytest.mark.parametrize("key", ["unclean.leader.election.enable", "default.replication.factor"])
def test_a_key_for_all_brokers_cannot_be_set_for_a_single_node(key: str) -> None:
    with pytest.raises(ConfigError, match=f"{key} cannot be set for a single broker; set it for all of them"):
        check_config(GivenConfig(of_single={1: {key: "1"}}), [0, 1])
    for node_of in (GivenConfig.of_broker, GivenConfig.of_coordinator):
        assert node_of(GivenConfig({key: "1"}), 1)[key] == "1"
        stored = GivenConfig({key: "1"}, of_single={1: {key: "2"}})
        assert node_of(stored, 1)[key] == "1", "a cluster that an earlier version has started must go on"


def test_an_unknown_broker_is_refused() -> None:
    given = GivenConfig(of_single={2: {"broker.rack": "r"}})
    given.check_ids([1, 2])
    with pytest.raises(ConfigError) as refused:
        given.check_ids([0, 1])
    assert refused.value.message == "broker_config: there is no broker 2; the cluster has 0, 1"


def test_several_brokers_have_fixed_ports_of_their_own() -> None:
    key = "advertised.listeners"
    given = GivenConfig({key: "A://p:1"}, of_single={1: {key: "A://p:2,B://p:0"}, 2: {key: "A://p:3, B://p:0"}})
    given.check_addresses([0, 1, 2])
    with pytest.raises(ConfigError, match="cannot share a port"):
        given.check_addresses([0, 1, 2, 3])
    both = GivenConfig(of_single={1: {key: "A://p:2,B://p:4"}, 2: {key: "A://p:3,B://p:4"}})
    with pytest.raises(ConfigError, match=r"broker 2: .*: broker 1 advertises p:4 too"):
        both.check_addresses([1, 2])


def test_passwords_are_taken_out_and_put_back() -> None:
    given = GivenConfig(
        {"ssl.key.password": Password("hunter2"), "num.partitions": 3},
        of_single={1: {"ssl.key.password": Password("hunter3")}},
    )
    kept, passwords = given.without_passwords()
    assert passwords == {"all:ssl.key.password": "hunter2", "broker-1:ssl.key.password": "hunter3"}
    assert b"hunter" not in pickle.dumps(kept)
    for broker_id, expected in ((0, "hunter2"), (1, "hunter3")):
        found = with_passwords(kept.of_broker(broker_id), passwords)
        assert found == given.of_broker(broker_id)
        assert found["ssl.key.password"].reveal() == expected
    with pytest.raises(ConfigError, match=r"ssl\.key\.password: its value is missing"):
        with_passwords(kept.of_broker(0), {})


def test_passwords_of_two_configurations_have_different_places() -> None:
    old, old_passwords = GivenConfig({"a": Password("1"), "b": Password("2"), "c": Password("3")}).without_passwords()
    new = GivenConfig({"a": Password("1"), "b": Password("20")}, of_single={1: {"b": Password("21")}})
    kept, passwords = new.without_passwords(old_passwords)
    assert passwords == {"all:a": "1", "all:b#2": "20", "broker-1:b": "21"}
    both = {**old_passwords, **passwords}
    assert kept.with_passwords(both) == new
    assert old.with_passwords(both).texts == {"a": Password("1"), "b": Password("2"), "c": Password("3")}
    assert new.without_passwords(both)[1].keys() == passwords.keys()
    _, third = GivenConfig({"b": Password("200")}).without_passwords(both)
    assert third == {"all:b#3": "200"}


def test_a_new_configuration_replaces_the_former_one_and_keeps_the_ports() -> None:
    given = GivenConfig({"num.partitions": 3}, 9092, 7, {8: {"broker.rack": "r"}}, secure=True)

    def changed(config: dict[str, str] | None, single: dict[int, dict[str, str]] | None = None) -> GivenConfig:
        return NewConfig.of(config, single, None, None).applied_to(given)

    assert changed(None) == given
    assert NewConfig(secure=False).applied_to(given) == replace(given, secure=False)
    assert changed({"broker.rack": "s"}) == GivenConfig({"broker.rack": "s"}, 9092, 7, secure=True)
    single = {7: {"broker.rack": "t"}}
    assert changed(None, single) == GivenConfig({}, 9092, 7, single, secure=True)
    listeners = {"listeners": "SSL://:0", "ssl.key.password": "hunter2"}
    assert changed(listeners) == GivenConfig(
        {**listeners, "ssl.key.password": Password("hunter2")}, None, 7, secure=True
    )
    assert "hunter2" not in repr(changed(listeners))
