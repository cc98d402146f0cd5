"""A plan moves as little as possible, spreads over brokers and racks evenly, and has the format of Kafka's tools."""

from __future__ import annotations

import json
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raylog.client.reassignment_plan import (
    Plan,
    ThrottledReplicas,
    emptied,
    format_plan,
    parse_plan,
    spread,
    throttled_replicas,
)
from raylog.core.errors import ErrorCode, KafkaError
from raylog.core.ids import TopicPartition


def plan_of(*replicas: tuple[int, ...], topic: str = "t") -> Plan:
    return {TopicPartition(topic, number): each for number, each in enumerate(replicas)}


def without_racks(*brokers: int) -> dict[int, str | None]:
    return dict.fromkeys(brokers)


class TestFormat:
    def test_kafkas_own_plans(self) -> None:
        text = '{"version":1,"partitions":[{"topic":"t","partition":1,"replicas":[2,0],"log_dirs":["any","any"]}]}'
        plan = parse_plan(text)
        assert plan == {TopicPartition("t", 1): (2, 0)}
        assert json.loads(format_plan(plan)) == json.loads(text)
        assert parse_plan('{"version":1,"partitions":[{"topic":"t","partition":1,"replicas":[2,0]}]}') == plan

    @pytest.mark.parametrize(
        "partitions",
        [
            "[]",
            '[{"topic":"t","partition":0,"replicas":[]}]',
            '[{"topic":"t","partition":0,"replicas":[1,1]}]',
            '[{"topic":"t","partition":0,"replicas":[true]}]',
            '[{"topic":"t","partition":"0","replicas":[1]}]',
            '[{"topic":7,"partition":0,"replicas":[1]}]',
            '[{"topic":"t","partition":0,"replicas":[1],"log_dirs":["/data"]}]',
            '[{"topic":"t","partition":0,"replicas":[1]},{"topic":"t","partition":0,"replicas":[2]}]',
            '[{"topic":"t","partition":0}]',
            '["t"]',
            "7",
        ],
    )
    def test_an_invalid_plan_is_refused(self, partitions: str) -> None:
        for text in (
            f'{{"version":1,"partitions":{partitions}}}',
            "no json",
            "[" * 100_000,
            "[]",
            '{"version":2,"partitions":[]}',
        ):
            with pytest.raises(KafkaError, match="the plan: ") as refused:
                parse_plan(text)
            assert refused.value.code is ErrorCode.INVALID_REQUEST

    @pytest.mark.parametrize(
        ("entry", "message"),
        [
            ('{"topic":"t","partition":0}', r"partitions\[1\] has no field 'replicas'"),
            ('{"partition":0,"replicas":[1]}', r"partitions\[1\] has no field 'topic'"),
            ('{"topic":"t","partition":"0","replicas":[1]}', r"'partition' of partitions\[1\] must be a whole number"),
            ('{"topic":"t","partition":0,"replicas":1}', r"'replicas' of partitions\[1\] must be an array, not 1"),
            ('{"topic":"t","partition":0,"replicas":["1"]}', r"each of 'replicas' of partitions\[1\] must be a whole"),
            (
                '{"topic":"t","partition":0,"replicas":[1],"log_dirs":1}',
                r"'log_dirs' of partitions\[1\] must be",
            ),
            ('"t"', r"partitions\[1\] must be an object"),
        ],
    )
    def test_the_entry_and_the_field_are_named(self, entry: str, message: str) -> None:
        first = '{"topic":"u","partition":0,"replicas":[1]}'
        with pytest.raises(KafkaError, match=message):
            parse_plan(f'{{"version":1,"partitions":[{first},{entry}]}}')

    def test_the_field_of_the_document_is_named(self) -> None:
        for text, name in (("{}", "version"), ('{"version":1}', "partitions")):
            with pytest.raises(KafkaError, match=f"the document has no field '{name}'"):
                parse_plan(text)


