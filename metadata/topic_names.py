"""Which names a topic may have, and the topics that belong to raylog: their names, and the id of the metadata topic."""

from __future__ import annotations

import re
from typing import Final
from uuid import UUID

from raylog.core.errors import ErrorCode, KafkaError
from raylog.core.ids import TopicPartition

METADATA_TOPIC: Final = "__cluster_metadata"
METADATA_TOPIC_ID: Final = UUID(int=1)
"""Kafka's reserved id of the metadata topic."""
METADATA_PARTITION: Final = TopicPartition(METADATA_TOPIC, 0)
INTERNAL_TOPICS: Final = frozenset({"__consumer_offsets", "__share_group_state", "__transaction_state"})
TOPIC_NAME_LENGTH_MAX: Final = 249
"""Leaves room in a file name for `-<partition>` and the suffix of a deleted directory."""
_LEGAL_NAME: Final = re.compile(r"[a-zA-Z0-9._-]+")


def check_topic_name(topic: str) -> None:
    """Raises KafkaError(INVALID_TOPIC_EXCEPTION) for a name that Kafka does not allow."""
    if not topic:
        rule = "the empty string is not allowed"
    elif topic in (".", ".."):
        rule = "'.' and '..' are not allowed"
    elif len(topic) > TOPIC_NAME_LENGTH_MAX:
        rule = f"the length is {len(topic)}, the maximum {TOPIC_NAME_LENGTH_MAX}"
    elif not _LEGAL_NAME.fullmatch(topic):
        rule = "only ASCII letters and digits, '.', '_' and '-' are allowed"
    elif topic == METADATA_TOPIC:
        rule = "it is reserved for the controller"
    else:
        return
    raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic name {topic[:260]!r} is not valid: {rule}.")


def metric_name(topic: str) -> str:
    """The topic's name in Kafka's metrics, which two topics may not share."""
    return topic.replace(".", "_")
