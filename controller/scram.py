"""Commands about SCRAM credentials (KIP-554): set and delete them. The changes of one user take effect together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from raylog.core.errors import ErrorCode, KafkaError
from raylog.core.outcome import Outcome
from raylog.metadata.image import MetadataImage
from raylog.metadata.records import MetadataRecord, ScramCredentialRemoved, ScramCredentialSet
from raylog.protocol.messages.alter_user_scram_credentials import ScramCredentialDeletion, ScramCredentialUpsertion
from raylog.security.sasl.scram import ITERATIONS_MAX, ITERATIONS_MIN, ScramMechanism, credential_of

CHANGES_MAX: Final = 10_000
"""Credentials that one request may change."""
NAME_CHARACTERS_MAX: Final = 1000
SALT_BYTES_MAX: Final = 1000
_Change = ScramCredentialDeletion | ScramCredentialUpsertion


def alter(
    image: MetadataImage,
    deletions: Sequence[ScramCredentialDeletion],
    upsertions: Sequence[ScramCredentialUpsertion],
) -> Outcome[dict[str, KafkaError | None], MetadataRecord]:
    """An error or None for each user. Raises KafkaError(POLICY_VIOLATION) for too many changes at once."""
    changes: list[_Change] = [*deletions, *upsertions]
    if len(changes) > CHANGES_MAX:
        message = (
            f"The request changes {len(changes)} credentials; at most {CHANGES_MAX} can be changed by one request."
        )
        raise KafkaError(ErrorCode.POLICY_VIOLATION, message)
    results: dict[str, KafkaError | None] = {}
    records: dict[tuple[str, int], MetadataRecord] = {}
    for change in changes:
        results.setdefault(change.name, None)
        try:
            if (change.name, change.mechanism) in records:
                message = "A user credential cannot be altered twice in the same request."
                raise KafkaError(ErrorCode.DUPLICATE_RESOURCE, message)
            records[change.name, change.mechanism] = _record_of(image, change)
        except KafkaError as error:
            results[change.name] = results[change.name] or error
    return Outcome(results, [record for (name, _), record in records.items() if results[name] is None])


def _record_of(image: MetadataImage, change: _Change) -> MetadataRecord:
    """Raises KafkaError for a change that is not possible."""
    if not 0 < len(change.name) <= NAME_CHARACTERS_MAX:
        rule = (
            "Username must not be empty."
            if not change.name
            else f"A user name has at most {NAME_CHARACTERS_MAX} characters."
        )
        raise KafkaError(ErrorCode.UNACCEPTABLE_CREDENTIAL, rule)
    try:
        mechanism = ScramMechanism(change.mechanism)
    except ValueError:
        raise KafkaError(ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism.") from None
    if isinstance(change, ScramCredentialDeletion):
        if (change.name, mechanism) not in image.scram_credentials:
            message = "Attempt to delete a user credential that does not exist."
            raise KafkaError(ErrorCode.RESOURCE_NOT_FOUND, message)
        return ScramCredentialRemoved(change.name, mechanism.value)
    return _credential_set(change, mechanism)


def _credential_set(change: ScramCredentialUpsertion, mechanism: ScramMechanism) -> ScramCredentialSet:
    if change.iterations < ITERATIONS_MIN:
        raise KafkaError(ErrorCode.UNACCEPTABLE_CREDENTIAL, f"Too few iterations: must be at least {ITERATIONS_MIN}.")
    if change.iterations > ITERATIONS_MAX:
        raise KafkaError(ErrorCode.UNACCEPTABLE_CREDENTIAL, f"Too many iterations: must be at most {ITERATIONS_MAX}.")
    if not 0 < len(change.salt) <= SALT_BYTES_MAX:
        raise KafkaError(ErrorCode.UNACCEPTABLE_CREDENTIAL, f"The salt must have 1 to {SALT_BYTES_MAX} bytes.")
    if len(change.salted_password) != mechanism.digest_bytes:
        message = f"The salted password must have the {mechanism.digest_bytes} bytes of {mechanism.digest}."
        raise KafkaError(ErrorCode.UNACCEPTABLE_CREDENTIAL, message)
    credential = credential_of(mechanism, bytes(change.salted_password), bytes(change.salt), change.iterations)
    return ScramCredentialSet(change.name, mechanism.value, *credential)
