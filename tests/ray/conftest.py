"""One cluster for the tests that kill brokers and controllers again and again, and wait until all are back."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import raylog
from tests.ray import closed_cluster as closed
from tests.support.environment import WITHOUT_COORDINATORS

KILLED = "killed-again"
"""The name of the cluster."""
CONFIG = {
    "min.insync.replicas": 2,
    "default.replication.factor": 3,
    "broker.session.timeout.ms": 2000,
    "broker.heartbeat.interval.ms": 300,
    "offsets.topic.num.partitions": 3,
    "transaction.state.log.num.partitions": 3,
    "group.initial.rebalance.delay.ms": 100,
    "group.min.session.timeout.ms": 1000,
}


@pytest.fixture(scope="package")
def killed_cluster(ray_runtime: None) -> Iterator[raylog.Cluster]:
    """Three brokers and three controllers. A test uses topics and groups of its own, and leaves all running."""
    with raylog.start(KILLED, brokers=3, controllers=3, config=CONFIG, **WITHOUT_COORDINATORS) as cluster:
        yield cluster


@pytest.fixture(scope="package")
def closed_cluster(ray_runtime: None) -> Iterator[closed.ClosedCluster]:
    """A broker that clients reach by its actor alone. A test uses topics and groups of its own."""
    with closed.closed_cluster() as cluster:
        yield cluster
