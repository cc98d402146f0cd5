"""`raylog status`: show the nodes and topics of a cluster.

With --json one object:

    {"name": "raylog", "cluster_id": "...", "bootstrap_servers": "127.0.0.1:9092",
     "brokers": [{"id": 0, "host": "127.0.0.1", "port": 9092, "pid": 4711, "node": "...", "state": "running",
                  "niceness": 0, "record_scan": "C",
                  "throttled": [{"quota": "producer_byte_rate", "user": "alice", "client_id": null, "ip": null,
                                 "times": 3, "total_ms": 1500}],
                  "offline": {"flights-3": "00000000000000000000.log was deleted"},
                  "uncleanable": {"prices-0": "00000000000000000000.log: at position 0: ..."},
                  "metrics": "127.0.0.1:9404"}],
     "coordinators": [{"id": 2000, "role": "group-coordinator", "host": "127.0.0.1", ... as of a broker}],
     "controllers": [{"id": 1000, "pid": 4711, "active": true, "metrics": null, "address": "127.0.0.1:9093"}],
     "topics": {"flights": {"partitions": 6}}}

A coordinator's role is group-coordinator or transaction-coordinator. The state of a broker or a coordinator is
starting, running, restarting, or "disk failed": its log directories are offline, and it leads nothing. offline lists up
to 100 log directories and partitions that cannot be used, with the reason, and uncleanable up to 100 partitions that
cannot be compacted.
metrics is the address of a node's metrics (raylog.metrics.address), address that of a controller for clients.
The port of a broker that is not running is 0, as is the pid of one that is restarting. At a niceness above 0 a broker
waits for the other processes of the machine. record_scan says what checks the records of producers: C, or the slower
numba or Python where raylog was installed without a C compiler. throttled lists the clients that were over a quota
since the broker started: those with this user, this client id, both, or this IP address, and for how long in all.
"""

from __future__ import annotations

import argparse
import json
from typing import TYPE_CHECKING, Any

from raylog.actors.cluster import ClusterStatus, cluster_status
from raylog.cli.arguments import Subparsers, add_cluster
from raylog.cli.columns import columns
from raylog.quotas.client_quotas import CONNECTION_CREATION_RATE
from raylog.quotas.usage import Throttled

if TYPE_CHECKING:
    from raylog.actors.broker import BrokerStatus

RUNNING = "running"
HEAD = ("STATE", "LISTENS ON", "PID", "NICE", "RECORD SCAN", "RAY NODE")


def add_to(subparsers: Subparsers) -> None:
    parser = subparsers.add_parser("status", help="show the nodes and topics of a cluster")
    add_cluster(parser)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> None:
    status = describe(options.name, cluster_status(options.name, address=options.address))
    print(json.dumps(status) if options.json else table(status))


def describe(name: str, cluster: ClusterStatus) -> dict[str, Any]:
    """The object that --json prints."""
    brokers = cluster.brokers
    running = [broker for broker in brokers if broker.state == RUNNING]
    topics = {topic: count for broker in running for topic, count in broker.topics.items()}
    return {
        "name": name,
        "cluster_id": running[0].cluster_id if running else None,
        "bootstrap_servers": ",".join(f"{broker.host}:{broker.port}" for broker in running),
        "brokers": [_broker(broker) for broker in brokers],
        "coordinators": [{**_broker(each), "role": each.role.value} for each in cluster.coordinators],
        "controllers": [
            {
                "id": controller.id,
                "pid": controller.pid,
                "active": controller.active,
                "metrics": controller.metrics or None,
                "address": controller.address or None,
            }
            for controller in cluster.controllers
        ],
        "topics": {topic: {"partitions": count} for topic, count in sorted(topics.items())},
    }


def _broker(broker: BrokerStatus) -> dict[str, Any]:
    return {
        "id": broker.id,
        "host": broker.host,
        "port": broker.port,
        "pid": broker.pid,
        "node": broker.node,
        "state": broker.state,
        "niceness": broker.niceness,
        "record_scan": broker.record_scan,
        "throttled": [_throttled(each) for each in broker.throttled],
        "offline": broker.offline,
        "uncleanable": broker.uncleanable,
        "metrics": broker.metrics or None,
    }


def _throttled(each: Throttled) -> dict[str, Any]:
    of_address = each.key == CONNECTION_CREATION_RATE
    return {
        "quota": each.key,
        "user": None if of_address else each.identity.user,
        "client_id": each.identity.client_id,
        "ip": each.identity.user if of_address else None,
        "times": each.times,
        "total_ms": each.total_ms,
    }


def _controller_state(controller: dict[str, Any]) -> str:
    if controller["active"]:
        return "active"
    return "standby" if controller["pid"] else "restarting"


def _row(broker: dict[str, Any]) -> list[str]:
    return [
        str(broker["id"]),
        broker["state"],
        f"{broker['host']}:{broker['port']}",
        str(broker["pid"]),
        str(broker["niceness"]),
        broker["record_scan"],
        broker["node"],
    ]


def table(status: dict[str, Any]) -> str:
    """The table that is printed without --json."""
    brokers = [_row(broker) for broker in status["brokers"]]
    coordinators = [[*_row(each), each["role"]] for each in status["coordinators"]]
    controllers = [
        [str(controller["id"]), _controller_state(controller), str(controller["pid"])]
        for controller in status["controllers"]
    ]
    topics = [[name, str(topic["partitions"])] for name, topic in status["topics"].items()]
    nodes = [*status["brokers"], *status["coordinators"]]
    throttled = [
        [
            str(broker["id"]),
            each["quota"],
            *(each[part] or "-" for part in ("user", "client_id", "ip")),
            str(each["times"]),
            str(each["total_ms"]),
        ]
        for broker in nodes
        for each in broker["throttled"]
    ]
    failures = {
        what: [[str(broker["id"]), *failed] for broker in nodes for failed in broker[what].items()]
        for what in ("offline", "uncleanable")
    }
    metrics = [
        [f"{what} {node['id']}", f"http://{node['metrics']}/metrics"]
        for what in ("broker", "coordinator", "controller")
        for node in status[f"{what}s"]
        if node["metrics"]
    ]
    head = ["BROKER", "QUOTA", "USER", "CLIENT ID", "IP", "THROTTLED", "MS"]
    return "\n\n".join(
        [
            f"cluster {status['name']} ({status['cluster_id'] or 'not running'})",
            columns(["BROKER", *HEAD], brokers),
            *([columns(["COORDINATOR", *HEAD, "ROLE"], coordinators)] if coordinators else []),
            columns(["CONTROLLER", "STATE", "PID"], controllers),
            columns(["TOPIC", "PARTITIONS"], topics) if topics else "no topics",
            *([columns(["NODE", "METRICS"], metrics)] if metrics else []),
            *([columns(head, throttled)] if throttled else []),
            *(columns(["BROKER", what.upper(), "REASON"], rows) for what, rows in failures.items() if rows),
        ]
    )
