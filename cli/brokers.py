"""`raylog brokers`: list, add, restart, decommission and remove brokers.

`list` prints the registered brokers, with --json as an array:

    [{"id": 0, "host": "127.0.0.1", "port": 9092, "rack": null, "fenced": false, "replicas": 12, "leaders": 4,
      "role": "broker"}]

A fenced broker is registered but sends no heartbeats. Coordinators that are alive follow the brokers, with the role
group-coordinator or transaction-coordinator. `list`, `decommission` and `unregister` connect to any broker,
also of Apache Kafka; `add`, `restart` and `remove` find a raylog cluster by its name.

`add` starts new brokers; with --json it prints their id, host and port as `list` does. They hold no replicas until
`raylog reassign` moves some to them, or a topic is created.

`restart` restarts brokers one at a time and waits until each is in sync again. `restart --all` restarts the controllers
and coordinators too. It takes the arguments of `raylog start` with a configuration, which replaces the former one: what
is not in it gets its default. If a broker does not start with it, the others keep running; the same command, also with
another configuration, continues.

`decommission` moves all replicas of a broker to the others and waits until they are in sync. If the cluster can be
found by name, the broker is then removed as by `remove`: it is stopped, unregistered, and no longer started with the
cluster; its directory is kept. Otherwise the broker is unregistered if it is stopped. If it is alive, `unregister` must
be run later, or --wait-until-stopped waits for it.
"""

from __future__ import annotations

import argparse
import os
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from raylog.actors.announcement import find_announced
from raylog.actors.cluster import Cluster, connect_to_change
from raylog.cli import reassign
from raylog.cli.arguments import (
    DEFAULT_NAME,
    Subparsers,
    add_bootstrap_server,
    add_cluster,
    add_command_config,
    open_client,
    read_properties,
    whole_number,
)
from raylog.cli.columns import columns
from raylog.cli.configuration import (
    add_configuration,
    broker_configuration,
    configuration,
    has_configuration,
    refuse_passwords_in_arguments,
    users,
)
from raylog.cli.output import add_json, progress, show
from raylog.cli.usage import UsageError
from raylog.client import reassignments
from raylog.client.admin.admin_client import AdminClient
from raylog.client.reassignment_plan import emptied, format_plan
from raylog.core.config import INT_MAX
from raylog.core.errors import ConfigError, ErrorCode, KafkaError
from raylog.metadata.node_roles import NodeRole, role_of

POLL_SECONDS = 0.5


def add_to(subparsers: Subparsers) -> None:
    parser = subparsers.add_parser("brokers", help="show, add, restart and remove brokers")
    actions = parser.add_subparsers(title="actions", metavar="ACTION", required=True)

    listing = actions.add_parser("list", help="print the registered brokers")
    listing.set_defaults(run=_list)

    add = actions.add_parser("add", help="start new brokers")
    add.add_argument(
        "--count", type=whole_number(1), default=1, metavar="N", help="number of new brokers (default: %(default)s)"
    )
    add.set_defaults(run=_add)

    restart = actions.add_parser(
        "restart",
        help="restart brokers one at a time, waiting until each is in sync",
        description="Restart brokers one at a time, waiting until each is in sync; --all restarts the controllers and"
        " coordinators too. A configuration replaces the former one completely; ports are kept where no others are"
        " configured. --secure and --users-file alone keep the configuration.",
    )
    which = restart.add_mutually_exclusive_group(required=True)
    which.add_argument(
        "brokers",
        type=whole_number(0, INT_MAX),
        nargs="*",
        default=[],
        metavar="ID",
        help="brokers to restart, in this order",
    )
    which.add_argument("--all", action="store_true", help="restart all nodes")
    add_configuration(restart)
    restart.set_defaults(run=_restart)

    remove = actions.add_parser("remove", help="stop and unregister a broker that holds no replicas")
    _add_broker(remove)
    remove.set_defaults(run=_remove)

    decommission = actions.add_parser("decommission", help="move all replicas off a broker, then remove it")
    _add_broker(decommission)
    decommission.add_argument(
        "--throttle", type=whole_number(1), metavar="BYTES", help="limit replication to this many bytes per second"
    )
    decommission.add_argument(
        "--wait-until-stopped", action="store_true", help="wait until the broker is stopped, then unregister it"
    )
    decommission.add_argument("--dry-run", action="store_true", help="print the reassignment plan without executing it")
    decommission.set_defaults(run=_decommission)

    unregister = actions.add_parser("unregister", help="unregister a broker that will not come back")
    _add_broker(unregister)
    unregister.add_argument("--force", action="store_true", help="unregister it even if it holds replicas")
    unregister.set_defaults(run=_unregister)

    add_json(listing, add, restart, remove, decommission, unregister)
    for action in (listing, decommission, unregister):
        add_bootstrap_server(action)
    for action in (add, restart, remove, decommission):
        add_cluster(action)
    for action in (restart, remove):
        add_command_config(action)
    decommission.set_defaults(name=None)  # without a name, a cluster that cannot be found is not an error


