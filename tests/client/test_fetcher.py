"""A consumer's fetch sessions have brokers read exactly what full requests would name, and each change is sent once."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from struct import pack_into
from typing import Any
from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from raylog.client.consumer.core import ConsumerCore
from raylog.client.consumer.subscription import PartitionState
from raylog.config.consumer import CONSUMER_CONFIG, consumer_settings
from raylog.core.clock import Now
from raylog.core.config import Configs, ConfigSource, Layer
from raylog.core.errors import ErrorCode, KafkaError
from raylog.core.ids import NO_BROKER_ID, ZERO_TOPIC_ID, TopicPartition
from raylog.protocol.fetch import (
    FetchPartition,
    FetchPartitionResponse,
    FetchRequest,
    FetchResponse,
    FetchTopicResponse,
)
from raylog.protocol.fetch_session import PartitionKey
from raylog.protocol.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from raylog.protocol.messages.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from raylog.protocol.records.builder import NewRecord, build_batch
from raylog.replication.fetch_sessions import FetchContext, FetchSessions
from raylog.transport.peer_link import LinkState

NODES = (1, 2)
NAMES = ("a", "b")
PARTITIONS = [TopicPartition(name, number) for name in NAMES for number in range(3)]
WAIT_MS = 500
SETTINGS = {"auto.offset.reset": "earliest", "enable.auto.commit": "false", "fetch.max.wait.ms": str(WAIT_MS)}


@dataclass
class Log:
    """A partition: its records are numbered."""

    leader: int
    leader_epoch: int = 5
    start: int = 0
    end: int = 0
    preferred: int = NO_BROKER_ID
    """A follower that the leader names to consumers."""


@dataclass
class Served:
    """A broker with its sessions."""

    sessions: FetchSessions
    version: int = 17


@dataclass
class InFlight:
    """A Fetch that the consumer has sent, with what one without sessions would name."""

    request: Any
    on_answer: Callable[[Any, Now], None]
    on_failure: Callable[[KafkaError, Now], None]
    full: dict[TopicPartition, FetchPartition]
    sent: FetchRequest | None = None


def new_sessions(first_session_id: int, slots_max: int = 10) -> FetchSessions:
    return FetchSessions(slots_max=slots_max, first_session_id=first_session_id, on_unsettled=lambda *_: None)


@dataclass
class Bench:
    """A consumer and two brokers with logs."""

    partitions: list[TopicPartition] = field(default_factory=lambda: list(PARTITIONS))
    now_ms: int = 1_000
    in_flight: dict[int, InFlight] = field(default_factory=dict)
    closing: list[FetchRequest] = field(default_factory=list)
    asked_ids: dict[int, dict[str, UUID]] = field(default_factory=dict)
    """The topic ids of what is in flight."""
    records_max: int = 2
    """How many partitions have records in one response."""

    def __post_init__(self) -> None:
        layer = Layer(ConfigSource.STATIC_BROKER_CONFIG, CONSUMER_CONFIG.parse(SETTINGS))
        settings = consumer_settings(Configs(CONSUMER_CONFIG, [layer]))
        self.core = ConsumerCore("127.0.0.1:1", settings, random.Random(1), assignors=[])
        self.brokers = {node_id: Served(new_sessions(100 * node_id)) for node_id in NODES}
        self.ids = {name: UUID(int=number) for number, name in enumerate(NAMES, start=1)}
        self.logs = {tp: Log(NODES[number % 2]) for number, tp in enumerate(self.partitions)}
        self.lookups: list[tuple[Any, Callable[[Any, Now], None]]] = []
        self.read: dict[TopicPartition, list[int]] = {tp: [] for tp in self.partitions}
        self.fetchable: dict[TopicPartition, int] = {}
        self.core.network.ask = self._ask  # type: ignore[method-assign]
        self.core.assign(self.partitions)
        self.refresh()

    @property
    def now(self) -> Now:
        return Now(self.now_ms, self.now_ms)

    def state(self, tp: TopicPartition) -> PartitionState:
        return self.core.subscription.state(tp)

    # --- the consumer

    def run(self) -> None:
        """Let the consumer go on, as after each event."""
        metadata = self.core.network.metadata
        self.fetchable = {}
        for tp, state in self.core.subscription.partitions.items():
            leader = metadata.leader(tp)
            node_id = None if leader is None else leader.broker_id
            if state.replica_id in metadata.nodes and self.now_ms < state.replica_until_ms:
                node_id = state.replica_id
            if state.fetchable and self.now_ms >= state.due_ms and node_id is not None:
                self.fetchable[tp] = node_id
        self.core.run(self.now)
        for request, on_answer in self.lookups:
            on_answer(self._offsets(request), self.now)
        if self.lookups:
            self.lookups = []
            self.run()

    def _ask(self, node_id: int, request: Any, on_answer: Any, on_failure: Any, now: Now, **options: Any) -> None:
        if isinstance(request, ListOffsetsRequest):
            self.lookups.append((request, on_answer))
            return
        if isinstance(request, FetchRequest):
            self.closing.append(request)
            return
        assert node_id not in self.in_flight, "one request at a time"
        full = {}
        for tp, node in self.fetchable.items():
            if node == node_id:
                state = self.state(tp)
                assert state.asked
                assert state.position is not None
                full[tp] = FetchPartition(
                    partition=tp.partition,
                    current_leader_epoch=self.core.network.metadata.topics[tp.topic]
                    .partitions[tp.partition]
                    .leader_epoch,
                    fetch_offset=state.position,
                    last_fetched_epoch=state.epoch,
                    partition_max_bytes=self.core.settings.partition_bytes_max,
                )
        ids = {name: topic.topic_id for name, topic in self.core.network.metadata.topics.items()}
        self.in_flight[node_id] = InFlight(request, on_answer, on_failure, full)
        self.asked_ids[node_id] = ids

    def take(self, count: int) -> None:
        """What the user does: records come in order, from the position on."""
        before = {tp: state.position for tp, state in self.core.subscription.partitions.items()}
        for record in self.core.take(count):
            tp = TopicPartition(record.topic, record.partition)
            assert (record.offset, record.value) == (before[tp], b"%s %d" % (str(tp).encode(), record.offset))
            before[tp] = record.offset + 1
            self.read[tp].append(record.offset)
        self.run()

    # --- the brokers

    def refresh(self) -> None:
        """The consumer learns the metadata."""
        topics = tuple(
            MetadataResponseTopic(
                error_code=ErrorCode.NONE,
                name=name,
                topic_id=topic_id,
                partitions=tuple(
                    MetadataResponsePartition(
                        error_code=ErrorCode.NONE,
                        partition_index=tp.partition,
                        leader_id=log.leader,
                        leader_epoch=log.leader_epoch,
                        replica_nodes=NODES,
                        isr_nodes=NODES,
                    )
                    for tp, log in self.logs.items()
                    if tp.topic == name
                ),
            )
            for name, topic_id in self.ids.items()
        )
        brokers = tuple(MetadataResponseBroker(node_id=node_id, host="h", port=1) for node_id in NODES)
        self.run()  # wants the topics
        self.core.network.metadata.answered(MetadataResponse(brokers=brokers, topics=topics), self.now)

    def changed(self, tp: TopicPartition) -> None:
        for broker in self.brokers.values():
            broker.sessions.changed(tp)

    def _offsets(self, request: ListOffsetsRequest) -> ListOffsetsResponse:
        topics = []
        for topic in request.topics:
            found = []
            for wanted in topic.partitions:
                log = self.logs[TopicPartition(topic.name, wanted.partition_index)]
                found.append(
                    ListOffsetsPartitionResponse(
                        partition_index=wanted.partition_index,
                        error_code=ErrorCode.NONE,
                        offset=log.start if wanted.timestamp == -2 else log.end,
                    )
                )
            topics.append(ListOffsetsTopicResponse(name=topic.name, partitions=tuple(found)))
        return ListOffsetsResponse(topics=tuple(topics))

    def serve(self, node_id: int) -> FetchResponse:
        """The broker's answer to what is in flight. It reads what a full request would have it read."""
        broker, in_flight = self.brokers[node_id], self.in_flight[node_id]
        by_id = broker.version >= 13
        request: FetchRequest = in_flight.request(lambda _: broker.version)
        in_flight.sent = request
        session = broker.sessions._sessions.get(request.session_id)
        known = {} if session is None else {key: entry.wanted for key, entry in session.partitions.items()}
        context = broker.sessions.context(_as_sent(request, by_id=by_id), version=broker.version, now_ms=self.now_ms)
        if not isinstance(context, FetchContext):
            assert request.session_epoch > 0, "a new session is refused"
            return FetchResponse(error_code=context)
        ids = self.asked_ids[node_id]
        full = {
            PartitionKey("" if by_id else tp.topic, ids[tp.topic] if by_id else ZERO_TOPIC_ID, tp.partition): wanted
            for tp, wanted in in_flight.full.items()
        }
        asked = dict(context.to_read())
        if context._session is not None:
            asked = {key: entry.wanted for key, entry in context._session.partitions.items()}
        assert asked == full
        if context.is_incremental:
            named = {key: wanted for key, wanted in context._named if known.get(key) == wanted}
            assert not named, "the broker knows them already"
        results = []
        room = self.records_max
        for key, wanted in context.to_read():
            names = {topic_id: name for name, topic_id in self.ids.items()}
            tp = TopicPartition(names.get(key.topic_id, key.topic), key.partition)
            result = self._result(node_id, tp, wanted, room=room)
            room -= bool(result.records)
            at_end = not result.error_code and wanted.fetch_offset == result.high_watermark
            if at_end and self.logs[tp].preferred == NO_BROKER_ID:
                context.settle(key, tp, result)
            results.append((key, result))
        topics = [
            FetchTopicResponse(name=key.topic, topic_id=key.topic_id, partitions=[result])
            for key, result in context.changed(results)
        ]
        return FetchResponse(session_id=context.session_id, responses=topics)

    def _result(self, node_id: int, tp: TopicPartition, wanted: FetchPartition, *, room: int) -> FetchPartitionResponse:
        log = self.logs.get(tp)
        code = ErrorCode.NONE
        if log is None:
            code = ErrorCode.UNKNOWN_TOPIC_ID
        elif node_id not in (log.leader, log.preferred):
            code = ErrorCode.NOT_LEADER_OR_FOLLOWER
        elif wanted.current_leader_epoch != log.leader_epoch:
            code = ErrorCode.FENCED_LEADER_EPOCH
        elif not log.start <= wanted.fetch_offset <= log.end:
            code = ErrorCode.OFFSET_OUT_OF_RANGE
        if log is None or code is not ErrorCode.NONE:
            return FetchPartitionResponse(partition_index=tp.partition, error_code=code, records=())
        away = node_id == log.leader != log.preferred and log.preferred != NO_BROKER_ID
        records = b""
        for offset in range(wanted.fetch_offset, log.end if room > 0 and not away else wanted.fetch_offset):
            batch = bytearray(build_batch([NewRecord(None, b"%s %d" % (str(tp).encode(), offset), 0)]))
            pack_into(">q", batch, 0, offset)
            pack_into(">i", batch, 12, log.leader_epoch)
            records += batch
        return FetchPartitionResponse(
            partition_index=tp.partition,
            error_code=code,
            high_watermark=log.end,
            last_stable_offset=log.end,
            log_start_offset=log.start,
            preferred_read_replica=log.preferred if away else NO_BROKER_ID,
            records=(memoryview(records),) if records else (),
        )

    # --- ends of requests

    def answer(self, node_id: int) -> FetchRequest | None:
        """The request that was answered."""
        if node_id not in self.in_flight:
            return None
        response = self.serve(node_id)
        in_flight = self.in_flight.pop(node_id)
        in_flight.on_answer(response, self.now)
        self.run()
        return in_flight.sent

    def lose(self, node_id: int, *, when: str) -> None:
        if node_id not in self.in_flight:
            return
        if when == "response":
            self.serve(node_id)
        elif when == "request":
            self.in_flight[node_id].request(lambda _: self.brokers[node_id].version)
        in_flight = self.in_flight.pop(node_id)
        in_flight.on_failure(KafkaError(ErrorCode.NETWORK_EXCEPTION, "lost"), self.now)
        self.run()

    # --- changes

    def step(self, what: str, number: int) -> None:
        tp, node_id = PARTITIONS[number % len(PARTITIONS)], NODES[number % 2]
        log, broker = self.logs[tp], self.brokers[node_id]
        match what:
            case "answer":
                self.answer(node_id)
                return
            case "take":
                self.take(number + 1)
                return
            case "append":
                log.end += 1 + number % 3
            case "response" | "request" | "connection":
                self.lose(node_id, when=what)
                return
            case "restart":
                broker.sessions = new_sessions(1_000 * (number + 1) + self.now_ms, slots_max=number % 3 * 5)
            case "upgrade":
                broker.version = (17, 12, 13, 7)[number % 4]
            case "pause" | "resume" if tp in self.core.subscription.partitions:
                self.state(tp).paused = what == "pause"
            case "seek" if tp in self.core.subscription.partitions:
                self.state(tp).seek(number % (log.end + 2))
            case "seek to end" if tp in self.core.subscription.partitions:
                self.state(tp).seek_by("latest")
            case "unassign":
                self.core.assign([each for each in PARTITIONS if each != tp])
            case "assign":
                self.core.assign(PARTITIONS)
            case "leader moves":
                log.leader, log.leader_epoch, log.preferred = NODES[log.leader % 2], log.leader_epoch + 1, NO_BROKER_ID
            case "replica":
                log.preferred = NODES[log.leader % 2] if log.preferred == NO_BROKER_ID else NO_BROKER_ID
            case "delete records":
                log.start = log.end
            case "topic is created anew":
                self.ids[tp.topic] = UUID(int=max(each.int for each in self.ids.values()) + 1)
                for each, known in self.logs.items():
                    if each.topic == tp.topic:
                        known.start = known.end = 0
                        known.leader_epoch = 0
                        self.changed(each)
            case "metadata":
                self.refresh()
            case "time":
                self.now_ms += 100 * (number + 1)
        self.changed(tp)
        self.run()


