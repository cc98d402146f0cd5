"""Requests that take long are logged with their client and the time of each phase, within bounds."""

from __future__ import annotations

import logging

import pytest

from raylog.config.requests import RAYLOG_SLOW_REQUEST_MS
from raylog.config.table import broker_configs
from raylog.controller.controller import Controller
from raylog.protocol.framing import frame
from raylog.protocol.header import encode_request
from raylog.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from raylog.transport.slow_requests import PERIOD_MS, PERIOD_REQUESTS_MAX
from tests.broker.test_pipelining import encoded, poll, produce, silence
from tests.support.direct_cluster import DirectCluster, DirectMember

THRESHOLD_MS = broker_configs({})[RAYLOG_SLOW_REQUEST_MS]


@pytest.fixture
def cluster() -> DirectCluster:
    """t-0 has three replicas; its leader comes first."""
    cluster = DirectCluster(3)
    cluster.create_topic("t", on=[[0, 1, 2]])
    cluster.pass_time(500)
    return cluster


def produce_slowly(cluster: DirectCluster, took_ms: int, *, count: int = 1) -> None:
    """Produce with acks=all while no follower fetches."""
    leader = cluster.brokers[0]
    silence(cluster)
    for _ in range(count):
        leader.send_bytes(encoded(produce(b"a")), connection=leader.connect())
    cluster.pass_time(took_ms)
    silence(cluster, silent=False)
    cluster.settle()


def noted(member: DirectMember) -> list[dict[str, str]]:
    return [each.fields for each in member.broker.journal.events() if each.event == "slow request"]


@pytest.mark.parametrize(("took_ms", "slow"), [(THRESHOLD_MS - 1, False), (THRESHOLD_MS, True)])
def test_a_request_is_noted_from_the_threshold_on(cluster: DirectCluster, took_ms: int, *, slow: bool) -> None:
    produce_slowly(cluster, took_ms)
    assert bool(noted(cluster.brokers[0])) is slow


def test_what_is_told_of_a_slow_request(cluster: DirectCluster, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "raylog.requests"):
        produce_slowly(cluster, 1500)
    (fields,) = noted(cluster.brokers[0])
    assert fields == {
        "api": "Produce",
        "version": "9",
        "client_id": "c",
        "principal": "User:ANONYMOUS",
        "host": "127.0.0.1",
        "bytes": fields["bytes"],
        "queue_ms": "0",
        "local_ms": "0",
        "remote_ms": "1500",
        "throttle_ms": "0",
    }
    (record,) = [each for each in caplog.records if each.name == "raylog.requests"]
    assert (record.getMessage(), vars(record)["remote_ms"]) == ("slow request", 1500)


def test_a_consumer_that_waits_for_records_is_not_slow(cluster: DirectCluster) -> None:
    leader = cluster.brokers[0]
    leader.send_bytes(encoded(poll(offset=0, max_wait_ms=5000)), connection=leader.connect())
    cluster.pass_time(5000)
    assert noted(leader) == []


def test_a_request_that_waited_long_for_its_turn_is_slow(cluster: DirectCluster) -> None:
    leader = cluster.brokers[0]
    connection = leader.connect()
    connection.queue_ms = THRESHOLD_MS
    leader.send_bytes(encoded(poll(offset=0, max_wait_ms=0)), connection=connection)
    assert [fields["queue_ms"] for fields in noted(leader)] == [str(THRESHOLD_MS)]


def test_clients_cannot_fill_the_log(cluster: DirectCluster, caplog: pytest.LogCaptureFixture) -> None:
    def logged(event: str) -> int:
        return sum(each.name == "raylog.requests" and each.getMessage() == event for each in caplog.records)

    with caplog.at_level(logging.INFO, "raylog.requests"):
        produce_slowly(cluster, 1500, count=PERIOD_REQUESTS_MAX + 7)
        assert (logged("slow request"), logged("slow requests suppressed")) == (PERIOD_REQUESTS_MAX, 0)
        produce_slowly(cluster, PERIOD_MS + 1500)
        assert (logged("slow request"), logged("slow requests suppressed")) == (PERIOD_REQUESTS_MAX + 1, 1)
        produce_slowly(cluster, PERIOD_MS + 1500)
    assert (logged("slow request"), logged("slow requests suppressed")) == (PERIOD_REQUESTS_MAX + 2, 1)
    (suppressed,) = [each for each in caplog.records if each.getMessage() == "slow requests suppressed"]
    assert vars(suppressed)["count"] == 7


def test_a_long_client_id_is_shortened(cluster: DirectCluster) -> None:
    leader = cluster.brokers[0]
    connection = leader.connect()
    connection.queue_ms = THRESHOLD_MS
    request, version = poll(offset=0, max_wait_ms=0)
    header = encode_request(request, api_version=version, correlation_id=1, client_id="x" * 5000)
    leader.send_bytes(b"".join(frame(header)), connection=connection)
    assert [len(fields["client_id"]) for fields in noted(leader)] == [100]


@pytest.mark.parametrize(("value", "slow"), [("-1", 0), ("10000", 0), ("10", 1), ("0", 1)])
def test_the_threshold_is_changed_while_the_broker_runs(cluster: DirectCluster, value: str, slow: int) -> None:
    change = AlterableConfig(name=RAYLOG_SLOW_REQUEST_MS.name, config_operation=0, value=value)
    resource = AlterConfigsResource(resource_type=4, resource_name="", configs=(change,))
    cluster.brokers[0].call(IncrementalAlterConfigsRequest(resources=(resource,)))
    cluster.settle()
    produce_slowly(cluster, 1500)
    assert len([one for one in noted(cluster.brokers[0]) if one["api"] == "Produce"]) == slow


def test_controllers_have_it_too(cluster: DirectCluster) -> None:
    controller: Controller = cluster.active
    assert controller.slow_requests.check_from_ns == THRESHOLD_MS * 1_000_000
