"""Selects the controller that the broker's links connect to: the active one if known, else each voter in turn.

The fetch of the metadata log finds it. A voter that is not active returns the active one; if a voter cannot be
reached, the next one is tried.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from raylog.core.clock import Now
from raylog.core.ids import BrokerId
from raylog.metadata.voters import voter_name
from raylog.transport.node import Node
from raylog.transport.peer_link import PeerLink


class ActiveController:
    """Besides the links to the active controller there is one link to each voter, used by `on_present`.

    `on_found` functions are called when a link to the active controller is ready, or a ready link is found to lead to
    it.
    """

    def __init__(self, node: Node, voters: Sequence[BrokerId]) -> None:
        self._node = node
        self._voters = voters
        self._current = voters[0]
        self._known = False
        """Whether the current controller has confirmed that it is active."""
        self._links: list[PeerLink] = []
        self.on_found: list[Callable[[Now], None]] = []
        self.on_present: Callable[[PeerLink, Now], None] = lambda link, now: None
        self._present = [self._presence_link(voter) for voter in voters] if len(voters) > 1 else []

    def new_link(self, *, on_ready: Callable[[Now], None], on_gone: Callable[[Now], None] | None = None) -> PeerLink:
        """A link to the current controller. `on_gone` is called when it disconnects or cannot be reached."""
        link = self._node.new_link(voter_name(self._current), on_ready=on_ready, on_gone=on_gone)
        self._links.append(link)
        return link

    def say_present(self, now: Now) -> None:
        """Call `on_present` for all standby controllers, so that each knows the brokers if it becomes active."""
        for link in self._present:
            if link.ready and link.peer != voter_name(self._current):
                self.on_present(link, now)

    def _presence_link(self, voter: BrokerId) -> PeerLink:
        return self._node.new_link(voter_name(voter), on_ready=self.say_present)

    def found(self, now: Now) -> None:
        """The current controller has responded as only the active one does."""
        if not self._known:
            self._known = True
            self.say_present(now)  # standby controllers may have lost their links to this broker
            for tell in self.on_found:
                tell(now)

    def is_another(self, voter: BrokerId) -> None:
        """The current controller is not active; it reports `voter` as active, or none (NO_BROKER_ID)."""
        self._known = False
        if voter in self._voters:
            self._go_to(voter)
        else:
            self.cannot_be_reached()  # the current controller may be the one that is partitioned from the others

    def cannot_be_reached(self) -> None:
        """Try the next voter."""
        self._known = False
        following = self._voters.index(self._current) + 1
        self._go_to(self._voters[following % len(self._voters)])

    def _go_to(self, voter: BrokerId) -> None:
        self._current = voter
        for link in self._links:
            link.redirect(voter_name(voter))
