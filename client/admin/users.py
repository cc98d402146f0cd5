"""(shell) Users who log in by SCRAM: describe, set and delete their credentials (KIP-554)."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from raylog.client.admin.calls import (
    ANY_BROKER,
    CONTROLLER,
    Answer,
    Call,
    Steps,
    ask,
    distinct,
    joined,
    named,
    several,
)
from raylog.core.errors import ErrorCode, KafkaError
from raylog.core.password import Password
from raylog.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from raylog.protocol.messages.describe_user_scram_credentials import DescribeUserScramCredentialsRequest, UserName
from raylog.security.sasl.scram import ITERATIONS_MAX, ITERATIONS_MIN, SALT_BYTES, ScramMechanism, salted_password

_name = named("user")


class UserScramCredentialUpsertion(NamedTuple):
    """A user's new password for one mechanism. The password itself is not sent."""

    user: str
    password: Password | str
    mechanism: ScramMechanism = ScramMechanism.SHA_256
    iterations: int = ITERATIONS_MIN


class UserScramCredentialDeletion(NamedTuple):
    """Deletes a user's password for one mechanism."""

    user: str
    mechanism: ScramMechanism


def describe_user_scram_credentials(
    users: Iterable[str] | str | None = None, *, timeout: float | None = None
) -> Steps[dict[str, dict[ScramMechanism, int]]]:
    """The number of iterations for each mechanism of these users, or of all."""
    wanted = None if users is None else distinct(several(users), _name)
    asked = None if wanted is None else tuple(UserName(name=user) for user in wanted)
    if wanted is not None and not wanted:
        return {}
    request = DescribeUserScramCredentialsRequest(users=asked)
    response = yield from ask(ANY_BROKER, "users", lambda _: request, lambda response: response)
    answers = [
        Answer(
            each.user,
            {ScramMechanism(info.mechanism): info.iterations for info in each.credential_infos},
            each.error_code,
            each.error_message,
        )
        for each in response.results
    ]
    return joined(answers, [each.item for each in answers] if wanted is None else wanted, _name)


def alter_user_scram_credentials(
    alterations: Iterable[UserScramCredentialUpsertion | UserScramCredentialDeletion],
    *,
    timeout: float | None = None,
) -> Steps[dict[str, None]]:
    """Set and delete passwords: for each user all or none."""
    listed = list(alterations)
    for each in listed:
        if isinstance(each, UserScramCredentialUpsertion) and not 1 <= each.iterations <= ITERATIONS_MAX:
            few = f"Too few iterations: must be at least {ITERATIONS_MIN}."
            many = f"Too many iterations: must be at most {ITERATIONS_MAX}."
            text = few if each.iterations < 1 else many
            raise KafkaError(ErrorCode.UNACCEPTABLE_CREDENTIAL, text)
    upsertions = [_upsertion(each) for each in listed if isinstance(each, UserScramCredentialUpsertion)]
    deletions = [
        ScramCredentialDeletion(name=each.user, mechanism=each.mechanism.value)
        for each in listed
        if isinstance(each, UserScramCredentialDeletion)
    ]

    def request(items: Sequence[str], _: int) -> AlterUserScramCredentialsRequest:
        return AlterUserScramCredentialsRequest(
            deletions=tuple(each for each in deletions if each.name in items),
            upsertions=tuple(each for each in upsertions if each.name in items),
        )

    def read(response: Any, _: Sequence[str]) -> Iterator[Answer]:
        for each in response.results:
            yield Answer(each.user, None, each.error_code, each.error_message)

    found = yield Call({each.user: CONTROLLER for each in listed}, lambda _: "", request, read)
    return found.checked()


def _upsertion(wanted: UserScramCredentialUpsertion) -> ScramCredentialUpsertion:
    password = wanted.password.reveal() if isinstance(wanted.password, Password) else wanted.password
    salt = os.urandom(SALT_BYTES)
    return ScramCredentialUpsertion(
        name=wanted.user,
        mechanism=wanted.mechanism.value,
        iterations=wanted.iterations,
        salt=salt,
        salted_password=salted_password(wanted.mechanism, password, salt, wanted.iterations),
    )
