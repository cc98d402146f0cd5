"""`raylog console`: serve a web page on which people see and administer a cluster, of raylog or of Apache Kafka.

It prints `raylog console is ready: http://127.0.0.1:8080` and serves until SIGINT or SIGTERM, with exit code 0. Where
the listener of --bootstrap-server has SASL, people log in on the page with users of the cluster; the console has no
rights of its own, and uses no user of --command-config. Otherwise everybody who reaches the page has the rights of
the console's connection, such as User:ANONYMOUS or the owner of its client certificate.
"""

from __future__ import annotations

import argparse
import asyncio
import signal
import sys
from ipaddress import ip_address

import uvloop

from raylog.cli.arguments import Subparsers, add_bootstrap_server, client_config, names, whole_number
from raylog.cli.usage import UsageError
from raylog.client.admin.admin_client import admin_client
from raylog.console.logins import needs_login
from raylog.core.logs import log_to_stderr

DEFAULT_PORT = 8080


def add_to(subparsers: Subparsers) -> None:
    parser = subparsers.add_parser("console", help="serve a web page on which people see and administer a cluster")
    parser.add_argument("--host", default="127.0.0.1", help="address to serve on (default: 127.0.0.1)")
    parser.add_argument(
        "--port",
        type=whole_number(0),
        default=DEFAULT_PORT,
        metavar="P",
        help=f"port to serve on; 0: any free one (default: {DEFAULT_PORT})",
    )
    parser.add_argument("--read-only", action="store_true", help="refuse every change")
    parser.add_argument("--title", default="raylog", help="shown at the top of the page (default: raylog)")
    parser.add_argument(
        "--allowed-host",
        type=names,
        default=[],
        metavar="NAME[,...]",
        help="host names under which browsers reach the page; localhost and IP addresses are always allowed",
    )
    parser.add_argument("--tls-certificate", metavar="FILE", help="serve over TLS, with this certificate chain (PEM)")
    parser.add_argument("--tls-key", metavar="FILE", help="the key of --tls-certificate (PEM)")
    add_bootstrap_server(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> None:
    if (options.tls_certificate is None) != (options.tls_key is None):
        raise UsageError("--tls-certificate and --tls-key: must be given together")
    from raylog.console.application import ConsoleOptions  # other commands need no HTTP server
    from raylog.console.server import ConsoleServer

    log_to_stderr()
    config = client_config(options)
    if not needs_login(config.properties):
        with admin_client(config, client_id="raylog-console") as client:
            client.describe_cluster()  # fail now, and not on the page
    server = ConsoleServer(
        ConsoleOptions(
            config,
            title=options.title,
            read_only=options.read_only,
            allowed_hosts=options.allowed_host,
            host=options.host,
            port=options.port,
            certificate=options.tls_certificate,
            key=options.tls_key,
        )
    )
    if options.tls_certificate is None and not _is_loopback(options.host):
        print(
            f"raylog: {options.host} is served without TLS: others on the network can read passwords", file=sys.stderr
        )

    async def serve() -> None:
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, server.stop)
        print(f"raylog console is ready: {server.url}", flush=True)
        await server.serve()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(serve())


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
