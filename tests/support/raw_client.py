"""A client for tests: batches as they were built, any request to any broker, and the operations of an admin client."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, TypeVar

from raylog.client.admin.calls import ANY_BROKER, Answer, Call, Leader, Steps, ask
from raylog.client.blocking_calls import BlockingCalls, config_of
from raylog.client.client_config import ClientConfig
from raylog.client.cluster_view import Node
from raylog.client.partition_calls import Fetched, fetch, locate, offset_for
from raylog.core.errors import ErrorCode, KafkaError
from raylog.core.ids import TopicPartition
from raylog.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from raylog.protocol.produce import ProducePartition, ProduceRequest, ProduceTopic
from raylog.protocol.schema import Message
from tests.support.hang import HANG_SECONDS

T = TypeVar("T")
TOPICS_BY_NAME = 12
"""The last version of Produce that names topics."""


class RawClient(BlockingCalls):
    def __init__(
        self, brokers: str | ClientConfig, *, client_id: str = "tests", timeout_seconds: float = HANG_SECONDS
    ) -> None:
        config = ClientConfig(brokers) if isinstance(brokers, str) else brokers
        super().__init__(config_of(config, client_id=client_id), waits_for_brokers=False)
        self._timeout_seconds = timeout_seconds

    def run(self, steps: Steps[T], timeout: float | None = None) -> T:
        return super().run(steps, self._timeout_seconds if timeout is None else timeout)

    def call_any(self, request: Message) -> Any:
        """The response of any broker."""
        return self.run(ask(ANY_BROKER, "", lambda _: request, lambda response: response))

    def metadata(self, topics: Sequence[str] | None = (), *, create: bool = False) -> MetadataResponse:
        """Of these topics, or of all."""
        wanted = None if topics is None else tuple(MetadataRequestTopic(name=topic) for topic in topics)
        response: MetadataResponse = self.call_any(MetadataRequest(topics=wanted, allow_auto_topic_creation=create))
        return response

    def leader(self, tp: TopicPartition) -> Node:
        return self.run(locate(self._kept(tp))).leader

    def offset_for(self, tp: TopicPartition, timestamp: int, *, committed: bool = False) -> int:
        return self.run(offset_for(self._kept(tp), timestamp, committed=committed))

    def fetch(self, tp: TopicPartition, offset: int, *, max_bytes: int, max_wait_ms: int) -> Fetched:
        topic_id = self.run(locate(self._kept(tp))).topic.topic_id
        steps = fetch(tp, topic_id, offset, max_bytes=max_bytes, max_wait_ms=max_wait_ms, committed=False)
        return self.run(steps)

    def produce(self, tp: TopicPartition, batch: bytearray) -> int:
        """Append one batch with acks=all, and return the offset of its first record.

        A lost response is an error: the batch has no producer id, and could be appended twice.
        """
        sent = False
        partition = ProducePartition(index=tp.partition, records=memoryview(batch))
        topic = ProduceTopic(name=tp.topic, partitions=[partition])

        def request(_: Sequence[TopicPartition], left_ms: int) -> ProduceRequest:
            nonlocal sent
            if sent:
                raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, f"{tp}: the response was lost")
            sent = True
            return ProduceRequest(acks=-1, timeout_ms=left_ms, topics=[topic])

        def read(response: Any, _: Sequence[TopicPartition]) -> Iterator[Answer]:
            nonlocal sent
            sent = False
            result = response.responses[0].partitions[0]
            yield Answer(tp, result.base_offset, result.error_code, result.error_message)

        def produced() -> Steps[int]:
            found = yield Call({tp: Leader(tp)}, str, request, read, version_max=TOPICS_BY_NAME)
            base_offset: int = found.checked()[tp]
            return base_offset

        self._kept(tp)
        return self.run(produced())

    def _kept(self, tp: TopicPartition) -> TopicPartition:
        """Its metadata is kept from now on."""
        with self._lock:
            self._core.keep_topics([tp.topic])
        return tp
