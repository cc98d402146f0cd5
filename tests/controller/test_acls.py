"""Access control entries are created and deleted as in Kafka, and invalid ones never reach the log."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import count
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raylog.controller import acls
from raylog.core.errors import ErrorCode, InvariantViolation, KafkaError
from raylog.metadata.image import MetadataImage, acl_added
from raylog.metadata.records import AccessControlEntryAdded, AccessControlEntryRemoved, MetadataRecord
from raylog.metadata.snapshot import decode_snapshot
from raylog.security.acl import AclBinding, AclFilter, Operation, PatternType, Permission, Resource, ResourceType
from tests.controller.metadata import carry_out, replay
from tests.metadata.snapshots import encode_snapshot
from tests.security.acls import binding, bindings

ONE, TWO = binding("a"), binding("b", operation=Operation.WRITE)


def ids() -> Callable[[], UUID]:
    numbers = count(1)
    return lambda: UUID(int=next(numbers))


def image_with(*entries: AclBinding) -> MetadataImage:
    image = MetadataImage()
    carry_out(image, acls.add(image, entries, new_id=ids()))
    return image


def test_each_entry_is_added_once() -> None:
    image = image_with(ONE)
    outcome = acls.add(image, [ONE, TWO, TWO], new_id=lambda: UUID(int=9))
    assert outcome.response == [None, None, None]
    assert list(outcome.records) == [acl_added(UUID(int=9), TWO)]
    replay(image, outcome.records)
    assert list(image.acls.entries.values()) == [ONE, TWO]


def test_the_record_has_kafkas_fields_and_numbers() -> None:
    assert acl_added(UUID(int=9), TWO) == AccessControlEntryAdded(UUID(int=9), 2, "b", 3, "User:alice", "*", 4, 3)


@pytest.mark.parametrize(
    "wrong",
    [
        replace(ONE, resource_type=ResourceType.UNKNOWN),
        replace(ONE, resource_type=ResourceType.ANY),
        replace(ONE, pattern_type=PatternType.UNKNOWN),
        replace(ONE, pattern_type=PatternType.ANY),
        replace(ONE, pattern_type=PatternType.MATCH),
        replace(ONE, operation=Operation.UNKNOWN),
        replace(ONE, operation=Operation.ANY),
        replace(ONE, permission=Permission.UNKNOWN),
        replace(ONE, permission=Permission.ANY),
        replace(ONE, resource_name=""),
        replace(ONE, principal="alice"),
        replace(ONE, resource_name="*", pattern_type=PatternType.PREFIXED),
        replace(ONE, resource_type=ResourceType.CLUSTER),
        replace(ONE, resource_type=ResourceType.CLUSTER, resource_name="*"),
    ],
)
def test_an_invalid_entry_is_refused_without_effect_on_the_others(wrong: AclBinding) -> None:
    image = MetadataImage()
    outcome = acls.add(image, [wrong, TWO], new_id=ids())
    error, none = outcome.response
    assert isinstance(error, KafkaError)
    assert (error.code, none) == (ErrorCode.INVALID_REQUEST, None)
    assert [type(record) for record in outcome.records] == [AccessControlEntryAdded]


def test_filters_delete_what_they_match_and_return_it() -> None:
    image = image_with(ONE, TWO)
    everything, second, nothing = AclFilter(), AclFilter(resource_name="b"), AclFilter(resource_name="c")
    outcome = acls.remove(image, [everything, second, nothing])
    assert outcome.response == [[ONE, TWO], [TWO], []]
    assert list(outcome.records) == [AccessControlEntryRemoved(UUID(int=1)), AccessControlEntryRemoved(UUID(int=2))]
    replay(image, outcome.records)
    assert not image.acls


def test_a_filter_with_unknown_values_is_refused_and_deletes_nothing() -> None:
    image = image_with(ONE)
    unknown = (
        AclFilter(resource_type=ResourceType.UNKNOWN),
        AclFilter(pattern_type=PatternType.UNKNOWN),
        AclFilter(operation=Operation.UNKNOWN),
        AclFilter(permission=Permission.UNKNOWN),
    )
    outcome = acls.remove(image, unknown)
    assert [each.code for each in outcome.response if isinstance(each, KafkaError)] == [ErrorCode.INVALID_REQUEST] * 4
    assert not outcome.records


def test_too_many_entries_in_one_request_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    image = image_with(*(binding(str(number)) for number in range(3)))
    monkeypatch.setattr(acls, "CHANGES_MAX", 2)
    for decide in (
        lambda: acls.add(image, [binding(f"new-{number}") for number in range(3)], new_id=ids()),
        lambda: acls.remove(image, [AclFilter()]),
    ):
        with pytest.raises(KafkaError) as refused:
            decide()
        assert refused.value.code == ErrorCode.POLICY_VIOLATION


def filter_for(one: AclBinding) -> AclFilter:
    return AclFilter(
        one.resource_type, one.resource_name, one.pattern_type, one.principal, one.host, one.operation, one.permission
    )


def test_filters_that_give_all_values_are_looked_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Thousands of them would otherwise hold up the controller for seconds."""
    compared: list[AclBinding] = []
    matches = AclFilter.matches

    def count(self: AclFilter, one: AclBinding) -> bool:
        compared.append(one)
        return matches(self, one)

    monkeypatch.setattr(AclFilter, "matches", count)
    image = image_with(ONE, TWO)
    outcome = acls.remove(image, [filter_for(TWO), filter_for(binding("c")), filter_for(TWO)])
    assert outcome.response == [[TWO], [], [TWO]]
    assert list(outcome.records) == [AccessControlEntryRemoved(UUID(int=2))]
    assert compared == []
    assert acls.remove(image, [replace(filter_for(TWO), pattern_type=PatternType.MATCH)]).response == [[TWO]]
    assert compared == [ONE, TWO]


