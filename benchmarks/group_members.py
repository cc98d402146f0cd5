"""(shell) Members of groups that do nothing but belong to them, a thousand in one process; by either protocol.

Each has a connection of its own, as Kafka's clients have. A member sends heartbeats at the interval of its protocol,
and notes how long each took.
"""

from __future__ import annotations

import asyncio
import struct
import time
from collections.abc import Sequence
from typing import Any, Final
from uuid import UUID, uuid4

from raylog.core.errors import ErrorCode
from raylog.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, TopicPartitions
from raylog.protocol.messages.heartbeat import HeartbeatRequest
from raylog.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from raylog.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from raylog.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from raylog.protocol.schema import Message
from raylog.transport.client_connection import ClientConnection

SESSION_MS: Final = 45_000
REBALANCE_MS: Final = 300_000
CLASSIC_SECONDS: Final = 3.0
"""The interval of heartbeats of the classic protocol, as in Kafka's clients."""
RETRY_SECONDS: Final = 0.2
LEAVING: Final = -1
NO_GENERATION: Final = -1
_RANGE: Final = struct.Struct(">ii")
RETRIED: Final = (
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
)


class Connection:
    """One request at a time."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self._core = ClientConnection(client_id="bench")

    @classmethod
    async def open(cls, address: str) -> Connection:
        host, _, port = address.rpartition(":")
        made = cls(*await asyncio.open_connection(host, int(port)))
        made._core.negotiate()
        await made._answer()
        if not made._core.negotiated:  # it has asked again, in version 0
            await made._answer()
        return made

    async def call(self, request: Message) -> Any:
        self._core.send(request)
        return await self._answer()

    async def _answer(self) -> Any:
        self._writer.writelines(self._core.take_output())
        while (found := self._core.next_response()) is None:
            data = await self._reader.read(1 << 16)
            if not data:
                raise ConnectionError("closed by the broker")
            while data:
                free = self._core.receive_buffer()
                count = min(len(free), len(data))
                free[:count] = data[:count]
                self._core.bytes_received(count)
                data = data[count:]
        return found[1]

    def close(self) -> None:
        self._writer.close()


class GroupMember:
    """`held` are its partitions, `beats` the milliseconds that its heartbeats took."""

    def __init__(self, address: str, group: str, topic: str, partitions: int) -> None:
        self.held: frozenset[int] = frozenset()
        self.beats: list[float] = []
        self._address, self._group, self._topic, self._partitions = address, group, topic, partitions
        self._stops = asyncio.Event()

    async def run(self) -> None:
        """Join, and remain until `stop`."""
        raise NotImplementedError

    def stop(self) -> None:
        """Leave, at the next opportunity."""
        self._stops.set()

    async def _pause(self, seconds: float) -> None:
        try:
            await asyncio.wait_for(self._stops.wait(), seconds)
        except TimeoutError:
            return

    async def _timed(self, connection: Connection, request: Message) -> Any:
        begun = time.perf_counter()
        answer = await connection.call(request)
        self.beats.append((time.perf_counter() - begun) * 1000)
        return answer


class ConsumerMember(GroupMember):
    """By the consumer protocol. What it gets it acknowledges at once."""

    async def run(self) -> None:
        connection, member_id, epoch, told = await Connection.open(self._address), str(uuid4()), 0, True
        topic_id = UUID(int=0)
        try:
            while not self._stops.is_set():
                owned: tuple[TopicPartitions, ...] = ()
                if self.held:
                    owned = (TopicPartitions(topic_id=topic_id, partitions=tuple(sorted(self.held))),)
                answer = await self._timed(
                    connection,
                    ConsumerGroupHeartbeatRequest(
                        group_id=self._group,
                        member_id=member_id,
                        member_epoch=epoch,
                        rebalance_timeout_ms=-1 if epoch else REBALANCE_MS,
                        subscribed_topic_names=None if epoch else (self._topic,),
                        topic_partitions=owned if told else None,
                    ),
                )
                if answer.error_code in RETRIED:
                    await self._pause(RETRY_SECONDS)
                    continue
                assert answer.error_code == ErrorCode.NONE, answer
                before, epoch, told = self.held, answer.member_epoch, False
                if answer.assignment is not None:
                    of_topic = answer.assignment.topic_partitions
                    topic_id = of_topic[0].topic_id if of_topic else topic_id
                    self.held = frozenset(number for each in of_topic for number in each.partitions)
                if self.held != before:
                    told = True
                else:
                    await self._pause(answer.heartbeat_interval_ms / 1000)
            await connection.call(
                ConsumerGroupHeartbeatRequest(group_id=self._group, member_id=member_id, member_epoch=LEAVING)
            )
        finally:
            self.held = frozenset()
            connection.close()


class ClassicMember(GroupMember):
    """By the classic protocol; the leader gives consecutive partitions to each."""

    async def run(self) -> None:
        connection, member_id = await Connection.open(self._address), ""
        try:
            while not self._stops.is_set():
                member_id, generation = await self._join(connection, member_id)
                while not self._stops.is_set() and generation != NO_GENERATION:
                    await self._pause(CLASSIC_SECONDS)
                    beat = HeartbeatRequest(group_id=self._group, generation_id=generation, member_id=member_id)
                    answer = await self._timed(connection, beat)
                    if answer.error_code != ErrorCode.NONE:
                        generation = NO_GENERATION
            leaving = (MemberIdentity(member_id=member_id),)
            await connection.call(LeaveGroupRequest(group_id=self._group, members=leaving))
        finally:
            self.held = frozenset()
            connection.close()

    async def _join(self, connection: Connection, member_id: str) -> tuple[str, int]:
        """Member id and generation; NO_GENERATION if it must join again."""
        protocol = JoinGroupRequestProtocol(name="range", metadata=b"\0\0\0\0\0\1\0\1t\xff\xff\xff\xff")
        joined = await connection.call(
            JoinGroupRequest(
                group_id=self._group,
                session_timeout_ms=SESSION_MS,
                rebalance_timeout_ms=REBALANCE_MS,
                member_id=member_id,
                protocol_type="consumer",
                protocols=(protocol,),
            )
        )
        if joined.error_code != ErrorCode.NONE:
            if joined.error_code in RETRIED:
                await self._pause(RETRY_SECONDS)
            return joined.member_id or member_id, NO_GENERATION
        synced = await connection.call(
            SyncGroupRequest(
                group_id=self._group,
                generation_id=joined.generation_id,
                member_id=joined.member_id,
                protocol_type="consumer",
                protocol_name="range",
                assignments=self._assigned([each.member_id for each in joined.members]),
            )
        )
        if synced.error_code != ErrorCode.NONE:
            return joined.member_id, NO_GENERATION
        first, end = _RANGE.unpack(bytes(synced.assignment))
        self.held = frozenset(range(first, end))
        return joined.member_id, joined.generation_id

    def _assigned(self, member_ids: list[str]) -> tuple[SyncGroupRequestAssignment, ...]:
        count = max(1, len(member_ids))  # the leader alone knows the members
        bounds = [self._partitions * place // count for place in range(count + 1)]
        return tuple(
            SyncGroupRequestAssignment(member_id=member_id, assignment=_RANGE.pack(*bounds[place : place + 2]))
            for place, member_id in enumerate(member_ids)
        )


KINDS: Final[dict[str, type[GroupMember]]] = {"classic": ClassicMember, "consumer": ConsumerMember}


async def share(address: str, kind: str, topic: str, *, members: int, partitions: int, timeout_seconds: float) -> float:
    """How many seconds the members take from the first join until each has its part. They leave at the end."""
    made = [KINDS[kind](address, f"{topic}-{kind}", topic, partitions) for _ in range(members)]
    begun = time.perf_counter()
    tasks = [asyncio.create_task(each.run()) for each in made]
    await until_shared(made, tasks, partitions, timeout_seconds=timeout_seconds)
    taken = time.perf_counter() - begun
    for each in made:
        each.stop()
    await asyncio.gather(*tasks)
    return taken


async def until_shared(
    members: Sequence[GroupMember], tasks: Sequence[asyncio.Task[None]], partitions: int, *, timeout_seconds: float
) -> None:
    """Wait until each partition has one of the members, and each member its part."""
    least, most = partitions // len(members), -(-partitions // len(members))
    deadline = time.perf_counter() + timeout_seconds
    while not (
        sum(len(each.held) for each in members) == len(set().union(*(each.held for each in members))) == partitions
        and all(least <= len(each.held) <= most for each in members)
    ):
        for task in tasks:
            if task.done():
                task.result()
        assert time.perf_counter() < deadline, sorted(len(each.held) for each in members)
        await asyncio.sleep(0.05)
