"""The internal topics of Kafka Streams applications, which the coordinator of a streams group has created.

They are created in the name of the member whose heartbeat shows that they are missing. The errors are kept for the
heartbeats that follow.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from raylog.broker.metadata_follower import ANSWER_MS_MAX
from raylog.broker.topic_creation import REQUEST_PARTITIONS, Requester, in_the_name_of
from raylog.core.clock import Now
from raylog.core.errors import ErrorCode, KafkaError
from raylog.protocol import codec
from raylog.protocol.header import decode_response_header
from raylog.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from raylog.protocol.messages.envelope import EnvelopeResponse
from raylog.protocol.messages.streams_group_heartbeat import TopicInfo
from raylog.protocol.registry import CREATE_TOPICS, api_for
from raylog.transport.peer_link import PeerLink

WAITING_MAX: Final = 10_000
"""How many topics may wait for their creation. Members send heartbeats, which name the others again."""
ERRORS_MAX: Final = 1000
"""Of how many topics the errors are kept."""
DEFAULT: Final = -1
"""The replication factor, or the number of partitions, of the controller's configuration."""


class StreamsTopics:
    """Sends one request at a time, with about as many partitions as the controller creates in one go."""

    def __init__(self, link: PeerLink) -> None:
        self._link = link
        self._waiting: dict[str, tuple[Requester, TopicInfo, int]] = {}
        """Topics by name, with the time for which an error is kept, in milliseconds."""
        self._requested: dict[str, int] = {}
        """The same of the request under way."""
        self._errors: dict[str, tuple[str, int]] = {}
        """What went wrong, and until when it is kept (monotonic)."""

    def create(self, topics: Iterable[TopicInfo], requester: Requester, now: Now, *, errors_ms: int) -> None:
        """Create the topics, unless they are being created; errors are kept for `errors_ms`."""
        for topic in topics:
            if topic.name not in self._requested and len(self._waiting) < WAITING_MAX:
                self._waiting.setdefault(topic.name, (requester, topic, errors_ms))
        self._send_next(now)

    def errors(self, topics: Iterable[TopicInfo], now: Now) -> list[tuple[str, str]]:
        """The names and errors of those topics that could not be created lately."""
        self._errors = {name: each for name, each in self._errors.items() if each[1] > now.monotonic_ms}
        return [(topic.name, self._errors[topic.name][0]) for topic in topics if topic.name in self._errors]

    def _send_next(self, now: Now) -> None:
        if self._requested or not self._waiting:
            return
        requester = next(iter(self._waiting.values()))[0]
        wanted: list[CreatableTopic] = []
        partitions = 0
        for name, (of, topic, errors_ms) in list(self._waiting.items()):
            if of == requester and (not wanted or partitions + topic.partitions <= REQUEST_PARTITIONS):
                del self._waiting[name]
                self._requested[name] = errors_ms
                wanted.append(_creatable(topic))
                partitions += topic.partitions
        request = in_the_name_of(requester, CreateTopicsRequest(topics=tuple(wanted), timeout_ms=ANSWER_MS_MAX))
        self._link.request(request, self._answered, self._failed, now=now, timeout_ms=ANSWER_MS_MAX)

    def _answered(self, response: EnvelopeResponse, now: Now) -> None:
        errors = dict.fromkeys(self._requested, response.error_code.name)
        if response.error_code == ErrorCode.NONE and response.response_data is not None:
            spec = api_for(CREATE_TOPICS)
            assert spec is not None
            _, position = decode_response_header(CREATE_TOPICS, spec.highest, response.response_data)
            answer = codec.decode(CreateTopicsResponse, spec.highest, response.response_data, position)
            errors = {
                topic.name: topic.error_message or topic.error_code.name
                for topic in answer.topics
                if topic.error_code not in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS)
            }
        for name, message in errors.items():
            if len(self._errors) < ERRORS_MAX:
                self._errors[name] = (message, now.monotonic_ms + self._requested.get(name, 0))
        self._requested.clear()
        self._send_next(now)

    def _failed(self, error: KafkaError, now: Now) -> None:
        """The controller is away: heartbeats name the topics again."""
        self._waiting.clear()
        self._requested.clear()


def _creatable(topic: TopicInfo) -> CreatableTopic:
    return CreatableTopic(
        name=topic.name,
        num_partitions=topic.partitions,
        replication_factor=topic.replication_factor or DEFAULT,
        configs=tuple(CreatableTopicConfig(name=each.key, value=each.value) for each in topic.topic_configs),
    )
