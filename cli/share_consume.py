"""`raylog share-consume`: take records of topics as a member of a share group, and print them
(kafka-console-share-consumer).

The records are those that no other member of the group takes meanwhile. Each is acknowledged when it is printed:
accepted, or released for other members, or rejected. A new share group begins at the end of the topics, unless
`raylog configs alter --group GROUP --add share.auto.offset.reset=earliest` was said before.
"""

from __future__ import annotations

import argparse
import sys
from time import monotonic
from typing import Final

from raylog.cli.arguments import CLIENT_ID, Subparsers, add_bootstrap_server, check_topic, client_config, whole_number
from raylog.cli.consume import add_format, record_format
from raylog.client.share.share_consumer import ShareConsumer
from raylog.config.client_network import CLIENT_ID as CLIENT_ID_KEY
from raylog.config.share_consumer import SHARE_CONSUMER_CONFIG
from raylog.protocol.share import AcknowledgeType

WAIT_SECONDS: Final = 0.5
KINDS: Final = {
    "accept": AcknowledgeType.ACCEPT,
    "release": AcknowledgeType.RELEASE,
    "reject": AcknowledgeType.REJECT,
}


def add_to(subparsers: Subparsers) -> None:
    parser = subparsers.add_parser("share-consume", help="take records of a topic as a member of a share group")
    parser.add_argument("topic", metavar="TOPIC")
    parser.add_argument("--group", default="console-share-consumer", metavar="GROUP", help="default: %(default)s")
    parser.add_argument("--max-messages", type=whole_number(1), metavar="N", help="exit after N records")
    parser.add_argument(
        "--timeout-ms", type=whole_number(1), metavar="MS", help="exit if there is no record for this long"
    )
    parser.add_argument(
        "--acknowledge", choices=KINDS, default="accept", help="what becomes of the records (default: %(default)s)"
    )
    add_format(parser)
    add_bootstrap_server(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> None:
    check_topic(options)
    format_records = record_format(options)
    left = sys.maxsize if options.max_messages is None else options.max_messages
    given = {
        CLIENT_ID_KEY.name: CLIENT_ID,
        **client_config(options).keys_of(SHARE_CONSUMER_CONFIG),
        "group.id": options.group,
        "share.acknowledgement.mode": "explicit",
    }
    with ShareConsumer(given) as consumer:
        consumer.subscribe(options.topic)
        taken_at = monotonic()
        while left and (options.timeout_ms is None or monotonic() < taken_at + options.timeout_ms / 1000):
            records = consumer.poll(WAIT_SECONDS, max_records=min(left, 500))
            if not records:
                continue
            sys.stdout.buffer.write(format_records(records))
            sys.stdout.buffer.flush()
            for record in records:
                consumer.acknowledge(record, KINDS[options.acknowledge])
            for error in filter(None, consumer.commit_sync().values()):
                raise error
            left -= len(records)
            taken_at = monotonic()
