"""The arguments with the configuration of a cluster, of `raylog start` and `raylog brokers restart`.

Files may be those of Apache Kafka: what they set for parts that raylog does not have is reported on stderr.
"""

from __future__ import annotations

import argparse
import sys
from typing import Any

from raylog.cli.arguments import id_and, key_and_value, read_properties, read_text, refuse_passwords
from raylog.config.server_properties import of_kafka
from raylog.core.config import shown_name
from raylog.core.errors import ConfigError


def add_configuration(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--config",
        type=key_and_value,
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="a key of Kafka's broker configuration; can be repeated and overrides --config-file",
    )
    parser.add_argument(
        "--config-file",
        metavar="FILE",
        help="broker configuration, such as the server.properties of an Apache Kafka; passwords belong here",
    )
    parser.add_argument(
        "--broker-config",
        type=id_and(key_and_value),
        action="append",
        default=[],
        metavar="ID:KEY=VALUE",
        help="a key for a single broker; can be repeated and overrides all others",
    )
    parser.add_argument(
        "--broker-config-file",
        type=id_and(str),
        action="append",
        default=[],
        metavar="ID:FILE",
        help="configuration of a single broker, as --config-file; can be repeated",
    )
    parser.add_argument(
        "--secure",
        action=argparse.BooleanOptionalAction,
        help="clients must log in over TLS, and access is controlled; makes certificates and an administrator, whose"
        " login is written to client.properties and librdkafka.conf in the data directory (default: as it was before)",
    )
    parser.add_argument(
        "--users-file",
        metavar="FILE",
        help="users who can log in by SCRAM, as lines of name=password. The password is all that follows the first =,"
        " without escapes; empty lines and lines that begin with # are skipped. Users that exist are left as they are",
    )


def refuse_passwords_in_arguments(options: argparse.Namespace) -> None:
    """Raises ConfigError."""
    refuse_passwords(name for name, _ in [*options.config, *(entry for _, entry in options.broker_config)])


def has_configuration(options: argparse.Namespace) -> bool:
    """Whether any of these arguments contains the configuration of brokers."""
    return bool(options.config or options.config_file or options.broker_config or options.broker_config_file)


def configuration(options: argparse.Namespace) -> dict[str, Any]:
    """That of all brokers. Raises ConfigError and OSError for a file."""
    return {**_read(options.config_file), **dict(options.config)}


def broker_configuration(options: argparse.Namespace) -> dict[int, dict[str, Any]]:
    """What is set for single brokers, by their ids. Raises ConfigError and OSError for a file."""
    found: dict[int, dict[str, Any]] = {}
    for broker_id, path in options.broker_config_file:
        found.setdefault(broker_id, {}).update(_read(path))
    for broker_id, (key, value) in options.broker_config:
        found.setdefault(broker_id, {})[key] = value
    return found


def users(options: argparse.Namespace) -> dict[str, str]:
    """The passwords of users by their names. Raises ConfigError, which shows no password, and OSError."""
    path = options.users_file
    found: dict[str, str] = {}
    text = "" if path is None else read_text(path).removeprefix("\ufeff")
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        name, separator, password = line.partition("=")
        name = name.strip()
        rule = ""
        if not separator:
            rule = "must be name=password"
        elif not name:
            rule = "the name is empty"
        elif not password:
            rule = f"the password of {shown_name(name)} is empty"
        elif password != password.strip():
            rule = f"the password of {shown_name(name)} begins or ends with a space: write name=password"
        elif name in found:
            rule = f"{shown_name(name)} is contained twice"
        if rule:
            raise ConfigError(f"{path}: line {number}: {rule}")
        found[name] = password
    return found


def _read(path: str | None) -> dict[str, str]:
    """What a file sets. Raises ConfigError and OSError."""
    entries = read_properties(path)
    try:
        found = of_kafka(entries)
    except ConfigError as error:
        raise ConfigError(f"{path}: {error.message}") from None
    for note in found.notes:
        print(f"raylog: {path}: {note}", file=sys.stderr)
    return dict(found.config)
