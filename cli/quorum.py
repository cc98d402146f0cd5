"""`raylog quorum`: show the quorum of the metadata log and the lag of its replicas (kafka-metadata-quorum).

`describe` prints the state of the quorum, with --replication one line for each replica. With --json one object:

    {"leader_id": 1000, "leader_epoch": 0, "high_watermark": 17,
     "replicas": [{"id": 1000, "directory_id": "...", "log_end_offset": 17, "lag": 0, "status": "leader",
                   "last_fetch_ms": 1700000000000, "last_caught_up_ms": 1700000000000}]}

A status is leader, follower or observer. Times are from the leader's wall clock, in milliseconds, null if unknown.
"""

from __future__ import annotations

import argparse
import json
from typing import Any

from raylog.cli.arguments import Subparsers, add_bootstrap_server, open_client
from raylog.cli.columns import columns
from raylog.client.admin.cluster import QuorumDescription, QuorumReplica
from raylog.core.ids import id_text

LEADER, FOLLOWER, OBSERVER = "leader", "follower", "observer"


def add_to(subparsers: Subparsers) -> None:
    parser = subparsers.add_parser("quorum", help="show the quorum of the metadata log")
    actions = parser.add_subparsers(title="actions", metavar="ACTION", required=True)
    describe = actions.add_parser("describe", help="print leader, voters and observers")
    describe.add_argument("--replication", action="store_true", help="print the log end offset and lag of each replica")
    describe.add_argument("--json", action="store_true", help="print one JSON object")
    add_bootstrap_server(describe)
    describe.set_defaults(run=_describe)


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
