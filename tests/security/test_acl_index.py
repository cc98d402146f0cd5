"""An index that has followed changes finds what a new one finds, and only entries for the principal and the host."""

from __future__ import annotations

from itertools import product

from hypothesis import given, settings
from hypothesis import strategies as st

from raylog.security.acl import AclBinding, PatternType, Permission, Resource
from raylog.security.acl_index import AclIndex
from tests.security.acls import HOSTS, NAMES, TYPES, USERS, binding, bindings

PRINCIPALS = (*map(str, USERS), "User:*", "User:carol")


def found(index: AclIndex) -> dict[object, object]:
    """All that can be looked up."""
    results: dict[object, object] = {}
    for kind in TYPES:
        results["all", kind] = index.has_any_for_all(kind)
        for principal, host in product(PRINCIPALS, HOSTS):
            results[kind, principal, host] = set(index.of_type(kind, principal=principal, host=host))
        for name in (*NAMES, "c", "*"):
            resource = Resource(kind, name)
            results[resource] = index.has_any(resource)
            for principal, host in product(PRINCIPALS, HOSTS):
                entries = list(index.matching(resource, principal=principal, host=host))
                assert len(entries) == len(set(entries))
                results[resource, principal, host] = set(entries)
    return results


@settings(max_examples=200)
@given(st.lists(st.tuples(bindings, st.booleans()), max_size=15))
def test_additions_and_removals(changes: list[tuple[AclBinding, bool]]) -> None:
    index, entries = AclIndex(), dict[AclBinding, None]()
    for entry, added in changes:
        if added and entry not in entries:
            entries[entry] = None
            index.add(entry)
        elif not added and entries:
            removed = next(iter(entries))
            del entries[removed]
            index.remove(removed)
        assert found(index) == found(AclIndex(entries))
    for entry in entries:
        index.remove(entry)
    assert found(index) == found(AclIndex())
    assert not any(kind.prefix_lengths or kind.literal or kind.prefixed for kind in index._by_type.values())


def test_one_of_two_prefixes_of_the_same_length_is_removed() -> None:
    removed, left = (binding(name, pattern=PatternType.PREFIXED) for name in ("ab", "ba"))
    index = AclIndex([removed, left])
    index.remove(removed)
    assert list(index.matching(Resource.topic("bar"), principal=left.principal, host=HOSTS[0])) == [left]


def test_entries_of_others_are_not_visited() -> None:
    own, everyone = binding(), binding(principal="User:*", permission=Permission.DENY)
    others = [binding(principal=f"User:{number}") for number in range(1000)]
    index = AclIndex([*others, own, everyone])
    assert list(index.matching(Resource.topic("a"), principal=own.principal, host=HOSTS[0])) == [own, everyone]
