"""`raylog start`: run a cluster in the foreground until this process ends.

When clients can connect it prints one line to stdout: `raylog <name> is ready: host:port`. From then on SIGINT and
SIGTERM stop the cluster cleanly, with exit code 0. Before, they end the start, with exit code 130. If Ray fails, which
ends its actors sooner or later, it says so, stops what still runs, and exits with code 1.

Other shells of the same user find the cluster by name (`raylog status`, `raylog.connect`): its Ray address is stored in
~/.raylog/run, and the token of a Ray that was started for it in ~/.ray/auth_token, Ray's default. RAY_AUTH_TOKEN,
RAY_AUTH_MODE and RAY_ADDRESS in the environment take precedence, and must then be set in those shells too.
"""

from __future__ import annotations

import argparse
import os
import shlex
import signal
import sys
import threading
from collections.abc import Sequence
from typing import Any

import raylog
from raylog.actors.announcement import announcing
from raylog.actors.client_files import LIBRDKAFKA_FILE, PROPERTIES_FILE
from raylog.actors.cluster import DEFAULT_PORT, Interruption
from raylog.actors.local_ray import auth_mode, use_token_file
from raylog.actors.names import check_name
from raylog.actors.ray_watch import RayWatch
from raylog.cli.arguments import Subparsers, add_cluster, whole_number
from raylog.cli.configuration import (
    add_configuration,
    broker_configuration,
    configuration,
    refuse_passwords_in_arguments,
    users,
)
from raylog.config.log import LOG_DIR, LOG_DIRS
from raylog.core.errors import ConfigError
from raylog.core.logs import log_to_stderr
from raylog.logstore.checkpoint import META_PROPERTIES_FILE

WATCH_SECONDS = 1.0


