"""One leader of many candidates, who can write nothing any more as soon as there is another.

The candidates are members of a group for a topic with one partition: its owner leads. A leader that pauses, for garbage
collection or on a suspended machine, may still believe that it leads when it continues. So it writes in transactions
only, which are fenced twice. The transactional id is that of the election: the producer of a new leader fences that of
the former one, and ends its open transaction. And each transaction commits an offset of the group, as the member that
was elected: the coordinator refuses it if the group has a later generation, so that a former leader that fences the new
one by mistake writes nothing either.

    python -m examples.recipes.election SERVERS NAME    campaigns, and writes what it reads from stdin
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Any, Self

import raylog
from examples.recipes import topics

TOPIC = "elections"
PARTITION = raylog.TopicPartition(TOPIC, 0)


class Deposed(Exception):
    """Another one leads, or soon will."""


class Leadership:
    """One term as leader: from an election on until `write` raises Deposed."""

    def __init__(self, servers: str, election: str, name: str, elected_as: raylog.GroupMetadata) -> None:
        """Raises Deposed."""
        self.elected_as = elected_as
        """The member of the group, with its generation."""
        self.is_over = False
        self._producer = raylog.Producer(bootstrap_servers=servers, transactional_id=f"election-{election}")
        try:
            self._producer.init_transactions()
            (elected,) = self.write([(TOPIC, election, name)])
        except BaseException:
            self.close()
            raise
        self.token = elected.offset
        """The fencing token: greater than that of every leader before. It goes with requests to what is no topic."""

    def write(self, records: Iterable[tuple[str, str | None, str | None]]) -> list[raylog.RecordMetadata]:
        """Write (topic, key, value), all or nothing. Raises Deposed, or the error of a record."""
        producer = self._producer
        try:
            producer.begin_transaction()
            deliveries = [producer.send(topic, value, key) for topic, key, value in records]
            producer.send_offsets_to_transaction({PARTITION: 0}, self.elected_as)
            producer.commit_transaction()
        except raylog.KafkaError as error:
            self.close()  # aborts
            if isinstance(error, (raylog.FencedError, raylog.AbortableError)):
                raise Deposed(error.message) from error
            raise
        return [delivery.result() for delivery in deliveries]

    def close(self) -> None:
        self.is_over = True
        self._producer.close()


class Candidate:
    """Campaigns from `__init__` to `close`."""

    def __init__(self, servers: str, election: str, name: str, **settings: Any) -> None:
        """`settings` are those of a consumer: session.timeout.ms says how soon a dead leader is replaced."""
        topics.create(servers, TOPIC, compacted=False)
        self._servers = servers
        self._election = election
        self._name = name
        self.leadership: Leadership | None = None
        """While it leads, as far as it knows."""
        self._consumer = raylog.Consumer(
            bootstrap_servers=servers,
            group_id=f"election-{election}",
            partition_assignment_strategy="cooperative-sticky",  # a new candidate does not replace the leader
            enable_auto_commit=False,
            **settings,
        )
        self._consumer.subscribe(TOPIC, on_assign=self._assigned, on_revoke=self._revoked)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def campaign(self, timeout: float = 1.0) -> Leadership | None:
        """The leadership, once it has it. To be called again and again, also by the leader."""
        self._consumer.poll(timeout)
        if self.leadership is not None and self.leadership.is_over:
            self.leadership = None
        elected_as = self._consumer.group_metadata()
        if PARTITION not in self._consumer.assignment() or elected_as.generation_id < 0:
            return None
        if self.leadership is not None:
            self.leadership.elected_as = elected_as
        else:
            try:
                self.leadership = Leadership(self._servers, self._election, self._name, elected_as)
            except Deposed:
                return None
        return self.leadership

    def close(self) -> None:
        """Leave; another candidate is elected at once."""
        self._revoked(self._consumer, [])
        self._consumer.close()

    def _assigned(self, consumer: raylog.Consumer, partitions: list[raylog.TopicPartition]) -> None:
        consumer.pause(*partitions)  # there is nothing to be read

    def _revoked(self, _: raylog.Consumer, __: list[raylog.TopicPartition]) -> None:
        if self.leadership is not None:
            self.leadership.close()
            self.leadership = None


def main() -> None:
    servers, name = sys.argv[1:3]
    with Candidate(servers, "example", name, session_timeout_ms=2_000, heartbeat_interval_ms=100) as candidate:
        while (leadership := candidate.campaign()) is None:
            pass
        print(f"{name} leads with token {leadership.token}", flush=True)
        for line in sys.stdin:
            try:
                leadership.write([(TOPIC, name, line.strip())])
                print(f"{name} has written", flush=True)
            except Deposed:
                print(f"{name} is deposed", flush=True)
                return


if __name__ == "__main__":
    main()
