"""A store of large values in Ray's object store. It is volatile: values end with their owner, which is an actor.

The owner puts each piece itself, so that values do not end with the process that has sent them. It drops the oldest
values when they exceed its bytes, and those that are too old; their records then have no value any more.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import ray
from ray.exceptions import RayError

from raylog.client.chunks.envelope import digest_text, new_digest
from raylog.client.chunks.held_values import HeldValues
from raylog.client.chunks.references import StoredValue, ValueMissing, store_failed
from raylog.client.chunks.splitting import Pieces
from raylog.core.errors import KafkaError

NAMESPACE = "raylog-values"
PIECE_BYTES = 8 << 20
Answer = TypeVar("Answer")


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


@ray.remote(num_cpus=0)
class ValueOwner:
    """Owns the objects of a store."""

    def __init__(self, bytes_max: int, age_ms_max: int) -> None:
        self._held: HeldValues[ray.ObjectRef[bytes]] = HeldValues(bytes_max=bytes_max, age_ms_max=age_ms_max)

    def begin(self, name: str, size: int) -> None:
        self._held.begin(name, size, _now_ms())

    def add(self, name: str, piece: bytes) -> None:
        self._held.add(name, ray.put(piece))

    def end(self, name: str) -> None:
        self._held.end(name)

    def pieces(self, name: str) -> list[ray.ObjectRef[bytes]]:
        return self._held.pieces(name, _now_ms())

    def values_of(self, topic: str) -> list[tuple[str, int]]:
        self._held.expire(_now_ms())
        return list(self._held.values_of(topic))

    def delete(self, name: str) -> None:
        self._held.delete(name)


class RayValueStore:
    """Keeps large values in Ray's object store. For `value_store=` of clients in any process of the same Ray."""

    def __init__(self, name: str, *, bytes_max: int, age_ms_max: int) -> None:
        """Find the owner of this name, or start it with these limits; it stays until `close`. Ray must be running."""
        options: dict[str, Any] = {"name": name, "namespace": NAMESPACE, "lifetime": "detached", "get_if_exists": True}
        owner: Any = ValueOwner
        self._owner = owner.options(**options).remote(bytes_max, age_ms_max)

    def write(self, name: str, source: Pieces) -> bytes:
        """Raises KafkaError."""
        digest = new_digest()

        def written() -> None:
            ray.get(self._owner.begin.remote(name, source.size))
            for piece in source.pieces(PIECE_BYTES):
                digest.update(piece)
                ray.get(self._owner.add.remote(name, piece))
            ray.get(self._owner.end.remote(name))

        _asked(f"value {name} was not written", written)
        return digest_text(digest)

    def read(self, name: str, size: int) -> Iterator[bytes]:
        """Raises ValueMissing."""
        try:
            for reference in ray.get(self._owner.pieces.remote(name)):
                yield ray.get(reference)
        except (RayError, ValueMissing) as error:
            cause = getattr(error, "cause", None)
            raise ValueMissing(str(cause) if isinstance(cause, ValueMissing) else repr(error)) from error

    def values_of(self, topic: str) -> Iterator[StoredValue]:
        """Raises KafkaError."""
        listed = _asked(
            f"values of topic {topic!r} cannot be listed", lambda: ray.get(self._owner.values_of.remote(topic))
        )
        return (StoredValue(*each) for each in listed)

    def delete(self, name: str) -> None:
        """Raises KafkaError."""
        _asked(f"value {name} was not deleted", lambda: ray.get(self._owner.delete.remote(name)))

    def close(self) -> None:
        """End the owner, and with it all values, for all processes."""
        ray.kill(self._owner)


def _asked(what: str, call: Callable[[], Answer]) -> Answer:
    """Raises KafkaError."""
    try:
        return call()
    except RayError as error:
        cause = getattr(error, "cause", None)
        if isinstance(cause, KafkaError):
            raise cause from error
        raise store_failed(what, error) from error
