"""Stock admin clients request elections, and get Kafka's error codes if none is needed or a partition is unknown."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import pytest
from confluent_kafka import ElectionType, TopicPartition
from confluent_kafka.admin import AdminClient
from kafka import KafkaAdminClient

from raylog.core.errors import ErrorCode
from tests.compat.topics import create_topic

pytestmark = pytest.mark.compat

ANSWER_SECONDS = 20.0
PREFERRED, UNCLEAN = 0, 1
Ask = Callable[[str, int, Mapping[str, Sequence[int]]], dict[tuple[str, int], int]]
"""(bootstrap_servers, type, partitions by topic) -> the error code of each partition."""


def by_confluent(bootstrap_servers: str, kind: int, wanted: Mapping[str, Sequence[int]]) -> dict[tuple[str, int], int]:
    client = AdminClient({"bootstrap.servers": bootstrap_servers})
    partitions = [TopicPartition(topic, number) for topic, numbers in wanted.items() for number in numbers]
    election_type = ElectionType.PREFERRED if kind == PREFERRED else ElectionType.UNCLEAN
    answers = client.elect_leaders(election_type, partitions).result(ANSWER_SECONDS)
    return {(tp.topic, tp.partition): error.code() if error else 0 for tp, error in answers.items()}


def by_kafka_python(
    bootstrap_servers: str, kind: int, wanted: Mapping[str, Sequence[int]]
) -> dict[tuple[str, int], int]:
    client = KafkaAdminClient(bootstrap_servers=bootstrap_servers)
    try:
        answer = client.elect_leaders(kind, dict(wanted), raise_errors=False)
    finally:
        client.close()
    return {
        (topic.topic, each.partition_id): each.error_code
        for topic in answer.replica_election_results
        for each in topic.partition_result
    }


@pytest.mark.parametrize("ask", [by_confluent, by_kafka_python])
@pytest.mark.parametrize("kind", [PREFERRED, UNCLEAN])
def test_no_election_is_needed_while_the_preferred_replica_leads(bootstrap_servers: str, ask: Ask, kind: int) -> None:
    topic = f"elected-{ask.__name__}-{kind}".replace("_", "-")
    create_topic(bootstrap_servers, topic, partitions=3)
    assert ask(bootstrap_servers, kind, {topic: [0, 2], "never-made": [0]}) == {
        (topic, 0): ErrorCode.ELECTION_NOT_NEEDED,
        (topic, 2): ErrorCode.ELECTION_NOT_NEEDED,
        ("never-made", 0): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }


def test_all_partitions_returns_nothing_if_no_election_is_needed(bootstrap_servers: str) -> None:
    create_topic(bootstrap_servers, "elected-with-all", partitions=3)
    client = AdminClient({"bootstrap.servers": bootstrap_servers})
    assert client.elect_leaders(ElectionType.PREFERRED, None).result(ANSWER_SECONDS) == {}
