"""(shell) The calls of a consumer that never wait, which its blocking and its asyncio face have in common."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Final

from raylog.client.chunks.dereferencing import Dereferenced, Dereferencing, lead_back
from raylog.client.chunks.fsspec_store import store_for
from raylog.client.chunks.references import ValueStore
from raylog.client.consumer.assignors import ASSIGNORS, Assignment, Assignor
from raylog.client.consumer.core import ConsumerCore
from raylog.client.consumer.fetched import ConsumerRecord
from raylog.client.consumer.interceptors import ConsumerInterceptor, Interceptors
from raylog.client.consumer.local_files import LocalFiles
from raylog.client.consumer.rebalance_callbacks import CallbackKind, RebalanceCallback
from raylog.client.consumer.records import Deserializers
from raylog.client.consumer.subscription import PartitionState
from raylog.client.errors import ClientClosedError
from raylog.client.given_config import GivenConfig
from raylog.client.given_values import (
    Partition,
    check_topic_names,
    checked_function,
    checked_mapping,
    checked_number,
    checked_offsets,
    checked_partition,
    checked_partitions,
    checked_seconds,
    checked_timestamp,
    items_of,
    shown,
)
from raylog.client.group_offsets import GroupMetadata, OffsetAndMetadata
from raylog.client.network_client import Random
from raylog.config.consumer import EARLIEST, LATEST, ConsumerSettings, consumer_settings
from raylog.core.errors import ConfigError, ErrorCode, KafkaError
from raylog.core.ids import TopicPartition
from raylog.transport.system_time import now

OnRebalance = Callable[[Any, list[TopicPartition]], Any]
"""Called with the consumer and the partitions."""
Offsets = Mapping[Partition, int | OffsetAndMetadata]
PATTERN_MARK: Final = "^"
"""A topic that begins so is a regular expression, as for librdkafka."""


class OwnAssignor:
    """An assignor of the user. poll() raises a KafkaError for whatever it raises."""

    def __init__(self, assignor: Assignor) -> None:
        self.name = assignor.name
        self.cooperative = assignor.cooperative
        self.user_data = assignor.user_data
        self._assignor = assignor

    def assign(self, members: Any, partition_counts: Any) -> Assignment:
        try:
            return self._assignor.assign(members, partition_counts)
        except Exception as error:  # the group cannot be shared out by it
            text = f"assignor {self.name!r} has failed: {error!r}"
            raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, text) from error


def _chosen_assignors(settings: ConsumerSettings, own: Iterable[Assignor] | None) -> list[Assignor]:
    """The user's, or those of partition.assignment.strategy. Raises ConfigError."""
    if own is not None and settings.by_coordinator:
        raise ConfigError("assignors cannot be set when group.protocol=consumer: the coordinator assigns")
    if own is None:
        return [ASSIGNORS[name] for name in settings.assignors]
    try:
        return [each if each.name in ASSIGNORS else OwnAssignor(each) for each in own]
    except (TypeError, AttributeError) as error:
        raise ConfigError(f"assignors={shown(own)}: must be a list of objects such as RangeAssignor()") from error


