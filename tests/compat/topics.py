"""Topics for tests, made by the admin client that all of them trust."""

from __future__ import annotations

from collections.abc import Mapping

from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

ANSWER_SECONDS = 20.0


def create_topic(
    bootstrap_servers: str, topic: str, *, partitions: int, configs: Mapping[str, str] | None = None
) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap_servers})
    admin.create_topics([NewTopic(topic, partitions, config=dict(configs or {}))])[topic].result(ANSWER_SECONDS)
