"""A server that cannot start gives back what it took: the next try finds the port and the directory free."""

from __future__ import annotations

import asyncio
import os
import random
import secrets
import socket
from uuid import uuid4

import pytest

from raylog.broker.broker import Broker, BrokerIdentity
from raylog.broker.config import broker_configs
from raylog.broker.listener import BrokerServer, now
from raylog.broker.listeners import plan_listeners
from raylog.core.errors import ConfigError, KafkaError
from raylog.core.ids import BrokerId
from tests.support.sim_disk import SimDisk


def make(disk: SimDisk, port: int) -> tuple[Broker, BrokerServer]:
    configs = broker_configs({"listeners": f"PLAINTEXT://127.0.0.1:{port}"})
    identity = BrokerIdentity(BrokerId(0), "bGlzdGVuZXItdGVzdA", uuid4(), b"s" * 32)
    broker = Broker(identity, configs, disk, "/log", new_id=uuid4, new_nonce=secrets.token_bytes, now=now())
    return broker, BrokerServer(broker, plan_listeners(configs), on_failure=lambda _: None)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as sock:
        return int(sock.getsockname()[1])


def test_a_full_disk_at_start_leaves_no_socket_behind() -> None:
    async def scenario() -> None:
        disk, port = SimDisk(random.Random(0)), free_port()
        broker, server = make(disk, port)
        disk.capacity_bytes = disk.used_bytes()
        before = os.listdir("/proc/self/fd")
        with pytest.raises(KafkaError) as refused:  # it keeps the frames of the failed start, and so their sockets
            await server.start()
        assert len(os.listdir("/proc/self/fd")) == len(before)
        broker.abandon()
        assert refused.value.code.name == "KAFKA_STORAGE_ERROR"
        disk.capacity_bytes = None
        _, server = make(disk, port)
        await server.start()
        await server.stop()

    asyncio.run(scenario())


def test_a_port_in_use_is_named_and_leaves_the_directory_free() -> None:
    async def scenario() -> None:
        disk = SimDisk(random.Random(0))
        with socket.create_server(("127.0.0.1", 0)) as other:
            port = int(other.getsockname()[1])
            broker, server = make(disk, port)
            with pytest.raises(ConfigError, match=f"cannot listen on PLAINTEXT://127.0.0.1:{port}"):
                await server.start()
            broker.abandon()
        _, server = make(disk, port)
        await server.start()
        await server.stop()

    asyncio.run(scenario())