def add_to(subparsers: Subparsers) -> None:
    parser = subparsers.add_parser("start", help="run a cluster until interrupted")
    add_cluster(parser)
    parser.add_argument(
        "--brokers", type=whole_number(1), metavar="K", help="number of brokers (default: those in --data-dir, or 1)"
    )
    parser.add_argument(
        "--controllers",
        type=whole_number(1),
        metavar="K",
        help="number of controllers: 1, 3 or 5 (default: those in --data-dir, or 1)",
    )
    for role in ("group", "transaction"):
        parser.add_argument(
            f"--{role}-coordinators",
            type=whole_number(0),
            metavar="K",
            help=f"number of {role} coordinators; 0: brokers do their work (default: those in --data-dir, or 1 from two"
            " brokers on)",
        )
    parser.add_argument(
        "--port",
        type=whole_number(0),
        metavar="P",
        help=f"port of the first broker, the others use those that follow; 0: any free ones (default: {DEFAULT_PORT})",
    )
    parser.add_argument(
        "--controller-port",
        type=whole_number(0),
        metavar="P",
        help="let the first controller listen on this port for Kafka's tools with --bootstrap-controller, the others on"
        " those that follow; 0: on any free ones (default: they are for nodes only)",
    )
    parser.add_argument(
        "--data-dir",
        metavar="DIR",
        action="append",
        help="data directory (default: a temporary one, deleted at the end). May be given several times: each broker"
        " has a log directory in each, and the first has the files of the cluster too. The directories in log.dirs of"
        " the configuration are used like this if there are no others",
    )
    parser.add_argument(
        "--console",
        type=whole_number(0),
        nargs="?",
        const=0,
        metavar="P",
        help="serve the web console on 127.0.0.1, on this port or a free one; its address is printed",
    )
    add_configuration(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> None:
    log_to_stderr()
    use_token_file(options.address)
    check_name(options.name)
    refuse_passwords_in_arguments(options)
    started, interruption = threading.Event(), Interruption()
    failures: list[BaseException] = []

    def live() -> None:
        try:
            _live(options, started, interruption)
        except BaseException as error:  # raised again below, in the main thread
            failures.append(error)
        finally:
            interruption.connected.set()
            started.set()

    # The cluster runs in a thread of its own. Ray installs a handler for SIGTERM if it is started in the main thread,
    # and leaves processes behind if it is interrupted while it starts. The thread must live as long as Ray, because the
    # kernel ends Ray's processes with the thread that started them.
    thread = threading.Thread(target=live, name="cluster", daemon=True)
    stop_on_signal(interruption)
    thread.start()
    for event in (interruption.connected, started):
        event.wait()
        stop_on_signal(interruption)  # Ray's core has replaced our handlers, to print a stack trace
    thread.join()
    if failures:
        raise failures[0]


def _live(options: argparse.Namespace, started: threading.Event, interruption: Interruption) -> None:
    config = configuration(options)
    data_dirs = data_directories(options.data_dir, config)
    with announcing(options.name) as announcement, _start(options, config, data_dirs, interruption) as cluster:
        started.set()
        announcement.announce(cluster.ray_address, auth_mode())
        if data_dirs is None:
            print(
                "raylog: the data is temporary and is deleted when the cluster stops; --data-dir keeps it",
                file=sys.stderr,
            )
        if cluster.client_config:
            print(_how_to_log_in(cluster), file=sys.stderr)
        if controllers := cluster.bootstrap_controllers:
            print(f"raylog: clients reach the controllers at {controllers}", file=sys.stderr)
        if options.console is not None:
            print(f"raylog: the console is at {cluster.console_url}", file=sys.stderr)
        print(f"raylog {cluster.name} is ready: {cluster.bootstrap_servers}", flush=True)
        watch = RayWatch()
        while not interruption.requested.wait(WATCH_SECONDS):
            failure = watch.failure()
            if failure is not None:
                _report(failure, data_dirs)
                cluster.abandon()
                watch.kill_rest()
                sys.exit(1)


def _how_to_log_in(cluster: raylog.Cluster) -> str:
    properties, librdkafka = (os.path.join(cluster.data_dir, name) for name in (PROPERTIES_FILE, LIBRDKAFKA_FILE))
    servers = cluster.bootstrap_servers
    return f"""raylog: clients log in over TLS. The administrator's login, which only you can read, is in
  {properties}
  {librdkafka}
  raylog:            raylog topics list --command-config {shlex.quote(properties)}
  kcat:              kcat -F {shlex.quote(librdkafka)} -L
  confluent-kafka:   AdminClient(dict(line.strip().split("=", 1) for line in open({librdkafka!r}) if "=" in line))
  Kafka's tools:     kafka-topics.sh --bootstrap-server {servers} --command-config {shlex.quote(properties)} --list
  another user:      raylog users set alice --command-config {shlex.quote(properties)}"""


def _report(failure: str, data_dirs: Sequence[str] | None) -> None:
    options = " ".join(f"--data-dir {data_dir}" for data_dir in data_dirs or ())
    again = "" if data_dirs is None else f" No data is lost: start it again with {options}."
    print(f"raylog: Ray has failed: {failure}. The cluster is being stopped.{again}", file=sys.stderr, flush=True)


def stop_on_signal(interruption: Interruption) -> None:
    """The first signal ends the start, or stops the cluster cleanly; a second one interrupts the clean stop."""

    def handle(*_: object) -> None:
        is_second = interruption.requested.is_set()
        interruption.requested.set()
        if is_second or not interruption.must_clean_up:
            raise KeyboardInterrupt

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, handle)


def data_directories(given: list[str] | None, config: dict[str, Any]) -> list[str] | None:
    """Those that are given, or the log.dirs of the configuration; None for a temporary one.

    Takes log.dirs out of the configuration, as all brokers would use the same ones. Raises ConfigError for a log
    directory of Apache Kafka, which would not start any more with foreign directories.
    """
    log_dir, log_dirs = config.pop(LOG_DIR.name, ""), config.pop(LOG_DIRS.name, "")
    if given:
        return given
    paths = [path.strip() for path in (log_dirs or log_dir).split(",")]
    for path in filter(None, paths):
        if os.path.exists(os.path.join(path, META_PROPERTIES_FILE)):
            message = (
                f"log.dirs={path}: is a log directory of a broker; name another one with --data-dir, and copy topics"
                " with `raylog import-dir`"
            )
            raise ConfigError(message)
    return [path for path in paths if path] or None


def _start(
    options: argparse.Namespace, config: dict[str, Any], data_dirs: Sequence[str] | None, interruption: Interruption
) -> raylog.Cluster:
    port = options.port
    if port is None and "listeners" not in config:
        port = DEFAULT_PORT
    return raylog.start(
        options.name,
        data_dir=data_dirs,
        config=config,
        broker_config=broker_configuration(options),
        brokers=options.brokers,
        controllers=options.controllers,
        group_coordinators=options.group_coordinators,
        transaction_coordinators=options.transaction_coordinators,
        port=port,
        controller_port=options.controller_port,
        secure=options.secure,
        users=users(options),
        console=False if options.console is None else options.console or True,
        address=options.address,
        interruption=interruption,
    )
