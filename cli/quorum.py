"""`raylog quorum`: show the quorum of the metadata log and the lag of its replicas, and change its voters
(kafka-metadata-quorum).

`describe` prints the state of the quorum, with --replication one line for each replica. With --json one object:

    {"leader_id": 1000, "leader_epoch": 0, "high_watermark": 17,
     "replicas": [{"id": 1000, "directory_id": "...", "log_end_offset": 17, "lag": 0, "status": "leader",
                   "last_fetch_ms": 1700000000000, "last_caught_up_ms": 1700000000000}]}

A status is leader, follower or observer. Times are from the leader's wall clock, in milliseconds, null if unknown.

`add` without an id starts a controller of the raylog cluster --name, and makes it a voter; `remove` with --name takes
the vote of a controller and stops it for good, also one that has lost its disk. Otherwise `add` makes a controller a
voter that runs as an observer and has caught up, and `remove` makes it an observer again. All need `kraft.version` 1:
`raylog features upgrade --feature kraft.version=1`. Without --directory-id it is that of `describe --replication`.
"""

from __future__ import annotations

import argparse
import base64
import json
import re
from collections.abc import Iterable
from typing import Any, Final
from uuid import UUID

from raylog.actors.cluster import Cluster, connect_to_change
from raylog.cli.arguments import (
    DEFAULT_NAME,
    Subparsers,
    add_bootstrap_server,
    add_cluster,
    open_client,
    read_properties,
)
from raylog.cli.columns import columns
from raylog.cli.output import add_json, show
from raylog.cli.usage import UsageError
from raylog.client.admin.cluster import QuorumDescription, QuorumReplica, RaftVoterEndpoint
from raylog.core.errors import ErrorCode, KafkaError
from raylog.core.ids import id_text

LEADER, FOLLOWER, OBSERVER = "leader", "follower", "observer"
PORT_MAX: Final = 65535
_ENDPOINT = re.compile(r"(?P<name>[A-Za-z0-9_]+)://(?P<host>\[[0-9a-fA-F:.]+\]|[^:/\[\]]+):(?P<port>[0-9]{1,5})")
_ID_LENGTH: Final = 22
"""Of a UUID in base64, without padding."""


def add_to(subparsers: Subparsers) -> None:
    parser = subparsers.add_parser("quorum", help="show the quorum of the metadata log, and change its voters")
    actions = parser.add_subparsers(title="actions", metavar="ACTION", required=True)
    describe = actions.add_parser("describe", help="print leader, voters and observers")
    describe.add_argument("--replication", action="store_true", help="print the log end offset and lag of each replica")
    describe.add_argument("--json", action="store_true", help="print one JSON object")
    add_bootstrap_server(describe, or_controller=True)
    describe.set_defaults(run=_describe)
    add = actions.add_parser(
        "add", help="start a controller and make it a voter; with ID: make a running observer a voter"
    )
    add.add_argument(
        "--endpoint",
        type=_endpoint,
        action="append",
        metavar="NAME://HOST:PORT",
        help="with ID: a listener of the controller, for clients; may be repeated",
    )
    add.set_defaults(run=_add)
    remove = actions.add_parser("remove", help="take the vote of a controller; with --name also stop it for good")
    remove.set_defaults(run=_remove)
    add.add_argument(
        "controller", type=int, nargs="?", metavar="ID", help="an observer's id, such as 1001 (default: start one)"
    )
    remove.add_argument("controller", type=int, metavar="ID", help="the controller's id, such as 1001")
    for action in (add, remove):
        add_cluster(action)
        action.set_defaults(name=None)
        action.add_argument("--directory-id", type=_directory_id, metavar="ID", help="the id of its log directory")
        add_json(action)
        add_bootstrap_server(action, or_controller=True)


def _endpoint(text: str) -> RaftVoterEndpoint:
    match = _ENDPOINT.fullmatch(text)
    if match is None or not 0 < int(match["port"]) <= PORT_MAX:
        raise argparse.ArgumentTypeError(f"{text!r}: must be NAME://HOST:PORT with a port up to {PORT_MAX}")
    return RaftVoterEndpoint(match["name"].upper(), match["host"].strip("[]"), int(match["port"]))


def _directory_id(text: str) -> UUID:
    """In Kafka's form, 22 characters of URL-safe base64, or as a UUID."""
    try:
        return UUID(bytes=base64.urlsafe_b64decode(f"{text}==")) if len(text) == _ID_LENGTH else UUID(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r}: must be the id of a log directory") from None


