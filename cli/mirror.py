"""`raylog mirror`: copy topics between clusters, and show how far that is.

`raylog mirror start` prints `raylog mirror <name> is running` and copies until it is interrupted; then it commits
what it has copied. What goes wrong meanwhile is printed to stderr, once. It runs its actors in the Ray at --address, or
in a local one that it starts. `raylog mirror status` finds it by its name. With --json it prints one object:

    {"name": "mirror", "actors": [{"number": 0, "state": "running", "restarts": 0, "pid": 4711,
     "metrics": "127.0.0.1:9420",
     "flows": [{"flow": "A->B", "shards": [0, 1], "errors": [],
     "partitions": [{"topic": "orders", "partition": 0, "target_topic": "A.orders", "shard": 1, "state": "running",
     "next_offset": 120, "lag": 0, "records": 120, "size_bytes": 9000, "records_per_sec": 4.0, "bytes_per_sec": 300.0,
     "last_record_age_ms": 500, "record_ages": {"last": 30, "least": 20, "greatest": 31, "mean": 25.5},
     "replication_latencies": {"last": 40, "least": 35, "greatest": 60, "mean": 42.0}, "lost": 0, "error": null,
     "attempts": 0}],
     "checkpoints": [{"group": "billing", "topic": "A.orders", "partition": 0, "spread": {"last": 4, ...}}],
     "control": [{"task": "topics", "runs": 3, "last_success_ms": 1700000000000, "error": null, "problems": []}]}]}]}

`raylog mirror failover` and `failback` need no running mirror and no Ray. With --json they print one object:

    {"flow": "A->B", "dry_run": true,
     "uncopied": [{"topic": "orders", "partition": 0, "copied": 120, "source_end": 125}],
     "moves": [{"group": "billing", "topic": "A.orders", "partition": 0, "offset": 118}], "problems": []}

With --live it is printed again every second until it is interrupted, with --json as a line each.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from raylog.actors.announcement import announcing, find_announced
from raylog.actors.local_ray import auth_mode, join_or_start_ray, join_ray, prepare_environment, use_token_file
from raylog.actors.names import check_name
from raylog.cli.arguments import Subparsers, whole_number
from raylog.cli.columns import columns
from raylog.cli.mirror_faults import FaultNews, actor_and_flow_faults, partition_faults
from raylog.config.metrics import metrics_address
from raylog.core.errors import ConfigError
from raylog.core.logs import log_to_stderr
from raylog.mirror.config import ARROW, MirrorConfig, parse_mirror_config
from raylog.mirror.config_keys import ACTORS_MAX
from raylog.mirror.control_clients import ControlClients
from raylog.mirror.failover import Report, fail_back, fail_over
from raylog.mirror.flow_checks import NO_FLOW, check_built

if TYPE_CHECKING:
    from raylog.actors.mirror import ActorStatus, Mirror

FAULTS_SECONDS = 5.0
LIVE_SECONDS = 1.0
CLEAR = "\x1b[H\x1b[2J"
HEAD = ("FLOW", "TOPIC", "PARTITION", "ACTOR", "STATE", "OFFSET", "LAG", "RECORDS/S", "MB/S", "AGE", "ERROR")


def add_to(subparsers: Subparsers) -> None:
    parser = subparsers.add_parser("mirror", help="copy topics between clusters as MirrorMaker 2 does")
    actions = parser.add_subparsers(title="actions", metavar="ACTION", required=True)

    start = actions.add_parser("start", help="copy until interrupted")
    start.add_argument("--config", metavar="FILE", required=True, help="mm2.properties, as MirrorMaker reads it")
    start.add_argument(
        "--actors",
        type=whole_number(1, ACTORS_MAX),
        metavar="K",
        help="number of MirrorMaker actors (default: tasks.max)",
    )
    start.add_argument(
        "--metrics",
        metavar="HOST:PORT[-PORT]",
        default="",
        help="where each actor shows its metrics to Prometheus, as raylog.metrics.address (default: nowhere)",
    )
    start.set_defaults(run=_start)

    status = actions.add_parser("status", help="show how far each partition is, and what is wrong")
    status.add_argument("--json", action="store_true", help="print one JSON object")
    status.add_argument("--live", action="store_true", help="print it again every second until interrupted")
    status.set_defaults(run=_status)

    for name, does in (
        ("failover", "move idle groups to a flow's target"),
        ("failback", "move them back to its source"),
    ):
        action = actions.add_parser(name, help=f"{does}, and show what is not copied")
        action.add_argument("--config", metavar="FILE", required=True, help="mm2.properties, as MirrorMaker reads it")
        action.add_argument("--flow", metavar="A->B", help="the flow (default: the only one of the file)")
        action.add_argument("--dry-run", action="store_true", help="commit nothing, and show what would be committed")
        action.add_argument("--json", action="store_true", help="print one JSON object")
        action.set_defaults(run=_move, back=name == "failback")

    for action in (start, status):
        action.add_argument("--name", default="mirror", help="the mirror's name (default: mirror)")
        action.add_argument("--address", metavar="RAY", help="address of the Ray cluster, as for ray.init")


def _start(options: argparse.Namespace) -> None:
    log_to_stderr()
    use_token_file(options.address)
    check_name(options.name)
    config = _config(options.config)
    for note in config.notes:
        print(f"raylog: {note}", file=sys.stderr)
    check_built(config.flows)  # before Ray is started
    metrics_address(options.metrics)
    prepare_environment()
    taken = f"name={options.name!r}: another `raylog mirror start` of this user runs a mirror with this name"
    with announcing(f"mirror-{options.name}", taken=taken) as announcement:
        join_or_start_ray(options.address)
        from raylog.actors.mirror import ray_address, start_mirror

        signal.signal(signal.SIGTERM, _interrupt)  # Ray has set its own
        with start_mirror(config, name=options.name, actors=options.actors, metrics_address=options.metrics) as mirror:
            announcement.announce(ray_address(), auth_mode())
            flows = ", ".join(flow.name for flow in config.flows)
            print(f"raylog mirror {options.name} is running: {flows}", flush=True)
            with suppress(KeyboardInterrupt):
                _print_faults(mirror)


def _print_faults(mirror: Mirror) -> None:
    """Until it is interrupted. Raises KafkaError if the mirror has ended."""
    news = FaultNews()
    while True:
        time.sleep(FAULTS_SECONDS)
        actors = mirror.status()
        for fault in news.new([*actor_and_flow_faults(actors), *partition_faults(actors)], time.monotonic()):
            print(f"raylog: {fault}", file=sys.stderr, flush=True)


def _config(path: str) -> MirrorConfig:
    """Raises ConfigError."""
    try:
        return parse_mirror_config(Path(path).read_text())
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"--config {path}: {error}") from error


def _interrupt(*_: object) -> None:
    raise KeyboardInterrupt


def _status(options: argparse.Namespace) -> None:
    check_name(options.name)
    prepare_environment()
    announced = find_announced(f"mirror-{options.name}")
    if options.address is None and announced is not None:
        join_ray(announced.ray_address, auth_mode=announced.ray_auth_mode)
    else:
        try:
            join_ray(options.address or "auto")
        except ConfigError as error:
            if options.address is not None:
                raise
            raise ConfigError(
                f"name={options.name!r}: no mirror of this user has this name; {error.message}"
            ) from error
    from raylog.actors.mirror import find_mirror

    mirror = find_mirror(options.name)
    with suppress(KeyboardInterrupt):
        while True:
            actors = mirror.status()
            if options.json:
                print(json.dumps({"name": options.name, "actors": [asdict(each) for each in actors]}), flush=True)
            else:
                print(CLEAR * (options.live and sys.stdout.isatty()) + table(actors), flush=True)
            if not options.live:
                return
            time.sleep(LIVE_SECONDS)


def _move(options: argparse.Namespace) -> None:
    flows = {flow.name: flow for flow in _config(options.config).flows}
    if not flows:
        raise ConfigError(NO_FLOW)
    names = ", ".join(flows)
    if options.flow is None and len(flows) > 1:
        raise ConfigError(f"--flow: must be given, since the file has several flows: {names}")
    name = next(iter(flows)) if options.flow is None else options.flow
    if name not in flows:
        raise ConfigError(f"--flow={name}: must be one of the flows {names}")
    flow = flows[name]
    if flow.by_origin:
        raise ConfigError(f"--flow={name}: offsets are not translated in a loop of flows with equal names")
    with ControlClients(flow) as clients:
        if options.back:
            reverse = flows.get(f"{flow.target.alias}{ARROW}{flow.source.alias}")
            report = fail_back(flow, reverse, clients, dry_run=options.dry_run)
        else:
            report = fail_over(flow, clients, dry_run=options.dry_run)
    if options.json:
        problems = [str(problem) for problem in report.problems]
        print(json.dumps({"flow": name, "dry_run": options.dry_run, **asdict(report), "problems": problems}))
    else:
        print(moves(report, dry_run=options.dry_run))


def moves(report: Report, *, dry_run: bool) -> str:
    """How far the partitions are copied, which offsets of groups are committed, and what is wrong."""
    missing = [
        [each.topic, str(each.partition), str(each.copied), _number(each.source_end), _number(each.missing)]
        for each in report.uncopied
    ]
    offsets = [[each.group, each.topic, str(each.partition), str(each.offset)] for each in report.moves]
    lines = [columns(("TOPIC", "PARTITION", "COPIED", "END", "MISSING"), missing), ""] if missing else []
    done = "would be committed" if dry_run else "committed"
    lines += [columns(("GROUP", "TOPIC", "PARTITION", "OFFSET"), offsets), "", f"{len(offsets)} offsets {done}"]
    return "\n".join([*lines, *map(str, report.problems)])


def table(actors: Sequence[ActorStatus]) -> str:
    """A line for each partition, and then what is wrong with flows and actors."""
    rows = [
        [
            flow.flow,
            each.topic,
            str(each.partition),
            str(actor.number),
            each.state,
            _number(each.next_offset),
            _number(each.lag),
            f"{each.records_per_sec:.1f}",
            f"{each.bytes_per_sec / 1e6:.2f}",
            "-" if each.last_record_age_ms is None else f"{each.last_record_age_ms / 1000:.1f}s",
            each.error or "",
        ]
        for actor in actors
        for flow in actor.flows
        for each in flow.partitions
    ]
    lines = [columns(HEAD, sorted(rows)) if rows else "no partitions"]
    lines += [f"actor {actor.number} shows its metrics at {actor.metrics}" for actor in actors if actor.metrics]
    return "\n".join(lines + actor_and_flow_faults(actors))


def _number(value: int | None) -> str:
    return "-" if value is None else str(value)
