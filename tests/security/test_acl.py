"""Filters match the entries that Kafka's filters match, and unknown numbers are UNKNOWN."""

from __future__ import annotations

import pytest
from hypothesis import given

from raylog.security.acl import AclBinding, AclFilter, Operation, PatternType, Permission, ResourceType
from tests.security.acls import binding, bindings

LITERAL, PREFIXED, ANY, MATCH = PatternType.LITERAL, PatternType.PREFIXED, PatternType.ANY, PatternType.MATCH
ONE, OTHER, ALL, PREFIX = binding("abc"), binding("x"), binding("*"), binding("ab", pattern=PREFIXED)


@pytest.mark.parametrize(
    ("pattern", "name", "found"),
    [
        (LITERAL, "abc", [ONE]),
        (LITERAL, "*", [ALL]),
        (LITERAL, None, [ONE, OTHER, ALL]),
        (PREFIXED, "ab", [PREFIX]),
        (PREFIXED, "abc", []),
        (PREFIXED, None, [PREFIX]),
        (ANY, "abc", [ONE]),
        (ANY, "ab", [PREFIX]),
        (ANY, None, [ONE, OTHER, ALL, PREFIX]),
        (MATCH, "abc", [ONE, ALL, PREFIX]),
        (MATCH, "ab", [ALL, PREFIX]),
        (MATCH, "a", [ALL]),
        (MATCH, None, [ONE, OTHER, ALL, PREFIX]),
    ],
)
def test_by_pattern_and_name(pattern: PatternType, name: str | None, found: list[AclBinding]) -> None:
    wanted = AclFilter(pattern_type=pattern, resource_name=name)
    assert [each for each in (ONE, OTHER, ALL, PREFIX) if wanted.matches(each)] == found


@given(bindings)
def test_by_each_other_field(one: AclBinding) -> None:
    assert AclFilter().matches(one)
    exact = AclFilter(
        one.resource_type,
        one.resource_name,
        one.pattern_type,
        one.principal,
        one.host,
        one.operation,
        one.permission,
    )
    assert exact.matches(one)
    for other in (
        AclFilter(resource_type=ResourceType.CLUSTER),
        AclFilter(principal="User:nobody"),
        AclFilter(host="10.9.9.9"),
        AclFilter(operation=Operation.TWO_PHASE_COMMIT),
        AclFilter(permission=Permission.DENY if one.permission is Permission.ALLOW else Permission.ALLOW),
    ):
        assert not other.matches(one)


@pytest.mark.parametrize("kind", [ResourceType, PatternType, Operation, Permission])
def test_unknown_numbers(kind: type[ResourceType]) -> None:
    assert kind(-1) is kind(99) is kind.UNKNOWN
