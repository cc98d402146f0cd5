"""`raylog elect`: elect preferred leaders, or unclean ones from replicas that are alive (kafka-leader-election).

With --json an array: [{"topic": "flights", "partition": 0, "result": "elected"}]. A result is "elected",
"not needed" or the name of a Kafka error. With --all-topic-partitions, partitions that need no election are omitted.
"""

from __future__ import annotations

import argparse
import json

from raylog.cli.arguments import Subparsers, add_bootstrap_server, open_client, partitions_of, topic_and_partitions
from raylog.cli.columns import columns
from raylog.client.admin.partitions import ElectionType
from raylog.core.errors import ErrorCode, KafkaError

ELECTION_TYPES = {each.name.lower(): each for each in ElectionType}
RESULTS = {ErrorCode.NONE: "elected", ErrorCode.ELECTION_NOT_NEEDED: "not needed"}


def add_to(subparsers: Subparsers) -> None:
    parser = subparsers.add_parser("elect", help="elect preferred or unclean leaders")
    parser.add_argument("--election-type", choices=list(ELECTION_TYPES), default="preferred")
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument(
        "--topic",
        type=topic_and_partitions,
        action="append",
        dest="topics",
        metavar="NAME[:0,1,...]",
        help="a topic, or some of its partitions; can be repeated",
    )
    which.add_argument("--all-topic-partitions", action="store_true", help="every partition that needs an election")
    parser.add_argument("--json", action="store_true", help="print one JSON array")
    add_bootstrap_server(parser)
    parser.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> None:
    with open_client(options) as client:
        wanted = None if options.all_topic_partitions else partitions_of(client, options.topics)
        results = client.elect_leaders(ELECTION_TYPES[options.election_type], wanted)
    codes = [(tp, ErrorCode.NONE if error is None else error.code) for tp, error in sorted(results.items())]
    found = [
        {"topic": tp.topic, "partition": tp.partition, "result": RESULTS.get(code, code.name)} for tp, code in codes
    ]
    if options.json:
        print(json.dumps(found))
    elif not found:
        print("No election was needed.")
    else:
        rows = [[str(entry["topic"]), str(entry["partition"]), str(entry["result"])] for entry in found]
        print(columns(["TOPIC", "PARTITION", "RESULT"], rows))
    for tp, code in codes:
        if code not in RESULTS:
            raise KafkaError(code, f"{tp}: {code.sentence}")
