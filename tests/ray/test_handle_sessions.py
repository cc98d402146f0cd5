"""Requests by actor handle get the same responses as over TCP, from the driver, tasks and actors."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import raylog
from raylog.core.errors import ErrorCode, KafkaError
from raylog.protocol.header import encode_request
from raylog.protocol.messages.api_versions import ApiVersionsRequest
from raylog.protocol.produce import ProducePartition, ProduceRequest, ProduceTopic
from raylog.protocol.records.builder import NewRecord, build_batch
from tests.compat.topics import create_topic
from tests.ray.clients import read
from tests.support.environment import WITHOUT_COORDINATORS

pytestmark = [pytest.mark.ray, pytest.mark.usefixtures("ray_runtime")]

NAME = "handles"
TOPIC = "by-handle"
PARTITIONS = 4


@pytest.fixture(scope="module")
def cluster(ray_runtime: None) -> Iterator[raylog.Cluster]:
    with raylog.start(NAME, brokers=2, config={"connections.max.idle.ms": 2000}, **WITHOUT_COORDINATORS) as cluster:
        create_topic(cluster.bootstrap_servers, TOPIC, partitions=PARTITIONS)
        yield cluster


def test_every_call_needs_an_open_session(cluster: raylog.Cluster) -> None:
    import ray

    broker = cluster.broker(0)
    frame = b"".join(encode_request(ApiVersionsRequest(), api_version=0, correlation_id=7, client_id="c"))
    session = ray.get(broker.open_session.remote())
    answer = ray.get(broker.request.remote(session, frame))
    assert answer[:4] == (7).to_bytes(4, "big")
    for unknown in ("", "guessed", session[:-1]):
        with pytest.raises(KafkaError, match="the session does not exist") as refused:
            ray.get(broker.request.remote(unknown, frame))
        assert refused.value.code == ErrorCode.NETWORK_EXCEPTION
    ray.get(broker.close_session.remote(session))
    with pytest.raises(KafkaError, match="the session does not exist"):
        ray.get(broker.request.remote(session, frame))


def test_invalid_bytes_close_their_session_only(cluster: raylog.Cluster) -> None:
    import ray

    broker = cluster.broker(0)
    session, other = ray.get([broker.open_session.remote(), broker.open_session.remote()])
    frame = b"".join(encode_request(ApiVersionsRequest(), api_version=0, correlation_id=7, client_id="c"))
    for nonsense in (b"", b"\xff" * 20):
        with pytest.raises(KafkaError):
            ray.get(broker.request.remote(session, nonsense))
        session = ray.get(broker.open_session.remote())
    assert ray.get(broker.request.remote(other, frame))


def test_a_request_without_a_response(cluster: raylog.Cluster) -> None:
    import ray

    partition = ProducePartition(index=3, records=memoryview(build_batch([NewRecord(None, b"unanswered", 1000)])))
    request = ProduceRequest(acks=0, timeout_ms=1000, topics=[ProduceTopic(name=TOPIC, partitions=[partition])])
    frame = b"".join(encode_request(request, api_version=9, correlation_id=1, client_id="c"))
    leader, other = cluster.broker(1), cluster.broker(0)
    session = ray.get(leader.open_session.remote())
    assert ray.get(leader.request.remote(session, frame)) == b""
    session = ray.get(other.open_session.remote())
    with pytest.raises(KafkaError, match="acks=0"):  # to hang up is the only sign there is
        ray.get(other.request.remote(session, frame))
    assert [value for _, value in read(cluster.bootstrap_servers, TOPIC, 3)] == [b"unanswered"]


def test_an_idle_session_is_closed(cluster: raylog.Cluster) -> None:
    import time

    import ray

    broker = cluster.broker(1)
    session = ray.get(broker.open_session.remote())
    frame = b"".join(encode_request(ApiVersionsRequest(), api_version=0, correlation_id=7, client_id="c"))
    deadline = time.monotonic() + 30
    while True:
        time.sleep(3)
        try:
            ray.get(broker.request.remote(session, frame))
        except KafkaError:
            break
        assert time.monotonic() < deadline
