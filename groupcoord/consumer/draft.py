"""A group with decided records applied that are not appended yet."""

from __future__ import annotations

from raylog.groupcoord.consumer.group import ConsumerGroup
from raylog.groupcoord.consumer.records import ConsumerRecord


class Draft:
    """`group` is the group itself until the first record is added, so that a heartbeat that changes nothing copies
    nothing."""

    def __init__(self, group: ConsumerGroup) -> None:
        self.group = group
        self.records: list[ConsumerRecord] = []

    def add(self, record: ConsumerRecord) -> None:
        if not self.records:
            self.group = self.group.copy()
        self.records.append(record)
        self.group.replay(record)
