"""An index of all access control lists, which finds the entries that match a resource."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from uuid import UUID

from raylog.security.acl import WILDCARD, AclBinding, PatternType, Resource, ResourceType


@dataclass(slots=True)
class AccessControlLists:
    """All entries by id, without duplicates."""

    entries: dict[UUID, AclBinding] = field(default_factory=dict)
    _index: AclIndex | None = field(default=None, init=False, compare=False)

    def __len__(self) -> int:
        return len(self.entries)

    def add(self, acl_id: UUID, binding: AclBinding) -> None:
        self.entries[acl_id] = binding
        self._index = None

    def remove(self, acl_id: UUID) -> None:
        del self.entries[acl_id]
        self._index = None

    @property
    def index(self) -> AclIndex:
        """The index of the current entries. It is built on first use after a change."""
        if self._index is None:
            self._index = AclIndex(self.entries.values())
        return self._index


class AclIndex:
    """Immutable; a change of the lists makes a new index."""

    def __init__(self, bindings: Iterable[AclBinding]) -> None:
        self._by_type: dict[ResourceType, _OfOneType] = {}
        for binding in bindings:
            self._by_type.setdefault(binding.resource_type, _OfOneType()).add(binding)

    def matching(self, resource: Resource) -> Iterator[AclBinding]:
        """Every entry whose pattern matches the resource."""
        found = self._by_type.get(resource.type)
        return iter(()) if found is None else found.matching(resource.name)

    def of_type(self, resource_type: ResourceType) -> Iterator[AclBinding]:
        """Every entry for resources of the type."""
        found = self._by_type.get(resource_type)
        if found is not None:
            for patterns in (found.literal, found.prefixed):
                for bindings in patterns.values():
                    yield from bindings


class _OfOneType:
    """`prefix_lengths` are the lengths of all prefixed patterns, so that a name is looked up once for each of them."""

    def __init__(self) -> None:
        self.literal: dict[str, list[AclBinding]] = {}
        self.prefixed: dict[str, list[AclBinding]] = {}
        self.prefix_lengths: set[int] = set()

    def add(self, binding: AclBinding) -> None:
        is_prefix = binding.pattern_type is PatternType.PREFIXED
        patterns = self.prefixed if is_prefix else self.literal
        patterns.setdefault(binding.resource_name, []).append(binding)
        if is_prefix:
            self.prefix_lengths.add(len(binding.resource_name))

    def matching(self, name: str) -> Iterator[AclBinding]:
        yield from self.literal.get(name, ())
        if name != WILDCARD:
            yield from self.literal.get(WILDCARD, ())
        for length in self.prefix_lengths:
            if length <= len(name):
                yield from self.prefixed.get(name[:length], ())
