"""The entries of all access control lists, arranged so that those about one resource are found at once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from uuid import UUID

from raylog.security.acl import WILDCARD, AclBinding, PatternType, Resource, ResourceType


@dataclass(slots=True)
class AccessControlLists:
    """All entries by their ids, no two of them alike."""

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
        """The same one until an entry is added or removed; the next is made when it is asked for."""
        if self._index is None:
            self._index = AclIndex(self.entries.values())
        return self._index


class AclIndex:
    """Never changes: another state of the lists is another index."""

    def __init__(self, bindings: Iterable[AclBinding]) -> None:
        self._by_type: dict[ResourceType, _OfOneType] = {}
        for binding in bindings:
            self._by_type.setdefault(binding.resource_type, _OfOneType()).add(binding)

    def about(self, resource: Resource) -> Iterator[AclBinding]:
        """Every entry whose pattern covers the resource."""
        found = self._by_type.get(resource.type)
        return iter(()) if found is None else found.about(resource.name)

    def about_type(self, resource_type: ResourceType) -> Iterator[AclBinding]:
        """Every entry about resources of the type."""
        found = self._by_type.get(resource_type)
        if found is not None:
            for patterns in (found.literal, found.prefixed):
                for bindings in patterns.values():
                    yield from bindings


class _OfOneType:
    """`prefix_lengths` are those that occur: a name has as many beginnings to be looked up, and no more."""

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

    def about(self, name: str) -> Iterator[AclBinding]:
        yield from self.literal.get(name, ())
        if name != WILDCARD:
            yield from self.literal.get(WILDCARD, ())
        for length in self.prefix_lengths:
            if length <= len(name):
                yield from self.prefixed.get(name[:length], ())
