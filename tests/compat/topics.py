"""Topics for tests, made by the admin client that all of them trust."""

from __future__ import annotations

from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

ANSWER_SECONDS = 20.0


def create_topic(bootstrap_servers: str, topic: str, *, partitions: int) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap_servers})
    admin.create_topics([NewTopic(topic, partitions)])[topic].result(ANSWER_SECONDS)
