"""Remote topics are named, and their sources found again, as by MirrorMaker 2's policies."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raylog.core.errors import ConfigError
from raylog.mirror.policies import IdentityPolicy, NameFilter, RenamingPolicy, ReplicationPolicy

DEFAULT = ReplicationPolicy()
IDENTITY = IdentityPolicy(flow_source="east")
ALIASES = st.sampled_from(["east", "west", "north"])
TOPICS = st.from_regex(r"[a-z][a-z0-9._-]{0,20}", fullmatch=True)


@pytest.mark.parametrize(
    ("topic", "source", "upstream", "original"),
    [
        ("orders", None, None, "orders"),
        ("east.orders", "east", "orders", "orders"),
        ("west.east.orders", "west", "east.orders", "orders"),
        ("orders.", None, None, "orders."),
        (".orders", "", "orders", "orders"),
        ("..", None, None, ".."),
    ],
)
def test_a_remote_name_tells_its_source(topic: str, source: str | None, upstream: str | None, original: str) -> None:
    assert (DEFAULT.source_of(topic), DEFAULT.upstream_topic(topic)) == (source, upstream)
    assert DEFAULT.original_topic(topic) == original


def test_a_separator_of_several_characters_is_taken_off_whole() -> None:
    policy = ReplicationPolicy("--", "--")
    assert policy.remote_topic("east", "a-b") == "east--a-b"
    assert (policy.source_of("east--a-b"), policy.upstream_topic("east--a-b")) == ("east", "a-b")
    assert policy.offset_syncs_topic("west") == "mm2-offset-syncs--west--internal"
    assert policy.is_internal("x--internal")


@given(TOPICS, st.lists(ALIASES, max_size=6), ALIASES)
def test_a_cycle_is_any_hop_that_was_the_target(topic: str, hops: list[str], target: str) -> None:
    topic = topic.replace(".", "-")
    for hop in hops:
        topic = DEFAULT.remote_topic(hop, topic)
    assert DEFAULT.is_cycle(topic, target) is (target in hops)


def test_identical_names_tell_nothing_but_for_heartbeats() -> None:
    assert IDENTITY.remote_topic("east", "west.orders") == "west.orders"
    assert (IDENTITY.source_of("orders"), IDENTITY.upstream_topic("orders")) == ("east", "orders")
    assert not IDENTITY.is_cycle("west.orders", "west")
    assert not IDENTITY.names_source
    assert IDENTITY.remote_topic("east", "heartbeats") == "east.heartbeats"
    assert IDENTITY.is_cycle("west.heartbeats", "west")
    assert IDENTITY.is_heartbeats("west.heartbeats")


def test_a_function_may_give_any_valid_name() -> None:
    policy = RenamingPolicy(rename=lambda source, topic: f"{topic}-of-{source}")
    assert policy.remote_topic("east", "orders") == "orders-of-east"
    assert policy.remote_topic("east", "heartbeats") == "east.heartbeats"
    assert policy.source_of("orders-of-east") is None
    for bad in ("", ".", "..", "a b", "é", "x" * 250):
        with pytest.raises(ConfigError, match="topic 'orders' would be called"):
            RenamingPolicy(rename=lambda source, topic, bad=bad: bad).remote_topic("east", "orders")  # type: ignore[misc]
    with pytest.raises(ConfigError, match="must be a text"):
        RenamingPolicy(rename=lambda source, topic: 5).remote_topic("east", "orders")  # type: ignore[arg-type,return-value]


def test_a_function_that_raises_is_an_error_of_the_topic() -> None:
    with pytest.raises(ConfigError, match=r"fails for topic 'orders': ValueError\(.invalid literal"):
        RenamingPolicy(rename=lambda source, topic: f"{source}-{int(topic)}").remote_topic("east", "orders")


def test_a_name_that_becomes_too_long_is_refused() -> None:
    with pytest.raises(ConfigError, match="254 characters"):
        DEFAULT.remote_topic("east", "x" * 249)


def test_a_filter_matches_whole_names_and_exclusion_wins() -> None:
    found = NameFilter.of(["order.*", "item"], ["orders-old"])
    assert [name for name in ("orders", "items", "item", "orders-old", "my-orders") if name in found] == [
        "orders",
        "item",
    ]
    assert "x" not in NameFilter.of([], [])
    assert "a|b" not in NameFilter.of(["a|b"], [])
    assert "b" in NameFilter.of(["a|b"], [])


def test_each_pattern_of_a_filter_has_its_own_flags_and_groups() -> None:
    found = NameFilter.of(["item", r"(?i)orders.*", r"(.)\1", r"(.)-\1"], [])
    assert [name for name in ("item", "ITEM", "Orders-1", "aa", "ab", "a-a") if name in found] == [
        "item",
        "Orders-1",
        "aa",
        "a-a",
    ]


@pytest.mark.parametrize("pattern", ["[a-z&&[^b]].*", "[[a]b]", "x--[a--b]", "("])
def test_a_pattern_that_is_invalid_or_that_java_may_read_differently_is_refused(pattern: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(repr(pattern))):
        NameFilter.of(["fine", pattern], [])
