"""A member of a consumer group in a process of its own, of any of the libraries, so that it can really be killed.

    python -m tests.compat.group_member '{"library": "aiokafka", "bootstrap_servers": "...", "group": "g", ...}'

tells, a line of JSON each: {"assigned": [[topic, partition], ...]} for what it holds after each rebalance,
{"revoked": [...]} for what it gives up, {"read": [topic, partition, offset, value]} for each record.
It commits by itself, often, and leaves the group when its standard input ends.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

ROOT = Path(__file__).resolve().parent.parent.parent
LIBRARIES: Final = ("confluent-kafka", "kafka-python", "aiokafka")
PATIENCE_SECONDS = 60.0
SESSION_MS = 3000
HEARTBEAT_MS = 300
COMMIT_MS = 100


class Place(NamedTuple):
    topic: str
    partition: int


class GroupMember:
    """The process as its test sees it."""

    def __init__(
        self,
        library: str,
        bootstrap_servers: str,
        group: str,
        topics: str | list[str],
        *,
        assignor: str = "range",
        instance: str | None = None,
        session_ms: int = SESSION_MS,
        protocol: str = "classic",
    ) -> None:
        """`topics` are names, or a regular expression. With the protocol `consumer` the coordinator sets the times."""
        wanted = {
            "library": library,
            "bootstrap_servers": bootstrap_servers,
            "group": group,
            "topics": topics,
            "assignor": assignor,
            "instance": instance,
            "session_ms": session_ms,
            "protocol": protocol,
        }
        command = [sys.executable, "-m", "tests.compat.group_member", json.dumps(wanted)]
        self._process = subprocess.Popen(
            command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
        )
        self.assignments: list[frozenset[Place]] = []
        self.revocations: list[frozenset[Place]] = []
        self.read: list[tuple[Place, int, str]] = []
        self._reader = threading.Thread(target=self._listen, daemon=True)
        self._reader.start()

    @property
    def is_rebalancing(self) -> bool:
        """Whether it has given up its partitions and was not told yet which ones it gets."""
        return len(self.revocations) > len(self.assignments)

    @property
    def holds(self) -> frozenset[Place]:
        return self.assignments[-1] if self.assignments else frozenset()

    def close(self) -> None:
        """It leaves the group."""
        assert self._process.stdin is not None
        if self._process.poll() is None:
            self._process.stdin.close()
            assert self._process.wait(PATIENCE_SECONDS) == 0
        self._reader.join(PATIENCE_SECONDS)

    def kill(self) -> None:
        """It is gone, and has said nothing."""
        self._process.kill()
        self._process.wait(PATIENCE_SECONDS)
        self._reader.join(PATIENCE_SECONDS)

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            ((kind, told),) = json.loads(line).items()
            if kind == "read":
                topic, partition, offset, value = told
                self.read.append((Place(topic, partition), offset, value))
            else:
                places = frozenset(Place(*each) for each in told)
                (self.assignments if kind == "assigned" else self.revocations).append(places)


@contextmanager
def group_members() -> Iterator[Callable[..., GroupMember]]:
    """Makes members, and kills those that are left at the end."""
    made: list[GroupMember] = []

    def start(*arguments: Any, **settings: Any) -> GroupMember:
        made.append(GroupMember(*arguments, **settings))
        return made[-1]

    try:
        yield start
    finally:
        for member in made:
            member.kill()


# --- the process


def _tell(kind: str, told: object) -> None:
    sys.stdout.write(json.dumps({kind: told}) + "\n")
    sys.stdout.flush()


def _places(partitions: Iterable[Any]) -> list[list[Any]]:
    return sorted([each.topic, each.partition] for each in partitions)


def _confluent(options: dict[str, Any], ended: threading.Event) -> None:
    from confluent_kafka import Consumer

    settings: dict[str, Any] = {
        "bootstrap.servers": options["bootstrap_servers"],
        "group.id": options["group"],
        "auto.offset.reset": "earliest",
        "auto.commit.interval.ms": COMMIT_MS,
        "topic.metadata.refresh.interval.ms": 1000,
    }
    if options["protocol"] == "consumer":
        settings |= {"group.protocol": "consumer", "group.remote.assignor": options["assignor"]}
    else:
        settings |= {
            "session.timeout.ms": options["session_ms"],
            "heartbeat.interval.ms": HEARTBEAT_MS,
            "partition.assignment.strategy": options["assignor"],
        }
    if options["instance"] is not None:
        settings["group.instance.id"] = options["instance"]
    consumer = Consumer(settings)
    by_coordinator = options["protocol"] == "consumer"
    incremental = by_coordinator or options["assignor"] == "cooperative-sticky"

    def assigned(_: Consumer, partitions: list[Any]) -> None:
        before = consumer.assignment() if incremental else []
        _tell("assigned", _places([*before, *partitions]))

    def revoked(_: Consumer, partitions: list[Any]) -> None:
        _tell("revoked", _places(partitions))
        if by_coordinator:  # nothing is assigned after a revocation if there is nothing new
            _tell("assigned", _places(set(consumer.assignment()) - set(partitions)))

    topics = options["topics"]
    names = topics if isinstance(topics, list) else [f"^{topics}"]
    consumer.subscribe(names, on_assign=assigned, on_revoke=revoked)
    while not ended.is_set():
        message = consumer.poll(0.1)
        if message is not None and message.error() is None:
            value = message.value()
            assert value is not None
            _tell("read", [message.topic(), message.partition(), message.offset(), value.decode()])
    consumer.close()


def _kafka_python(options: dict[str, Any], ended: threading.Event) -> None:
    from kafka import ConsumerRebalanceListener, KafkaConsumer
    from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
    from kafka.coordinator.assignors.range import RangePartitionAssignor

    assignor = CooperativeStickyAssignor if options["assignor"] == "cooperative-sticky" else RangePartitionAssignor
    consumer = KafkaConsumer(
        bootstrap_servers=options["bootstrap_servers"],
        group_id=options["group"],
        group_instance_id=options["instance"],
        session_timeout_ms=options["session_ms"],
        heartbeat_interval_ms=HEARTBEAT_MS,
        auto_offset_reset="earliest",
        auto_commit_interval_ms=COMMIT_MS,
        partition_assignment_strategy=[assignor],
        metadata_max_age_ms=1000,
    )

    class Listener(ConsumerRebalanceListener):  # type: ignore[misc]
        def on_partitions_assigned(self, assigned: Any) -> None:
            _tell("assigned", _places(consumer.assignment() | set(assigned)))

        def on_partitions_revoked(self, revoked: Any) -> None:
            _tell("revoked", _places(revoked))

    topics = options["topics"]
    wanted = {"topics": topics} if isinstance(topics, list) else {"pattern": f"^{topics}"}
    consumer.subscribe(**wanted, listener=Listener())
    while not ended.is_set():
        for records in consumer.poll(timeout_ms=100).values():
            for record in records:
                _tell("read", [record.topic, record.partition, record.offset, record.value.decode()])
    consumer.close()


def _aiokafka(options: dict[str, Any], ended: threading.Event) -> None:
    from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener
    from aiokafka.coordinator.assignors.range import RangePartitionAssignor

    class Listener(ConsumerRebalanceListener):  # type: ignore[misc]
        def on_partitions_assigned(self, assigned: Any) -> None:
            _tell("assigned", _places(assigned))

        def on_partitions_revoked(self, revoked: Any) -> None:
            _tell("revoked", _places(revoked))

    async def read() -> None:
        consumer = AIOKafkaConsumer(
            bootstrap_servers=options["bootstrap_servers"],
            group_id=options["group"],
            group_instance_id=options["instance"],
            session_timeout_ms=options["session_ms"],
            heartbeat_interval_ms=HEARTBEAT_MS,
            auto_offset_reset="earliest",
            auto_commit_interval_ms=COMMIT_MS,
            partition_assignment_strategy=[RangePartitionAssignor],
            metadata_max_age_ms=1000,
        )
        topics = options["topics"]
        wanted = {"topics": topics} if isinstance(topics, list) else {"pattern": f"^{topics}"}
        consumer.subscribe(**wanted, listener=Listener())
        await consumer.start()
        try:
            while not ended.is_set():
                for records in (await consumer.getmany(timeout_ms=100)).values():
                    for record in records:
                        _tell("read", [record.topic, record.partition, record.offset, record.value.decode()])
        finally:
            await consumer.stop()

    asyncio.run(read())


def main() -> None:
    options = json.loads(sys.argv[1])
    ended = threading.Event()

    def wait_for_end() -> None:
        sys.stdin.read()
        ended.set()

    threading.Thread(target=wait_for_end, daemon=True).start()
    run = {"confluent-kafka": _confluent, "kafka-python": _kafka_python, "aiokafka": _aiokafka}[options["library"]]
    run(options, ended)


if __name__ == "__main__":
    main()
