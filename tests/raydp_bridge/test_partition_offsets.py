"""Offsets of partitions are printed and parsed as Spark's Kafka source does; others are refused with the reason."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raylog.core.errors import ConfigError
from raylog.core.ids import TopicPartition
from raylog.raydp_bridge.partition_offsets import OFFSET_MAX, listed, parse_offsets, parse_partitions, print_offsets

TPS = st.builds(TopicPartition, st.text(min_size=1, max_size=20), st.integers(0, 1 << 20))


@given(st.dictionaries(TPS, st.integers(-2, OFFSET_MAX)))
def test_printed_offsets_are_parsed_as_they_were(offsets: dict[TopicPartition, int]) -> None:
    text = print_offsets(offsets)
    assert parse_offsets("startingOffsets", text) == offsets
    nested = json.loads(text)
    assert {
        (topic, int(number)): offset for topic, each in nested.items() for number, offset in each.items()
    } == offsets


def test_offsets_are_printed_in_order() -> None:
    offsets = {TopicPartition("b", 2): 1, TopicPartition("b", 10): 2, TopicPartition("a", 0): -1}
    assert print_offsets(offsets) == '{"a":{"0":-1},"b":{"2":1,"10":2}}'


def test_partitions_to_assign_are_parsed_in_order() -> None:
    assert parse_partitions("assign", '{"b":[1,0],"a":[7]}') == (
        TopicPartition("a", 7),
        TopicPartition("b", 0),
        TopicPartition("b", 1),
    )


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("", "must be JSON such as"),
        ("{", "must be JSON such as"),
        ("[" * 100_000, "must be JSON such as"),
        ("[]", "must be JSON such as"),
        ("3", "must be JSON such as"),
        ('{"a":[0]}', "must be JSON such as"),
        ('{"":{"0":1}}', "must be JSON such as"),
        ('{"a":{"0":' + "9" * 5_000 + "}}", "must be JSON such as"),
        ('{"a":{"0":9223372036854775808}}', "a-0: 9223372036854775808 must be an integer between -2 and"),
        ('{"a":{"0":-3}}', "a-0: -3 must be an integer between -2 and 9223372036854775807"),
        ('{"a":{"0":1.5}}', "a-0: 1.5 must be an integer"),
        ('{"a":{"0":true}}', "a-0: True must be an integer"),
        ('{"a":{"0":"7"}}', "a-0: '7' must be an integer"),
        ('{"a":{"0":null}}', "a-0: None must be an integer"),
        ('{"a":{"-1":7}}', "contains '-1', which is not the number of a partition"),
        ('{"a":{"x":7}}', "contains 'x', which is not the number of a partition"),
        ('{"a":{"2147483648":7}}', "contains '2147483648', which is not the number of a partition"),
        ('{"a":{"\u00b2":7}}', "which is not the number of a partition"),
        ('{"a":{"0":1,"00":2}}', "contains a-0 twice"),
        ('{"a":{"0":1},"a":{"0":2}}', "contains the topic 'a' twice"),
    ],
)
def test_an_invalid_text_is_refused_with_key_and_rule(text: str, rule: str) -> None:
    with pytest.raises(ConfigError) as refused:
        parse_offsets("startingOffsets", text)
    assert refused.value.message.startswith("startingOffsets")
    assert rule in refused.value.message
    assert len(refused.value.message) < 400


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("{}", "must contain a partition"),
        ('{"a":[]}', "must contain a partition"),
        ('{"a":{"0":1}}', "must be JSON such as"),
        ('{"a":[true]}', "not the number of a partition"),
        ('{"a":[0,0]}', "contains a partition twice"),
    ],
)
def test_invalid_partitions_are_refused(text: str, rule: str) -> None:
    with pytest.raises(ConfigError, match=rule):
        parse_partitions("assign", text)


def test_a_message_names_the_first_of_many_partitions() -> None:
    assert listed(TopicPartition("t", number) for number in range(1_000)).endswith("t-9 and 990 more")
