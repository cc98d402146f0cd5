"""ListConfigResources returns the topics and the live brokers."""

from __future__ import annotations

from typing import Any

import pytest

from raylog.core.errors import ErrorCode
from raylog.protocol.messages.list_config_resources import ListConfigResourcesRequest
from tests.support.direct_cluster import DirectCluster, DirectMember

TOPIC, BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP = 2, 4, 8, 16, 32


@pytest.fixture
def cluster() -> DirectCluster:
    cluster = DirectCluster(2)
    cluster.create_topic("a")
    cluster.create_topic("b", on=[1])
    return cluster


def ask(member: DirectMember, *kinds: int, version: int = 1) -> Any:
    return member.call(ListConfigResourcesRequest(resource_types=kinds), version=version)


def listed(member: DirectMember, *kinds: int, version: int = 1) -> set[tuple[int, str]]:
    answer = ask(member, *kinds, version=version)
    assert answer.error_code == ErrorCode.NONE
    names = [(each.resource_type, each.resource_name) for each in answer.config_resources]
    assert len(set(names)) == len(names)
    return set(names)


def test_every_broker_returns_all_types_by_default(cluster: DirectCluster) -> None:
    for member in cluster.brokers:
        brokers = {(kind, name) for kind in (BROKER, BROKER_LOGGER) for name in ("0", "1")}
        assert listed(member) == {*brokers, (TOPIC, "a"), (TOPIC, "b")}


def test_version_0_returns_client_metrics_only(cluster: DirectCluster) -> None:
    assert listed(cluster.brokers[0], version=0) == set()


def test_only_requested_types_are_returned(cluster: DirectCluster) -> None:
    member = cluster.brokers[0]
    assert listed(member, TOPIC) == {(TOPIC, "a"), (TOPIC, "b")}
    assert listed(member, BROKER, BROKER) == {(BROKER, "0"), (BROKER, "1")}
    assert listed(member, BROKER_LOGGER) == {(BROKER_LOGGER, "0"), (BROKER_LOGGER, "1")}
    assert listed(member, CLIENT_METRICS, GROUP) == set()
    assert listed(member, GROUP, TOPIC) == {(TOPIC, "a"), (TOPIC, "b")}


@pytest.mark.parametrize("kinds", [(0,), (TOPIC, 64), (-1,)])
def test_an_unknown_type_refuses_the_request(cluster: DirectCluster, kinds: tuple[int, ...]) -> None:
    answer = ask(cluster.brokers[0], *kinds)
    assert (answer.error_code, answer.config_resources) == (ErrorCode.UNSUPPORTED_VERSION, ())


def test_a_fenced_broker_is_not_returned(cluster: DirectCluster) -> None:
    first, second = cluster.brokers
    second.stop()
    assert listed(first, BROKER) == {(BROKER, "0")}
    second.start()
    assert listed(first, BROKER) == {(BROKER, "0"), (BROKER, "1")}
