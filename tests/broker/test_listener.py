"""A server that fails to start releases its ports and its directory."""

from __future__ import annotations

import asyncio
import random
import secrets
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from uuid import uuid4

import pytest

from raylog.broker.broker import Broker
from raylog.config.network import SocketOptions
from raylog.config.table import broker_configs
from raylog.controller.controller import Controller
from raylog.core.errors import ConfigError, KafkaError
from raylog.core.ids import BrokerId
from raylog.logstore.checkpoint import PARTITION_METADATA_FILE, encode_partition_metadata, write_file_atomically
from raylog.transport.endpoints import Endpoint
from raylog.transport.listeners import plan_listeners
from raylog.transport.node import NodeIdentity
from raylog.transport.server import NodeServer, no_peers
from raylog.transport.system_time import now
from tests.support.cluster_thread import cluster_thread
from tests.support.descriptors import descriptors, opened_since
from tests.support.ports import free_port
from tests.support.sim_disk import SimDisk

CLUSTER_ID = "bGlzdGVuZXItdGVzdA"


def identity(node_id: int) -> NodeIdentity:
    return NodeIdentity(BrokerId(node_id), CLUSTER_ID, uuid4(), b"s" * 32)


@asynccontextmanager
async def controller_at_work() -> AsyncIterator[Endpoint]:
    configs = broker_configs({})
    controller = Controller(
        identity(1000),
        configs,
        SimDisk(random.Random(0)),
        "/controller-0",
        may_be_new=True,
        new_id=uuid4,
        new_nonce=secrets.token_bytes,
        now=now(),
    )
    server = NodeServer(
        controller,
        plan_listeners(configs)[-1:],
        options=SocketOptions(),
        resolve=no_peers,
        on_failure=lambda _: None,
    )
    await server.start()
    yield next(iter(server.bound.values()))
    await server.stop()


def make(disk: SimDisk, port: int, controller: Endpoint) -> tuple[Broker, NodeServer]:
    configs = broker_configs({"listeners": f"PLAINTEXT://127.0.0.1:{port}"})
    broker = Broker(identity(0), configs, disk, ["/log"], new_id=uuid4, new_nonce=secrets.token_bytes, now=now())

    async def resolve(peer: str) -> Endpoint:
        return controller

    server = NodeServer(
        broker, plan_listeners(configs), options=SocketOptions(), resolve=resolve, on_failure=lambda _: None
    )
    return broker, server


def test_a_late_failure_releases_all_sockets() -> None:
    """The broker has registered, and then finds a directory that the cluster knows nothing of."""

    async def scenario() -> None:
        disk, port = SimDisk(random.Random(0)), free_port()
        async with controller_at_work() as controller:
            disk.mkdir("/log")
            disk.mkdir("/log/stranger-0")
            metadata = encode_partition_metadata(uuid4())
            write_file_atomically(disk, f"/log/stranger-0/{PARTITION_METADATA_FILE}", metadata)
            broker, server = make(disk, port, controller)
            before = descriptors()
            with pytest.raises(KafkaError, match="stranger-0") as refused:
                await server.start()
            await asyncio.sleep(0)  # the link's socket is closed in the next round of the loop
            assert len(opened_since(before)) <= 1  # the controller's end of that link may go later
            broker.abandon()
            assert refused.value.code.name == "KAFKA_STORAGE_ERROR"
            disk.rmtree("/log/stranger-0")
            _, server = make(disk, port, controller)
            await server.start()
            await server.stop()

    asyncio.run(scenario())


def test_a_port_in_use_is_named_and_the_directory_is_released() -> None:
    async def scenario() -> None:
        disk = SimDisk(random.Random(0))
        async with controller_at_work() as controller:
            with socket.create_server(("127.0.0.1", 0)) as other:
                port = int(other.getsockname()[1])
                broker, server = make(disk, port, controller)
                with pytest.raises(ConfigError, match=f"cannot listen on PLAINTEXT://127.0.0.1:{port}"):
                    await server.start()
                broker.abandon()
            _, server = make(disk, port, controller)
            await server.start()
            await server.stop()

    asyncio.run(scenario())


def test_two_listeners_on_one_port_are_refused(tmp_path: Path) -> None:
    """Under two names of one address, so that both sockets can be bound; the loop is the one of the actors."""
    port = free_port()
    config = {
        "listeners": f"PLAINTEXT://localhost:{port},SECOND://127.0.0.1:{port}",
        "listener.security.protocol.map": "SECOND:PLAINTEXT",
    }
    with (
        pytest.raises(ConfigError, match=f"cannot listen on SECOND://127.0.0.1:{port}"),
        cluster_thread(config, tmp_path / "data"),
    ):
        pytest.fail("the broker has started")
