"""`raylog brokers`: show the brokers that are registered, and take brokers out of the cluster.

`list` prints them, with --json an array:

    [{"id": 0, "host": "127.0.0.1", "port": 9092, "rack": null, "fenced": false, "replicas": 12, "leaders": 4}]

One that is fenced is registered, and not heard of. `decommission` moves all replicas of a broker to the others,
and waits until they are in sync. Where the broker is stopped it is then forgotten; where it is alive, that is left to
`unregister`, unless --wait-until-stopped says to wait for it.
"""

from __future__ import annotations

import argparse
import json
import time
from collections import Counter
from typing import Any

from raylog.cli import reassign
from raylog.cli.arguments import Subparsers, add_bootstrap_server, open_client, whole_number
from raylog.cli.columns import columns
from raylog.client import admin, reassignments
from raylog.client.cluster_client import ClusterClient
from raylog.client.reassignment_plan import emptied, format_plan
from raylog.core.errors import ErrorCode, KafkaError

LOOK_AGAIN_SECONDS = 0.5


def add_to(subparsers: Subparsers) -> None:
    parser = subparsers.add_parser("brokers", help="show brokers, and take them out of the cluster")
    actions = parser.add_subparsers(title="actions", metavar="ACTION", required=True)

    listing = actions.add_parser("list", help="print the brokers that are registered")
    listing.add_argument("--json", action="store_true", help="print one JSON array")
    listing.set_defaults(run=_list)

    decommission = actions.add_parser("decommission", help="move everything off a broker, and have it forgotten")
    _add_broker(decommission)
    decommission.add_argument("--throttle", type=whole_number(1), metavar="BYTES", help="at most so many in a second")
    decommission.add_argument(
        "--wait-until-stopped", action="store_true", help="have it forgotten as soon as somebody has stopped it"
    )
    decommission.add_argument("--dry-run", action="store_true", help="only print the plan by which it would be emptied")
    decommission.set_defaults(run=_decommission)

    unregister = actions.add_parser("unregister", help="have a broker forgotten that will not come back")
    _add_broker(unregister)
    unregister.add_argument("--force", action="store_true", help="also where it still holds replicas")
    unregister.set_defaults(run=_unregister)

    for action in (listing, decommission, unregister):
        add_bootstrap_server(action)


def _add_broker(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("broker", type=whole_number(0), metavar="ID")


def _list(options: argparse.Namespace) -> None:
    with open_client(options) as client:
        found = _described(client)
    if options.json:
        print(json.dumps(found))
        return
    rows = [
        [
            str(one["id"]),
            f"{one['host']}:{one['port']}",
            one["rack"] or "-",
            "fenced" if one["fenced"] else "alive",
            str(one["replicas"]),
            str(one["leaders"]),
        ]
        for one in found
    ]
    print(columns(["BROKER", "LISTENS ON", "RACK", "STATE", "REPLICAS", "LEADERS"], rows))


def _described(client: ClusterClient) -> list[dict[str, Any]]:
    partitions = [each for topic in client.view(None).metadata.topics for each in topic.partitions]
    replicas = Counter(broker_id for each in partitions for broker_id in each.replica_nodes)
    leaders = Counter(each.leader_id for each in partitions)
    return [
        {
            "id": broker.broker_id,
            "host": broker.host,
            "port": broker.port,
            "rack": broker.rack,
            "fenced": broker.is_fenced,
            "replicas": replicas[broker.broker_id],
            "leaders": leaders[broker.broker_id],
        }
        for broker in admin.brokers(client)
    ]


def _decommission(options: argparse.Namespace) -> None:
    leaving = options.broker
    with open_client(options) as client:
        known = {broker.broker_id: broker for broker in admin.brokers(client)}
        if leaving not in known:
            raise KafkaError(ErrorCode.BROKER_ID_NOT_REGISTERED, f"broker {leaving} is not registered")
        if reassignments.under_way(client):
            message = "partitions are being moved already: wait until that is over, or cancel it"
            raise KafkaError(ErrorCode.REASSIGNMENT_IN_PROGRESS, message)
        staying = {one.broker_id: one.rack for one in known.values() if one.broker_id != leaving and not one.is_fenced}
        present = reassignments.present_plan(client, None)
        plan = emptied(present, leaving, staying)
        if options.dry_run:
            print(format_plan(plan))
            return
        if plan:
            print(f"Moving {len(plan)} partition(s) off broker {leaving}.")
            reassign.begin(client, present, plan, throttle=options.throttle)
            reassign.wait_until_complete(client, plan)
            if options.throttle is not None:
                reassignments.clear_throttle(client, {tp.topic for tp in plan})
        _forget_when_stopped(client, leaving, wait=options.wait_until_stopped)


def _forget_when_stopped(client: ClusterClient, broker_id: int, *, wait: bool) -> None:
    if broker_id in admin.broker_ids(client):
        print(f"Broker {broker_id} holds nothing any more. Stop it, and it can be unregistered.", flush=True)
        if not wait:
            return
        while broker_id in admin.broker_ids(client):
            time.sleep(LOOK_AGAIN_SECONDS)
    _forget(client, broker_id)


def _unregister(options: argparse.Namespace) -> None:
    with open_client(options) as client:
        if options.force:
            admin.unregister_broker(client, options.broker)
            print(f"Unregistered broker {options.broker}.")
        else:
            _forget(client, options.broker)


def _forget(client: ClusterClient, broker_id: int) -> None:
    """Raises KafkaError where it has been given something meanwhile."""
    held = [tp for tp, replicas in reassignments.present_plan(client, None).items() if broker_id in replicas]
    if held:
        message = f"broker {broker_id} still holds {len(held)} replica(s), one of {min(held)} among them"
        raise KafkaError(ErrorCode.INVALID_REQUEST, message)
    admin.unregister_broker(client, broker_id)
    print(f"Unregistered broker {broker_id}.")
