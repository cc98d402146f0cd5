"""Commands about client quotas (KIP-546): set and remove them. The changes of one entity take effect together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from raylog.core.errors import ErrorCode, KafkaError
from raylog.core.outcome import Outcome
from raylog.metadata.image import MetadataImage
from raylog.metadata.records import ClientQuotaRemoved, ClientQuotaSet, MetadataRecord
from raylog.quotas.client_quotas import QuotaEntity
from raylog.quotas.definitions import check_key, check_value, checked_entity

CHANGES_MAX: Final = 10_000
"""Quotas that one request may change."""

_Given = tuple[tuple[str, str | None], ...]
"""Entity types and names as in the request."""


class Alteration(NamedTuple):
    """Changes of the quotas of one entity; the value None removes a quota."""

    entity: _Given
    changes: Sequence[tuple[str, float | None]]


def alter(
    image: MetadataImage, alterations: Sequence[Alteration]
) -> Outcome[list[tuple[_Given, KafkaError | None]], MetadataRecord]:
    """An error or None for each entity. Raises KafkaError(POLICY_VIOLATION) for too many changes at once."""
    count = sum(max(len(changes), 1) for _, changes in alterations)
    if count > CHANGES_MAX:
        message = f"The request changes {count} quotas; at most {CHANGES_MAX} can be changed by one request."
        raise KafkaError(ErrorCode.POLICY_VIOLATION, message)
    results: list[tuple[_Given, KafkaError | None]] = []
    records: dict[QuotaEntity, list[MetadataRecord]] = {}
    for given, changes in alterations:
        try:
            of = checked_entity(given)
            if of in records:
                raise KafkaError(ErrorCode.INVALID_REQUEST, f"Ignoring duplicate entity {_shown(of)}")
            records[of] = _records_of(image, of, changes)
            results.append((given, None))
        except KafkaError as error:
            results.append((given, error))
    return Outcome(results, [record for of_one in records.values() for record in of_one])


def _records_of(
    image: MetadataImage, of: QuotaEntity, changes: Sequence[tuple[str, float | None]]
) -> list[MetadataRecord]:
    """Raises KafkaError(INVALID_REQUEST). Removing a quota that does not exist changes nothing."""
    current: Mapping[str, float] = image.client_quotas.entries.get(of, {})
    records: dict[str, MetadataRecord | None] = {}
    for key, value in changes:
        if key in records:
            message = f"Duplicate quota key {key}, not updating quotas for this entity {_shown(of)}"
            raise KafkaError(ErrorCode.INVALID_REQUEST, message)
        if value is None:
            check_key(of, key)
            records[key] = ClientQuotaRemoved(of, key) if key in current else None
        else:
            check_value(of, key, value)
            records[key] = ClientQuotaSet(of, key, value) if value != current.get(key) else None
    return [record for record in records.values() if record is not None]


def _shown(of: _Given) -> str:
    return ", ".join(f"{kind}={'<default>' if name is None else repr(name)}" for kind, name in of)
