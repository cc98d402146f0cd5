"""Which controller the broker's links go to: the active one, once it is known, and the voters in turn until then.

The fetch of the metadata log finds it. A voter that does not lead says who does; one that cannot be reached says
nothing, and the next one is asked.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from raylog.core.clock import Now
from raylog.core.ids import BrokerId
from raylog.metadata.voters import voter_name
from raylog.transport.node import Node
from raylog.transport.peer_link import PeerLink


class ActiveController:
    """Beside the links to it there is one to each voter, on which `on_present` says who is at the other end.

    `on_found` functions are called when a link is ready to whoever is active, or a ready link turns out to be."""

    def __init__(self, node: Node, voters: Sequence[BrokerId]) -> None:
        self._node = node
        self._voters = voters
        self._current = voters[0]
        self._known = False
        """Whether the current one has said that it is active."""
        self._links: list[PeerLink] = []
        self.on_found: list[Callable[[Now], None]] = []
        self.on_present: Callable[[PeerLink, Now], None] = lambda link, now: None
        self._present = [self._presence_link(voter) for voter in voters] if len(voters) > 1 else []

    def new_link(self, *, on_ready: Callable[[Now], None], on_gone: Callable[[Now], None] | None = None) -> PeerLink:
        """To the current one, whoever that is. `on_gone` is told when it has gone, or was not there."""
        link = self._node.new_link(voter_name(self._current), on_ready=on_ready, on_gone=on_gone)
        self._links.append(link)
        return link

    def say_present(self, now: Now) -> None:
        """To all controllers that stand by: should they come to decide, they know who is connected to them."""
        for link in self._present:
            if link.ready and link.peer != voter_name(self._current):
                self.on_present(link, now)

    def _presence_link(self, voter: BrokerId) -> PeerLink:
        return self._node.new_link(voter_name(voter), on_ready=self.say_present)

    def found(self, now: Now) -> None:
        """The current one has answered as only the active one does."""
        if not self._known:
            self._known = True
            self.say_present(now)  # some have lost the links that asked them
            for tell in self.on_found:
                tell(now)

    def is_another(self, voter: BrokerId) -> None:
        """The current one is not active; it believes that `voter` is, or knows of none (NO_BROKER_ID)."""
        self._known = False
        if voter in self._voters:
            self._go_to(voter)
        else:
            self.cannot_be_reached()  # it may be the one that is cut off

    def cannot_be_reached(self) -> None:
        """Another voter may know more."""
        self._known = False
        following = self._voters.index(self._current) + 1
        self._go_to(self._voters[following % len(self._voters)])

    def _go_to(self, voter: BrokerId) -> None:
        self._current = voter
        for link in self._links:
            link.redirect(voter_name(voter))
