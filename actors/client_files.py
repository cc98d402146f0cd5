"""(shell) How clients log in to a secure cluster: files in its data directory that only the owner can read.

client.properties   for Kafka's Java clients and tools, and for raylog's own: --command-config
librdkafka.conf     for clients that use librdkafka: kcat -F
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from raylog.actors.data_dir import write_atomically
from raylog.actors.given_config import ADMINISTRATOR
from raylog.config.properties import format_properties, parse_properties
from raylog.core.errors import ConfigError
from raylog.core.password import Password
from raylog.security.sasl.jaas import parse_jaas

PROPERTIES_FILE: Final = "client.properties"
LIBRDKAFKA_FILE: Final = "librdkafka.conf"
MECHANISM: Final = "SCRAM-SHA-512"
_PASSWORD_BYTES: Final = 24
_MODULE: Final = "org.apache.kafka.common.security.scram.ScramLoginModule"
_TITLE: Final = "# How to log in as the administrator of this cluster. raylog writes it at every start.\n"


def new_password() -> Password:
    return Password(secrets.token_urlsafe(_PASSWORD_BYTES))


def read_password(root: Path) -> tuple[Password, bool] | None:
    """The administrator's password in client.properties, and whether the cluster has it; None if there is none.

    A file without servers was written by a start that did not complete: the cluster may not have the password.
    Raises ConfigError.
    """
    path = root / PROPERTIES_FILE
    try:
        properties = parse_properties(path.read_text())
        options = parse_jaas(properties.get("sasl.jaas.config", "")).options
        return Password(options["password"]), properties.get("bootstrap.servers") != ""
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError, ConfigError, KeyError) as error:
        reason = error.strerror if isinstance(error, OSError) else "contains no password"
        raise ConfigError(f"data_dir={str(root)!r}: {path}: {reason}") from None


def client_properties(servers: str, password: Password, authority: Path | None) -> dict[str, str]:
    """Kafka's properties. `authority` is the file with the certificate to trust; None: those of the system."""
    properties = {
        "bootstrap.servers": servers,
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": MECHANISM,
        "sasl.jaas.config": f'{_MODULE} required username="{ADMINISTRATOR}" password="{password.reveal()}";',
    }
    if authority is not None:
        properties |= {"ssl.truststore.type": "PEM", "ssl.truststore.location": str(authority)}
    return properties


def write_client_files(root: Path, servers: str, password: Password, authority: Path | None) -> None:
    """Raises ConfigError."""
    librdkafka = {
        "bootstrap.servers": servers,
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": MECHANISM,
        "sasl.username": ADMINISTRATOR,
        "sasl.password": password.reveal(),
    }
    if authority is not None:
        librdkafka["ssl.ca.location"] = str(authority)
    try:
        properties = format_properties(client_properties(servers, password, authority))
        write_atomically(root / PROPERTIES_FILE, (_TITLE + properties).encode())
        write_atomically(root / LIBRDKAFKA_FILE, (_TITLE + _lines(librdkafka)).encode())
    except OSError as error:
        raise ConfigError(f"data_dir={str(root)!r}: {error}") from error


def _lines(entries: Mapping[str, str]) -> str:
    return "".join(f"{name}={value}\n" for name, value in entries.items())
