"""Topics for tests, made by the admin client that all of them trust."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from confluent_kafka import KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec  # type: ignore[attr-defined]

from tests.support.hang import HANG_SECONDS

ANSWER_SECONDS = 20.0
NOT_SERVED_YET = {
    KafkaError._NOENT,  # librdkafka found no leader
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.UNKNOWN_TOPIC_OR_PART,
}


def create_topic(
    bootstrap_servers: str,
    topic: str,
    *,
    partitions: int,
    replication_factor: int = 1,
    configs: Mapping[str, str] | None = None,
) -> None:
    """Returns when each leader serves its partition: as in Kafka, CreateTopics is answered before all of them do."""
    admin = AdminClient({"bootstrap.servers": bootstrap_servers})
    wanted = NewTopic(topic, partitions, replication_factor, config=dict(configs or {}))
    admin.create_topics([wanted])[topic].result(ANSWER_SECONDS)
    asked = {TopicPartition(topic, number): OffsetSpec.earliest() for number in range(partitions)}  # type: ignore[no-untyped-call]
    deadline = time.monotonic() + HANG_SECONDS
    while not all(map(_is_served, admin.list_offsets(asked, request_timeout=ANSWER_SECONDS).values())):
        assert time.monotonic() < deadline
        admin = AdminClient({"bootstrap.servers": bootstrap_servers})  # it keeps the leaders that it knows for minutes


def _is_served(found: Any) -> bool:
    try:
        found.result(ANSWER_SECONDS)
    except KafkaException as error:
        if error.args[0].code() not in NOT_SERVED_YET:
            raise
        return False
    return True
