"""`raylog reassign`: move partitions between brokers according to a plan (kafka-reassign-partitions).

A plan has Kafka's format: {"version": 1, "partitions": [{"topic": "flights", "partition": 0, "replicas": [1, 2]}]}.

`generate` prints the current assignment and a plan that spreads partitions over brokers, with --json only the plan.
`execute` starts the reassignment, `verify` shows its progress and removes the throttle when it is complete, `cancel`
reverts the unfinished part, and `list` shows all reassignments. With --json `execute` and `cancel` print the
plan that they have begun or cancelled, and `verify` and `list` an array:

    [{"topic": "flights", "partition": 0, "replicas": [1, 2, 0], "adding": [2], "removing": [0], "status": "moving"}]

A status is "complete", "moving", "superseded" (the partition is being reassigned to other brokers) or "different" (no
reassignment is in progress, and the replicas are not those of the plan).
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Collection
from pathlib import Path
from typing import Any

from raylog.cli.arguments import (
    Subparsers,
    add_bootstrap_server,
    broker_ids,
    names,
    open_client,
    read_text,
    whole_number,
)
from raylog.cli.columns import columns
from raylog.cli.output import add_json, progress, show
from raylog.client import reassignments
from raylog.client.admin.admin_client import AdminClient
from raylog.client.admin.partitions import PartitionReassignment
from raylog.client.errors import AdminError
from raylog.client.reassignment_plan import Plan, format_plan, parse_plan, spread
from raylog.core.errors import ErrorCode, KafkaError
from raylog.core.ids import TopicPartition
from raylog.core.json_text import field_of, parse_json

COMPLETE, MOVING, SUPERSEDED, DIFFERENT = "complete", "moving", "superseded", "different"
POLL_SECONDS = 0.2


def add_to(subparsers: Subparsers) -> None:
    parser = subparsers.add_parser("reassign", help="move partitions between brokers")
    actions = parser.add_subparsers(title="actions", metavar="ACTION", required=True)

    generate = actions.add_parser("generate", help="print a plan that spreads topics over brokers")
    which = generate.add_mutually_exclusive_group()
    which.add_argument("--topics", type=names, metavar="NAME[,...]", help="default: all topics")
    which.add_argument(
        "--topics-to-move-json-file",
        type=Path,
        metavar="FILE",
        help='Kafka\'s {"version": 1, "topics": [{"topic": "flights"}]}',
    )
    generate.add_argument(
        "--broker-list", type=broker_ids, metavar="ID[,...]", help="default: all brokers that are alive"
    )
    generate.set_defaults(run=_generate)

    execute = actions.add_parser("execute", help="start the reassignment of a plan")
    _add_plan(execute)
    execute.add_argument(
        "--throttle", type=whole_number(1), metavar="BYTES", help="limit replication to this many bytes per second"
    )
    execute.add_argument("--additional", action="store_true", help="start even if other reassignments are in progress")
    execute.add_argument("--wait", action="store_true", help="wait until it is complete, then remove the throttle")
    execute.set_defaults(run=_execute)

    verify = actions.add_parser(
        "verify", help="show the progress of a plan, and remove the throttle when it is complete"
    )
    _add_plan(verify)
    verify.add_argument("--preserve-throttles", action="store_true", help="keep the throttle")
    verify.set_defaults(run=_verify)

    cancel = actions.add_parser("cancel", help="cancel the unfinished part of a plan, and remove the throttle")
    _add_plan(cancel)
    cancel.add_argument("--preserve-throttles", action="store_true", help="keep the throttle")
    cancel.set_defaults(run=_cancel)

    listing = actions.add_parser("list", help="show all reassignments in progress")
    listing.set_defaults(run=_list)

    for action in (generate, execute, verify, cancel, listing):
        add_json(action)
        add_bootstrap_server(action)


def _add_plan(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--reassignment-json-file", type=Path, required=True, metavar="FILE", dest="plan")


# --- generate


def _generate(options: argparse.Namespace) -> None:
    with open_client(options) as client:
        racks = {node.node_id: node.rack for node in client.describe_cluster(include_fenced_brokers=True).nodes}
        chosen = options.broker_list or reassignments.broker_ids(client)
        unknown = sorted(set(chosen) - racks.keys())
        if unknown:
            raise KafkaError(ErrorCode.BROKER_ID_NOT_REGISTERED, f"brokers {unknown} are not registered")
        topics = options.topics
        if options.topics_to_move_json_file is not None:
            topics = _topics_to_move(read_text(options.topics_to_move_json_file))
        present = reassignments.present_plan(client, None if topics is None else dict.fromkeys(topics))
    proposed = spread(present, {broker_id: racks[broker_id] for broker_id in sorted(set(chosen))})
    if options.json:
        print(format_plan(proposed))
        return
    print(f"Current partition replica assignment\n{format_plan(present)}\n")
    print(f"Proposed partition reassignment configuration\n{format_plan(proposed)}")


def _topics_to_move(text: str) -> list[str]:
    try:
        entries = field_of(parse_json(text), "topics", list, at="the document")
        return [field_of(entry, "topic", str, at=f"topics[{number}]") for number, entry in enumerate(entries)]
    except ValueError as error:
        rule = f"must be JSON as in kafka-reassign-partitions: {error}"
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"--topics-to-move-json-file: {rule}") from None


# --- execute and cancel


def _execute(options: argparse.Namespace) -> None:
    plan = parse_plan(read_text(options.plan))
    with open_client(options) as client:
        present = _present(client, plan)
        if not options.additional and client.list_partition_reassignments():
            message = "other reassignments are in progress; use --additional to start another"
            raise KafkaError(ErrorCode.REASSIGNMENT_IN_PROGRESS, message)
        report = progress(options)
        report(f"Current partition replica assignment, save it for a rollback\n{format_plan(present)}\n")
        begin(client, present, plan, throttle=options.throttle)
        report(f"Started reassignment of {_listed(plan)}.")
        if options.wait:
            wait_until_complete(client, plan)
            if options.throttle is not None:
                reassignments.clear_throttle(client, {tp.topic for tp in plan})
            report("Reassignment is complete.")
    if options.json:
        print(format_plan(plan))


def begin(client: AdminClient, present: Plan, plan: Plan, *, throttle: int | None) -> None:
    """Start the reassignment. Raises KafkaError if partitions are rejected; the others are moved."""
    if throttle is not None:
        reassignments.throttle(client, present, plan, throttle)
    client.alter_partition_reassignments(plan)


def wait_until_complete(client: AdminClient, plan: Plan) -> None:
    """Raises KafkaError if the reassignment is cancelled or replaced."""
    while True:
        found = [entry["status"] for entry in _statuses(client, plan)]
        if all(status == COMPLETE for status in found):
            return
        if MOVING not in found:
            raise KafkaError(
                ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, "the reassignment was cancelled, or replaced by another"
            )
        time.sleep(POLL_SECONDS)


def _cancel(options: argparse.Namespace) -> None:
    plan = parse_plan(read_text(options.plan))
    with open_client(options) as client:
        _present(client, plan)
        moving = client.list_partition_reassignments(plan)
        refusal, refused = _cancelled(client, moving)
        if not options.preserve_throttles:
            reassignments.clear_throttle(client, {tp.topic for tp in plan})
    cancelled = moving.keys() - set(refused)
    if options.json:
        print(format_plan({tp: plan[tp] for tp in sorted(cancelled)}))
    else:
        print(f"Cancelled reassignment of {_listed(cancelled)}.")
    if refusal is not None:
        raise refusal


def _cancelled(
    client: AdminClient, moving: Collection[TopicPartition]
) -> tuple[AdminError | None, Collection[TopicPartition]]:
    """The error, and the partitions whose reassignment was not cancelled."""
    try:
        client.alter_partition_reassignments(dict.fromkeys(moving))
    except AdminError as error:
        if not error.errors:
            raise
        return error, error.errors.keys()
    return None, ()


# --- verify and list


def _verify(options: argparse.Namespace) -> None:
    plan = parse_plan(read_text(options.plan))
    with open_client(options) as client:
        found = _statuses(client, plan)
        if all(entry["status"] != MOVING for entry in found) and not options.preserve_throttles:
            reassignments.clear_throttle(client, {tp.topic for tp in plan})
    show(options, found, _table(found))


def _list(options: argparse.Namespace) -> None:
    with open_client(options) as client:
        moving = client.list_partition_reassignments()
    found = [_entry(tp, one.replicas, one, MOVING) for tp, one in sorted(moving.items())]
    show(options, found, _table(found))


def _statuses(client: AdminClient, plan: Plan) -> list[dict[str, Any]]:
    """The status of each partition of the plan. Raises KafkaError for one that does not exist."""
    moving = client.list_partition_reassignments(plan)
    present = _present(client, plan)
    found = []
    for tp, wanted in sorted(plan.items()):
        ongoing = moving.get(tp)
        if ongoing is not None:
            target = tuple(one for one in ongoing.replicas if one not in ongoing.removing_replicas)
            status = MOVING if target == wanted else SUPERSEDED
        else:
            status = COMPLETE if present[tp] == wanted else DIFFERENT
        found.append(_entry(tp, present[tp], ongoing, status))
    return found


def _entry(
    tp: TopicPartition, replicas: tuple[int, ...], ongoing: PartitionReassignment | None, status: str
) -> dict[str, Any]:
    return {
        "topic": tp.topic,
        "partition": tp.partition,
        "replicas": list(replicas),
        "adding": [] if ongoing is None else list(ongoing.adding_replicas),
        "removing": [] if ongoing is None else list(ongoing.removing_replicas),
        "status": status,
    }


def _table(found: list[dict[str, Any]]) -> str:
    if not found:
        return "No reassignments are in progress."
    rows = [
        [
            entry["topic"],
            str(entry["partition"]),
            *(",".join(map(str, entry[key])) or "-" for key in ("replicas", "adding", "removing")),
            entry["status"],
        ]
        for entry in found
    ]
    return columns(["TOPIC", "PARTITION", "REPLICAS", "ADDING", "REMOVING", "STATUS"], rows)


def _present(client: AdminClient, plan: Plan) -> Plan:
    """The current replicas of the partitions of the plan. Raises KafkaError for one that does not exist."""
    found = reassignments.present_plan(client, sorted({tp.topic for tp in plan}))
    for tp in plan:
        if tp not in found:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"partition {tp} does not exist")
    return {tp: found[tp] for tp in plan}


def _listed(partitions: Collection[TopicPartition]) -> str:
    return ", ".join(map(str, sorted(partitions))) or "no partitions"
