"""AlterUserScramCredentials (key 51), v0: set and delete SCRAM credentials (KIP-554).

The client sends salted passwords. The changes of each user are processed together, those of different users separately.
Requires ALTER on the cluster.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from raylog.controller import scram
from raylog.core.errors import ErrorCode, KafkaError
from raylog.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
)
from raylog.security.acl import CLUSTER, Operation

if TYPE_CHECKING:
    from raylog.controller.services import ControllerServices
    from raylog.transport.exchange import Exchange


def handle(
    controller: ControllerServices, exchange: Exchange, request: AlterUserScramCredentialsRequest
) -> AlterUserScramCredentialsResponse:
    users = [deletion.name for deletion in request.deletions] + [change.name for change in request.upsertions]
    try:
        controller.authorization.check(exchange, Operation.ALTER, CLUSTER)
        outcome = scram.alter(controller.image, request.deletions, request.upsertions)
        results = controller.decide(outcome, exchange.now)
    except KafkaError as error:
        results = dict.fromkeys(users, error)
    return AlterUserScramCredentialsResponse(results=tuple(_result(user, error) for user, error in results.items()))


def _result(user: str, error: KafkaError | None) -> AlterUserScramCredentialsResult:
    if error is None:
        return AlterUserScramCredentialsResult(user=user, error_code=ErrorCode.NONE)
    return AlterUserScramCredentialsResult(user=user, error_code=error.code, error_message=error.message)
