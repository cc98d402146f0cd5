"""Damages bytes as a faulty disk, a torn write or an attacker would, from a seed."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from random import Random

EDGES = {
    1: (b"\0", b"\x01", b"\x7f", b"\x80", b"\xff"),
    2: tuple(struct.pack(">h", value) for value in (-1, 0, 1, 2**15 - 1, -(2**15))),
    4: tuple(struct.pack(">i", value) for value in (-2, -1, 0, 1, 2**31 - 1, -(2**31))),
    5: (b"\xff\xff\xff\xff\x0f", b"\x80\x80\x80\x80\x08", b"\xff\xff\xff\xff\x7f"),
    8: tuple(struct.pack(">q", value) for value in (-1, 0, 1, 2**63 - 1, -(2**63))),
}
"""Values at the limits of a field, by its size; those of five bytes are varints."""


def mutated(raw: bytes | bytearray, dice: Random) -> bytes:
    """`raw` with one to three mutations. The result may equal `raw`."""
    damaged = bytearray(raw)
    for _ in range(dice.randint(1, 3)):
        _mutate(damaged, dice)
    return bytes(damaged)


def mutations(raw: bytes | bytearray, count: int, seed: object) -> Iterator[bytes]:
    """`count` mutations of `raw`, none of which equals it; `raw` is not empty."""
    dice = Random(f"{seed}")
    while count:
        damaged = mutated(raw, dice)
        if damaged != raw:
            count -= 1
            yield damaged


def _mutate(damaged: bytearray, dice: Random) -> None:
    at = dice.randrange(len(damaged) + 1)
    size = min(dice.choice((1, 2, 4, 8, 30)), len(damaged) - at)
    match dice.randrange(7):
        case 0:
            if size:
                damaged[at] ^= 1 << dice.randrange(8)
        case 1:
            edge = dice.choice(EDGES[dice.choice(tuple(EDGES))])
            damaged[at : at + len(edge)] = edge
        case 2:
            damaged[at : at + size] = dice.randbytes(size)
        case 3:
            damaged[at : at + size] = bytes(size)
        case 4:
            del damaged[at : at + size]
        case 5:
            damaged[at:at] = damaged[at : at + size]
        case 6:
            del damaged[at:]