USUAL = ["answer"] * 8 + ["take"] * 4 + ["append"] * 3 + ["metadata", "time"] * 2
RARE = ["response", "request", "connection", "restart", "upgrade", "pause", "resume", "seek", "seek to end"]
RARE += ["unassign", "assign", "leader moves", "replica", "delete records", "topic is created anew"]
STEPS = st.lists(st.tuples(st.sampled_from(USUAL + RARE), st.integers(0, 11)), max_size=60)


@given(STEPS)
def test_brokers_read_what_full_requests_would_name(steps: list[tuple[str, int]]) -> None:
    bench = Bench()
    for what, number in steps:
        bench.step(what, number)
    bench.core.assign(PARTITIONS)
    for log in bench.logs.values():
        log.end += 1
    for tp in PARTITIONS:
        bench.changed(tp)
        bench.state(tp).paused = False
    for _ in range(60):
        bench.refresh()
        bench.now_ms += 1_000
        bench.run()
        for node_id in NODES:
            bench.answer(node_id)
        bench.take(100)
    for tp, log in bench.logs.items():
        assert (bench.state(tp).position, bench.state(tp).high_watermark) == (log.end, log.end), f"{tp} does not go on"


def caught_up() -> Bench:
    """All partitions are read to their ends, and a Fetch waits at each broker."""
    bench = Bench()
    for log in bench.logs.values():
        log.end = 1
    bench.run()
    for _ in range(6):
        for node_id in NODES:
            bench.answer(node_id)
        bench.take(100)
    assert all(bench.state(tp).position == 1 for tp in PARTITIONS)
    return bench


