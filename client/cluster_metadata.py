"""What a client knows of the cluster: brokers, topics and partition leaders; and when it has to ask again. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple
from uuid import UUID

from raylog.client.backoff import backoff_ms
from raylog.client.cluster_view import Node
from raylog.client.given_values import is_text
from raylog.config.client_network import NetworkSettings
from raylog.core.clock import Now
from raylog.core.errors import ErrorCode, KafkaError
from raylog.core.ids import NO_BROKER_ID, ZERO_TOPIC_ID, TopicPartition
from raylog.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseTopic,
)

NO_EPOCH: Final = -1


@dataclass(frozen=True, slots=True)
class PartitionLeader:
    """A partition's leader, as far as it is known."""

    leader_id: int
    leader_epoch: int
    error_code: ErrorCode


@dataclass(frozen=True, slots=True)
class TopicMetadata:
    """One topic, from the newest response that shows it."""

    name: str
    topic_id: UUID
    error_code: ErrorCode
    partitions: Sequence[PartitionLeader]
    """By partition number."""
    is_internal: bool = False

    @property
    def usable(self) -> bool:
        return self.error_code is ErrorCode.NONE and bool(self.partitions)


class LocatedPartition(NamedTuple):
    """A partition whose leader is known."""

    leader: Node
    topic: TopicMetadata


