"""A consumer group with decided records applied that are not appended yet."""

from __future__ import annotations

from raylog.groupcoord.consumer.group import ConsumerGroup
from raylog.groupcoord.consumer.records import ConsumerRecord
from raylog.groupcoord.draft import GroupDraft

Draft = GroupDraft[ConsumerGroup, ConsumerRecord]
