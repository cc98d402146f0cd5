"""The arguments with the configuration of a cluster, of `raylog start` and `raylog brokers restart`.

Files may be those of Apache Kafka: what they set for parts that raylog does not have is reported on stderr.
"""

from __future__ import annotations

import argparse
import sys
from typing import Any

from raylog.cli.arguments import id_and, key_and_value, read_properties, refuse_passwords
from raylog.config.server_properties import of_kafka
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
        help="users who can log in by SCRAM, as lines of name=password; those that exist are left as they are",
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
