"""Clients that lose their permissions while they run get an error from the next call, and can go on afterwards."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from raylog.config.authorization import STANDARD_AUTHORIZER
from raylog.core.errors import ErrorCode, KafkaError
from raylog.security.acl import AclBinding, AclFilter, Operation, PatternType, Permission, ResourceType
from tests.client import consumer_faces, producer_faces
from tests.client.producer_faces import Face
from tests.support import administration as admin
from tests.support.cluster_thread import cluster_thread
from tests.support.hang import HANG_SECONDS
from tests.support.raw_client import RawClient

CONFIG = {
    "authorizer.class.name": STANDARD_AUTHORIZER,
    "allow.everyone.if.no.acl.found": "true",
    "group.initial.rebalance.delay.ms": 0,
}


@contextmanager
def denied(client: RawClient, kind: ResourceType, name: str, operation: Operation) -> Iterator[None]:
    """Everybody else than the administrator of the tests, who uses other operations."""
    entries = [
        AclBinding(kind, name, PatternType.LITERAL, "User:*", "*", operation, Permission.DENY),
        AclBinding(kind, name, PatternType.LITERAL, "User:*", "*", Operation.ALL, Permission.ALLOW),
    ]
    admin.create_acls(client, entries)
    try:
        yield
    finally:
        admin.delete_acls(client, [AclFilter(resource_name=name)])


def error_of(consumer: Any) -> ErrorCode:
    """That of a poll within a while."""
    with pytest.raises(KafkaError) as raised:
        poll_forever(consumer)
    return raised.value.code


def poll_forever(consumer: Any) -> None:
    deadline = time.monotonic() + HANG_SECONDS
    while time.monotonic() < deadline:
        consumer.poll(0.1)


def next_values(consumer: Any, count: int) -> list[Any]:
    found: list[Any] = []
    deadline = time.monotonic() + HANG_SECONDS
    while len(found) < count:
        try:
            found += [record.value for record in consumer.poll(0.5)]
        except KafkaError as error:
            if error.code not in (ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.GROUP_AUTHORIZATION_FAILED):
                raise
        assert time.monotonic() < deadline
    return found


@pytest.mark.parametrize(
    ("producer_face", "consumer_face"),
    list(zip(producer_faces.FACES, consumer_faces.FACES, strict=True)),
    ids=("blocking", "asyncio"),
)
def test_permissions_that_are_revoked_while_clients_run(
    producer_face: Callable[..., Face], consumer_face: Any, tmp_path: Path
) -> None:
    with cluster_thread(CONFIG, tmp_path) as running, RawClient(running.bootstrap_servers, client_id="t") as client:
        admin.create_topic(client, "topic", num_partitions=1)
        producer = producer_face(bootstrap_servers=running.bootstrap_servers, linger_ms=0)
        consumer = consumer_face(
            bootstrap_servers=running.bootstrap_servers,
            group_id="group",
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            heartbeat_interval_ms=100,
            mapped=False,
        )
        try:
            consumer.subscribe("topic")
            producer.send_all("topic", [b"0"])
            assert next_values(consumer, 1) == [b"0"]
            with denied(client, ResourceType.TOPIC, "topic", Operation.READ):
                assert error_of(consumer) is ErrorCode.TOPIC_AUTHORIZATION_FAILED
            producer.send_all("topic", [b"1"])
            assert next_values(consumer, 1) == [b"1"]
            with denied(client, ResourceType.TOPIC, "topic", Operation.WRITE):
                (error,) = producer.send_all("topic", [b"x"])
                assert isinstance(error, KafkaError)
                assert error.code is ErrorCode.TOPIC_AUTHORIZATION_FAILED
            producer.send_all("topic", [b"2"])
            assert next_values(consumer, 1) == [b"2"]
            with denied(client, ResourceType.GROUP, "group", Operation.READ):
                with pytest.raises(KafkaError) as raised:
                    consumer.commit()
                assert raised.value.code is ErrorCode.GROUP_AUTHORIZATION_FAILED
                assert error_of(consumer) is ErrorCode.GROUP_AUTHORIZATION_FAILED
            producer.send_all("topic", [b"3"])
            assert next_values(consumer, 1) == [b"3"]
            consumer.commit()
        finally:
            consumer.close(5)
            for _ in range(2):
                producer.close(0)
