"""`raylog features`: show the features of a cluster, and change their levels (kafka-features).

`describe` prints one line for each feature. With --json one array:

    [{"feature": "raylog.metadata", "supported_min": 1, "supported_max": 2, "finalized": 2}]

`upgrade` raises all features to the newest levels of this version, after all nodes were upgraded, or those that
--feature names. `downgrade` lowers levels, and `disable` sets them to 0; raylog.metadata cannot be lowered.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping

from raylog.cli.arguments import Subparsers, add_bootstrap_server, open_client
from raylog.cli.columns import columns
from raylog.cli.output import add_json, show
from raylog.client.admin.cluster import FeatureUpdate, UpgradeType
from raylog.metadata.features import FEATURES
from raylog.metadata.levels import LATEST_LEVEL, METADATA_FEATURE

LEVEL_MAX = 2**15 - 1
"""The protocol's levels are int16."""
NEWEST = {METADATA_FEATURE: LATEST_LEVEL, **{name: levels.highest for name, levels in FEATURES.items()}}


def add_to(subparsers: Subparsers) -> None:
    parser = subparsers.add_parser("features", help="show features, and change their levels")
    actions = parser.add_subparsers(title="actions", metavar="ACTION", required=True)
    describe = actions.add_parser("describe", help="print supported and finalized levels")
    describe.add_argument("--json", action="store_true", help="print one JSON array")
    describe.set_defaults(run=_describe)
    upgrade = actions.add_parser("upgrade", help="raise features to given levels, or to the newest of this version")
    wanted = upgrade.add_mutually_exclusive_group()
    wanted.add_argument("--level", type=_level, help=f"raise {METADATA_FEATURE} alone, to this level")
    _add_feature_levels(wanted, required=False)
    wanted.add_argument("--release-version", type=_release, help=argparse.SUPPRESS)
    upgrade.set_defaults(run=_upgrade)
    downgrade = actions.add_parser("downgrade", help="lower the levels of features")
    _add_feature_levels(downgrade, required=True)
    downgrade.add_argument("--release-version", type=_release, help=argparse.SUPPRESS)
    downgrade.set_defaults(run=_downgrade)
    disable = actions.add_parser("disable", help="set features to level 0")
    disable.add_argument("--feature", action="append", required=True, metavar="NAME", help="may be repeated")
    disable.set_defaults(run=_disable)
    for action in (downgrade, disable):
        action.add_argument("--unsafe", action="store_true", help="allow the loss of metadata (no level loses any)")
    for action in (upgrade, downgrade, disable):
        action.add_argument("--dry-run", action="store_true", help="only check that the levels can be set")
        add_json(action)
    for action in (describe, upgrade, downgrade, disable):
        add_bootstrap_server(action, or_controller=True)


def _level(text: str) -> int:
    try:
        level = int(text)
    except ValueError:
        level = 0
    if not 1 <= level <= LEVEL_MAX:
        raise argparse.ArgumentTypeError(f"{text!r}: must be a level from 1 to {LEVEL_MAX}")
    return level


def _feature_level(text: str) -> tuple[str, int]:
    name, _, level = text.rpartition("=")
    if not name or not level.isdecimal() or int(level) > LEVEL_MAX:
        raise argparse.ArgumentTypeError(f"{text!r}: must be NAME=LEVEL with a level from 0 to {LEVEL_MAX}")
    return name, int(level)


def _release(text: str) -> str:
    raise argparse.ArgumentTypeError(
        f"{text!r}: releases of Kafka do not name levels of raylog; use --feature, or upgrade without it"
    )


def _add_feature_levels(to: argparse._ActionsContainer, *, required: bool) -> None:
    to.add_argument(
        "--feature",
        action="append",
        type=_feature_level,
        required=required,
        metavar="NAME=LEVEL",
        help="the level of a feature; may be repeated",
    )


def _describe(options: argparse.Namespace) -> None:
    with open_client(options) as client:
        found = client.describe_features()
    if options.json:
        print(json.dumps([each._asdict() for each in found]))
        return
    rows = [[each.feature, str(each.supported_min), str(each.supported_max), str(each.finalized)] for each in found]
    print(columns(["FEATURE", "SUPPORTED-MIN", "SUPPORTED-MAX", "FINALIZED"], rows))


def _upgrade(options: argparse.Namespace) -> None:
    levels = NEWEST
    if options.level is not None:
        levels = {METADATA_FEATURE: options.level}
    elif options.feature:
        levels = dict(options.feature)
    _update(options, levels, UpgradeType.UPGRADE)


def _downgrade(options: argparse.Namespace) -> None:
    _update(options, dict(options.feature), _downgrade_type(options))


def _disable(options: argparse.Namespace) -> None:
    _update(options, dict.fromkeys(options.feature, 0), _downgrade_type(options))


def _downgrade_type(options: argparse.Namespace) -> UpgradeType:
    return UpgradeType.UNSAFE_DOWNGRADE if options.unsafe else UpgradeType.SAFE_DOWNGRADE


def _update(options: argparse.Namespace, levels: Mapping[str, int], upgrade_type: UpgradeType) -> None:
    updates = {name: FeatureUpdate(level, upgrade_type) for name, level in levels.items()}
    with open_client(options) as client:
        client.update_features(updates, validate_only=options.dry_run)
    done = "can be set to" if options.dry_run else "is at"
    value = [{"feature": name, "level": level, "dry_run": options.dry_run} for name, level in levels.items()]
    show(options, value, "\n".join(f"{name} {done} level {level}" for name, level in levels.items()))