def append(bench: Bench, tp: TopicPartition, count: int) -> None:
    bench.logs[tp].end += count
    bench.changed(tp)


def test_an_idle_consumer_names_no_partition() -> None:
    bench = caught_up()
    for _ in range(3):
        sent = bench.answer(1)
        assert sent is not None
        assert (sent.session_epoch > 0, sent.topics, sent.forgotten_topics, sent.max_wait_ms) == (True, [], [], WAIT_MS)


def test_a_request_that_is_lost_begins_a_new_session_in_place_of_the_old_one() -> None:
    bench = caught_up()
    bench.state(PARTITIONS[0]).paused = True
    bench.answer(1)
    bench.lose(1, when="request")
    bench.now_ms += 2_000
    bench.run()
    sent = bench.answer(1)
    assert sent is not None
    assert (sent.session_epoch, sent.session_id > 0) == (0, True)
    assert len(bench.brokers[1].sessions) == 1


def test_no_fetch_waits_while_records_of_its_broker_are_buffered() -> None:
    bench = caught_up()
    tp = PARTITIONS[0]
    append(bench, tp, 3)
    bench.answer(1)
    assert 1 not in bench.in_flight
    assert bench.core._fetcher.next_deadline_ms() == bench.now_ms + WAIT_MS
    bench.now_ms += WAIT_MS
    bench.run()
    others = bench.answer(1)
    assert others is not None
    assert (others.max_wait_ms, [list(each.partitions) for each in others.forgotten_topics]) == (0, [[0]])
    bench.take(100)
    again = bench.answer(1)
    assert again is not None
    assert (again.max_wait_ms, [len(each.partitions) for each in again.topics]) == (WAIT_MS, [1])


