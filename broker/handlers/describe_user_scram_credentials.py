"""DescribeUserScramCredentials (key 50), v0: which SCRAM credentials users have (KIP-554), from this broker's image.

No users, and null, mean all. Requires DESCRIBE on the cluster.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from raylog.core.errors import ErrorCode, KafkaError
from raylog.protocol.messages.describe_user_scram_credentials import (
    CredentialInfo,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
)
from raylog.security.acl import CLUSTER, Operation

if TYPE_CHECKING:
    from raylog.broker.services import BrokerServices
    from raylog.security.sasl.scram import ScramMechanism
    from raylog.transport.exchange import Exchange


def handle(
    broker: BrokerServices, exchange: Exchange, request: DescribeUserScramCredentialsRequest
) -> DescribeUserScramCredentialsResponse:
    try:
        broker.authorization.check(exchange, Operation.DESCRIBE, CLUSTER)
    except KafkaError as error:
        return DescribeUserScramCredentialsResponse(error_code=error.code, error_message=error.message)
    known: dict[str, list[CredentialInfo]] = {}
    for (user, mechanism), credential in sorted(broker.image.scram_credentials.items(), key=_user_and_mechanism):
        info = CredentialInfo(mechanism=mechanism.value, iterations=credential.iterations)
        known.setdefault(user, []).append(info)
    asked = Counter(user.name for user in request.users or ()) or Counter(list(known))
    return DescribeUserScramCredentialsResponse(
        results=tuple(_result(user, times, known.get(user, [])) for user, times in asked.items())
    )


def _user_and_mechanism(entry: tuple[tuple[str, ScramMechanism], object]) -> tuple[str, int]:
    (user, mechanism), _ = entry
    return user, mechanism.value


def _result(user: str, times: int, infos: list[CredentialInfo]) -> DescribeUserScramCredentialsResult:
    try:
        _check_asked(user, times, infos)
    except KafkaError as error:
        return DescribeUserScramCredentialsResult(user=user, error_code=error.code, error_message=error.message)
    return DescribeUserScramCredentialsResult(user=user, credential_infos=tuple(infos))


def _check_asked(user: str, times: int, infos: list[CredentialInfo]) -> None:
    """Raises KafkaError."""
    if times > 1:
        message = f"Cannot describe SCRAM credentials for the same user twice in a single request: {user}"
        raise KafkaError(ErrorCode.DUPLICATE_RESOURCE, message)
    if not infos:
        message = f"Attempt to describe a user credential that does not exist: {user}"
        raise KafkaError(ErrorCode.RESOURCE_NOT_FOUND, message)
