"""Brokers and controllers are spread over the hosts, and stay where they were placed."""

from __future__ import annotations

from collections import Counter
from typing import ClassVar

from hypothesis import given
from hypothesis import strategies as st

from raylog.actors.given_config import LOOPBACK
from raylog.actors.placement import Host, addresses_in_reach, reachable_addresses, spread

NODES = ["controller-0", "controller-1", "controller-2", "broker-0", "broker-1", "broker-2", "broker-3"]
HOSTS = ["a", "b", "c"]


def test_each_kind_is_spread_over_all_hosts_beginning_with_the_first() -> None:
    assert spread(NODES, HOSTS, {}) == {
        "controller-0": "a",
        "controller-1": "b",
        "controller-2": "c",
        "broker-0": "a",
        "broker-1": "b",
        "broker-2": "c",
        "broker-3": "a",
    }


def test_placed_nodes_stay_and_new_ones_go_to_the_least_loaded_host() -> None:
    known = {"broker-0": "a", "broker-1": "gone", "broker-2": "a"}
    placed = spread(NODES, HOSTS, known)
    assert {node: placed[node] for node in known} == known
    assert placed["broker-3"] == "b"


@given(st.integers(1, 5), st.integers(1, 20), st.dictionaries(st.integers(0, 19), st.sampled_from("abcde")))
def test_hosts_differ_by_at_most_one_node_when_nothing_was_placed(
    host_count: int, node_count: int, known: dict[int, str]
) -> None:
    hosts = list("abcde"[:host_count])
    nodes = [f"broker-{number}" for number in range(node_count)]
    counts = Counter(spread(nodes, hosts, {}).values())
    assert max(counts.values()) - min(counts[host] for host in hosts) <= 1
    kept = {f"broker-{number}": host for number, host in known.items() if number < node_count}
    assert kept.items() <= spread(nodes, hosts, kept).items()


def test_hosts_of_one_machine_need_no_network() -> None:
    one = {name: Host(name, name, "10.0.0.1") for name in HOSTS}
    assert set(reachable_addresses(one).values()) == {LOOPBACK}
    several = {**one, "d": Host("d", "d", "10.0.0.2")}
    assert reachable_addresses(several) == {"a": "10.0.0.1", "b": "10.0.0.1", "c": "10.0.0.1", "d": "10.0.0.2"}


class TestMoreNodes:
    hosts: ClassVar = {name: Host(name, name, address) for name, address in (("a", "m1"), ("b", "m1"), ("c", "m2"))}

    def test_stay_on_their_machine_if_existing_ones_are_not_reachable_from_others(self) -> None:
        assert addresses_in_reach(self.hosts, {"a": LOOPBACK}) == {"a": LOOPBACK, "b": LOOPBACK}
        assert addresses_in_reach(self.hosts, {"c": LOOPBACK}) == {"c": LOOPBACK}
        assert addresses_in_reach(self.hosts, {"gone": LOOPBACK}) == {}

    def test_go_to_all_hosts_if_existing_ones_are_reachable(self) -> None:
        assert addresses_in_reach(self.hosts, {"a": "m1", "gone": LOOPBACK}) == {"a": "m1", "b": "m1", "c": "m2"}
