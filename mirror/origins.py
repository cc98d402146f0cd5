"""In which cluster records were produced first, by the producer ids of their batches. Pure.

A flow whose copies have the names of their source writes them with producers of its own. It commits their ids to an
internal topic of the target, with the cluster id of the records' origin, before it uses them. So a flow that reads the
target can tell its batches: those with such an id come from there, all others were produced in the target itself.
Producer ids are never given twice in a cluster.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

from raylog.core.errors import ErrorCode, KafkaError
from raylog.core.ids import NO_PRODUCER_ID

ORIGINS_TOPIC: Final = "raylog-mirror-producers.internal"
"""Its name ends as those of MirrorMaker's own topics do, so that no flow copies it."""
NO_OTHERS: Final[Mapping[str, bool]] = {}
OWN_MAX: Final = 100_000
"""Of the ids of other producers so many are remembered."""
CLUSTER_ID_CHARACTERS_MAX: Final = 100


class Origin(NamedTuple):
    """A cluster in which records were produced first."""

    cluster_id: str
    alias: str
    """In the file of the flow."""


class Origins:
    """What a flow knows of the producer ids in its source. Not thread-safe."""

    def __init__(self, source_id: str, target_id: str, others: Mapping[str, bool] = NO_OTHERS) -> None:
        """The ids of the flow's clusters, and of the other clusters of a loop the aliases: whether the flow passes on
        their records.
        """
        self.source_id = source_id
        self.target_id = target_id
        self._passes = dict(others)
        self._ids: dict[str, str] = {}
        """The aliases of these clusters, by their ids as far as they were learned."""
        self._registered: dict[int, str] = {}
        self._aliases: dict[str, str] = {}
        """By which the flows that have registered them call the origins."""
        self._others: set[int] = {NO_PRODUCER_ID}

    def registered(self, producer_id: int, origin: Origin) -> None:
        """The topic says so."""
        self._registered[producer_id] = origin.cluster_id
        self._aliases[origin.cluster_id] = origin.alias

    def learned(self, alias: str, cluster_id: str) -> None:
        """One of the other clusters has been asked."""
        self._ids[cluster_id] = alias

    @property
    def not_learned(self) -> set[str]:
        return self._passes.keys() - self._ids.values()

    def unknown(self, producer_ids: Iterable[int]) -> set[int]:
        """Those that must be looked for in the topic, to the end that it has now."""
        return {each for each in producer_ids if each not in self._registered and each not in self._others}

    def looked_for(self, producer_ids: Iterable[int]) -> None:
        """The topic was read to its end after batches with these ids were. Those that it lacks will never be there."""
        others = {each for each in producer_ids if each not in self._registered}
        if len(self._others) + len(others) > OWN_MAX:
            self._others = {NO_PRODUCER_ID}
        self._others |= others

    def copies(self, producer_id: int, origin: str | None) -> bool:
        """Whether batches of this producer are to be copied: those from `origin`; None: those of the source.

        Records of clusters that are not in the loop count as those of the source. The id must not be unknown.
        """
        found = self._registered.get(producer_id, self.source_id)
        if origin is not None:
            return found == origin
        return found == self.source_id or (found != self.target_id and self._other(found) is None)

    @property
    def passed_on(self) -> dict[str, str]:
        """The clusters whose records the flow passes on, and there may be some: aliases by ids."""
        found = {each: self._other(each) for each in set(self._registered.values()) - {self.source_id, self.target_id}}
        return {each: alias for each, alias in found.items() if alias is not None and self._passes[alias]}

    def _other(self, cluster_id: str) -> str | None:
        """The alias of another cluster of the loop. Until that was asked, who has registered it knows its alias."""
        alias = self._ids.get(cluster_id)
        if alias is None and self._aliases.get(cluster_id) in self.not_learned:
            alias = self._aliases[cluster_id]
        return alias


def encode_origin(producer_id: int, origin: Origin) -> tuple[bytes, bytes]:
    """(key, value)."""
    value = {"origin": origin.cluster_id, "alias": origin.alias}
    return json.dumps({"producer_id": producer_id}).encode(), json.dumps(value).encode()


def decode_origin(key: bytes | None, value: bytes | None) -> tuple[int, Origin]:
    """(producer id, origin). Raises KafkaError, INVALID_RECORD, for a record of something else."""
    match _decoded(key), _decoded(value):
        case {"producer_id": int(producer_id)}, {"origin": str(cluster_id), "alias": str(alias)}:
            if is_cluster_id(cluster_id) and producer_id >= 0:
                return producer_id, Origin(cluster_id, alias)
    shown = f"{(key or b'')[:100]!r}: {(value or b'')[:100]!r}"
    text = f"{ORIGINS_TOPIC}: {shown} is no origin of a producer: write null to its key, and have it compacted"
    raise KafkaError(ErrorCode.INVALID_RECORD, text)


def is_cluster_id(text: str) -> bool:
    """Whether it can be a part of a topic's name, as the ids that Kafka makes can."""
    return 0 < len(text) <= CLUSTER_ID_CHARACTERS_MAX and all(c.isascii() and (c.isalnum() or c in "_-") for c in text)


def _decoded(data: bytes | None) -> Any:
    try:
        return json.loads(data or b"")
    except (ValueError, RecursionError):
        return None