def test_filters_that_must_be_compared_with_too_many_entries_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    image = image_with(*(binding(str(number)) for number in range(3)))
    monkeypatch.setattr(acls, "COMPARISONS_MAX", 6)
    users = [AclFilter(principal="User:alice"), AclFilter(principal="User:bob"), AclFilter(principal="User:carol")]
    assert len(acls.remove(image, [*users[:2], filter_for(ONE)]).response) == 3
    with pytest.raises(KafkaError, match="divide them into several requests") as refused:
        acls.remove(image, users)
    assert refused.value.code == ErrorCode.POLICY_VIOLATION
    monkeypatch.setattr(acls, "COMPARISONS_MAX", 2)
    assert len(acls.remove(image, [AclFilter()]).records) == 3, "one filter is always possible"


@given(st.lists(bindings, max_size=6), bindings)
def test_a_filter_for_one_entry_finds_what_it_matches(entries: list[AclBinding], wanted: AclBinding) -> None:
    image = image_with(*entries)
    [found] = acls.remove(image, [filter_for(wanted)]).response
    assert found == [each for each in image.acls.entries.values() if filter_for(wanted).matches(each)]


def test_the_index_follows_the_changes_in_place() -> None:
    image = image_with(ONE)
    index = image.acls.index
    generation = index.generation
    assert image.acls.index.generation is generation
    assert list(index.matching(Resource.topic("a"), principal=ONE.principal, host="10.0.0.1")) == [ONE]
    carry_out(image, acls.remove(image, [AclFilter()]))
    assert image.acls.index is index, "to build another one would take long"
    assert index.generation is not generation
    assert list(index.matching(Resource.topic("a"), principal=ONE.principal, host="10.0.0.1")) == []


@given(st.lists(st.lists(bindings, max_size=4)), st.data())
def test_replay_from_the_log_and_from_a_snapshot_give_the_same_lists(
    steps: list[list[AclBinding]], data: st.DataObject
) -> None:
    image, new_id = MetadataImage(), ids()
    log: list[MetadataRecord] = []
    for entries in steps:
        names = data.draw(st.lists(st.sampled_from(("a", "ab", "*")), max_size=2))
        for outcome in (
            acls.add(image, entries, new_id=new_id),
            acls.remove(image, [AclFilter(resource_name=name, pattern_type=PatternType.MATCH) for name in names]),
        ):
            replay(image, outcome.records)
            log += outcome.records
    again = MetadataImage()
    replay(again, log)
    assert again.acls == decode_snapshot(encode_snapshot(image, now_ms=1)).acls == image.acls
    assert len(set(image.acls.entries.values())) == len(image.acls)


@pytest.mark.parametrize(
    "record", [acl_added(UUID(int=1), TWO), AccessControlEntryRemoved(UUID(int=2))], ids=["added twice", "not there"]
)
def test_an_impossible_record_is_an_invariant_violation(record: MetadataRecord) -> None:
    with pytest.raises(InvariantViolation):
        image_with(ONE).replay(record)