class ClusterMetadata:
    """The metadata of the topics that the client works with.

    Replaced with each response; leaders never go back in their epochs.
    """

    def __init__(self, settings: NetworkSettings, jitter: Callable[[], float], *, create_topics: bool = False) -> None:
        """`create_topics`: whether asking for a topic may create it, if the brokers permit."""
        self.nodes: dict[int, Node] = {}
        self.controller_id: int = NO_BROKER_ID
        self.topics: dict[str, TopicMetadata] = {}
        self.failure: KafkaError | None = None
        """Why the last request failed; None after a success."""
        self.updates = 0
        """Counts responses."""
        self.all_topics = False
        """Whether to ask for every topic, as a subscription by pattern needs."""
        self._settings = settings
        self._jitter = jitter
        self._create_topics = create_topics
        self._wanted: dict[str, int | None] = {}
        """Until when (monotonic, in ms); None: for good."""
        self._names: dict[UUID, str] = {}
        self._due_ms = 0
        self._backoff_until_ms = 0
        self._attempts = 0
        self._asked = False
        self._stale = True
        """Asked for again since the last request was made."""
        self._unasked = False
        """Whether no request was made yet for a topic that is wanted."""

    # --- what is known

    def topic(self, name: str) -> TopicMetadata | None:
        """None while it is not known. A name that cannot be encoded has INVALID_TOPIC_EXCEPTION, as brokers say."""
        found = self.topics.get(name)
        if found is None and not is_text(name):
            return TopicMetadata(name, ZERO_TOPIC_ID, ErrorCode.INVALID_TOPIC_EXCEPTION, [])
        return found

    def leader(self, tp: TopicPartition) -> Node | None:
        """The broker that leads the partition; None if it is not known."""
        topic = self.topics.get(tp.topic)
        if topic is None or tp.partition >= len(topic.partitions):
            return None
        return self.nodes.get(topic.partitions[tp.partition].leader_id)

    def name_of(self, topic_id: UUID) -> str | None:
        return self._names.get(topic_id)

    @property
    def attempts(self) -> int:
        """Requests that failed since the last response."""
        return self._attempts

    # --- what is wanted

    def want(self, topics: Iterable[str], *, until_ms: int | None = None) -> None:
        """Keep metadata of these topics, besides those that are wanted already: for good, or until that time
        (monotonic) unless they are wanted again."""
        for topic in topics:
            if topic not in self._wanted:
                if not is_text(topic):
                    continue
                self._unasked = True
            self._wanted[topic] = until_ms

    def want_only(self, topics: Iterable[str]) -> None:
        """Keep metadata of these topics alone."""
        before = self._wanted
        self._wanted = dict.fromkeys(topic for topic in topics if topic in before or is_text(topic))
        if self._wanted.keys() - before.keys():
            self._unasked = True
        for gone in before.keys() - self._wanted.keys():
            self.topics.pop(gone, None)

    def forget(self, topics: Iterable[str]) -> None:
        """Ask for these again, and wait for the answer."""
        for topic in topics:
            self.topics.pop(topic, None)
        self.expire()

    def expire(self) -> None:
        """What is known may be outdated: ask again, as soon as the backoff permits."""
        self._stale = True

    # --- asking

    def next_request_ms(self) -> int | None:
        """When the next request is due (monotonic); None while one is in flight.

        As in Kafka's clients, new topics do not wait for the backoff, unless the last request failed.
        """
        if self._asked:
            return None
        if self._unasked:
            return self._backoff_until_ms if self._attempts else 0
        return self._backoff_until_ms if self._stale else max(self._due_ms, self._backoff_until_ms)

    def request(self, now: Now) -> MetadataRequest:
        """The request to send now; report its end by `answered` or `failed`."""
        self._wanted = {topic: ms for topic, ms in self._wanted.items() if ms is None or ms > now.monotonic_ms}
        self._asked = True
        self._stale = self._unasked = False
        wanted = None if self.all_topics else tuple(MetadataRequestTopic(name=name) for name in self._wanted)
        return MetadataRequest(topics=wanted, allow_auto_topic_creation=self._create_topics)

    def answered(self, response: MetadataResponse, now: Now) -> None:
        self._asked = False
        self._attempts = 0
        self.failure = None
        self.updates += 1
        cluster_id = response.cluster_id or ""
        self.nodes = {
            broker.node_id: Node(cluster_id, broker.node_id, broker.host, broker.port) for broker in response.brokers
        }
        self.controller_id = response.controller_id
        shown = {topic.name or "": self._merged(topic) for topic in response.topics}
        if self.all_topics:
            self.topics = shown
        else:
            self.topics = {name: topic for name, topic in shown.items() if name in self._wanted}
        self._names = {topic.topic_id: name for name, topic in self.topics.items()}
        incomplete = any(self._waits(topic) for topic in self.topics.values())
        self._due_ms = now.monotonic_ms + self._settings.metadata_age_ms_max
        self._backoff_until_ms = now.monotonic_ms + self._backoff_ms(1)
        if incomplete:
            self._stale = True

    def failed(self, error: KafkaError, now: Now) -> None:
        self._asked = False
        self._stale = True
        self._attempts += 1
        self.failure = error
        self._backoff_until_ms = now.monotonic_ms + self._backoff_ms(self._attempts)

    def _backoff_ms(self, attempt: int) -> int:
        settings = self._settings
        return backoff_ms(attempt, settings.retry_backoff_ms, settings.retry_backoff_ms_max, self._jitter)

    @staticmethod
    def _waits(topic: TopicMetadata) -> bool:
        """Whether the next response may show what this one does not."""
        return topic.error_code.retriable or any(each.leader_id == NO_BROKER_ID for each in topic.partitions)

    def _merged(self, topic: MetadataResponseTopic) -> TopicMetadata:
        """The topic as shown, with the leaders of newer epochs where these were known before."""
        before = self.topics.get(topic.name or "")
        shown = {
            each.partition_index: PartitionLeader(each.leader_id, each.leader_epoch, each.error_code)
            for each in topic.partitions
        }
        partitions = [
            shown.get(index, PartitionLeader(NO_BROKER_ID, NO_EPOCH, ErrorCode.LEADER_NOT_AVAILABLE))
            for index in range(max(shown, default=-1) + 1)
        ]
        if before is not None and before.topic_id == topic.topic_id:
            for index, known in enumerate(before.partitions[: len(partitions)]):
                if known.leader_epoch > partitions[index].leader_epoch:
                    partitions[index] = known
        return TopicMetadata(topic.name or "", topic.topic_id, topic.error_code, partitions, topic.is_internal)
