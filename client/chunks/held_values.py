"""Values that an owner holds in memory, within bounds of bytes and age. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from raylog.client.chunks.references import ValueMissing
from raylog.core.errors import ErrorCode, KafkaError

Piece = TypeVar("Piece")


@dataclass(slots=True)
class _Held(Generic[Piece]):
    size: int
    written_ms: int
    pieces: list[Piece] = field(default_factory=list)
    complete: bool = False


class HeldValues(Generic[Piece]):
    """The oldest values are dropped for new ones, and all when they are too old."""

    def __init__(self, *, bytes_max: int, age_ms_max: int) -> None:
        self.used_bytes = 0
        self._bytes_max = bytes_max
        self._age_ms_max = age_ms_max
        self._held: dict[str, _Held[Piece]] = {}
        """The oldest first."""

    def begin(self, name: str, size: int, now_ms: int) -> None:
        """Make room for a value. Raises KafkaError if it is larger than all of it."""
        if size > self._bytes_max:
            text = f"value {name} has {size} bytes, more than the store may hold ({self._bytes_max})"
            raise KafkaError(ErrorCode.MESSAGE_TOO_LARGE, text)
        self.expire(now_ms)
        self.delete(name)
        while self.used_bytes + size > self._bytes_max:
            self.delete(next(iter(self._held)))
        self._held[name] = _Held(size, now_ms)
        self.used_bytes += size

    def add(self, name: str, piece: Piece) -> None:
        """The next piece. Raises KafkaError if the value was dropped since it was begun."""
        self._begun(name).pieces.append(piece)

    def end(self, name: str) -> None:
        """The value is complete. Raises as `add`."""
        self._begun(name).complete = True

    def pieces(self, name: str, now_ms: int) -> list[Piece]:
        """Raises ValueMissing."""
        self.expire(now_ms)
        held = self._held.get(name)
        if held is None or not held.complete:
            limits = f"{self._bytes_max} bytes, {self._age_ms_max} ms"
            raise ValueMissing(f"its owner does not hold it: it was dropped ({limits}), or the owner has restarted")
        return list(held.pieces)

    def expire(self, now_ms: int) -> None:
        """Drop what is too old."""
        for name in [name for name, held in self._held.items() if held.written_ms + self._age_ms_max <= now_ms]:
            self.delete(name)

    def delete(self, name: str) -> None:
        held = self._held.pop(name, None)
        if held is not None:
            self.used_bytes -= held.size

    def values_of(self, topic: str) -> Iterator[tuple[str, int]]:
        """Name and time of each value of the topic."""
        return ((name, held.written_ms) for name, held in self._held.items() if name.startswith(f"{topic}/"))

    def _begun(self, name: str) -> _Held[Piece]:
        held = self._held.get(name)
        if held is None:
            text = f"value {name} was dropped for younger ones before it was complete"
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, text)
        return held
