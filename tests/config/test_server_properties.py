"""A server.properties of Apache Kafka is the configuration of a broker; what it has besides is named, with a reason."""

from __future__ import annotations

from pathlib import Path

import pytest

from raylog.config.properties import parse_properties
from raylog.config.server_properties import IGNORED, of_kafka
from raylog.config.table import BROKER_CONFIG, broker_configs
from raylog.core.errors import ConfigError
from raylog.transport.listeners import plan_controller_listeners, plan_listeners

FILES = Path(__file__).parent / "kafka_files"


def of_file(name: str) -> dict[str, str]:
    return parse_properties((FILES / name).read_text())


@pytest.mark.parametrize(("name", "node_id"), [("server.properties", 1), ("broker.properties", 2)])
def test_the_files_of_kafkas_distribution(name: str, node_id: int) -> None:
    entries = of_file(name)
    found = of_kafka(entries)
    configs = broker_configs(found.config)
    assert configs[BROKER_CONFIG.key("node.id")] == node_id
    clients, internal = plan_listeners(configs)
    assert (clients.name, clients.bind.port, str(clients.advertised)) == ("PLAINTEXT", 9092, "localhost:9092")
    assert internal.internal
    assert len(found.notes) == len(entries) - len(found.config)
    assert {note.partition(" is ignored: ")[0] for note in found.notes} == entries.keys() - found.config.keys()


def test_the_file_of_a_controller_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"process\.roles=controller: is no broker"):
        of_kafka(of_file("controller.properties"))


def test_controllers_open_the_listeners_that_they_have_in_kafka() -> None:
    configs = broker_configs(of_kafka(of_file("server.properties")).config)
    assert [(each.name, each.bind.port) for each in plan_controller_listeners(configs)] == [
        ("CONTROLLER", 9093),
        ("INTERNAL", 0),
    ]


def test_raylogs_own_file_is_left_as_it_is() -> None:
    entries = {"inter.broker.listener.name": "INTERNAL", "listeners": "INTERNAL://:9093,PLAINTEXT://:9092"}
    found = of_kafka(entries)
    assert (found.config, found.notes) == (entries, ())


def test_unknown_keys_are_errors_that_name_the_nearest_key() -> None:
    with pytest.raises(ConfigError, match=r"num\.partition: unknown, .*; did you mean num\.partitions\?"):
        broker_configs(of_kafka({"num.partition": "3"}).config)
    with pytest.raises(
        ConfigError, match=r"remote\.log\.storage\.system\.enable: unknown, or not supported by raylog$"
    ):
        broker_configs(of_kafka({"remote.log.storage.system.enable": "true"}).config)
    with pytest.raises(ConfigError, match=r"unknown, or not supported by raylog$"):
        broker_configs(of_kafka({"n" * 1_000_000: "3"}).config)


def test_no_supported_key_is_ignored() -> None:
    """Except the name of the listener between nodes, of which only Kafka's values are."""
    assert IGNORED.keys() & BROKER_CONFIG.keys.keys() == {"inter.broker.listener.name"}
    assert all(reason and reason[0].islower() and not reason.endswith(".") for reason in IGNORED.values())
