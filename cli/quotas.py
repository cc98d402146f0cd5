"""`raylog quotas`: list, set and remove client quotas (kafka-configs).

A quota belongs to a user, a client id, both, or an IP address. The default applies to those without a quota of their
own. With --json the command prints an array of objects; the name null is the default:

    [{"entity": {"user": "alice", "client-id": null}, "quotas": {"producer_byte_rate": 1048576.0}}]

`raylog status` shows for how long clients were throttled.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping

from raylog.cli.arguments import Subparsers, add_bootstrap_server, key_and_value, open_client
from raylog.cli.columns import columns
from raylog.cli.usage import UsageError
from raylog.quotas.client_quotas import CLIENT_ID, DEFAULT, IP, USER, QuotaEntity, entity
from raylog.quotas.definitions import CLIENT_KEYS, IP_KEYS

SHOWN_DEFAULT = "<default>"


def add_to(subparsers: Subparsers) -> None:
    parser = subparsers.add_parser("quotas", help="list, set and remove client quotas")
    actions = parser.add_subparsers(title="actions", metavar="ACTION", required=True)

    listing = actions.add_parser("list", help="print all quotas, or those of some entities")
    listing.set_defaults(run=_list)

    setting = actions.add_parser("set", help="set quotas of an entity; its others are not changed")
    setting.add_argument(
        "quotas",
        nargs="+",
        type=_key_and_number,
        metavar="QUOTA=VALUE",
        help=f"one of {', '.join(CLIENT_KEYS)}; for an IP address {', '.join(IP_KEYS)}",
    )
    setting.set_defaults(run=_set)

    remove = actions.add_parser("remove", help="remove quotas of an entity")
    remove.add_argument("quotas", nargs="*", metavar="QUOTA", help="the quotas to remove (default: all of them)")
    remove.set_defaults(run=_remove)

    for action in (listing, setting, remove):
        for kind, what in ((USER, "a user"), (CLIENT_ID, "a client id"), (IP, "an IP address")):
            name = kind.replace("-", "_")
            either = action.add_mutually_exclusive_group()
            either.add_argument(f"--{kind}", dest=name, metavar="NAME", help=what)
            either.add_argument(f"--{kind}-default", dest=f"{name}_default", action="store_true", help="the default")
        action.add_argument("--json", action="store_true", help="print one JSON array")
        add_bootstrap_server(action)


def _key_and_number(text: str) -> tuple[str, float]:
    key, value = key_and_value(text)
    try:
        return key, float(value)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r}: the value must be a number") from None


def _list(options: argparse.Namespace) -> None:
    with open_client(options) as client:
        found = client.describe_client_quotas(_named(options))
    _print(options, found)


def _set(options: argparse.Namespace) -> None:
    _alter(options, dict(options.quotas))


def _remove(options: argparse.Namespace) -> None:
    keys = options.quotas
    if not keys:
        with open_client(options) as client:
            named = _entity(options)
            keys = client.describe_client_quotas(named, strict=True).get(entity(named), {})
    if keys:
        _alter(options, dict.fromkeys(keys))
    else:
        _print(options, {})


def _alter(options: argparse.Namespace, changes: Mapping[str, float | None]) -> None:
    named = _entity(options)
    with open_client(options) as client:
        client.alter_client_quotas({entity(named): changes})
        _print(options, client.describe_client_quotas(named, strict=True))


def _named(options: argparse.Namespace) -> dict[str, str | None]:
    """The entity of the arguments: names by type."""
    found: dict[str, str | None] = {}
    for kind in (USER, CLIENT_ID, IP):
        name = kind.replace("-", "_")
        if getattr(options, f"{name}_default"):
            found[kind] = DEFAULT
        elif getattr(options, name) is not None:
            found[kind] = getattr(options, name)
    return found


def _entity(options: argparse.Namespace) -> dict[str, str | None]:
    """As `_named`. Raises UsageError if there is none."""
    named = _named(options)
    if not named:
        raise UsageError("--user, --client-id or --ip is required, or the default of one of them")
    return named


def _print(options: argparse.Namespace, found: Mapping[QuotaEntity, Mapping[str, float]]) -> None:
    if options.json:
        print(json.dumps([{"entity": dict(of), "quotas": values} for of, values in found.items()]))
    elif found:
        rows = [
            [*_shown(dict(of)), key, f"{value:.17g}"] for of, values in found.items() for key, value in values.items()
        ]
        print(columns(["USER", "CLIENT ID", "IP", "QUOTA", "VALUE"], rows))
    else:
        print("No quotas found.")


def _shown(of: Mapping[str, str | None]) -> list[str]:
    return ["-" if kind not in of else of[kind] or SHOWN_DEFAULT for kind in (USER, CLIENT_ID, IP)]
