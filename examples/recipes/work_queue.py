"""A queue of work for a group of workers: each item goes to one of them, and to another one if that dies.

Results and the progress of the worker are written in one transaction, with the worker's generation. An item is done
once: if a worker dies in between, nothing of it is visible; if it has paused, and others have its items, its commit is
refused.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Self

import raylog
from examples.recipes import topics

ITEMS, RESULTS = "queue-items", "queue-results"
PARTITIONS = 4
"""At most so many workers at a time."""


class Replaced(Exception):
    """Another worker has the items; they were not done here."""


def create(servers: str) -> None:
    topics.create(servers, ITEMS, compacted=False, partitions=PARTITIONS)
    topics.create(servers, RESULTS, compacted=False)


def put(servers: str, *items: str) -> None:
    with raylog.Producer(bootstrap_servers=servers, partitioner_class="RoundRobinPartitioner") as producer:
        for item in items:
            producer.send(ITEMS, item)


class Worker:
    """Takes jobs from the queue, from `__init__` to `close`."""

    def __init__(self, servers: str, name: str, **settings: Any) -> None:
        """`settings` are those of a consumer."""
        self._consumer = raylog.Consumer(
            bootstrap_servers=servers,
            group_id="workers",
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            isolation_level="read_committed",
            **settings,
        )
        self._consumer.subscribe(ITEMS)
        self._producer = raylog.Producer(bootstrap_servers=servers, transactional_id=f"worker-{name}")
        self._producer.init_transactions()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._producer.close()
        self._consumer.close()

    def work(self, do: Callable[[str], str], timeout: float = 1.0) -> int:
        """Do the next items, and return how many there were. Raises Replaced, and what `do` raises.

        After an error none of them is done, and this worker or another one gets them again.
        """
        records = self._consumer.poll(timeout, max_records=10)
        if not records:
            return 0
        as_member = self._consumer.group_metadata()
        if as_member.generation_id < 0:
            raise Replaced("this worker is no longer in the group")
        self._producer.begin_transaction()
        try:
            for record in records:
                self._producer.send(RESULTS, do(record.value.decode()))
            positions = {raylog.TopicPartition(each.topic, each.partition): each.offset + 1 for each in records}
            self._producer.send_offsets_to_transaction(positions, as_member)
            self._producer.commit_transaction()
        except raylog.FencedError as error:  # by a worker with the same name
            raise Replaced(error.message) from error
        except BaseException as error:
            self._producer.abort_transaction()
            self._go_back(records)
            if isinstance(error, raylog.AbortableError):
                raise Replaced(error.message) from error
            raise
        return len(records)

    def _go_back(self, records: list[raylog.ConsumerRecord]) -> None:
        for record in reversed(records):
            tp = raylog.TopicPartition(record.topic, record.partition)
            if tp in self._consumer.assignment():
                self._consumer.seek(tp, record.offset)
