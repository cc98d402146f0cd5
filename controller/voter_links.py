"""The connections of a controller to the others: two to each, since votes must not wait behind a parked fetch.

What one does when a connection is ready or lost is given by functions of the other controller's id and the time.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass

from raylog.core.clock import Now
from raylog.core.ids import BrokerId
from raylog.metadata.voters import voter_name
from raylog.transport.node import Node
from raylog.transport.peer_link import PeerLink

OnChange = Callable[[BrokerId, Now], None]


@dataclass(frozen=True, slots=True)
class LinkEvents:
    """What to call for the connections of one kind."""

    ready: OnChange
    lost: OnChange
    """A ready connection broke."""
    gone: OnChange | None = None
    """It could not be made, or broke."""


class VoterLinks:
    """Those of one controller. A connection is made when it is first asked for, and kept until `keep` leaves it out."""

    def __init__(self, node: Node, *, requests: LinkEvents, fetches: LinkEvents) -> None:
        self._node = node
        self._request_events = requests
        self._fetch_events = fetches
        self.requests: dict[BrokerId, PeerLink] = {}
        self.fetches: dict[BrokerId, PeerLink] = {}

    def connect(self, others: Collection[BrokerId]) -> None:
        """Both connections to each of these."""
        for other in others:
            self.to(other)
            self.fetching_from(other)

    def to(self, other: BrokerId) -> PeerLink:
        """The connection for requests other than fetches."""
        return self._link(self.requests, other, self._request_events)

    def fetching_from(self, other: BrokerId) -> PeerLink:
        return self._link(self.fetches, other, self._fetch_events)

    def keep(self, others: Collection[BrokerId]) -> None:
        """Close the connections to all but these."""
        for links in (self.requests, self.fetches):
            for other in [each for each in links if each not in others]:
                self._node.drop_link(links.pop(other))

    def _link(self, links: dict[BrokerId, PeerLink], other: BrokerId, events: LinkEvents) -> PeerLink:
        link = links.get(other)
        if link is None:
            gone = events.gone
            link = links[other] = self._node.new_link(
                voter_name(other),
                on_ready=lambda now: events.ready(other, now),
                on_lost=lambda now: events.lost(other, now),
                on_gone=None if gone is None else lambda now: gone(other, now),
            )
        return link
