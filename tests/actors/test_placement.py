"""Brokers and controllers are spread over the hosts there are, and stay where they are."""

from __future__ import annotations

from collections import Counter
from typing import ClassVar

from hypothesis import given
from hypothesis import strategies as st

from raylog.actors.given_config import LOOPBACK
from raylog.actors.placement import Host, addresses_in_reach, reachable_addresses, spread

NODES = ["controller-0", "controller-1", "controller-2", "broker-0", "broker-1", "broker-2", "broker-3"]
HOSTS = ["a", "b", "c"]


def test_each_kind_goes_over_all_hosts_and_the_first_host_comes_first() -> None:
    assert spread(NODES, HOSTS, {}) == {
        "controller-0": "a",
        "controller-1": "b",
        "controller-2": "c",
        "broker-0": "a",
        "broker-1": "b",
        "broker-2": "c",
        "broker-3": "a",
    }


def test_what_is_placed_stays_and_what_is_new_goes_where_there_is_least() -> None:
    known = {"broker-0": "a", "broker-1": "gone", "broker-2": "a"}
    placed = spread(NODES, HOSTS, known)
    assert {node: placed[node] for node in known} == known
    assert placed["broker-3"] == "b"


@given(st.integers(1, 5), st.integers(1, 20), st.dictionaries(st.integers(0, 19), st.sampled_from("abcde")))
def test_no_host_has_two_more_than_another_where_nothing_was_known(
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

    def test_go_to_no_other_machine_where_those_that_are_there_cannot_be_reached_from_it(self) -> None:
        assert addresses_in_reach(self.hosts, {"a": LOOPBACK}) == {"a": LOOPBACK, "b": LOOPBACK}
        assert addresses_in_reach(self.hosts, {"c": LOOPBACK}) == {"c": LOOPBACK}
        assert addresses_in_reach(self.hosts, {"gone": LOOPBACK}) == {}

    def test_go_to_all_hosts_where_those_that_are_there_can_be_reached(self) -> None:
        assert addresses_in_reach(self.hosts, {"a": "m1", "gone": LOOPBACK}) == {"a": "m1", "b": "m1", "c": "m2"}
