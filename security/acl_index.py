"""An index of all access control lists, which finds the entries for a principal at a host that match a resource."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from uuid import UUID

from raylog.core.addresses import canonical_host
from raylog.security.acl import ANY_PRINCIPAL, WILDCARD, AclBinding, PatternType, Resource, ResourceType


@dataclass(slots=True)
class AccessControlLists:
    """All entries by id, without duplicates."""

    entries: dict[UUID, AclBinding] = field(default_factory=dict)
    _index: AclIndex | None = field(default=None, init=False, compare=False)

    def __len__(self) -> int:
        return len(self.entries)

    def add(self, acl_id: UUID, binding: AclBinding) -> None:
        self.entries[acl_id] = binding
        if self._index is not None:
            self._index.add(binding)

    def remove(self, acl_id: UUID) -> None:
        binding = self.entries.pop(acl_id)
        if self._index is not None:
            self._index.remove(binding)

    @property
    def index(self) -> AclIndex:
        """The index of the entries, which follows their changes. It is built on first use."""
        if self._index is None:
            self._index = AclIndex(self.entries.values())
        return self._index


class AclIndex:
    """Every lookup takes time for the principal's entries on the resource, and none for those of other principals."""

    def __init__(self, bindings: Iterable[AclBinding] = ()) -> None:
        self.generation = object()
        """Another one after every change."""
        self._by_type: dict[ResourceType, _OfOneType] = {}
        for binding in bindings:
            self.add(binding)

    def add(self, binding: AclBinding) -> None:
        self.generation = object()
        self._by_type.setdefault(binding.resource_type, _OfOneType()).add(binding)

    def remove(self, binding: AclBinding) -> None:
        self.generation = object()
        self._by_type[binding.resource_type].remove(binding)

    def matching(self, resource: Resource, *, principal: str, host: str) -> Iterator[AclBinding]:
        """Every entry for the principal and the host whose pattern matches the resource."""
        found = self._by_type.get(resource.type)
        if found is not None:
            for entries in found.patterns_of(resource.name):
                yield from entries.of(principal=principal, host=host)

    def has_any(self, resource: Resource) -> bool:
        """Whether the pattern of any entry matches the resource, whatever its principal."""
        found = self._by_type.get(resource.type)
        return found is not None and any(True for _ in found.patterns_of(resource.name))

    def has_any_for_all(self, resource_type: ResourceType) -> bool:
        """Whether the pattern of any entry matches all resources of the type."""
        found = self._by_type.get(resource_type)
        return found is not None and WILDCARD in found.literal

    def of_type(self, resource_type: ResourceType, *, principal: str, host: str) -> Iterator[AclBinding]:
        """Every entry for the principal and the host, and for resources of the type."""
        found = self._by_type.get(resource_type)
        if found is not None:
            yield from found.all.of(principal=principal, host=host)


class _Entries:
    """Entries by principal."""

    __slots__ = ("_by_principal",)

    def __init__(self) -> None:
        self._by_principal: dict[str, dict[AclBinding, str]] = {}
        """Each entry with its host in the spelling of clients' addresses, unlike in Kafka."""

    def __bool__(self) -> bool:
        return bool(self._by_principal)

    def of(self, *, principal: str, host: str) -> Iterator[AclBinding]:
        """Those for the principal, and those for all principals, at the host."""
        hosts = (host, WILDCARD)
        for name in dict.fromkeys((principal, ANY_PRINCIPAL)):
            for binding, own in self._by_principal.get(name, {}).items():
                if own in hosts:
                    yield binding

    def add(self, binding: AclBinding) -> None:
        self._by_principal.setdefault(binding.principal, {})[binding] = canonical_host(binding.host)

    def remove(self, binding: AclBinding) -> None:
        own = self._by_principal[binding.principal]
        del own[binding]
        if not own:
            del self._by_principal[binding.principal]


class _OfOneType:
    """`prefix_lengths` are the lengths of all prefixed patterns, so that a name is looked up once for each of them."""

    def __init__(self) -> None:
        self.all = _Entries()
        self.literal: dict[str, _Entries] = {}
        self.prefixed: dict[str, _Entries] = {}
        self.prefix_lengths: Counter[int] = Counter()
        """The number of prefixes of each length."""

    def add(self, binding: AclBinding) -> None:
        patterns, name = self._patterns(binding), binding.resource_name
        entries = patterns.get(name)
        if entries is None:
            entries = patterns[name] = _Entries()
            if patterns is self.prefixed:
                self.prefix_lengths[len(name)] += 1
        entries.add(binding)
        self.all.add(binding)

    def remove(self, binding: AclBinding) -> None:
        patterns, name = self._patterns(binding), binding.resource_name
        patterns[name].remove(binding)
        self.all.remove(binding)
        if not patterns[name]:
            del patterns[name]
            if patterns is self.prefixed:
                self.prefix_lengths -= Counter((len(name),))

    def patterns_of(self, name: str) -> Iterator[_Entries]:
        """The entries of each pattern that matches the name."""
        if name in self.literal:
            yield self.literal[name]
        if name != WILDCARD and WILDCARD in self.literal:
            yield self.literal[WILDCARD]
        for length in self.prefix_lengths:
            if length <= len(name) and (entries := self.prefixed.get(name[:length])) is not None:
                yield entries

    def _patterns(self, binding: AclBinding) -> dict[str, _Entries]:
        return self.prefixed if binding.pattern_type is PatternType.PREFIXED else self.literal
