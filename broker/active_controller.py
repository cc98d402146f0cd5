"""Selects the controller that the broker's links connect to: the active one if known, else each voter in turn.

The fetch of the metadata log finds it. A voter that is not active returns the active one; if a voter cannot be
reached, the next one is tried. The voters are those that this broker was started with until its image has others.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from raylog.core.clock import Now
from raylog.core.ids import NO_BROKER_ID, BrokerId
from raylog.metadata.voters import voter_name
from raylog.transport.node import Node
from raylog.transport.peer_link import PeerLink


class ActiveController:
    """Besides the links to the active controller there is one link to each voter, used by `notify_standby`.

    `on_found` functions are called when a link to the active controller is ready, or a ready link is found to lead to
    it.
    """

    def __init__(self, node: Node, voters: Sequence[BrokerId]) -> None:
        self._node = node
        self._voters = tuple(voters)
        self._current = voters[0]
        self._confirmed = False
        """Whether the current controller has confirmed that it is active."""
        self._links: list[PeerLink] = []
        self.on_found: list[Callable[[Now], None]] = []
        self.notify_standby: Callable[[PeerLink, Now], None] = lambda link, now: None
        self._standby_links: dict[BrokerId, PeerLink] = {}
        self._link_standbys()

    def new_link(self, *, on_ready: Callable[[Now], None], on_gone: Callable[[Now], None] | None = None) -> PeerLink:
        """A link to the current controller. `on_gone` is called when it disconnects or cannot be reached."""
        link = self._node.new_link(voter_name(self._current), on_ready=on_ready, on_gone=on_gone)
        self._links.append(link)
        return link

    def notify_standbys(self, now: Now) -> None:
        """Call `notify_standby` for all standby controllers, so that each knows the brokers if it becomes active.

        The current one is among them until it confirms that it is active: the links to it are closed if it is not.
        """
        active = voter_name(self._current) if self._confirmed else None
        for link in self._standby_links.values():
            if link.ready and link.peer != active:
                self.notify_standby(link, now)

    def replace_voters(self, voters: Sequence[BrokerId]) -> None:
        """These are the voters now."""
        if tuple(voters) != self._voters:
            self._voters = tuple(voters)
            self._link_standbys()

    def _link_standbys(self) -> None:
        wanted = self._voters if len(self._voters) > 1 else ()
        for voter in [each for each in self._standby_links if each not in wanted]:
            self._node.drop_link(self._standby_links.pop(voter))
        for voter in wanted:
            if voter not in self._standby_links:
                link = self._node.new_link(voter_name(voter), on_ready=self.notify_standbys)
                self._standby_links[voter] = link

    def found(self, now: Now) -> None:
        """The current controller has responded as only the active one does."""
        if not self._confirmed:
            self._confirmed = True
            self.notify_standbys(now)  # standby controllers may have lost their links to this broker
            for tell in self.on_found:
                tell(now)

    def follow_hint(self, voter: BrokerId) -> None:
        """The current controller is not active; it reports `voter` as active, or none (NO_BROKER_ID).

        It may be one that has become a voter since.
        """
        self._confirmed = False
        if voter != NO_BROKER_ID:
            self._connect_to(voter)
        else:
            self.try_next_voter()  # the current controller may be the one that is partitioned from the others

    def try_next_voter(self) -> None:
        """Try the next voter."""
        self._confirmed = False
        following = self._voters.index(self._current) + 1 if self._current in self._voters else 0
        self._connect_to(self._voters[following % len(self._voters)])

    def _connect_to(self, voter: BrokerId) -> None:
        self._current = voter
        for link in self._links:
            link.redirect(voter_name(voter))