def _add_broker(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("broker", type=whole_number(0, INT_MAX), metavar="ID")


def _list(options: argparse.Namespace) -> None:
    with open_client(options) as client:
        found = _described(client)
    rows = [
        [
            str(one["id"]),
            f"{one['host']}:{one['port']}",
            one["rack"] or "-",
            "fenced" if one["fenced"] else "alive",
            str(one["replicas"]),
            str(one["leaders"]),
            one["role"],
        ]
        for one in found
    ]
    show(options, found, columns(["BROKER", "LISTENS ON", "RACK", "STATE", "REPLICAS", "LEADERS", "ROLE"], rows))


def _described(client: AdminClient) -> list[dict[str, Any]]:
    partitions = [each for topic in client.describe_topics().values() for each in topic.partitions]
    replicas = Counter(broker_id for each in partitions for broker_id in each.replicas)
    leaders = Counter(each.leader for each in partitions)
    brokers = client.describe_cluster(include_fenced_brokers=True).nodes
    coordinators = client.describe_coordinators()
    nodes = [(each, NodeRole.BROKER) for each in brokers] + [(each, role_of(each.node_id)) for each in coordinators]
    return [
        {
            "id": broker.node_id,
            "host": broker.host,
            "port": broker.port,
            "rack": broker.rack,
            "fenced": broker.is_fenced,
            "replicas": replicas[broker.node_id],
            "leaders": leaders[broker.node_id],
            "role": role.value,
        }
        for broker, role in nodes
    ]


def _add(options: argparse.Namespace) -> None:
    with connect_to_change(options.name, address=options.address) as cluster:
        added = cluster.add_brokers(options.count)
    found = [{"id": one.id, "host": one.host, "port": one.port} for one in added]
    show(options, found, "\n".join(f"Started broker {one.id} on {one.host}:{one.port}." for one in added))


def _restart(options: argparse.Namespace) -> None:
    refuse_passwords_in_arguments(options)
    changed = has_configuration(options) or options.secure is not None or options.users_file is not None
    if changed and not options.all:
        raise UsageError("a configuration is for all brokers: use --all")
    report = progress(options)
    with _connected(options) as cluster:
        wanted = cluster.broker_ids if options.all else options.brokers
        if changed:
            _change_configuration(cluster, options, report)
        else:
            _restart_all(cluster, options, wanted, report)
    show(options, {"restarted": list(wanted)}, "")


def _restart_all(
    cluster: Cluster, options: argparse.Namespace, wanted: Sequence[int], report: Callable[[str], None]
) -> None:
    for broker_id in wanted:
        _check_is_there(cluster, broker_id)
    if options.all:
        cluster.rolling_restart(report=report)
        return
    for number, broker_id in enumerate(options.brokers, 1):
        report(f"Restarting broker {broker_id}, {number} of {len(options.brokers)}.")
        began = time.monotonic()
        cluster.restart_broker(broker_id)
        report(f"Broker {broker_id} is in sync after {time.monotonic() - began:.1f} s.")


def _change_configuration(cluster: Cluster, options: argparse.Namespace, report: Callable[[str], None]) -> None:
    given = has_configuration(options)
    cluster.rolling_restart(
        config=configuration(options) if given else None,
        broker_config=broker_configuration(options) if given else None,
        secure=options.secure,
        users=users(options),
        report=report,
    )


def _check_is_there(cluster: Cluster, broker_id: int) -> None:
    try:
        cluster.broker(broker_id)
    except KeyError as error:
        if broker_id in cluster.broker_ids:
            raise KafkaError(ErrorCode.BROKER_NOT_AVAILABLE, str(error.args[0])) from None
        message = f"cluster {cluster.name!r} has no broker {broker_id}"
        raise KafkaError(ErrorCode.BROKER_ID_NOT_REGISTERED, message) from None


def _remove(options: argparse.Namespace) -> None:
    with _connected(options) as cluster:
        done = _removed(cluster, options.broker)
    show(options, done, _kept(done))


def _connected(options: argparse.Namespace, name: str | None = None) -> Cluster:
    """Raises ConfigError and OSError."""
    properties = read_properties(options.command_config)
    return connect_to_change(name or options.name, address=options.address, client_config=properties)


def _removed(cluster: Cluster, broker_id: int) -> dict[str, Any]:
    """What --json prints of a broker that has been removed."""
    kept = cluster.remove_broker(broker_id)
    return {"removed": broker_id, "path": kept.path, "host": kept.host}


def _kept(done: Mapping[str, Any]) -> str:
    return f"Removed broker {done['removed']}. Its directory is kept: {done['path']} on {done['host']}."


def _decommission(options: argparse.Namespace) -> None:
    leaving = options.broker
    with open_client(options) as client:
        known = {node.node_id: node for node in client.describe_cluster(include_fenced_brokers=True).nodes}
        if leaving not in known:
            raise KafkaError(ErrorCode.BROKER_ID_NOT_REGISTERED, f"broker {leaving} is not registered")
        if client.list_partition_reassignments():
            message = "partitions are already being reassigned: wait until that is complete, or cancel it"
            raise KafkaError(ErrorCode.REASSIGNMENT_IN_PROGRESS, message)
        cluster = _found_by_name(options, client)
        staying = {one.node_id: one.rack for one in known.values() if one.node_id != leaving and not one.is_fenced}
        present = reassignments.present_plan(client, None)
        plan = emptied(present, leaving, staying)
        if options.dry_run:
            print(format_plan(plan))
            return
        report = progress(options)
        if plan:
            report(f"Moving {len(plan)} partition(s) off broker {leaving}.")
            reassign.begin(client, present, plan, throttle=options.throttle)
            reassign.wait_until_complete(client, plan)
            if options.throttle is not None:
                reassignments.clear_throttle(client, {tp.topic for tp in plan})
        if cluster is not None and leaving in cluster.broker_ids:
            done = _removed(cluster, leaving)
            show(options, done, _kept(done))
        else:
            _forget_when_stopped(client, options, report)


def _found_by_name(options: argparse.Namespace, client: AdminClient) -> Cluster | None:
    """The cluster of the bootstrap servers, if this process can join it. Raises KafkaError if the name that was given
    belongs to another cluster, or to none."""
    asked_for = options.name is not None
    name = options.name or DEFAULT_NAME
    if not asked_for and not (options.address or "RAY_ADDRESS" in os.environ or find_announced(name)):
        return None
    try:
        cluster = _connected(options, name)
        cluster_id = client.describe_cluster().cluster_id
        if all(broker.cluster_id != cluster_id for broker in cluster.status()):
            raise ConfigError(f"name={name!r}: is another cluster than that of the bootstrap servers")
    except ConfigError:
        if asked_for:
            raise
        return None
    return cluster


def _forget_when_stopped(client: AdminClient, options: argparse.Namespace, report: Callable[[str], None]) -> None:
    broker_id = options.broker
    if broker_id in reassignments.broker_ids(client):
        report(f"Broker {broker_id} holds no replicas. Stop it, then unregister it.")
        if not options.wait_until_stopped:
            show(options, {"emptied": broker_id}, "")
            return
        while broker_id in reassignments.broker_ids(client):
            time.sleep(POLL_SECONDS)
    _forget(client, options)


def _unregister(options: argparse.Namespace) -> None:
    with open_client(options) as client:
        if options.force:
            _unregistered(client, options)
        else:
            _forget(client, options)


def _forget(client: AdminClient, options: argparse.Namespace) -> None:
    """Raises KafkaError if the broker has been assigned replicas in the meantime."""
    reassignments.check_holds_nothing(client, options.broker)
    _unregistered(client, options)


def _unregistered(client: AdminClient, options: argparse.Namespace) -> None:
    client.unregister_broker(options.broker)
    show(options, {"unregistered": options.broker}, f"Unregistered broker {options.broker}.")
