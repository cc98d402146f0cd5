"""Arguments that several commands share, and the parsing of their values."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeAlias

from raylog.client.admin.admin_client import AdminClient, admin_client
from raylog.client.client_config import ClientConfig
from raylog.config.client import BOOTSTRAP_SERVERS
from raylog.config.properties import parse_properties
from raylog.config.table import is_sensitive
from raylog.core.config import INT_MAX, LONG_MAX, SHOWN_CHARACTERS_MAX, shown
from raylog.core.errors import ConfigError
from raylog.core.ids import TopicPartition

Subparsers: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"
CLIENT_ID = "raylog-cli"
DEFAULT_NAME = "raylog"
DEFAULT_BOOTSTRAP_SERVER = "127.0.0.1:9092"


def add_bootstrap_server(parser: argparse.ArgumentParser, *, or_controller: bool = False) -> None:
    """`or_controller`: with --bootstrap-controller, for what controllers serve as well."""
    bootstrap = parser.add_mutually_exclusive_group()
    if or_controller:
        bootstrap.add_argument(
            "--bootstrap-controller",
            metavar="HOST:PORT[,...]",
            help="controllers to connect to, in place of brokers (raylog start --controller-port)",
        )
    bootstrap.add_argument(
        "-b",
        "--bootstrap-server",
        metavar="HOST:PORT[,...]",
        help="brokers to connect to first, of raylog or of Apache Kafka (default: bootstrap.servers in"
        f" --command-config, or {DEFAULT_BOOTSTRAP_SERVER})",
    )
    add_command_config(parser)


def add_command_config(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--command-config",
        metavar="FILE",
        help="properties of Kafka's clients, such as security.protocol and sasl.jaas.config, for brokers with TLS or a"
        " login",
    )


def add_cluster(parser: argparse.ArgumentParser) -> None:
    """--name and --address: the cluster, and the Ray that runs it."""
    parser.add_argument("--name", default=DEFAULT_NAME, help=f"the cluster's name (default: {DEFAULT_NAME})")
    parser.add_argument(
        "--address", metavar="RAY", help="address of the Ray cluster, as for ray.init (default: RAY_ADDRESS)"
    )


def client_config(options: argparse.Namespace, *, isolation_level: str | None = None) -> ClientConfig:
    """Raises ConfigError and OSError."""
    properties = {BOOTSTRAP_SERVERS.name: DEFAULT_BOOTSTRAP_SERVER, **read_properties(options.command_config)}
    return ClientConfig.of(options.bootstrap_server, properties, isolation_level=isolation_level)


def open_client(options: argparse.Namespace) -> AdminClient:
    """Raises ConfigError and OSError."""
    controllers = getattr(options, "bootstrap_controller", None)
    return admin_client(client_config(options), client_id=CLIENT_ID, controllers=controllers)


def check_topic(options: argparse.Namespace) -> None:
    """Raises KafkaError at once if no broker can be reached, or `options.topic` does not exist: clients would wait."""
    with open_client(options) as client:
        client.describe_topics(options.topic)


def topic_and_partitions(text: str) -> tuple[str, tuple[int, ...] | None]:
    """For argparse: `topic` for all its partitions, or `topic:0,1,...`."""
    topic, colon, numbers = text.partition(":")
    if not colon:
        return topic, None
    parts = numbers.split(",")
    if not topic or not all(part.isdecimal() and _bounded(part, INT_MAX) <= INT_MAX for part in parts):
        raise argparse.ArgumentTypeError(f"{text!r}: must be a topic, or topic:0,1,...")
    return topic, tuple(int(part) for part in parts)


def partitions_of(client: AdminClient, topics: Iterable[tuple[str, tuple[int, ...] | None]]) -> list[TopicPartition]:
    """The partitions that `topic_and_partitions` has parsed. Raises KafkaError for a topic that does not exist."""
    wanted = list(topics)
    known = client.describe_topics(dict.fromkeys(topic for topic, _ in wanted))
    return [
        TopicPartition(topic, number)
        for topic, numbers in wanted
        for number in (range(len(known[topic].partitions)) if numbers is None else numbers)
    ]


def key_and_value(text: str) -> tuple[str, str]:
    """For argparse: `key=value` as a pair."""
    key, separator, value = text.partition("=")
    if not separator or not key:
        raise argparse.ArgumentTypeError(f"{text!r}: must be key=value")
    return key, value


def id_and(value: Callable[[str], Any]) -> Callable[[str], tuple[int, Any]]:
    """For argparse: `ID:...`, a broker's id and what `value` makes of the rest."""

    def parse(text: str) -> tuple[int, Any]:
        broker_id, colon, rest = text.partition(":")
        if not colon or not broker_id.isdecimal() or _bounded(broker_id, INT_MAX) > INT_MAX:
            raise argparse.ArgumentTypeError(f"{text!r}: must begin with the id of a broker and a colon")
        return int(broker_id), value(rest)

    return parse


def timestamp_ms(text: str) -> int:
    """For argparse: a date and time, in milliseconds; UTC without a time zone."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"{text!r}: must be like 2026-01-31T12:00:00, with or without a time zone"
        ) from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return int(moment.timestamp() * 1000)


def refuse_passwords(names: Iterable[str], *, file_option: str = "--config-file") -> None:
    """Raises ConfigError for the key of a password: every user of the machine can see the command line."""
    for name in names:
        if is_sensitive(name):
            raise ConfigError(f"{name}=[hidden]: is visible in the list of processes; set it in a file ({file_option})")


def read_properties(path: str | None) -> dict[str, str]:
    """The entries of a file of properties, in Java's format; none without a file. Raises ConfigError and OSError."""
    if path is None:
        return {}
    text = read_text(path)
    try:
        return parse_properties(text)
    except ConfigError as error:
        raise ConfigError(f"{path}: {error.message}") from None


def read_text(path: str | Path) -> str:
    """Raises ConfigError if the file is not UTF-8, and OSError."""
    try:
        return Path(path).read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise ConfigError(f"{path}: is not UTF-8 text") from None


def broker_ids(text: str) -> list[int]:
    """For argparse: `0,1,2`."""
    return [whole_number(0, INT_MAX)(each) for each in names(text)]


def names(text: str) -> list[str]:
    """For argparse: `one,two`."""
    return [each.strip() for each in text.split(",") if each.strip()]


def whole_number(minimum: int, maximum: int = LONG_MAX) -> _WholeNumber:
    """For argparse: a whole number of this range. `maximum` is what the field of a request can hold."""
    return _WholeNumber(minimum, maximum)


class _WholeNumber:
    def __init__(self, minimum: int, maximum: int) -> None:
        self._minimum = minimum
        self._maximum = maximum

    def __call__(self, text: str) -> int:
        if not text.isdecimal():
            raise argparse.ArgumentTypeError(f"{text!r}: must be a whole number of at least {self._minimum}")
        number = _bounded(text, self._maximum)
        if number < self._minimum:
            raise argparse.ArgumentTypeError(f"{text!r}: must be a whole number of at least {self._minimum}")
        if number > self._maximum:
            raise argparse.ArgumentTypeError(f"{shown(text)}: must be at most {self._maximum}")
        return number


def _bounded(digits: str, maximum: int) -> int:
    """The number, or one above the maximum: Python does not read numbers of thousands of digits."""
    return int(digits) if len(digits) <= SHOWN_CHARACTERS_MAX else maximum + 1
