"""One cluster for the tests of Ray Data; each has topics of its own."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count

import pytest

import raylog

NUMBERS = count()


@pytest.fixture(scope="package")
def servers(ray_runtime: None) -> Iterator[str]:
    config = {"offsets.topic.num.partitions": 1, "transaction.state.log.num.partitions": 1}
    with raylog.start("datasets", config=config) as cluster:
        yield cluster.bootstrap_servers


@pytest.fixture
def topic(servers: str) -> str:
    name = f"orders-{next(NUMBERS)}"
    with raylog.AdminClient(bootstrap_servers=servers) as admin:
        admin.create_topics(raylog.NewTopic(name, num_partitions=2))
    return name
