"""`raylog transactions`: list and describe transactions, find hanging ones and abort them (kafka-transactions).

A transaction hangs if a partition has it open and its coordinator does not know it (KIP-664): consumers that read
committed records only wait for it. `find-hanging` prints such transactions, and `abort` ends one by a marker. With
--json each command prints an array of objects; times are in milliseconds, and null where there is none:

    list               {"transactional_id": "t", "producer_id": 7, "state": "Ongoing"}
    describe           {"transactional_id": "t", "producer_id": 7, "producer_epoch": 0, "state": "Ongoing",
                        "timeout_ms": 60000, "start_time_ms": 1700000000000, "duration_ms": 1500,
                        "partitions": [{"topic": "flights", "partition": 0}]}
    describe-producers {"topic": "flights", "partition": 0, "producer_id": 7, "producer_epoch": 0, "last_sequence": 4,
                        "last_timestamp_ms": 1700000000000, "coordinator_epoch": 0, "start_offset": 12}
    find-hanging       the same, and "transactional_id" if the coordinator knows the producer
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterable, Mapping, Sequence

from raylog.cli.arguments import (
    Subparsers,
    add_bootstrap_server,
    open_client,
    partitions_of,
    topic_and_partitions,
    whole_number,
)
from raylog.cli.columns import columns
from raylog.cli.output import add_json, show
from raylog.cli.usage import UsageError
from raylog.client.admin.admin_client import AdminClient
from raylog.client.admin.partitions import ProducerState
from raylog.client.admin.transactions import TransactionDescription, TransactionListing
from raylog.core.errors import ErrorCode, KafkaError
from raylog.core.ids import TopicPartition

MAX_TIMEOUT_MINUTES = 15
"""transaction.max.timeout.ms of a broker by default."""
Row = dict[str, object]


def add_to(subparsers: Subparsers) -> None:
    parser = subparsers.add_parser("transactions", help="list and describe transactions, and abort hanging ones")
    actions = parser.add_subparsers(title="actions", metavar="ACTION", required=True)

    listing = actions.add_parser("list", help="print the transactional ids of all coordinators")
    listing.add_argument(
        "--duration-filter", type=whole_number(0), default=-1, metavar="MS", help="only those open for longer"
    )
    listing.add_argument("--state", action="append", default=[], metavar="STATE", help="such as Ongoing; repeatable")
    listing.add_argument("--producer-id", type=whole_number(0), action="append", default=[], metavar="ID")
    listing.add_argument("--transactional-id-pattern", metavar="REGEX", help="only ids that match it as a whole (RE2)")
    listing.set_defaults(run=_list)

    describe = actions.add_parser("describe", help="print the state of transactional ids")
    describe.add_argument("transactional_ids", metavar="ID", nargs="+")
    describe.set_defaults(run=_describe)

    producers = actions.add_parser("describe-producers", help="print the producers that partitions know")
    producers.add_argument("topics", type=topic_and_partitions, nargs="+", metavar="TOPIC[:0,1,...]")
    producers.set_defaults(run=_describe_producers)

    hanging = actions.add_parser("find-hanging", help="print open transactions that no coordinator knows")
    hanging.add_argument(
        "topics",
        type=topic_and_partitions,
        nargs="*",
        metavar="TOPIC[:0,1,...]",
        help="where to look (default: all topics)",
    )
    hanging.add_argument(
        "--max-transaction-timeout",
        type=whole_number(0),
        default=MAX_TIMEOUT_MINUTES,
        metavar="MINUTES",
        help="only transactions without a write for longer than this (default: %(default)s)",
    )
    hanging.set_defaults(run=_find_hanging)

    abort = actions.add_parser(
        "abort",
        help="abort a hanging transaction in one partition",
        description="Abort a hanging transaction in one partition, named by its first offset, as find-hanging prints"
        " it. A transaction that its coordinator knows must not be aborted like this.",
    )
    abort.add_argument("topic", type=topic_and_partitions, metavar="TOPIC:N")
    abort.add_argument("--start-offset", type=whole_number(0), required=True, metavar="N")
    abort.set_defaults(run=_abort)

    for action in (listing, describe, producers, hanging, abort):
        add_json(action)
        add_bootstrap_server(action)


def _list(options: argparse.Namespace) -> None:
    with open_client(options) as client:
        found = client.list_transactions(
            states=options.state,
            producer_ids=options.producer_id,
            longer_than_ms=options.duration_filter,
            pattern=options.transactional_id_pattern,
        )
    _print(options, [each._asdict() for each in found])


def _describe(options: argparse.Namespace) -> None:
    with open_client(options) as client:
        found = client.describe_transactions(dict.fromkeys(options.transactional_ids))
    now_ms = int(time.time() * 1000)
    rows, shown = [], []
    for each in found.values():
        row = each._asdict()
        partitions = row.pop("partitions")
        row["duration_ms"] = None if each.start_time_ms is None else max(now_ms - each.start_time_ms, 0)
        rows.append({**row, "partitions": [{"topic": tp.topic, "partition": tp.partition} for tp in partitions]})
        shown.append({**row, "partitions": ",".join(map(str, partitions)) or "-"})
    _print(options, rows, shown)


def _describe_producers(options: argparse.Namespace) -> None:
    with open_client(options) as client:
        found = client.describe_producers(partitions_of(client, options.topics))
    _print(options, [_producer(tp, state) for tp, states in sorted(found.items()) for state in states])


def _find_hanging(options: argparse.Namespace) -> None:
    before_ms = int(time.time() * 1000) - options.max_transaction_timeout * 60_000
    with open_client(options) as client:
        wanted = options.topics or [(topic.name, None) for topic in client.list_topics()]
        states = client.describe_producers(partitions_of(client, wanted))
        candidates = open_before(states, before_ms)
        known: Sequence[TransactionListing] = ()
        described: Mapping[str, TransactionDescription] = {}
        if candidates:
            known = client.list_transactions(producer_ids={state.producer_id for _, state in candidates})
            described = client.describe_transactions([each.transactional_id for each in known]) if known else {}
    ids = {each.producer_id: each.transactional_id for each in known}
    _print(
        options,
        [
            {"transactional_id": ids.get(state.producer_id), **_producer(tp, state)}
            for tp, state in hanging(candidates, described.values())
        ],
        otherwise="No hanging transactions found.",
    )


Open = tuple[TopicPartition, ProducerState]
"""A transaction that is open in a partition."""


def open_before(states: Mapping[TopicPartition, Iterable[ProducerState]], before_ms: int) -> list[Open]:
    """The open transactions whose last write is older than this."""
    return [
        (tp, state)
        for tp, found in sorted(states.items())
        for state in found
        if state.current_txn_start_offset is not None and state.last_timestamp_ms < before_ms
    ]


def hanging(candidates: Iterable[Open], known: Iterable[TransactionDescription]) -> list[Open]:
    """Those that are no part of a transaction that a coordinator has.

    The coordinator has a transaction with another epoch if it has fenced the producer, and without the partition if
    the write came after the end of the transaction.
    """
    open_parts = {(each.producer_id, each.producer_epoch, tp) for each in known for tp in each.partitions}
    return [(tp, state) for tp, state in candidates if (state.producer_id, state.producer_epoch, tp) not in open_parts]


def _abort(options: argparse.Namespace) -> None:
    topic, numbers = options.topic
    if numbers is None or len(numbers) != 1:
        raise UsageError(f"{topic!r}: must name one partition, such as {topic}:0")
    tp = TopicPartition(topic, numbers[0])
    with open_client(options) as client:
        state = _opened_at(client, tp, options.start_offset)
        client.abort_transaction(
            tp,
            producer_id=state.producer_id,
            producer_epoch=state.producer_epoch,
            coordinator_epoch=-1 if state.coordinator_epoch is None else state.coordinator_epoch,
        )
    value = {"topic": tp.topic, "partition": tp.partition, "producer_id": state.producer_id}
    text = f"Aborted the transaction of producer {state.producer_id} in {tp}."
    show(options, value, text)


def _opened_at(client: AdminClient, tp: TopicPartition, offset: int) -> ProducerState:
    for state in client.describe_producers([tp])[tp]:
        if state.current_txn_start_offset == offset:
            return state
    raise KafkaError(ErrorCode.INVALID_TXN_STATE, f"{tp}: no open transaction begins at offset {offset}")


def _producer(tp: TopicPartition, state: ProducerState) -> Row:
    return {
        "topic": tp.topic,
        "partition": tp.partition,
        "producer_id": state.producer_id,
        "producer_epoch": state.producer_epoch,
        "last_sequence": state.last_sequence,
        "last_timestamp_ms": state.last_timestamp_ms,
        "coordinator_epoch": state.coordinator_epoch,
        "start_offset": state.current_txn_start_offset,
    }


def _print(
    options: argparse.Namespace,
    rows: Sequence[Row],
    shown: Sequence[Row] | None = None,
    *,
    otherwise: str = "No transactions found.",
) -> None:
    text = otherwise
    if rows:
        head = [name.upper().replace("_", "-") for name in rows[0]]
        text = columns(head, [["-" if cell is None else str(cell) for cell in row.values()] for row in shown or rows])
    show(options, rows, text)
