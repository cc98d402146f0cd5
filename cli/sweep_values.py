"""`raylog sweep-values`: delete values of large messages whose records do not exist any more.

With --json one object: {"topic": "models", "kept": 3, "deleted": ["models/0d61..."]}
"""

from __future__ import annotations

import argparse
import json

from raylog.cli.arguments import Subparsers, add_bootstrap_server, client_config, open_client, whole_number
from raylog.client.chunks.fsspec_store import FsspecStore
from raylog.client.chunks.sweeper import GRACE_MS, sweep_values


def add_to(subparsers: Subparsers) -> None:
    parser = subparsers.add_parser("sweep-values", help="delete values of large messages that have no record any more")
    parser.add_argument("topics", metavar="TOPIC", nargs="+")
    parser.add_argument("--store", metavar="URL", required=True, help="large.message.store.url of the producers")
    parser.add_argument(
        "--grace-ms",
        type=whole_number(0),
        default=GRACE_MS,
        metavar="MS",
        help="keep younger values, whose records may not be in the log yet (default: %(default)s, one day)",
    )
    parser.add_argument("--dry-run", action="store_true", help="only print what would be deleted")
    parser.add_argument("--json", action="store_true", help="print one JSON object for each topic")
    add_bootstrap_server(parser)
    parser.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> None:
    with open_client(options) as client:
        client.describe_topics(dict.fromkeys(options.topics))  # before values of any topic are deleted
    config = client_config(options)
    servers = {**config.properties, "bootstrap.servers": config.bootstrap_servers}
    store = FsspecStore(options.store)
    for topic in options.topics:
        swept = sweep_values(servers, store, topic, grace_ms=options.grace_ms, dry_run=options.dry_run)
        if options.json:
            print(json.dumps({"topic": topic, "kept": swept.kept, "deleted": swept.deleted}))
        else:
            for name in swept.deleted:
                print(name)
            done = "would be deleted" if options.dry_run else "deleted"
            print(f"{topic}: {len(swept.deleted)} values {done}, {swept.kept} kept")