class ConsumerCalls(ABC):
    """A base of the faces."""

    _core: ConsumerCore
    _lock: AbstractContextManager[object]
    """Held while the core is used."""
    _on_assign: OnRebalance | None = None
    _on_revoke: OnRebalance | None = None
    _on_lost: OnRebalance | None = None

    _deserializers: Deserializers
    _files: LocalFiles

    @abstractmethod
    def _poke(self) -> None:
        """Have the network run."""

    def _configure(
        self,
        given: GivenConfig,
        random: Random,
        deserializers: Deserializers,
        assignors: Iterable[Assignor] | None,
        interceptors: Sequence[ConsumerInterceptor],
        value_store: ValueStore | None,
    ) -> None:
        """Make the core. Raises ConfigError."""
        settings = consumer_settings(given.configs)
        store = store_for(settings.large, value_store)
        self._values: Dereferencing | None = None
        """With large messages."""
        if settings.large is not None:
            self._values = Dereferencing(store, settings.large.assembler_bytes)
        self._deserializers = deserializers
        self._core = ConsumerCore(given.servers, settings, random, assignors=_chosen_assignors(settings, assignors))
        self._interceptors = Interceptors(interceptors)
        self._committed_offsets: list[Mapping[TopicPartition, OffsetAndMetadata]] = []
        """Those for which `on_commit` of the interceptors was not called yet."""
        if self._interceptors:
            self._core.on_committed = self._committed_offsets.append

    def subscribe(
        self,
        topics: str | re.Pattern[str] | Iterable[str],
        *,
        on_assign: OnRebalance | None = None,
        on_revoke: OnRebalance | None = None,
        on_lost: OnRebalance | None = None,
    ) -> None:
        """Read these topics, or those that match a pattern, as a member of the group, in place of the former ones.

        A text that begins with ^ is a pattern. With group.protocol=consumer the coordinator of the group resolves it,
        by the rules of RE2 and for whole names; a compiled pattern is always matched here. The callbacks are called by
        poll() and close() with the consumer and a list of partitions: `on_revoke` may still commit; `on_lost`, which
        is `on_revoke` by default, cannot: others may have the partitions already. Raises KafkaError.
        """
        names, pattern, regex = _topics(topics, by_coordinator=self._core.settings.by_coordinator)
        for name, callback in (("on_assign", on_assign), ("on_revoke", on_revoke), ("on_lost", on_lost)):
            checked_function(name, callback)
        with self._lock:
            self._check_open()
            self._core.subscribe(names, pattern, regex)
            self._on_assign, self._on_revoke, self._on_lost = on_assign, on_revoke, on_lost or on_revoke
            self._poke()

    def assign(self, partitions: Iterable[Partition]) -> None:
        """Read these partitions, in place of the former ones, without sharing them with others. Raises KafkaError."""
        with self._lock:
            self._check_open()
            self._core.assign(checked_partitions(partitions))
            self._poke()

    def assignment(self) -> set[TopicPartition]:
        """The partitions that this consumer reads now."""
        with self._lock:
            return {tp for tp, state in self._core.subscription.partitions.items() if state.announced}

    def subscription(self) -> set[str]:
        """The topics, with those that match the pattern so far."""
        with self._lock:
            return set(self._core.subscription.topics)

    def seek(self, partition: Partition, offset: int) -> None:
        """Go on at this offset. Raises KafkaError if it is invalid, or the partition is not assigned."""
        offset = checked_number("offset", offset)
        with self._lock:
            self._core.seek(self._state(partition), offset)
            self._poke()

    def seek_to_beginning(self, *partitions: Partition | Collection[Partition]) -> None:
        """Go on at the first offset of these partitions, or of all that are assigned. Raises KafkaError."""
        self._seek_by(partitions, EARLIEST)

    def seek_to_end(self, *partitions: Partition | Collection[Partition]) -> None:
        """Go on behind the last record of these partitions, or of all that are assigned. Raises KafkaError."""
        self._seek_by(partitions, LATEST)

    def seek_to_timestamp(self, timestamp_ms: int, *partitions: Partition | Collection[Partition]) -> None:
        """Go on at the first record that is not older than this, or behind the last one. Raises KafkaError."""
        self._seek_by(partitions, checked_timestamp(timestamp_ms))

    def pause(self, *partitions: Partition | Collection[Partition]) -> None:
        """Return no records of these partitions, or of those in a list, until `resume`. Raises KafkaError."""
        with self._lock:
            for partition in _several(partitions):
                self._state(partition).paused = True

    def resume(self, *partitions: Partition | Collection[Partition]) -> None:
        """Raises KafkaError."""
        with self._lock:
            for partition in _several(partitions):
                self._state(partition).paused = False
            self._poke()

    def paused(self) -> set[TopicPartition]:
        with self._lock:
            return {tp for tp, state in self._core.subscription.partitions.items() if state.paused}

    def lag(self, partition: Partition) -> int | None:
        """How many offsets are behind the position, by the last response; None before the first one."""
        with self._lock:
            state = self._state(partition)
            end = state.last_stable_offset if self._core.settings.committed else state.high_watermark
            return None if end is None or state.position is None else max(0, end - state.position)

    def known_position(self, partition: Partition) -> int | None:
        """The offset of the next record, without waiting; None while it is not found. Raises KafkaError."""
        with self._lock:
            state = self._state(partition)
            return state.position if state.positioned else None

    def metrics(self) -> dict[str, float]:
        """With large.message.enabled: what has become of large messages, and what the unfinished ones occupy."""
        with self._lock:
            return {} if self._core.pool is None else self._core.pool.metrics()

    def files(self) -> frozenset[TopicPartition]:
        """The partitions that are read from mapped files now, because their leader is on this machine."""
        return self._files.partitions

    def group_metadata(self) -> GroupMetadata:
        """As whom this consumer commits now, for `Producer.send_offsets_to_transaction`. Raises KafkaError."""
        with self._lock:
            self._check_open()
            self._core.check_group()
            return self._core.member.metadata

    def offsets_to_commit(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """What `commit` without offsets would commit now, for `Producer.send_offsets_to_transaction`."""
        with self._lock:
            self._check_open()
            return self._core.positions()

    def enforce_rebalance(self, reason: str = "the user has asked for it") -> None:
        """Have the group share its partitions anew, from the next poll() on. Raises KafkaError."""
        with self._lock:
            self._check_open()
            self._core.check_group()
            self._core.member.rejoin(reason)
            self._poke()

    # --- internals

    def _with_values(self, fetched: Dereferenced) -> list[ConsumerRecord]:
        """Raises KafkaError."""
        lead_back(fetched.left, self.seek)
        if fetched.error is not None:
            raise fetched.error
        return fetched.records

    def _seek_by(self, partitions: Sequence[Partition | Collection[Partition]], reset: str | int) -> None:
        with self._lock:
            self._check_open()
            for partition in _several(partitions) or tuple(self._core.subscription.partitions):
                self._core.seek_by(self._state(partition), reset)
            self._poke()

    def _state(self, partition: Partition) -> PartitionState:
        """Raises KafkaError."""
        self._check_open()
        assigned: Mapping[Any, PartitionState] = self._core.subscription.partitions
        try:
            state = assigned.get(partition)
        except TypeError:  # it cannot be hashed
            state = None
        return self._core.subscription.state(checked_partition(partition)) if state is None else state

    def _begin_poll(self) -> None:
        self._check_open()
        self._core.begin_poll(now())

    def _end_poll(self) -> None:
        self._core.end_poll(now())
        self._poke_if_needed()

    def _poke_if_needed(self) -> None:
        if self._core.needs_network(now()):
            self._poke()

    def _timeout_ms(self, timeout: float | None) -> int:
        return self._core.settings.api_timeout_ms if timeout is None else int(1000 * checked_seconds(timeout))

    def _listener(self, callback: RebalanceCallback) -> OnRebalance | None:
        listeners = {
            CallbackKind.ASSIGNED: self._on_assign,
            CallbackKind.REVOKED: self._on_revoke,
            CallbackKind.LOST: self._on_lost,
        }
        return listeners[callback.kind]

    def _no_position(self, state: PartitionState) -> KafkaError:
        metadata = self._core.network.metadata
        code, reason = ErrorCode.REQUEST_TIMED_OUT, "" if metadata.failure is None else f": {metadata.failure.message}"
        known = metadata.topic(state.tp.topic)
        if known is not None and known.error_code is not ErrorCode.NONE:
            code, reason = known.error_code, f": {known.error_code.sentence}"
        return KafkaError(code, f"the position in {state.tp} was not found in time{reason}")

    @contextmanager
    def _awaiting(self, state: PartitionState) -> Iterator[None]:
        """Its position is looked up meanwhile, also in the callback that tells of the partition."""
        state.awaited = True
        try:
            yield
        finally:
            state.awaited = False

    @contextmanager
    def _asking_for(self, topic: str) -> Iterator[None]:
        """Its metadata is asked for meanwhile."""
        before = self._core.asked_topics
        self._core.asked_topics |= {topic}
        try:
            yield
        finally:
            self._core.asked_topics = before

    def _topic_is_known(self, topic: str) -> bool:
        """Raises KafkaError if it will not be."""
        known = self._core.network.metadata.topic(topic)
        if known is not None and known.error_code is not ErrorCode.NONE and not known.error_code.retriable:
            raise KafkaError(known.error_code, f"topic {topic!r}: {known.error_code.sentence}")
        return known is not None and known.usable

    def _no_topic(self, topic: str) -> KafkaError:
        known = self._core.network.metadata.topic(topic)
        code = ErrorCode.REQUEST_TIMED_OUT if known is None else known.error_code
        return KafkaError(code, f"no metadata of topic {topic!r} in time")

    @staticmethod
    def _checked_timestamps(timestamps_ms: Mapping[Partition, int]) -> dict[TopicPartition, int]:
        """Raises KafkaError."""
        given = checked_mapping("timestamps", timestamps_ms)
        return {checked_partition(each): checked_timestamp(ms) for each, ms in given.items()}

    def _check_open(self) -> None:
        if self._core.closed:
            raise ClientClosedError("the consumer is closed")


def _several(partitions: Sequence[Partition | Collection[Partition]]) -> Sequence[Any]:
    """The partitions of a call, which may be in one list or set."""
    first = partitions[0] if len(partitions) == 1 else None
    return list(first) if isinstance(first, (list, set, frozenset)) else partitions


def committed_offsets(offsets: Offsets | None) -> dict[TopicPartition, OffsetAndMetadata] | None:
    """What a call wants to commit. Raises KafkaError."""
    return None if offsets is None else checked_offsets(offsets)


def _topics(
    topics: str | re.Pattern[str] | Iterable[str], *, by_coordinator: bool
) -> tuple[list[str], re.Pattern[str] | None, str | None]:
    """(names, pattern, regular expression for the coordinator). Raises KafkaError."""
    if isinstance(topics, re.Pattern):
        return [], topics, None
    names = [topics] if isinstance(topics, str) else items_of("topics", topics)
    check_topic_names(names)
    patterns = [name for name in names if name.startswith(PATTERN_MARK)]
    if not patterns:
        return names, None, None
    if by_coordinator:
        regex = patterns[0] if len(patterns) == 1 else "|".join(f"(?:{each})" for each in patterns)
        return [name for name in names if not name.startswith(PATTERN_MARK)], None, regex
    exact = [re.escape(name) + "$" for name in names if not name.startswith(PATTERN_MARK)]
    try:
        return [], re.compile("|".join(f"(?:{each})" for each in (*patterns, *exact))), None
    except re.error as error:
        text = f"{patterns[0]!r} is not a regular expression: {error}"
        raise KafkaError(ErrorCode.INVALID_REQUEST, text) from None
