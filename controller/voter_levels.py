"""The metadata levels that the voters of the quorum support, learned over the links between them.

Brokers register their range of levels in the metadata log; voters say theirs in ApiVersions. A voter that is not
connected is unknown: it may have been replaced by another version of raylog.
"""

from __future__ import annotations

from collections.abc import Iterable

from raylog.core.clock import Now
from raylog.core.errors import ErrorCode, KafkaError
from raylog.core.ids import BrokerId
from raylog.metadata.levels import SUPPORTED, LevelRange, level_range
from raylog.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from raylog.transport.peer_link import PeerLink

_REQUEST = ApiVersionsRequest(client_software_name="raylog", client_software_version="1")


class VoterLevels:
    """What this voter knows of itself and of the others."""

    def __init__(self, own_id: BrokerId, others: Iterable[BrokerId], *, timeout_ms: int) -> None:
        self._timeout_ms = timeout_ms
        self.supported: dict[BrokerId, LevelRange | None] = {own_id: SUPPORTED, **dict.fromkeys(others)}
        """By voter; None: unknown."""

    def ask(self, voter: BrokerId, link: PeerLink, now: Now) -> None:
        """To be called whenever the link to the voter is ready."""

        def answered(response: ApiVersionsResponse, _: Now) -> None:
            if response.error_code == ErrorCode.NONE:
                ranges = ((each.name, each.min_version, each.max_version) for each in response.supported_features)
                self.supported[voter] = level_range(tuple(ranges))

        link.request(_REQUEST, answered, _unknown, now=now, timeout_ms=self._timeout_ms)

    def lost(self, voter: BrokerId) -> None:
        """To be called whenever the link to the voter is lost."""
        self.supported[voter] = None


def _unknown(error: KafkaError, now: Now) -> None:
    """The link is lost, or asks again when it is ready."""