def test_a_partition_with_more_records_is_fetched_while_others_are_buffered() -> None:
    bench = caught_up()
    first, second = PARTITIONS[0], PARTITIONS[2]
    for tp in (first, second):
        append(bench, tp, 2)
    bench.answer(1)
    assert len(bench.state(first).buffered) == len(bench.state(second).buffered) == 1
    append(bench, first, 2)
    drained = bench.core._in_turn()[0]
    drained.high_watermark = drained.last_stable_offset = 99  # as a response says that was limited
    bench.take(2)
    sent = bench.answer(1)
    assert sent is not None
    assert sent.max_wait_ms == 0


def test_sessions_are_closed_at_the_end() -> None:
    bench = caught_up()
    for link in (bench.core.network.link(node_id) for node_id in NODES):
        link.state = LinkState.READY
    bench.core.close_fetch_sessions(bench.now)
    assert [(each.session_epoch, each.topics) for each in bench.closing] == [(-1, []), (-1, [])]
    assert not bench.core.fetch_sessions_closed
    for node_id, request in zip(NODES, bench.closing, strict=True):
        sessions = bench.brokers[node_id].sessions
        assert len(sessions) == 1
        sessions.context(request, version=17, now_ms=bench.now_ms)
        assert len(sessions) == 0
        bench.core._fetcher._session_closed(None, bench.now)
    assert bench.core.fetch_sessions_closed


def _as_sent(request: FetchRequest, *, by_id: bool) -> FetchRequest:
    """As the broker decodes it, in a version that names topics by id or by name."""
    other = {"name": ""} if by_id else {"topic_id": ZERO_TOPIC_ID}
    return replace(
        request,
        topics=[replace(topic, **other) for topic in request.topics],
        forgotten_topics=[replace(topic, **other) for topic in request.forgotten_topics],
    )
