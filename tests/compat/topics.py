"""Topics for tests, made by the admin client that all of them trust."""

from __future__ import annotations

from collections.abc import Mapping

from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

ANSWER_SECONDS = 20.0


def create_topic(
    bootstrap_servers: str,
    topic: str,
    *,
    partitions: int,
    replication_factor: int = 1,
    configs: Mapping[str, str] | None = None,
) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap_servers})
    wanted = NewTopic(topic, partitions, replication_factor, config=dict(configs or {}))
    admin.create_topics([wanted])[topic].result(ANSWER_SECONDS)
