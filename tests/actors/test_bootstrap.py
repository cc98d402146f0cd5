"""bootstrap.servers=ray://<cluster> says what is missing: a valid name, Ray, a connection to it, or the cluster."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from typing import Any

import pytest
import ray

import raylog
from raylog.client.client_config import ClientConfig
from raylog.client.topic_table import read_table


def async_producer(**settings: Any) -> None:
    async def make() -> None:
        raylog.AsyncProducer(**settings)

    asyncio.run(make())


FACES: list[Callable[..., Any]] = [
    raylog.Producer,
    raylog.Consumer,
    async_producer,
    lambda bootstrap_servers: read_table("t", bootstrap_servers=bootstrap_servers),
    lambda bootstrap_servers: raylog.PartitionReader(bootstrap_servers, "t", 0),
]


@pytest.mark.parametrize("face", FACES)
def test_a_process_that_is_not_connected_to_ray(face: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    with pytest.raises(raylog.ConfigError, match=r": bootstrap.servers='ray://shop': this process is not connected to"):
        face(bootstrap_servers="ray://shop")


def test_an_environment_without_ray(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(raylog.ConfigError, match="Ray is not installed in this environment"):
        raylog.Producer(bootstrap_servers="ray://shop")


@pytest.mark.parametrize(
    "servers", ["ray://", "ray:///", "ray://a b", "ray://a,ray://b", "ray://a:9092", "ray://" + "x" * 101]
)
def test_invalid_names(servers: str) -> None:
    with pytest.raises(raylog.ConfigError, match=r"bootstrap.servers='ray://.*: name=.*: must be up to 100 letters"):
        raylog.Producer(bootstrap_servers=servers)


@pytest.mark.parametrize("servers", ["rays://a", "RAY://a", "PLAINTEXT://a:1", "://", "a:1,ray://b"])
def test_other_schemes_are_no_addresses(servers: str) -> None:
    with pytest.raises(raylog.ConfigError, match="must be host:port"):
        raylog.Consumer(bootstrap_servers=servers)


def test_the_properties_that_tasks_get_have_addresses(monkeypatch: pytest.MonkeyPatch) -> None:
    from raylog.client import bootstrap

    monkeypatch.setitem(bootstrap.resolvers, "ray", lambda name: bootstrap.Bootstrap(f"{name}:9092"))
    assert ClientConfig.of("ray://shop").bootstrap_servers == "shop:9092"
