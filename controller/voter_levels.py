"""The metadata levels that the controllers support, learned over the links between them.

Brokers register their range of levels in the metadata log; controllers say theirs in ApiVersions. One that is not
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
    """What this controller knows of itself and of the others."""

    def __init__(self, own_id: BrokerId, *, timeout_ms: int) -> None:
        self._timeout_ms = timeout_ms
        self._supported: dict[BrokerId, LevelRange] = {own_id: SUPPORTED}

    def of(self, controller: BrokerId) -> LevelRange | None:
        """None: unknown."""
        return self._supported.get(controller)

    def of_all(self, controllers: Iterable[BrokerId]) -> dict[BrokerId, LevelRange | None]:
        return {each: self._supported.get(each) for each in controllers}

    def ask(self, controller: BrokerId, link: PeerLink, now: Now) -> None:
        """To be called whenever the link to the controller is ready."""

        def answered(response: ApiVersionsResponse, _: Now) -> None:
            if response.error_code == ErrorCode.NONE:
                ranges = ((each.name, each.min_version, each.max_version) for each in response.supported_features)
                self._supported[controller] = level_range(tuple(ranges))

        link.request(_REQUEST, answered, _unknown, now=now, timeout_ms=self._timeout_ms)

    def lost(self, controller: BrokerId) -> None:
        """To be called whenever the link to the controller is lost."""
        self._supported.pop(controller, None)


def _unknown(error: KafkaError, now: Now) -> None:
    """The link is lost, or asks again when it is ready."""
