"""(shell) Calls the function of a program that names remote topics."""

from __future__ import annotations

from collections.abc import Callable

from raylog.core.config import shown
from raylog.core.errors import ConfigError

Rename = Callable[[str, str], str]
"""The remote name of a topic, from the alias of its source cluster and its name there."""


def renamed(rename: Rename, source: str, topic: str) -> str:
    """Raises ConfigError, whatever the function raises or returns: the topic is not copied."""
    try:
        name = rename(source, topic)
    except Exception as error:
        raise ConfigError(f"replication.policy.class: fails for topic {shown(topic)}: {error!r}") from error
    if not isinstance(name, str):
        raise ConfigError(f"replication.policy.class: names topic {shown(topic)} {name!r}: must be a text")
    return name
