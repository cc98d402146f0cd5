"""Two clusters, and flows between them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from raylog.config.authorization import STANDARD_AUTHORIZER
from tests.client.served import Target
from tests.support.cluster_thread import cluster_thread

CONFIG = {
    "authorizer.class.name": STANDARD_AUTHORIZER,
    "allow.everyone.if.no.acl.found": "true",
    "auto.create.topics.enable": "false",
    "group.initial.rebalance.delay.ms": 0,
    "message.max.bytes": 4 << 20,
    "offsets.topic.num.partitions": 3,  # with fewer files a cluster stops sooner
    "transaction.state.log.num.partitions": 3,
}


@pytest.fixture(scope="module")
def east(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    with cluster_thread(CONFIG, tmp_path_factory.mktemp("east") / "data") as running:
        yield Target(running.bootstrap_servers)


@pytest.fixture(scope="module")
def west(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    with cluster_thread(CONFIG, tmp_path_factory.mktemp("west") / "data") as running:
        yield Target(running.bootstrap_servers)
