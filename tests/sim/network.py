"""A simulated network: connections that delay, split and lose bytes and break in mid-frame, and network partitions.

As with TCP, bytes of one connection arrive in order or not at all. Bytes of an old connection may arrive after those of
its replacement. While a direction is cut nothing arrives in it, not even the close of a connection; data in flight
arrives when the cut heals. A connection needs both directions to be established, and neither to stay open.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from enum import Enum
from functools import partial
from typing import Protocol
from zlib import crc32

from tests.sim.world import World

DELAY_MS_MAX = 5
RETRANSMIT_MS = (DELAY_MS_MAX, DELAY_MS_MAX, 300, 2000)
"""How long a connection may take to recover after a cut has healed, as retransmission backs off. A new connection need
not wait, and may be established before."""


class End(Protocol):
    """One end of a connection."""

    def bytes_arrived(self, data: bytes) -> None: ...

    def connection_lost(self) -> None: ...


class Side(Enum):
    CLIENT = "client"
    SERVER = "server"


class Network:
    """The connectivity and the delays between hosts."""

    def __init__(self, world: World) -> None:
        self.world = world
        self._cuts: Counter[tuple[str, str]] = Counter()
        """(source, target) -> number of cuts in this direction; each heals separately."""
        self._slow: dict[tuple[str, str], int] = {}
        """(source, target) -> the largest delay, if it is not the usual one."""
        self._held: list[Callable[[], None]] = []

    def is_cut(self, source: str, target: str) -> bool:
        """Whether the direction from `source` to `target` is cut."""
        return self._cuts[source, target] > 0

    def can_connect(self, one: str, other: str) -> bool:
        return not self.is_cut(one, other) and not self.is_cut(other, one)

    def cut(self, source: str, target: str) -> None:
        """Cut the direction from `source` to `target`; the other direction is unchanged."""
        self._cuts[source, target] += 1

    def heal(self, source: str, target: str) -> None:
        self._cuts[source, target] -= 1
        held, self._held = self._held, []
        for again in held:
            self.world.after(self.world.rng.randint(0, self.world.rng.choice(RETRANSMIT_MS)), again)

    def when_healed(self, again: Callable[[], None]) -> None:
        """Call `again` when any cut has healed; it must check whether it was the right one."""
        self._held.append(again)

    def slow(self, one: str, other: str, delay_ms_max: int | None) -> None:
        """Set the largest random delay of bytes between the two; None restores the usual delay."""
        for hosts in ((one, other), (other, one)):
            if delay_ms_max is None:
                self._slow.pop(hosts, None)
            else:
                self._slow[hosts] = delay_ms_max

    def is_slow(self, source: str, target: str) -> bool:
        return (source, target) in self._slow

    def is_disturbed(self, source: str, target: str) -> bool:
        return self.is_cut(source, target) or self.is_slow(source, target)

    def delay_ms(self, source: str, target: str) -> int:
        return self.world.rng.randint(0, self._slow.get((source, target), DELAY_MS_MAX))


class Pipe:
    """One direction of a connection."""

    def __init__(
        self, network: Network, source: str, target: str, deliver: Callable[[bytes], None], ended: Callable[[], None]
    ) -> None:
        self._network = network
        self._hosts = (source, target)
        self._deliver = deliver
        self._ended = ended
        self._unread = bytearray()
        self._planned = False
        self._ending = False
        self._dropped = False
        self.on_drained: Callable[[], None] | None = None

    @property
    def unread_bytes(self) -> int:
        return len(self._unread)

    def send(self, data: bytes) -> None:
        if data and not self._ending and not self._dropped:
            self._unread += data
            self._plan()

    def end(self, *, keep: bool) -> None:
        """Close the sending side; with `keep` bytes in flight still arrive. Then the receiver sees the close."""
        self._ending = True
        if not keep:
            self._unread.clear()
        self._plan()

    def drop(self) -> None:
        """Close the receiving side."""
        self._dropped = True
        self._unread.clear()

    def lose_bytes(self) -> None:
        """Drop the bytes in flight."""
        self._unread.clear()

    def _plan(self) -> None:
        if not self._planned:
            self._planned = True
            self._network.world.after(self._network.delay_ms(*self._hosts), self._arrive)

    def _arrive(self) -> None:
        if self._network.is_cut(*self._hosts):
            self._network.when_healed(self._arrive)
            return
        self._planned = False
        if self._dropped:
            return
        if not self._unread:
            if self._ending:
                self._dropped = True
                self._ended()
            return
        rng = self._network.world.rng
        count = len(self._unread)
        if rng.random() < 0.3:
            count = 1 + int(rng.random() * count)  # as many draws for every count: longer messages change no other
        piece = bytes(self._unread[:count])
        del self._unread[:count]
        self._network.world.fingerprint = crc32(piece, self._network.world.fingerprint)
        if self._unread or self._ending:
            self._plan()
        self._deliver(piece)
        if not self._unread and self.on_drained is not None:
            self.on_drained()


class Connection:
    """Two ends and a pipe to each."""

    def __init__(self, network: Network, client: End, *, client_host: str, server_host: str) -> None:
        self.broken = False
        self._world = network.world
        self._ends = {Side.CLIENT: client}
        self._pipes = {
            side: Pipe(network, source, target, partial(self._deliver, side), partial(self._ended, side))
            for side, source, target in (
                (Side.SERVER, client_host, server_host),
                (Side.CLIENT, server_host, client_host),
            )
        }
        self._broken_outside = False
        self._late = False
        self._gone: Side | None = None
        """The side whose machine has lost power without closing the connection."""
        self._machine_is_back = False
        self._unheard = False
        """Whether something was sent to the side that lost power."""

    def attach(self, server: End) -> None:
        self._ends[Side.SERVER] = server

    def to(self, side: Side) -> Pipe:
        return self._pipes[side]

    def break_(self, *, by: Side | None, late: bool = False) -> None:
        """Close the connection; each end sees it after a delay of its own. With `late` bytes in flight arrive first.

        `by` is the side that closes, which receives nothing more; None if the network breaks the connection. Then the
        client sees it last, so that its bytes do not arrive after those of a new connection.
        """
        if self.broken:
            return
        self.broken, self._late = True, late
        if by is None:
            self._broken_outside = True
            self._pipes[Side.SERVER].end(keep=late)
            return
        self._pipes[by].drop()
        self._world.after(self._world.rng.randint(0, DELAY_MS_MAX), self._ends[by].connection_lost)
        self._pipes[_other(by)].end(keep=late)

    def lose(self, side: Side) -> None:
        """The machine on this side has lost power. The other side learns it only when it sends after the restart."""
        if not self.broken:
            self._gone = side
            self._pipes[_other(side)].lose_bytes()

    def machine_back(self) -> None:
        """The machine that lost power runs again and does not know this connection."""
        self._machine_is_back = True
        if self._unheard:
            self._reset()

    def _deliver(self, side: Side, data: bytes) -> None:
        if side is not self._gone:
            self._ends[side].bytes_arrived(data)
            return
        self._unheard = True
        if self._machine_is_back:
            self._reset()

    def _ended(self, side: Side) -> None:
        if side in self._ends and side is not self._gone:
            self._ends[side].connection_lost()
        if self._broken_outside and side is Side.SERVER:
            self._pipes[Side.CLIENT].end(keep=self._late)

    def _reset(self) -> None:
        if not self.broken:
            assert self._gone is not None
            self.broken = True
            self._pipes[_other(self._gone)].end(keep=False)


def _other(side: Side) -> Side:
    return Side.CLIENT if side is Side.SERVER else Side.SERVER
