"""Commands about access control lists: add entries, and remove those that a filter matches.

Each entry of a request is decided by itself, and what follows from all of them is one piece of the log: who asks for
ten rights and is cut off has all that were valid, or none.
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


def add(
    image: MetadataImage, bindings: Sequence[AclBinding], *, new_id: Callable[[], UUID]
) -> Outcome[list[KafkaError | None], MetadataRecord]:
    """An error or none for each of them. An entry that is there already is no error, and is not added again.

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
    """For each filter an error, or what it has matched; an entry that several match is named by each of them.

    Raises KafkaError(POLICY_VIOLATION) for too many at once.
    """
    results: list[KafkaError | list[AclBinding]] = []
    removed: dict[UUID, None] = {}
    for wanted in filters:
        try:
            check_filter(wanted)
        except KafkaError as error:
            results.append(error)
            continue
        found = {acl_id: binding for acl_id, binding in image.acls.entries.items() if wanted.matches(binding)}
        results.append(list(found.values()))
        removed.update(dict.fromkeys(found))
    records = [AccessControlEntryRemoved(acl_id) for acl_id in removed]
    _check_count(records)
    return Outcome(results, records)


def _check_count(records: Sequence[MetadataRecord]) -> None:
    if len(records) > CHANGES_MAX:
        message = f"{len(records)} entries at once: at most {CHANGES_MAX} may be added or removed by one request."
        raise KafkaError(ErrorCode.POLICY_VIOLATION, message)
