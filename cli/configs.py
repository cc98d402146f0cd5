"""`raylog configs`: show and change the configuration of topics, brokers and others while they run (kafka-configs).

`describe` prints the values that were set, with --all also defaults. With --json it prints an array of objects:

    [{"name": "retention.ms", "value": "5000", "source": "DYNAMIC_TOPIC_CONFIG", "read_only": false}]

Brokers of raylog have no loggers and no subscriptions to metrics of clients; those of Apache Kafka do.
"""

from __future__ import annotations

import argparse
from collections.abc import Collection

from raylog.cli.arguments import (
    Subparsers,
    add_bootstrap_server,
    key_and_value,
    names,
    open_client,
    read_properties,
    refuse_passwords,
    whole_number,
)
from raylog.cli.columns import columns
from raylog.cli.output import add_json, show
from raylog.cli.usage import UsageError
from raylog.client.admin.admin_client import AdminClient
from raylog.client.admin.configs import ConfigEntry, ConfigResource, ConfigResourceType
from raylog.core.config import INT_MAX, ConfigSource
from raylog.core.errors import ErrorCode, KafkaError

NOT_SET_WHILE_RUNNING = (ConfigSource.STATIC_BROKER_CONFIG, ConfigSource.DEFAULT_CONFIG)
SOURCES = {source.value: source.name for source in ConfigSource}


def add_to(subparsers: Subparsers) -> None:
    parser = subparsers.add_parser("configs", help="show and change the configuration of topics, brokers and others")
    actions = parser.add_subparsers(title="actions", metavar="ACTION", required=True)

    describe = actions.add_parser("describe", help="print the values that were set")
    _add_resource(describe)
    describe.add_argument("--all", action="store_true", help="print all keys, including defaults")
    describe.set_defaults(run=_describe)

    alter = actions.add_parser("alter", help="set keys, or delete them")
    _add_resource(alter)
    alter.add_argument("--add", type=key_and_value, action="append", default=[], metavar="KEY=VALUE")
    alter.add_argument("--add-config-file", metavar="FILE", help="add the entries of a file, for passwords")
    alter.add_argument("--delete", type=names, action="extend", default=[], metavar="KEY[,...]")
    alter.set_defaults(run=_alter)

    for action in (describe, alter):
        add_json(action)
        add_bootstrap_server(action, or_controller=True)


def _add_resource(parser: argparse.ArgumentParser) -> None:
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument("--topic", metavar="NAME")
    which.add_argument("--group", metavar="NAME", help="a group; it need not exist")
    which.add_argument("--broker", type=whole_number(0, INT_MAX), metavar="ID")
    which.add_argument("--broker-defaults", action="store_true", help="the values that apply to all brokers")
    which.add_argument(
        "--broker-logger", type=whole_number(0, INT_MAX), metavar="ID", help="the log levels of a broker"
    )
    which.add_argument("--client-metrics", metavar="NAME", help="a subscription to metrics of clients")


def _resource(options: argparse.Namespace) -> ConfigResource:
    if options.topic is not None:
        return ConfigResource(ConfigResourceType.TOPIC, options.topic)
    if options.group is not None:
        return ConfigResource(ConfigResourceType.GROUP, options.group)
    if options.broker_logger is not None:
        return ConfigResource(ConfigResourceType.BROKER_LOGGER, str(options.broker_logger))
    if options.client_metrics is not None:
        return ConfigResource(ConfigResourceType.CLIENT_METRICS, options.client_metrics)
    return ConfigResource(ConfigResourceType.BROKER, "" if options.broker is None else str(options.broker))


def _describe(options: argparse.Namespace) -> None:
    resource = _resource(options)
    with open_client(options) as client:
        entries = client.describe_configs(resource)[resource]
    shown = [entry for entry in entries.values() if options.all or entry.source not in NOT_SET_WHILE_RUNNING]
    inherits = resource.type in (ConfigResourceType.TOPIC, ConfigResourceType.GROUP)
    if inherits and not options.all:  # without the values of brokers
        shown = [entry for entry in shown if entry.is_own]
    found = [
        {"name": one.name, "value": one.value, "source": _source(one), "read_only": one.is_read_only} for one in shown
    ]
    rows = [[one.name, "-" if one.value is None else one.value, _source(one)] for one in shown]
    show(options, found, columns(["KEY", "VALUE", "SOURCE"], rows) if rows else "No values are set.")


def _alter(options: argparse.Namespace) -> None:
    if not options.add and not options.delete and options.add_config_file is None:
        raise UsageError("--add, --add-config-file or --delete is required")
    refuse_passwords((name for name, _ in options.add), file_option="--add-config-file")
    added = {**read_properties(options.add_config_file), **dict(options.add)}
    twice = sorted(added.keys() & set(options.delete))
    if twice:
        raise UsageError(f"{twice[0]}: cannot be added and deleted at the same time")
    with open_client(options) as client:
        refuse_unknown_keys(client, _resource(options), options.delete)
        client.incremental_alter_configs({_resource(options): {**added, **dict.fromkeys(options.delete)}})
    changed = {"added": sorted(added), "deleted": options.delete}
    show(options, changed, "Updated the configuration.")


def refuse_unknown_keys(client: AdminClient, resource: ConfigResource, deleted: Collection[str]) -> None:
    """Raises KafkaError: brokers delete what a topic or a group does not have, a mistyped key too, without an error."""
    if deleted and resource.type in (ConfigResourceType.TOPIC, ConfigResourceType.GROUP):
        known = client.describe_configs([resource])[resource]
        for name in deleted:
            if name not in known:
                raise KafkaError(ErrorCode.INVALID_CONFIG, f"{name} is not a key of {resource}")


def _source(entry: ConfigEntry) -> str:
    return SOURCES.get(entry.source, str(entry.source))
