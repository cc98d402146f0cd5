"""`raylog features`: show the features of a cluster and raise the level of its metadata (kafka-features).

`describe` prints one line for each feature. With --json one array:

    [{"feature": "raylog.metadata", "supported_min": 1, "supported_max": 2, "finalized": 2}]

`upgrade` raises raylog.metadata to --level, or to the highest level of this version, after all nodes were upgraded.
"""

from __future__ import annotations

import argparse
import json

from raylog.cli.arguments import Subparsers, add_bootstrap_server, open_client
from raylog.cli.columns import columns
from raylog.cli.output import add_json, show
from raylog.metadata.levels import LATEST_LEVEL, METADATA_FEATURE

LEVEL_MAX = 2**15 - 1
"""The protocol's levels are int16."""


def add_to(subparsers: Subparsers) -> None:
    parser = subparsers.add_parser("features", help="show features, and raise the level of the metadata")
    actions = parser.add_subparsers(title="actions", metavar="ACTION", required=True)
    describe = actions.add_parser("describe", help="print supported and finalized levels")
    describe.add_argument("--json", action="store_true", help="print one JSON array")
    describe.set_defaults(run=_describe)
    upgrade = actions.add_parser(
        "upgrade", help=f"raise the finalized level of {METADATA_FEATURE}; it cannot be lowered"
    )
    upgrade.add_argument("--level", type=_level, default=LATEST_LEVEL, help="the new level (default: %(default)s)")
    upgrade.add_argument("--dry-run", action="store_true", help="only check that all nodes support the level")
    add_json(upgrade)
    upgrade.set_defaults(run=_upgrade)
    for action in (describe, upgrade):
        add_bootstrap_server(action)


def _level(text: str) -> int:
    try:
        level = int(text)
    except ValueError:
        level = 0
    if not 1 <= level <= LEVEL_MAX:
        raise argparse.ArgumentTypeError(f"{text!r}: must be a level from 1 to {LEVEL_MAX}")
    return level


def _describe(options: argparse.Namespace) -> None:
    with open_client(options) as client:
        found = client.describe_features()
    if options.json:
        print(json.dumps([each._asdict() for each in found]))
        return
    rows = [[each.feature, str(each.supported_min), str(each.supported_max), str(each.finalized)] for each in found]
    print(columns(["FEATURE", "SUPPORTED-MIN", "SUPPORTED-MAX", "FINALIZED"], rows))


def _upgrade(options: argparse.Namespace) -> None:
    with open_client(options) as client:
        client.update_features({METADATA_FEATURE: options.level}, validate_only=options.dry_run)
    done = "can be set to" if options.dry_run else "is at"
    value = {"feature": METADATA_FEATURE, "level": options.level, "dry_run": options.dry_run}
    show(options, value, f"{METADATA_FEATURE} {done} level {options.level}")
