"""The topics of the recipes: of one partition, for one order of records; compacted where keys have a current value."""

from __future__ import annotations

import raylog


def create(servers: str, name: str, *, compacted: bool = True, partitions: int = 1) -> None:
    """Unless it is there."""
    configs = {"cleanup.policy": "compact"} if compacted else {}
    with raylog.AdminClient(bootstrap_servers=servers) as admin:
        try:
            admin.create_topics([raylog.NewTopic(name, partitions, configs=configs)])
        except raylog.KafkaError as error:
            if error.code is not raylog.ErrorCode.TOPIC_ALREADY_EXISTS:
                raise


def prefix(name: str) -> str:
    """Of the keys of several that share the name. It ends where the name does, as no name has a slash."""
    if "/" in name:
        raise ValueError(f"{name!r} must not contain a slash")
    return f"{name}/"
