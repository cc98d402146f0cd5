"""A client that writes keys of a compacted topic, one record at a time, and knows what the table may contain."""

from __future__ import annotations

from functools import partial
from typing import Any
from uuid import UUID

from raylog.core.errors import ErrorCode
from raylog.core.ids import BrokerId, TopicPartition
from raylog.protocol.produce import ProducePartition, ProduceRequest, ProduceTopic
from raylog.protocol.records.builder import NewRecord, build_batch
from tests.sim.broker_host import BrokerHost
from tests.sim.client import SimClient
from tests.sim.producer import RETRIED
from tests.sim.world import World

KEYS = 6
PAUSE_MS_MAX = 40
KEYS_RETIRED = 0.8
"""The part of the deleted keys that are not written again."""


class TableWriter(SimClient):
    """Writes values and tombstones with acks=all. A record whose outcome is unknown is not repeated.

    Most deleted keys are not written again: nothing would hide one that comes back.
    """

    late_bytes = False  # otherwise a record in doubt could be written after a later one

    def __init__(self, world: World, hosts: list[BrokerHost], tp: TopicPartition, *, name: str) -> None:
        super().__init__(world, hosts, name)
        self.tp = tp
        self.possible: dict[bytes, list[bytes | None]] = {}
        """The values that each key may have: the one acknowledged last, and those in doubt after it."""
        self._keys = [self._new_key() for _ in range(KEYS)]
        """Those that are written."""
        self.acknowledged = 0
        self.ends = False
        """Set to let the client finish with its current record."""
        self._written = 0
        self._topic_id: UUID | None = None
        self._leader = BrokerId(-1)

    def _new_key(self) -> bytes:
        key = b"%s-key-%d" % (self.name.encode(), len(self.possible))
        self.possible[key] = [None]
        return key

    def begin(self) -> None:
        self.describe(self.tp.topic, self._described, create=True)

    def _described(self, topic: Any) -> None:
        ready = topic.error_code == ErrorCode.NONE and len(topic.partitions) > self.tp.partition
        if not ready or topic.partitions[self.tp.partition].error_code != ErrorCode.NONE:
            self.restart()
            return
        self._topic_id = topic.topic_id
        self._leader = topic.partitions[self.tp.partition].leader_id
        self._write()

    def _write(self) -> None:
        if self.ends:
            self.finished = True
            return
        rng = self.world.rng
        key = rng.choice(self._keys)
        self._written += 1
        value = None if rng.random() < 0.2 else b"%d" % self._written + b"." * rng.choice((0, 50, 200))
        batch = build_batch([NewRecord(key, value, self.world.now().wall_ms)])
        assert self._topic_id is not None
        written = ProducePartition(index=self.tp.partition, records=memoryview(batch))
        topic = ProduceTopic(name=self.tp.topic, topic_id=self._topic_id, partitions=[written])
        self.possible[key].append(value)
        request = ProduceRequest(acks=-1, timeout_ms=1000, topics=[topic])
        self.ask(self._leader, request, partial(self._answered, key, value))

    def _answered(self, key: bytes, value: bytes | None, answer: Any) -> None:
        code = answer.responses[0].partitions[0].error_code
        if code == ErrorCode.NONE:
            self.possible[key] = [value]
            self.acknowledged += 1
            if value is None and self.world.rng.random() < KEYS_RETIRED:
                self._keys[self._keys.index(key)] = self._new_key()
            self.later(PAUSE_MS_MAX, self._write)
            return
        assert code in RETRIED, f"{self.tp}: {key!r} was refused with {code.name}"
        self.restart()
