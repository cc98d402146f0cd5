"""(shell) One broker or controller in a process of its own, without Ray. It reads a line of JSON, serves until its
standard input ends, and stops; with its parent it ends too.

It prints one line: the port of its first listener.
"""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import sys
from functools import partial
from typing import Any
from uuid import uuid4

import uvloop

from raylog.actors.data_dir import open_data_dir
from raylog.broker.broker import Broker
from raylog.broker.server import BrokerServer
from raylog.config.log import log_dir_settings
from raylog.config.network import socket_options
from raylog.config.table import broker_configs
from raylog.controller.controller import Controller
from raylog.core.ids import BrokerId
from raylog.core.logs import log_to_stderr
from raylog.logstore.cleaner_process import CleanerProcesses
from raylog.logstore.disk import RealDisk
from raylog.logstore.recovery_threads import run_in_threads
from raylog.metadata.voters import FIRST_VOTER_ID
from raylog.transport.endpoints import Endpoint
from raylog.transport.listeners import plan_controller_listeners, plan_listeners
from raylog.transport.node import NodeIdentity
from raylog.transport.server import NodeServer
from raylog.transport.system_time import now

VIOLATED = 70
"""The exit code after a broken invariant, as in the actors."""


def main() -> None:
    log_to_stderr()
    line = sys.stdin.readline()
    if line:  # else the parent has ended
        uvloop.run(_run(json.loads(line)))


async def _run(spec: dict[str, Any]) -> None:
    """`spec` has `name`, `data_dir`, `node_id`, `config`, and for a broker `controller_port`."""
    server = await _serve(spec)
    is_controller = spec["node_id"] >= FIRST_VOTER_ID  # whose last listener is for nodes
    print(list(server.bound.values())[-1 if is_controller else 0].port, flush=True)  # noqa: T201  the parent reads it
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    await server.stop()


async def _serve(spec: dict[str, Any]) -> NodeServer:
    files = open_data_dir(spec["data_dir"], name=spec["name"])
    configs = broker_configs({**spec["config"], "node.id": spec["node_id"]})
    identity = NodeIdentity(BrokerId(spec["node_id"]), files.cluster_id, uuid4(), files.secret)
    options = socket_options(configs)

    async def resolve(_: str) -> Endpoint:
        return Endpoint("127.0.0.1", spec["controller_port"])

    def fail(_: BaseException) -> None:
        os._exit(VIOLATED)

    server: NodeServer
    if spec["node_id"] >= FIRST_VOTER_ID:
        controller = Controller(
            identity,
            configs,
            RealDisk(),
            files.controller_path(0),
            may_be_new=True,
            new_id=uuid4,
            new_nonce=secrets.token_bytes,
            now=now(),
        )
        listeners = plan_controller_listeners(configs)
        server = NodeServer(
            controller, listeners, options=options, resolve=resolve, on_failure=fail, configs=lambda: configs
        )
    else:
        broker = Broker(
            identity,
            configs,
            RealDisk(),
            files.log_paths(spec["node_id"]),
            new_id=uuid4,
            new_nonce=secrets.token_bytes,
            now=now(),
            run_all=partial(run_in_threads, log_dir_settings(configs).recovery_threads),
            cleaning=CleanerProcesses(),
        )
        server = BrokerServer(broker, plan_listeners(configs), options=options, resolve=resolve, on_failure=fail)
    await server.start()
    return server


if __name__ == "__main__":
    main()