def _add(options: argparse.Namespace) -> None:
    if options.controller is None:
        if options.endpoint or options.directory_id:
            raise UsageError("--endpoint and --directory-id are for a controller that runs: name its ID")
        with _connected(options) as cluster:
            [added] = cluster.add_controllers()
        show(
            options, {"controller": added.id, "action": "started"}, f"Started controller {added.id}, which is a voter."
        )
        return
    if not options.endpoint or options.name is not None:
        raise UsageError("a controller that runs is added with --endpoint, and without --name")
    with open_client(options) as client:
        quorum = client.describe_metadata_quorum()
        directory = options.directory_id or _directory_of(options.controller, (*quorum.observers, *quorum.voters))
        client.add_raft_voter(options.controller, directory, options.endpoint)
    _show(options, directory, "added", "is a voter")


def _remove(options: argparse.Namespace) -> None:
    if options.name is not None:
        with _connected(options) as cluster:
            kept = cluster.remove_controller(options.controller)
        done = {"controller": options.controller, "action": "stopped", "path": kept.path, "host": kept.host}
        show(
            options,
            done,
            f"Removed controller {options.controller}. Its directory is kept: {kept.path} on {kept.host}.",
        )
        return
    with open_client(options) as client:
        directory = options.directory_id
        if directory is None:
            directory = _directory_of(options.controller, client.describe_metadata_quorum().voters)
        client.remove_raft_voter(options.controller, directory)
    _show(options, directory, "removed", "is not a voter any more")


def _connected(options: argparse.Namespace) -> Cluster:
    """Raises ConfigError and OSError."""
    properties = read_properties(options.command_config)
    return connect_to_change(options.name or DEFAULT_NAME, address=options.address, client_config=properties)


def _directory_of(controller: int, replicas: Iterable[QuorumReplica]) -> UUID:
    """Raises KafkaError(VOTER_NOT_FOUND)."""
    for one in replicas:
        if one.replica_id == controller and one.directory_id.int:
            return one.directory_id
    message = f"controller {controller} does not follow the metadata log, so that its directory id is not known"
    raise KafkaError(ErrorCode.VOTER_NOT_FOUND, message)


def _show(options: argparse.Namespace, directory: UUID, action: str, what: str) -> None:
    done = {"controller": options.controller, "directory_id": id_text(directory), "action": action}
    show(options, done, f"controller {options.controller} with directory id {id_text(directory)} {what}")


def _describe(options: argparse.Namespace) -> None:
    with open_client(options) as client:
        described = _description(client.describe_metadata_quorum())
    if options.json:
        print(json.dumps(described))
    else:
        print(_replication(described) if options.replication else _status(described))


def _description(quorum: QuorumDescription) -> dict[str, Any]:
    """The object that --json prints."""
    leader_end = max((one.log_end_offset for one in quorum.voters), default=0)
    voters = [(one, LEADER if one.replica_id == quorum.leader_id else FOLLOWER) for one in quorum.voters]
    observers = [(one, OBSERVER) for one in quorum.observers]
    return {
        "leader_id": quorum.leader_id,
        "leader_epoch": quorum.leader_epoch,
        "high_watermark": quorum.high_watermark,
        "replicas": [_replica(one, leader_end, status) for one, status in (*voters, *observers)],
    }


def _replica(state: QuorumReplica, leader_end: int, status: str) -> dict[str, Any]:
    return {
        "id": state.replica_id,
        "directory_id": id_text(state.directory_id),
        "log_end_offset": state.log_end_offset,
        "lag": leader_end - state.log_end_offset,
        "status": status,
        "last_fetch_ms": state.last_fetch_timestamp_ms,
        "last_caught_up_ms": state.last_caught_up_timestamp_ms,
    }


def _status(described: dict[str, Any]) -> str:
    def ids(*statuses: str) -> str:
        return ",".join(str(one["id"]) for one in described["replicas"] if one["status"] in statuses)

    followers = [one for one in described["replicas"] if one["status"] == FOLLOWER]
    lines = {
        "LeaderId": described["leader_id"],
        "LeaderEpoch": described["leader_epoch"],
        "HighWatermark": described["high_watermark"],
        "MaxFollowerLag": max((one["lag"] for one in followers), default=0),
        "CurrentVoters": ids(LEADER, FOLLOWER),
        "CurrentObservers": ids(OBSERVER),
    }
    return "\n".join(f"{name + ':':24}{value}".rstrip() for name, value in lines.items())


def _replication(described: dict[str, Any]) -> str:
    names = ("id", "directory_id", "log_end_offset", "lag", "last_fetch_ms", "last_caught_up_ms", "status")
    head = ["NODE", "DIRECTORY", "LOG-END-OFFSET", "LAG", "LAST-FETCH-MS", "LAST-CAUGHT-UP-MS", "STATUS"]
    rows = [["-" if one[name] is None else str(one[name]) for name in names] for one in described["replicas"]]
    return columns(head, rows)
