"""(shell) The calls of a share consumer that never wait, which its blocking and its asyncio face have in common."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Final

from raylog.client.consumer.records import Deserializer, Deserializers
from raylog.client.errors import ClientClosedError, SerializationError
from raylog.client.given_config import GivenConfig
from raylog.client.given_values import checked_function, checked_seconds, items_of, shown
from raylog.client.network_client import Random
from raylog.client.share.acquired import Place, ShareRecord
from raylog.client.share.core import ShareConsumerCore
from raylog.client.share.in_flight import Acknowledgement
from raylog.config.share_consumer import share_consumer_settings
from raylog.core.errors import ErrorCode, KafkaError
from raylog.core.ids import TopicPartition
from raylog.protocol.share import AcknowledgeType
from raylog.transport.system_time import now

OnAcknowledged = Callable[[TopicPartition, list[int], KafkaError | None], Any]
"""Called with a partition, the offsets that were acknowledged, and the error if they were not."""
CLOSE_SECONDS: Final = 30.0
_REJECT: Final = (
    "it is released, and delivered again up to the limit; acknowledge(({tp.topic!r}, {tp.partition}, {offset}),"
    " REJECT) in the explicit mode has it never delivered again"
)


class ShareConsumerCalls(ABC):
    """A base of the faces."""

    _core: ShareConsumerCore
    _lock: AbstractContextManager[object]
    """Held while the core is used."""
    _deserializers: Deserializers
    _on_acknowledged: OnAcknowledged | None = None

    @abstractmethod
    def _poke(self) -> None:
        """Have the network run."""

    def _configure(
        self, given: GivenConfig, random: Random, key: Deserializer | None, value: Deserializer | None
    ) -> None:
        """Make the core. Raises ConfigError."""
        self._deserializers = Deserializers(key, value)
        self._core = ShareConsumerCore(given.servers, share_consumer_settings(given.configs), random)

    def subscribe(self, topics: str | Iterable[str]) -> None:
        """Get records of these topics, by name, in place of the former ones. Raises KafkaError."""
        with self._lock:
            self._check_open()
            self._core.subscribe([topics] if isinstance(topics, str) else items_of("topics", topics))
            self._poke()

    def subscription(self) -> set[str]:
        """The topics."""
        with self._lock:
            return set(self._core.member.topics)

    def acknowledge(self, record: ShareRecord | Place, kind: AcknowledgeType = AcknowledgeType.ACCEPT) -> None:
        """Say what has become of a record, or of a (topic, partition, offset), that the last poll() has returned.

        It is sent by the next poll() or commit; until then the last word counts. With RENEW the acquisition lock
        begins anew, and a later poll() returns the record again. Raises KafkaError: INVALID_RECORD_STATE for a record
        that is not waiting for it, INVALID_REQUEST with share.acknowledgement.mode=implicit.
        """
        try:
            topic, partition, offset = record[:3]
        except (TypeError, ValueError):
            text = f"a record must be one that poll() returned, or (topic, partition, offset), not {shown(record)}"
            raise KafkaError(ErrorCode.INVALID_REQUEST, text) from None
        with self._lock:
            self._check_open()
            self._core.acknowledge((topic, partition, offset), _known(kind))

    def set_acknowledgement_commit_callback(self, callback: OnAcknowledged | None) -> None:
        """Have later calls of poll(), commit_sync(), commit_async() and close() call this with each result."""
        checked_function("callback", callback)
        with self._lock:
            self._check_open()
            self._on_acknowledged = callback
            self._core.reports = callback is not None
            self._core.acknowledged.clear()

    def acquisition_lock_timeout_ms(self) -> int | None:
        """How long records are acquired, as a broker has said last; None before the first response."""
        with self._lock:
            return self._core.sessions.lock_timeout_ms

    # --- internals

    def _begin_poll(self) -> None:
        self._check_open()
        self._core.begin_poll(now())

    def _end_poll(self) -> None:
        self._core.end_poll(now())
        if self._core.network.has_touched:
            self._poke()

    @contextmanager
    def _returning(self) -> Iterator[None]:
        """What was taken is released if an interrupt, such as KeyboardInterrupt, keeps it from being returned."""
        try:
            yield
        except BaseException:
            with self._lock:
                self._core.release_taken()
            raise

    def _deserialized(self, taken: list[ShareRecord]) -> list[ShareRecord]:
        """Without the lock: deserializers may take their time. Raises SerializationError if nothing else is left."""
        made: list[ShareRecord] = []
        for record in taken:
            try:
                made.append(self._deserializers.record(record, _REJECT))
            except SerializationError as error:
                with self._lock:
                    self._core.not_deserialized(record[:3], error)
        if taken and not made:
            with self._lock:
                self._core.raise_error()
        self._core.taken = []
        return made

    def _timeout_ms(self, timeout: float | None) -> int:
        return self._core.settings.api_timeout_ms if timeout is None else int(1000 * checked_seconds(timeout))

    def _next_report(self) -> Acknowledgement | None:
        """One with offsets of records that the callback gets."""
        while self._core.acknowledged:
            each = self._core.acknowledged.popleft()
            if each.offsets:
                return each
        return None

    def _check_open(self) -> None:
        if self._core.closed:
            raise ClientClosedError("the share consumer is closed")


def _known(kind: AcknowledgeType) -> AcknowledgeType:
    """Raises KafkaError(INVALID_REQUEST) for a number that is no type."""
    try:
        return AcknowledgeType(kind)
    except ValueError:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"{shown(kind)} is no AcknowledgeType") from None
