"""Which topics and groups a flow copies, and what a copied topic is called in the target: MirrorMaker 2's policies.

A remote topic is one that a mirror made: `east.orders` in the target of a flow from east. The default policy finds the
source in the name, and with it cycles. A policy that keeps names cannot: there a loop of flows is cut by the origin of
the records.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from raylog.core.config import shown
from raylog.core.errors import ConfigError
from raylog.mirror.renaming import Rename, renamed

HEARTBEATS: Final = "heartbeats"
HOPS_MAX: Final = 250
"""A topic's name has no more characters, thus no more parts that name a cluster."""
TOPIC_NAME: Final = re.compile(r"[a-zA-Z0-9._-]{1,249}")


@dataclass(frozen=True, slots=True)
class ReplicationPolicy:
    """Names remote topics `<source><separator><topic>`, as DefaultReplicationPolicy does."""

    separator: str = "."
    internal_separator: str = "."
    """In the names of MirrorMaker's internal topics."""

    @property
    def names_source(self) -> bool:
        """Whether the name of a remote topic tells its source cluster, so that cycles are found by name."""
        return True

    def remote_topic(self, source: str, topic: str) -> str:
        """What `topic` of the cluster `source` is called in the target. Raises ConfigError for an impossible name."""
        return _checked(topic, f"{source}{self.separator}{topic}")

    def source_of(self, topic: str) -> str | None:
        """The cluster that a remote topic was copied from; None for a topic that is not remote."""
        parts = topic.split(self.separator)
        while parts and not parts[-1]:
            parts.pop()
        return parts[0] if len(parts) > 1 else None

    def upstream_topic(self, topic: str) -> str | None:
        """The name in the source cluster, which may be remote itself; None for a topic that is not remote."""
        source = self.source_of(topic)
        return None if source is None else topic[len(source) + len(self.separator) :]

    def original_topic(self, topic: str) -> str:
        """The name in the cluster where the records were produced first."""
        for _ in range(HOPS_MAX):
            upstream = self.upstream_topic(topic)
            if upstream is None or upstream == topic:
                break
            topic = upstream
        return topic

    def is_cycle(self, topic: str, target: str) -> bool:
        """Whether a topic of the source has been in the cluster `target` before, as its name tells."""
        for _ in range(HOPS_MAX):
            source, upstream = self.source_of(topic), self.upstream_topic(topic)
            if source is None:
                return False
            if source == target:
                return True
            if upstream is None or upstream == topic:
                return False
            topic = upstream
        return False

    def is_internal(self, topic: str) -> bool:
        """Whether the topic belongs to Kafka, Connect or MirrorMaker. Such topics are never copied."""
        return topic.startswith(("__", ".")) or topic.endswith(
            (f"{self.internal_separator}internal", ".internal", "-internal")
        )

    def is_heartbeats(self, topic: str) -> bool:
        return self.original_topic(topic) == HEARTBEATS

    def is_checkpoints(self, topic: str) -> bool:
        return topic.endswith(self._checkpoints_suffix)

    def checkpoints_topic(self, source: str) -> str:
        """In the target of flows from `source`."""
        return f"{source}{self._checkpoints_suffix}"

    def offset_syncs_topic(self, other: str) -> str:
        """In one cluster of a flow; `other` is the other one."""
        return f"mm2-offset-syncs{self.internal_separator}{other}{self.internal_separator}internal"

    @property
    def _checkpoints_suffix(self) -> str:
        return f"{self.internal_separator}checkpoints{self.internal_separator}internal"


@dataclass(frozen=True, slots=True)
class IdentityPolicy(ReplicationPolicy):
    """Keeps the names of topics, as IdentityReplicationPolicy does, except that those of heartbeats name the source."""

    flow_source: str | None = None
    """The source cluster of the flow that the policy belongs to."""

    @property
    def names_source(self) -> bool:
        return False

    def remote_topic(self, source: str, topic: str) -> str:
        return ReplicationPolicy.remote_topic(self, source, topic) if _ends_in_heartbeats(topic) else topic

    def source_of(self, topic: str) -> str | None:
        return ReplicationPolicy.source_of(self, topic) if _ends_in_heartbeats(topic) else self.flow_source

    def upstream_topic(self, topic: str) -> str | None:
        return ReplicationPolicy.upstream_topic(self, topic) if _ends_in_heartbeats(topic) else topic


@dataclass(frozen=True, slots=True)
class RenamingPolicy(ReplicationPolicy):
    """Names that a function of the program makes. As with identical names, a name does not tell where it comes from."""

    rename: Rename = "{0}.{1}".format

    @property
    def names_source(self) -> bool:
        return False

    def remote_topic(self, source: str, topic: str) -> str:
        if _ends_in_heartbeats(topic):
            return ReplicationPolicy.remote_topic(self, source, topic)
        return _checked(topic, renamed(self.rename, source, topic))

    def source_of(self, topic: str) -> str | None:
        return ReplicationPolicy.source_of(self, topic) if _ends_in_heartbeats(topic) else None

    def upstream_topic(self, topic: str) -> str | None:
        return ReplicationPolicy.upstream_topic(self, topic) if _ends_in_heartbeats(topic) else None


@dataclass(frozen=True, slots=True)
class NameFilter:
    """Names that match an included pattern and no excluded one. A pattern is a name or a regular expression."""

    include: tuple[re.Pattern[str], ...]
    """Without any, no name matches."""
    exclude: tuple[re.Pattern[str], ...]

    @classmethod
    def of(cls, include: Sequence[str], exclude: Sequence[str]) -> NameFilter:
        """Raises ConfigError."""
        return cls(compiled(include), compiled(exclude))

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and _matches(self.include, name) and not _matches(self.exclude, name)


def compiled(patterns: Sequence[str]) -> tuple[re.Pattern[str], ...]:
    """Raises ConfigError that names the first bad one. One that Java may read differently is bad too."""
    return tuple(_compiled(pattern) for pattern in patterns)


def _compiled(pattern: str) -> re.Pattern[str]:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", FutureWarning)  # of syntax that Java has, and Python may get
            return re.compile(pattern)
    except FutureWarning as warning:
        raise ConfigError(f"{shown(pattern)}: such a set of characters is not supported: {warning}") from None
    except (re.error, OverflowError, RecursionError) as error:
        raise ConfigError(f"{shown(pattern)} is no regular expression: {error}") from None


def _matches(patterns: Sequence[re.Pattern[str]], name: str) -> bool:
    return any(pattern.fullmatch(name) is not None for pattern in patterns)


def _ends_in_heartbeats(topic: str) -> bool:
    return topic.endswith(HEARTBEATS)


def _checked(topic: str, remote: str) -> str:
    """Raises ConfigError."""
    if remote in (".", "..") or not TOPIC_NAME.fullmatch(remote):
        rule = "must have 1 to 249 characters of a-z, A-Z, 0-9, '.', '_' and '-'"
        raise ConfigError(f"topic {shown(topic)} would be called {shown(remote)} in the target: {rule}")
    return remote
