"""(shell) Users who log in by SCRAM: what tools need to show, set and remove them. Source: KIP-554."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable
from typing import Final

from raylog.client.cluster_client import ClusterClient
from raylog.core.errors import ErrorCode, KafkaError
from raylog.core.password import Password
from raylog.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from raylog.protocol.messages.describe_user_scram_credentials import DescribeUserScramCredentialsRequest
from raylog.security.sasl.scram import ITERATIONS_MIN, ScramMechanism, salted_password

SALT_BYTES: Final = 20


def users(client: ClusterClient) -> dict[str, dict[ScramMechanism, int]]:
    """The number of iterations for each mechanism of each user, by name. Raises KafkaError."""
    answer = client.call_any(DescribeUserScramCredentialsRequest(users=None))
    _check(answer.error_code, answer.error_message)
    return {
        result.user: {ScramMechanism(info.mechanism): info.iterations for info in result.credential_infos}
        for result in answer.results
    }


def set_password(
    client: ClusterClient,
    user: str,
    password: Password,
    *,
    mechanisms: Iterable[ScramMechanism] = tuple(ScramMechanism),
    iterations: int = ITERATIONS_MIN,
) -> None:
    """Create the user, or change the password. The password itself is not sent. Raises KafkaError."""
    upsertions = []
    for mechanism in mechanisms:
        salt = os.urandom(SALT_BYTES)
        salted = salted_password(mechanism, password.reveal(), salt, iterations)
        upsertions.append(
            ScramCredentialUpsertion(
                name=user, mechanism=mechanism.value, iterations=iterations, salt=salt, salted_password=salted
            )
        )
    _alter(client, AlterUserScramCredentialsRequest(upsertions=tuple(upsertions)))


def remove(client: ClusterClient, user: str, mechanisms: Collection[ScramMechanism] | None = None) -> None:
    """Remove the user's credentials: those of these mechanisms, or all. Raises KafkaError."""
    existing = users(client).get(user, {})
    if not existing:
        raise KafkaError(ErrorCode.RESOURCE_NOT_FOUND, f"there is no user {user!r}")
    wanted = existing if mechanisms is None else mechanisms
    deletions = tuple(ScramCredentialDeletion(name=user, mechanism=mechanism.value) for mechanism in wanted)
    _alter(client, AlterUserScramCredentialsRequest(deletions=deletions))


def _alter(client: ClusterClient, request: AlterUserScramCredentialsRequest) -> None:
    for result in client.call_any(request).results:
        _check(result.error_code, result.error_message)


def _check(error_code: ErrorCode, message: str | None) -> None:
    if error_code != ErrorCode.NONE:
        raise KafkaError(error_code, message or error_code.sentence)
