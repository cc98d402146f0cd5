"""A cluster to whose brokers no network path leads, so that raylog's clients reach them by their actors."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from inspect import signature
from types import ModuleType
from typing import Any

import raylog
from tests.client.served import Target
from tests.support.forms import by_form
from tests.support.ports import free_port

NAME = "behind-closed-ports"
USERS = {"bob": "builder", "alice": "secret"}
LOGIN_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule required"
BROKER_LOGIN = " ".join(f'user_{user}="{password}"' for user, password in USERS.items())
CONFIG = {
    "sasl.enabled.mechanisms": "PLAIN",
    "listener.name.sasl_plaintext.plain.sasl.jaas.config": f"{LOGIN_MODULE} {BROKER_LOGIN};",
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:bob;User:ANONYMOUS",
    "group.initial.rebalance.delay.ms": 0,
    "auto.create.topics.enable": "false",
}


@dataclass
class ClosedCluster(Target):
    """`plain` is a listener that only the tests know, for the stock clients in them."""

    servers: str = f"ray://{NAME}"

    def settings(self, door: str = "unix") -> dict[str, Any]:
        return {"bootstrap_servers": self.servers, **login("bob")}


def login(user: str, password: str | None = None) -> dict[str, Any]:
    """The settings of a client."""
    return {
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "PLAIN",
        "sasl_jaas_config": f'{LOGIN_MODULE} username="{user}" password="{password or USERS[user]}";',
    }


@contextmanager
def closed_cluster() -> Iterator[ClosedCluster]:
    """One broker. The address of its listener for clients leads to a port where nothing listens."""
    port = free_port()
    config = CONFIG | {
        "listeners": f"SASL_PLAINTEXT://127.0.0.1:0,PLAINTEXT://127.0.0.1:{port}",
        "advertised.listeners": f"SASL_PLAINTEXT://127.0.0.1:1,PLAINTEXT://127.0.0.1:{port}",
    }
    with raylog.start(NAME, config=config):
        yield ClosedCluster(f"127.0.0.1:{port}")


def portable_tests(suite: ModuleType, usual: Collection[str]) -> dict[str, Any]:
    """The tests of the suite that need no more than a `target`: those with the `usual` names, all in the long form."""
    found = {
        name: test
        for name, test in vars(suite).items()
        if name.startswith("test_") and "target" in (needed := signature(test).parameters) and "served" not in needed
    }
    assert found.keys() >= set(usual)
    return found if by_form(0, long=1) else {name: found[name] for name in usual}
