"""One broker with two listeners, and consoles of it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import pytest

from raylog.client.admin.admin_client import AdminClient
from raylog.client.client_config import ClientConfig, checked_properties
from raylog.console.application import ConsoleOptions
from raylog.security.acl import AclBinding, Operation, PatternType, Permission, ResourceType
from tests.support.cluster_thread import RunningCluster, cluster_thread
from tests.support.console_thread import Browser, console_thread

PASSWORD = 'it\'s "quoted" \\ \N{SNOWMAN}'
JAAS = "org.apache.kafka.common.security.plain.PlainLoginModule required"
CONFIG = {
    "listeners": "PLAINTEXT://127.0.0.1:0,SASL_PLAINTEXT://127.0.0.1:0",
    "sasl.enabled.mechanisms": "PLAIN",
    "listener.name.sasl_plaintext.plain.sasl.jaas.config": "{} {};".format(
        JAAS,
        " ".join(
            'user_{}="{}"'.format(user, PASSWORD.replace("\\", "\\\\").replace('"', '\\"'))
            for user in ("admin", "alice", "nobody")
        ),
    ),
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS;User:admin",
    "group.initial.rebalance.delay.ms": 0,
    "offsets.topic.num.partitions": 3,
    "transaction.state.log.num.partitions": 3,
}


class Served(NamedTuple):
    """Consoles of one broker: on its listener without a login, the same read-only, and with a login."""

    running: RunningCluster
    plain: str
    read_only: str
    with_login: str

    @property
    def bootstrap_servers(self) -> str:
        """Of the listener without a login."""
        return str(self.running.broker.endpoints["PLAINTEXT"])

    def admin(self) -> AdminClient:
        return AdminClient(bootstrap_servers=self.bootstrap_servers)

    def browser(self) -> Browser:
        browser = Browser(self.plain)
        browser.open()
        return browser

    def logged_in(self, user: str) -> Browser:
        browser = Browser(self.with_login)
        answer = browser.log_in(user, PASSWORD)
        assert answer.status == 200, answer
        return browser


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with cluster_thread(CONFIG, tmp_path_factory.mktemp("console")) as running:
        endpoints = running.broker.endpoints
        plain = ClientConfig(str(endpoints["PLAINTEXT"]))
        properties = checked_properties(
            {
                "security.protocol": "SASL_PLAINTEXT",
                "sasl.mechanism": "PLAIN",
                "sasl.jaas.config": f'{JAAS} username="admin" password="is not used";',
            }
        )
        secured = ClientConfig(str(endpoints["SASL_PLAINTEXT"]), properties)
        with (
            console_thread(ConsoleOptions(plain, title="shop")) as first,
            console_thread(ConsoleOptions(plain, read_only=True)) as second,
            console_thread(ConsoleOptions(secured)) as third,
        ):
            served = Served(running, first, second, third)
            with served.admin() as admin:
                admin.create_topics(["orders", "secrets"])
                admin.create_acls(
                    [
                        AclBinding(
                            ResourceType.TOPIC,
                            "orders",
                            PatternType.LITERAL,
                            "User:alice",
                            "*",
                            operation,
                            Permission.ALLOW,
                        )
                        for operation in (Operation.READ, Operation.WRITE)
                    ]
                )
            yield served
