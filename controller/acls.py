"""Commands about access control lists: add entries, and remove those that a filter matches.

The entries of a request are checked one by one, and all valid ones are written in one batch: a request that is cut off
has either all of its effects or none.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final
from uuid import UUID

from raylog.core.errors import ErrorCode, KafkaError
from raylog.core.outcome import Outcome
from raylog.metadata.image import MetadataImage, acl_added
from raylog.metadata.records import AccessControlEntryRemoved, MetadataRecord
from raylog.security.acl import AclBinding, AclFilter
from raylog.security.acl_requests import check_binding, check_filter

CHANGES_MAX: Final = 10_000
"""Entries that one request may add or remove, as in Kafka."""
COMPARISONS_MAX: Final = 400_000
"""How many entries the filters of one request are compared with, in all, which takes half a second; their results are
then fewer than the elements that a message may have. One filter is always possible, and filters that give all values
of an entry are not compared."""


def add(
    image: MetadataImage, bindings: Sequence[AclBinding], *, new_id: Callable[[], UUID]
) -> Outcome[list[KafkaError | None], MetadataRecord]:
    """An error or None for each entry. An entry that exists already is not an error, and is not added again.

    Raises KafkaError(POLICY_VIOLATION) for too many at once.
    """
    known = set(image.acls.entries.values())
    results: list[KafkaError | None] = []
    records: list[MetadataRecord] = []
    for binding in bindings:
        try:
            check_binding(binding)
        except KafkaError as error:
            results.append(error)
            continue
        results.append(None)
        if binding not in known:
            known.add(binding)
            records.append(acl_added(new_id(), binding))
    _check_count(records)
    return Outcome(results, records)


def remove(
    image: MetadataImage, filters: Sequence[AclFilter]
) -> Outcome[list[KafkaError | list[AclBinding]], MetadataRecord]:
    """For each filter an error, or the entries that it matches; an entry may be in several results.

    Raises KafkaError(POLICY_VIOLATION) for too many at once, or for too many comparisons.
    """
    entries = image.acls.entries
    ids = {binding: acl_id for acl_id, binding in entries.items()}
    results: list[KafkaError | list[AclBinding]] = []
    removed: dict[UUID, None] = {}
    compared = 0
    for wanted in filters:
        try:
            check_filter(wanted)
        except KafkaError as error:
            results.append(error)
            continue
        only = wanted.only_binding
        if only is not None:
            found = {ids[only]: only} if only in ids else {}
        else:
            compared += len(entries)
            _check_compared(compared, at_once=len(entries))
            found = {acl_id: binding for acl_id, binding in entries.items() if wanted.matches(binding)}
        results.append(list(found.values()))
        removed.update(dict.fromkeys(found))
    records = [AccessControlEntryRemoved(acl_id) for acl_id in removed]
    _check_count(records)
    return Outcome(results, records)


def _check_count(records: Sequence[MetadataRecord]) -> None:
    if len(records) > CHANGES_MAX:
        message = (
            f"The request changes {len(records)} entries; at most {CHANGES_MAX} can be added or removed by one request."
        )
        raise KafkaError(ErrorCode.POLICY_VIOLATION, message)


def _check_compared(compared: int, *, at_once: int) -> None:
    if compared > max(COMPARISONS_MAX, at_once):
        message = (
            f"The filters of the request must be compared with more than {COMPARISONS_MAX} entries: divide them into"
            " several requests, or give all values of the entries."
        )
        raise KafkaError(ErrorCode.POLICY_VIOLATION, message)