class TestSpread:
    def test_an_even_assignment_is_unchanged(self) -> None:
        even = plan_of((0, 1), (1, 2), (2, 0))
        assert spread(even, without_racks(0, 1, 2)) == even

    def test_a_new_broker_gets_its_share_only(self) -> None:
        present = plan_of((0, 1), (1, 0), (0, 1), (1, 0), (0, 1), (1, 0))
        after = spread(present, without_racks(0, 1, 2))
        assert Counter(one for replicas in after.values() for one in replicas) == {0: 4, 1: 4, 2: 4}
        assert Counter(replicas[0] for replicas in after.values()) == {0: 2, 1: 2, 2: 2}
        assert sum(len(set(after[tp]) - set(present[tp])) for tp in present) == 4

    def test_leaders_are_balanced_without_copying(self) -> None:
        after = spread(plan_of((0, 1), (0, 1), (0, 1), (0, 1)), without_racks(0, 1))
        assert sorted(after.values()) == [(0, 1), (0, 1), (1, 0), (1, 0)]

    def test_balance_does_not_break_rack_spread(self) -> None:
        after = spread(plan_of((0, 1), (0, 1), (0, 1), (0, 1)), {0: "a", 1: "b", 2: "a"})
        assert Counter(one for replicas in after.values() for one in replicas) == {0: 2, 1: 4, 2: 2}
        assert all(1 in replicas for replicas in after.values())

    @given(
        racks=st.lists(st.sampled_from([None, "a", "b", "c"]), min_size=1, max_size=6),
        partitions=st.lists(st.lists(st.integers(0, 8), min_size=1, max_size=4, unique=True), max_size=12),
    )
    def test_any_assignment(self, racks: list[str | None], partitions: list[list[int]]) -> None:
        """The same number of replicas, all on the brokers that are given, none held twice, and evenly: where racks do
        not forbid it no broker has two more than another."""
        brokers = dict(enumerate(racks))
        present = plan_of(*(tuple(each) for each in partitions))
        if any(len(replicas) > len(brokers) for replicas in present.values()):
            with pytest.raises(KafkaError) as refused:
                spread(present, brokers)
            assert refused.value.code is ErrorCode.INVALID_REPLICATION_FACTOR
            return
        after = spread(present, brokers)
        assert after.keys() == present.keys()
        for tp, replicas in after.items():
            assert len(set(replicas)) == len(replicas) == len(present[tp])
            assert set(replicas) <= brokers.keys()
        if len(set(racks)) == 1 and after:
            held = Counter(dict.fromkeys(brokers, 0))
            held.update(one for replicas in after.values() for one in replicas)
            assert max(held.values()) - min(held.values()) <= 1
        assert spread(after, brokers) == after, "nothing is left to do"


class TestEmptied:
    def test_only_replicas_of_the_broker_move_and_keep_their_position(self) -> None:
        present = plan_of((0, 1), (1, 2), (2, 0), (3, 1))
        after = emptied(present, 0, without_racks(1, 2, 3))
        assert after == {TopicPartition("t", 0): (3, 1), TopicPartition("t", 2): (2, 3)}

    def test_replicas_move_to_an_unused_rack_if_there_is_one(self) -> None:
        present = plan_of((0, 1))
        assert emptied(present, 1, {0: "a", 2: "a", 3: "b"}) == plan_of((0, 3))
        assert emptied(present, 1, {0: "a", 2: "a"}) == plan_of((0, 2))

    def test_too_few_other_brokers_is_an_error(self) -> None:
        with pytest.raises(KafkaError) as refused:
            emptied(plan_of((0, 1, 2)), 0, without_racks(1, 2))
        assert refused.value.code is ErrorCode.INVALID_REPLICATION_FACTOR


def test_throttles_apply_to_sources_and_targets_of_copies() -> None:
    present = {**plan_of((0, 1), (1, 2)), **plan_of((2, 1), topic="u")}
    wanted = {**plan_of((3, 1), (2, 1)), **plan_of((2, 0), topic="u")}
    assert throttled_replicas(present, wanted) == {
        "t": ThrottledReplicas("0:0,0:1", "0:3"),
        "u": ThrottledReplicas("0:2,0:1", "0:0"),
    }
