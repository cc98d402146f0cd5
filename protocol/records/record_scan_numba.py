"""The loop of `record_scan_loop` compiled by numba. Importing this compiles it, or loads it from numba's cache.

Raises ImportError if numba is missing or disabled.
"""

from __future__ import annotations

import numba
import numpy as np

from raylog.protocol.records.columnar_numba import compiled
from raylog.protocol.records.compression import Buffer
from raylog.protocol.records.record_scan_loop import scan as _loop

if numba.config.DISABLE_JIT:
    raise ImportError("NUMBA_DISABLE_JIT is set: the loop would run as slow Python")

_scan = compiled(
    _loop, numba.int64(numba.int64[::1], numba.types.Array(numba.uint8, 1, "C", readonly=True), numba.int64)
)


def scan(state: bytearray, data: Buffer, at: int) -> int:
    piece = np.frombuffer(data, np.uint8)
    piece.flags.writeable = False
    return int(_scan(np.frombuffer(state, np.int64), piece, at))
