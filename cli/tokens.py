"""`raylog tokens`: create, describe, renew and expire delegation tokens (kafka-delegation-tokens).

A token is named by its id, so that its secret, the HMAC, is in no command line; `create` and `describe` print it. With
--json they print an array of objects, with times in milliseconds:

    [{"token_id": "V6iT1TqlQSG5g7lRqhRBbg", "hmac": "iTyJbCq...", "owner": "User:alice", "requester": "User:alice",
      "renewers": ["User:bob"], "issue_timestamp_ms": 1700000000000, "expiry_timestamp_ms": 1700086400000,
      "max_timestamp_ms": 1700604800000}]
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from datetime import UTC, datetime

from raylog.cli.arguments import Subparsers, add_bootstrap_server, open_client
from raylog.cli.columns import columns
from raylog.cli.output import add_json, show
from raylog.client.admin.admin_client import AdminClient
from raylog.client.admin.tokens import DelegationToken
from raylog.core.config import LONG_MAX
from raylog.core.errors import ErrorCode, KafkaError
from raylog.security.principal import Principal, parse_principal

AS_CONFIGURED = -1
NOW = -1


def add_to(subparsers: Subparsers) -> None:
    parser = subparsers.add_parser("tokens", help="create, describe, renew and expire delegation tokens")
    actions = parser.add_subparsers(title="actions", metavar="ACTION", required=True)

    creation = actions.add_parser("create", help="create a token, and print it with its HMAC")
    creation.add_argument(
        "--owner-principal", type=_principal, metavar="TYPE:NAME", help="the owner (default: the client itself)"
    )
    creation.add_argument(
        "--renewer-principal",
        type=_principal,
        action="append",
        default=[],
        metavar="TYPE:NAME",
        help="a user who may renew and expire the token, besides its owner; can be repeated",
    )
    creation.add_argument(
        "--max-life-time-period",
        type=_milliseconds,
        default=AS_CONFIGURED,
        metavar="MS",
        help="the token cannot be renewed beyond this (default: delegation.token.max.lifetime.ms)",
    )
    creation.set_defaults(run=_create)

    description = actions.add_parser("describe", help="print the tokens that the client may see, with their HMACs")
    description.add_argument(
        "--owner-principal",
        type=_principal,
        action="append",
        metavar="TYPE:NAME",
        help="print only the tokens of this owner, requester or renewer; can be repeated",
    )
    description.set_defaults(run=_describe)

    renewal = actions.add_parser("renew", help="let a token expire later")
    renewal.add_argument("token_id", metavar="ID")
    renewal.add_argument(
        "--renew-time-period",
        type=_milliseconds,
        default=AS_CONFIGURED,
        metavar="MS",
        help="from now (default: delegation.token.expiry.time.ms)",
    )
    renewal.set_defaults(run=_renew)

    expiry = actions.add_parser("expire", help="let a token expire earlier")
    expiry.add_argument("token_id", metavar="ID")
    expiry.add_argument(
        "--expiry-time-period",
        type=_milliseconds,
        default=NOW,
        metavar="MS",
        help="from now; -1, the default, removes the token",
    )
    expiry.set_defaults(run=_expire)

    for action in (creation, description, renewal, expiry):
        add_json(action)
        add_bootstrap_server(action)


def _principal(text: str) -> Principal:
    try:
        return parse_principal(text)
    except KafkaError as error:
        raise argparse.ArgumentTypeError(error.message) from None


def _milliseconds(text: str) -> int:
    if text == str(AS_CONFIGURED):
        return AS_CONFIGURED
    if not text.isdecimal() or int(text) > LONG_MAX:
        raise argparse.ArgumentTypeError(f"{text!r}: must be a number of milliseconds, or -1")
    return int(text)


def _create(options: argparse.Namespace) -> None:
    with open_client(options) as client:
        token = client.create_delegation_token(
            owner=options.owner_principal,
            renewers=options.renewer_principal,
            max_lifetime_ms=options.max_life_time_period,
        )
    _print(options, [token])


def _describe(options: argparse.Namespace) -> None:
    with open_client(options) as client:
        found = client.describe_delegation_tokens(options.owner_principal)
    _print(options, found)


def _renew(options: argparse.Namespace) -> None:
    with open_client(options) as client:
        token = _find(client, options.token_id)
        expiry = client.renew_delegation_token(token.hmac, period_ms=options.renew_time_period)
    done = {"token_id": token.token_id, "expiry_timestamp_ms": expiry}
    show(options, done, f"Token {token.token_id} expires at {_shown(expiry)}.")


def _expire(options: argparse.Namespace) -> None:
    with open_client(options) as client:
        token = _find(client, options.token_id)
        expiry = client.expire_delegation_token(token.hmac, period_ms=options.expiry_time_period)
    removed = options.expiry_time_period == NOW
    done = {"token_id": token.token_id, "expiry_timestamp_ms": expiry}
    what = "was removed" if removed else f"expires at {_shown(expiry)}"
    show(options, done, f"Token {token.token_id} {what}.")


def _find(client: AdminClient, token_id: str) -> DelegationToken:
    """Owners and renewers, who may change a token, may also see it. Raises KafkaError(DELEGATION_TOKEN_NOT_FOUND)."""
    for token in client.describe_delegation_tokens():
        if token.token_id == token_id:
            return token
    raise KafkaError(ErrorCode.DELEGATION_TOKEN_NOT_FOUND, f"no delegation token {token_id!r} that the client may see")


def _print(options: argparse.Namespace, tokens: Sequence[DelegationToken]) -> None:
    if options.json:
        print(json.dumps([_fields(token) for token in tokens]))
    elif tokens:
        head = ["ID", "HMAC", "OWNER", "REQUESTER", "RENEWERS", "ISSUED", "EXPIRES", "NOT RENEWABLE AFTER"]
        rows = [
            [
                token.token_id,
                token.hmac.reveal(),
                str(token.owner),
                str(token.requester),
                ",".join(map(str, token.renewers)) or "-",
                *map(_shown, (token.issue_timestamp_ms, token.expiry_timestamp_ms, token.max_timestamp_ms)),
            ]
            for token in tokens
        ]
        print(columns(head, rows))
    else:
        print("No delegation tokens found.")


def _fields(token: DelegationToken) -> dict[str, object]:
    return {
        "token_id": token.token_id,
        "hmac": token.hmac.reveal(),
        "owner": str(token.owner),
        "requester": str(token.requester),
        "renewers": list(map(str, token.renewers)),
        "issue_timestamp_ms": token.issue_timestamp_ms,
        "expiry_timestamp_ms": token.expiry_timestamp_ms,
        "max_timestamp_ms": token.max_timestamp_ms,
    }


def _shown(timestamp_ms: int) -> str:
    try:
        return datetime.fromtimestamp(timestamp_ms // 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    except (ValueError, OverflowError, OSError):  # after the year 9999
        return str(timestamp_ms)
