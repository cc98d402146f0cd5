"""A simulated disk that shows what a power failure would leave at each of its changes."""

from __future__ import annotations

import random
from collections.abc import Callable
from copy import deepcopy

from raylog.logstore.disk import FileHandle
from tests.support.sim_disk import SimDisk


class CutDisk(SimDisk):
    """Shows a copy of itself, without power, at each of its changes."""

    def __init__(self, rng: random.Random) -> None:
        super().__init__(rng)
        self.on_cut: Callable[[SimDisk], None] | None = None
        self.cuts = 0

    def _count(self) -> None:
        super()._count()
        if self.on_cut is not None:
            self._cut(deepcopy(self._root))

    def pwrite(self, handle: FileHandle, data: bytes | bytearray | memoryview, position: int) -> None:
        if self.on_cut is not None and len(data) > 1:
            root, file = deepcopy((self._root, self._open[handle][0]))
            file.write(position, bytes(data[: self._rng.randrange(1, len(data))]))
            self._cut(root)
        super().pwrite(handle, data, position)

    def _cut(self, root: object) -> None:
        assert self.on_cut is not None
        self.cuts += 1
        twin = SimDisk(random.Random(self.cuts))
        twin._root = root  # type: ignore[assignment]
        twin.crash(power_cut=self.cuts % 4 != 0)  # every fourth time only the process dies
        self.on_cut(twin)
