"""`raylog users`: show, set and remove users who log in by SCRAM (KIP-554).

`list` prints each user with the mechanisms of his credentials, with --json as an object:

    {"alice": {"SCRAM-SHA-256": 4096, "SCRAM-SHA-512": 4096}}

The numbers are those of iterations. The password is read from the terminal, from --password-file or from stdin, since
every user of the machine can see the command line. It does not leave this process: brokers get keys made of it.
"""

from __future__ import annotations

import argparse
import getpass
import sys

from raylog.cli.arguments import Subparsers, add_bootstrap_server, open_client, read_text, whole_number
from raylog.cli.columns import columns
from raylog.cli.output import add_json, show
from raylog.client.admin.users import UserScramCredentialDeletion, UserScramCredentialUpsertion
from raylog.core.config import INT_MAX
from raylog.core.errors import ConfigError, ErrorCode, KafkaError
from raylog.core.password import Password
from raylog.security.sasl.scram import ITERATIONS_MAX, ITERATIONS_MIN, ScramMechanism

MECHANISMS = {mechanism.sasl_name: mechanism for mechanism in ScramMechanism}


def add_to(subparsers: Subparsers) -> None:
    parser = subparsers.add_parser("users", help="show, set and remove users who log in by SCRAM")
    actions = parser.add_subparsers(title="actions", metavar="ACTION", required=True)

    listing = actions.add_parser("list", help="print the users and their mechanisms")
    listing.set_defaults(run=_list)

    setting = actions.add_parser("set", help="create a user, or change his password")
    setting.add_argument("user", metavar="USER")
    _add_mechanism(setting, "both")
    setting.add_argument(
        "--iterations",
        type=whole_number(ITERATIONS_MIN, INT_MAX),
        default=ITERATIONS_MIN,
        metavar="N",
        help=f"iterations of the hash function, at most {ITERATIONS_MAX} (default: %(default)s)",
    )
    setting.add_argument("--password-file", metavar="FILE", help="file whose first line is the password")
    setting.set_defaults(run=_set)

    removal = actions.add_parser("remove", help="remove a user, who can then no longer log in")
    removal.add_argument("user", metavar="USER")
    _add_mechanism(removal, "all that the user has")
    removal.set_defaults(run=_remove)

    for action in (listing, setting, removal):
        add_json(action)
        add_bootstrap_server(action)


def _add_mechanism(parser: argparse.ArgumentParser, default: str) -> None:
    parser.add_argument(
        "--mechanism", choices=MECHANISMS, action="append", help=f"can be repeated (default: {default})"
    )


def _list(options: argparse.Namespace) -> None:
    with open_client(options) as client:
        found = client.describe_user_scram_credentials()
    shown = {
        user: {mechanism.sasl_name: iterations for mechanism, iterations in credentials.items()}
        for user, credentials in sorted(found.items())
    }
    rows = [
        [user, mechanism, str(iterations)]
        for user, credentials in shown.items()
        for mechanism, iterations in credentials.items()
    ]
    show(options, shown, columns(["USER", "MECHANISM", "ITERATIONS"], rows))


def _set(options: argparse.Namespace) -> None:
    password = _password(options)
    mechanisms = [MECHANISMS[name] for name in dict.fromkeys(options.mechanism or MECHANISMS)]
    with open_client(options) as client:
        client.alter_user_scram_credentials(
            UserScramCredentialUpsertion(options.user, password, mechanism, options.iterations)
            for mechanism in mechanisms
        )
    done = {"user": options.user, "set": [mechanism.sasl_name for mechanism in mechanisms]}
    show(options, done, f"Set the password of user {options.user}.")


def _remove(options: argparse.Namespace) -> None:
    mechanisms = None if options.mechanism is None else {MECHANISMS[name] for name in options.mechanism}
    with open_client(options) as client:
        existing = client.describe_user_scram_credentials().get(options.user)
        if not existing:
            raise KafkaError(ErrorCode.RESOURCE_NOT_FOUND, f"there is no user {options.user!r}")
        removed = list(mechanisms or existing)
        client.alter_user_scram_credentials(
            UserScramCredentialDeletion(options.user, mechanism) for mechanism in removed
        )
    done = {"user": options.user, "removed": sorted(mechanism.sasl_name for mechanism in removed)}
    what = f"user {options.user}" if mechanisms is None else f"credentials of user {options.user}"
    show(options, done, f"Removed {what}.")


def _password(options: argparse.Namespace) -> Password:
    """Raises ConfigError and OSError."""
    if options.password_file is not None:
        text = read_text(options.password_file).partition("\n")[0]
    elif sys.stdin.isatty():
        text = getpass.getpass("Password: ")
        if getpass.getpass("The same again: ") != text:
            raise ConfigError("the two passwords differ")
    else:
        text = sys.stdin.readline()
    password = text.rstrip("\r\n")
    if not password:
        raise ConfigError("the password is empty")
    return Password(password)
