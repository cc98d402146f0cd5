"""Which entities DescribeClientQuotas describes (KIP-546)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from raylog.core.addresses import canonical_host
from raylog.core.errors import ErrorCode, KafkaError
from raylog.quotas.client_quotas import CLIENT_ID, IP, USER, ClientQuotas, QuotaEntity

EXACT: Final = 0
DEFAULT_ONLY: Final = 1
ANY_NAME: Final = 2
"""Match types: an entity of this name, the default entity, or any entity of the type."""


class QuotaFilter(NamedTuple):
    """Entities with these names by type; strict: and without other types."""

    names: dict[str, str | None]
    """None is the default entity."""
    types: frozenset[str]
    """Types with any name."""
    strict: bool

    def matches(self, of: QuotaEntity) -> bool:
        found = dict(of)
        if self.strict and len(found) != len(self.names) + len(self.types):
            return False
        named = all(kind in found and found[kind] == name for kind, name in self.names.items())
        return named and all(kind in found for kind in self.types)


def parse_filter(components: Iterable[tuple[str, int, str | None]], *, strict: bool) -> QuotaFilter:
    """Of entity type, match type and name. Raises KafkaError(INVALID_REQUEST, UNSUPPORTED_VERSION)."""
    names: dict[str, str | None] = {}
    types: set[str] = set()
    for kind, match_type, name in components:
        if not kind:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "Invalid empty entity type.")
        if kind in names or kind in types:
            message = f"Entity type {kind} cannot appear more than once in the filter."
            raise KafkaError(ErrorCode.INVALID_REQUEST, message)
        if kind not in (USER, CLIENT_ID, IP):
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, f"Unsupported entity type {kind[:100]}")
        if match_type not in (EXACT, DEFAULT_ONLY, ANY_NAME):
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unknown match type {match_type}")
        if (match_type == EXACT) != (name is not None):
            rule = "needs a match string" if match_type == EXACT else "must have no match string"
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"Match type {match_type} {rule}.")
        if match_type == ANY_NAME:
            types.add(kind)
        else:
            names[kind] = canonical_host(name) if kind == IP and name is not None else name
    if IP in {*names, *types} and len(names) + len(types) > 1:
        message = "IP filter component should not be used with user or clientId filter component."
        raise KafkaError(ErrorCode.INVALID_REQUEST, message)
    return QuotaFilter(names, frozenset(types), strict)


def matching(quotas: ClientQuotas, wanted: QuotaFilter) -> Iterator[tuple[QuotaEntity, dict[str, float]]]:
    """The quotas of each entity that the filter matches; strict without components matches none, as in Kafka."""
    return ((of, values) for of, values in quotas.entries.items() if wanted.matches(of))
