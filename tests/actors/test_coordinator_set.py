"""How many coordinators a cluster has, their names and ports, and what its data directory keeps of them."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from raylog.actors.config_check import check_config
from raylog.actors.coordinator_set import with_coordinators
from raylog.actors.data_dir import IDENTITY_FILE, ClusterFiles, make_data_dir, open_data_dir, share_data_dir
from raylog.actors.given_config import GivenConfig
from raylog.actors.names import is_broker, is_controller, is_coordinator, is_node, node_id_of, node_name
from raylog.actors.restart_order import restart_order
from raylog.core.errors import ConfigError

PLAIN = GivenConfig({})
PROXIED = GivenConfig({}, of_single={0: {"advertised.listeners": "PLAINTEXT://proxy:9092"}})


def cluster(brokers: int) -> ClusterFiles:
    return ClusterFiles(Path("/data"), "id", "c", b"", brokers, 1)


@pytest.mark.parametrize(
    ("brokers", "given", "group", "transaction", "ids"),
    [
        (1, PLAIN, None, None, []),
        (2, PLAIN, None, None, [2000, 3000]),
        (1, PLAIN, 1, None, [2000]),
        (3, PLAIN, 0, 2, [3000, 3001]),
        (3, PLAIN, 0, 0, []),
        (3, PROXIED, None, None, []),
        (3, PROXIED, 2, None, [2000, 2001]),
    ],
)
def test_one_of_each_from_two_brokers_on_unless_addresses_are_configured(
    brokers: int, given: GivenConfig, group: int | None, transaction: int | None, ids: list[int]
) -> None:
    assert with_coordinators(cluster(brokers), given, group, transaction).coordinator_ids == ids


def test_the_chosen_number_is_kept_until_another_is_chosen() -> None:
    chosen = with_coordinators(cluster(3), PLAIN, 2, 0)
    assert with_coordinators(chosen, PLAIN, None, None).coordinator_ids == [2000, 2001]
    assert with_coordinators(chosen, PLAIN, None, 1).coordinator_ids == [2000, 2001, 3000]


def test_the_data_directory_keeps_it_and_older_ones_have_the_default(tmp_path: Path) -> None:
    files = make_data_dir(str(tmp_path), name="c", brokers=2)
    assert files.coordinator_ids == [2000, 3000]
    share_data_dir(with_coordinators(files, PLAIN, 0, None))
    assert open_data_dir(str(tmp_path), name="c").coordinator_ids == [3000]
    path = tmp_path / IDENTITY_FILE
    earlier = json.loads(path.read_bytes())
    del earlier["group_coordinators"], earlier["transaction_coordinators"]
    path.write_text(json.dumps(earlier))
    assert open_data_dir(str(tmp_path), name="c").coordinator_ids == [2000, 3000]


@pytest.mark.parametrize("count", [-1, 1001, "1", 1.5, True, [1]])
def test_a_damaged_number_is_refused(tmp_path: Path, count: object) -> None:
    make_data_dir(str(tmp_path), name="c", brokers=2)
    path = tmp_path / IDENTITY_FILE
    path.write_text(json.dumps({**json.loads(path.read_bytes()), "group_coordinators": count}))
    with pytest.raises(ConfigError, match="group_coordinators="):
        open_data_dir(str(tmp_path), name="c")


def test_a_retired_coordinator_has_no_place_any_more() -> None:
    placed = replace(cluster(2), hosts={"broker-0": "a", "group-coordinator-0": "b"})
    assert placed.without_nodes(["group-coordinator-0"]).hosts == {"broker-0": "a"}


def test_names_are_those_of_the_role() -> None:
    names = {7: "broker-7", 1002: "controller-2", 2000: "group-coordinator-0", 3011: "transaction-coordinator-11"}
    for node_id, name in names.items():
        assert (node_name(node_id), node_id_of(name)) == (name, node_id)
    kinds = (is_broker, is_controller, is_coordinator, is_node)
    assert [[is_of_kind(name) for is_of_kind in kinds] for name in (*names.values(), "supervisor")] == [
        [True, False, False, True],
        [False, True, False, True],
        [False, False, True, True],
        [False, False, True, True],
        [False, False, False, False],
    ]


def test_they_have_the_listeners_of_brokers_on_free_ports() -> None:
    given = GivenConfig(
        {"listeners": "A://0.0.0.0:9092,B://[::1]:9093 ", "advertised.listeners": "A://proxy:1", "num.partitions": 3},
        of_single={2001: {"listeners": "A://h:9999", "advertised.listeners": "A://proxy:2"}, 0: {"max.connections": 4}},
    )
    assert given.of_coordinator(2000) == {"listeners": "A://0.0.0.0:0,B://[::1]:0", "num.partitions": 3}
    assert given.of_coordinator(2001) == {
        "listeners": "A://h:9999",
        "advertised.listeners": "A://proxy:2",
        "num.partitions": 3,
    }
    assert GivenConfig({}, port=9092).of_coordinator(3000, "10.0.0.1") == {"listeners": "PLAINTEXT://10.0.0.1:0"}


def test_they_have_the_listeners_that_are_set_for_single_brokers() -> None:
    both = "PLAINTEXT://127.0.0.1:0, SASL_SSL://0.0.0.0:9192"
    given = GivenConfig(
        {"listener.name.sasl_ssl.ssl.keystore.location": "/broker.pem"},
        of_single={0: {"listeners": both}, 1: {"listeners": f"{both},B://b.example:9"}},
    )
    assert given.of_coordinator(2000)["listeners"] == "PLAINTEXT://127.0.0.1:0,SASL_SSL://0.0.0.0:0,B://b.example:0"
    on_another_host = "PLAINTEXT://10.0.0.2:0,SASL_SSL://0.0.0.0:0,B://10.0.0.2:0"
    assert given.of_coordinator(2000, "10.0.0.2")["listeners"] == on_another_host


@pytest.mark.parametrize("own", ["listener.name.ssl.ssl.keystore.location", "ssl.keystore.location"])
def test_they_have_no_listener_whose_certificates_are_set_for_single_brokers(own: str) -> None:
    given = GivenConfig({}, of_single={0: {"listeners": "SSL://0.0.0.0:9093", own: "/broker-0.pem"}})
    assert given.of_coordinator(2000)["listeners"] == "PLAINTEXT://127.0.0.1:0"


def test_a_configuration_of_a_coordinator_is_checked_before_the_start() -> None:
    with pytest.raises(ConfigError, match=r"broker 2000: max\.connections='none'"):
        check_config(GivenConfig({}, of_single={2000: {"max.connections": "none"}}), [0, 1])
    GivenConfig({}, of_single={3999: {}}).check_ids([0])
    with pytest.raises(ConfigError, match="there is no broker 4000"):
        GivenConfig({}, of_single={4000: {}}).check_ids([0])


def test_they_are_restarted_last() -> None:
    running = {"group-coordinator-0": False, "controller-0": True, "broker-1": False, "broker-0": False}
    order = restart_order(list(running), running, controllers_first=True)
    assert order == [("controller-0",), ("broker-0",), ("broker-1",), ("group-coordinator-0",)]
