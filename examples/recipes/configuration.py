"""Settings that many processes read, and watch: each gets every change, in the same order.

The topic is compacted: a process that starts reads the latest value of each key, and is then told of changes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Self

import raylog
from examples.recipes import topics

TOPIC = "settings"
OnChange = Callable[[str, str | None], None]
"""Called with the key, and the value or None if it was removed."""


class Configuration:
    """The settings as one process sees them."""

    def __init__(self, servers: str, on_change: OnChange = lambda key, value: None) -> None:
        topics.create(servers, TOPIC)
        self.values: dict[str, str] = {}
        self._on_change = on_change
        self._producer = raylog.Producer(bootstrap_servers=servers, acks="all")
        self._consumer = raylog.Consumer(bootstrap_servers=servers, auto_offset_reset="earliest")
        self._consumer.assign([(TOPIC, 0)])
        self._read_to_end()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._producer.close()
        self._consumer.close()

    def set(self, key: str, value: str | None) -> None:
        """When it returns, every later `watch` of anybody sees the change; None removes the key."""
        self._producer.send(TOPIC, value, key).result()

    def watch(self, timeout: float = 1.0) -> None:
        """Wait for changes, and apply them."""
        for record in self._consumer.poll(timeout):
            self._apply(record)

    def _read_to_end(self) -> None:
        end_offset = self._consumer.end_offsets([(TOPIC, 0)])[raylog.TopicPartition(TOPIC, 0)]
        while self._consumer.position((TOPIC, 0)) < end_offset:
            self.watch()

    def _apply(self, record: raylog.ConsumerRecord) -> None:
        key = record.key.decode()
        value = None if record.value is None else record.value.decode()
        if self.values.get(key) == value:
            return
        if value is None:
            del self.values[key]
        else:
            self.values[key] = value
        self._on_change(key, value)
