"""With lost responses and sessions too, the leader reads what its replica wants, and each change is sent once."""

from __future__ import annotations

from collections.abc import Callable
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raylog.core.errors import ErrorCode
from raylog.core.ids import BrokerId, TopicPartition
from raylog.protocol.fetch import (
    EpochEndOffset,
    FetchPartition,
    FetchPartitionResponse,
    FetchRequest,
    FetchResponse,
)
from raylog.protocol.fetch_session import SESSION_ID_LIMIT, FetchSession, PartitionKey, SessionRequest
from raylog.replication.fetch_sessions import FetchContext, FetchSessions

TOPIC_ID = UUID(int=7)
VERSION = 17
FOLLOWER = BrokerId(3)


def key(partition: int) -> PartitionKey:
    return PartitionKey("", TOPIC_ID, partition)


def at(partition: int, offset: int) -> FetchPartition:
    return FetchPartition(partition=partition, fetch_offset=offset, partition_max_bytes=100)


def want(session: FetchSession, partition: int, offset: int) -> None:
    session.want(key(partition), at(partition, offset))


def named(request: SessionRequest) -> list[tuple[int, int]]:
    return [(wanted.partition, wanted.fetch_offset) for _, wanted in request.named]


def granted(session: FetchSession, *, session_id: int = 5) -> SessionRequest:
    """One request, and an answer in the session."""
    request = session.request()
    assert session.answered(FetchResponse(session_id=session_id))
    return request


def test_wanted_partitions_are_sent_once() -> None:
    session = FetchSession()
    want(session, 0, 10)
    want(session, 1, 20)
    first = granted(session)
    assert (first.session_id, first.session_epoch, named(first)) == (0, 0, [(0, 10), (1, 20)])
    assert granted(session) == SessionRequest(5, 1, [], [])
    want(session, 0, 10)
    want(session, 1, 21)
    assert granted(session) == SessionRequest(5, 2, [(key(1), at(1, 21))], [])


def test_unwanted_partitions_are_forgotten_once() -> None:
    session = FetchSession()
    want(session, 0, 10)
    want(session, 1, 20)
    granted(session)
    session.forget(key(0))
    session.forget(key(2))
    assert granted(session).forgotten == [key(0)]
    assert granted(session).forgotten == []
    session.forget(key(1))
    want(session, 1, 20)
    again = granted(session)
    assert (named(again), again.forgotten) == ([(1, 20)], []), "the leader would forget it after it was named"


def test_changes_during_a_request_are_sent_with_the_next_one() -> None:
    session = FetchSession()
    want(session, 0, 10)
    session.request()
    want(session, 1, 20)
    session.forget(key(0))
    assert session.answered(FetchResponse(session_id=5))
    assert session.request() == SessionRequest(5, 1, [(key(1), at(1, 20))], [key(0)])


@pytest.mark.parametrize(
    ("error_code", "session_id"),
    [
        (ErrorCode.FETCH_SESSION_ID_NOT_FOUND, 0),
        (ErrorCode.INVALID_FETCH_SESSION_EPOCH, 5),
        (ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR, 5),
        (ErrorCode.UNKNOWN_SERVER_ERROR, 5),
        (None, 5),
    ],
)
def test_a_refused_or_lost_session_starts_again_with_all_partitions(
    error_code: ErrorCode | None, session_id: int
) -> None:
    """And the broker removes the old one, if it may still have it."""
    session = FetchSession()
    want(session, 0, 10)
    want(session, 1, 20)
    granted(session)
    session.forget(key(1))
    session.request()
    if error_code is None:
        session.reset()
    else:
        assert not session.answered(FetchResponse(error_code=error_code))
    assert granted(session, session_id=6) == SessionRequest(session_id, 0, [(key(0), at(0, 10))], [])
    assert granted(session, session_id=6) == SessionRequest(6, 1, [], [])


def test_a_session_that_the_broker_ends_starts_again() -> None:
    session = FetchSession()
    want(session, 0, 10)
    granted(session)
    assert granted(session, session_id=0) == SessionRequest(5, 1, [], [])
    assert session.request() == SessionRequest(0, 0, [(key(0), at(0, 10))], [])


def test_the_epoch_after_the_last_one_is_one() -> None:
    session = FetchSession()
    want(session, 0, 10)
    granted(session)
    session._epoch = SESSION_ID_LIMIT - 1
    assert [granted(session).session_epoch for _ in range(2)] == [SESSION_ID_LIMIT - 1, 1]


def test_a_closed_session_is_removed_once() -> None:
    session = FetchSession()
    assert session.close() is None
    want(session, 0, 10)
    granted(session)
    assert session.close() == SessionRequest(5, -1, [], [])
    assert session.close() is None


def test_a_topic_that_was_created_anew_is_replaced() -> None:
    """By name the session has it already, and brokers may forget partitions after they add others."""
    old, new = PartitionKey("t", TOPIC_ID, 0), PartitionKey("t", UUID(int=8), 0)
    for by_id in (True, False):
        session = FetchSession()
        session.want(old, at(0, 10))
        session.request(by_id=by_id)
        session.answered(FetchResponse(session_id=5))
        session.want(new, at(0, 10))
        session.keep_only({new})
        request = session.request(by_id=by_id)
        assert (request.named, request.forgotten) == ([(new, at(0, 10))], [old] if by_id else [])


def test_a_broker_of_another_version_gets_a_new_session() -> None:
    session = FetchSession()
    want(session, 0, 10)
    granted(session)
    assert session.request(by_id=False) == SessionRequest(5, 0, [(key(0), at(0, 10))], [])


def test_topics_keep_the_order_of_the_partitions() -> None:
    other = PartitionKey("u", UUID(int=8), 0)
    session = FetchSession()
    want(session, 0, 10)
    session.want(other, at(0, 5))
    want(session, 1, 10)
    assert [(topic.name, len(topic.partitions)) for topic in session.request().topics()] == [("", 1), ("u", 1), ("", 1)]
    session.answered(FetchResponse(session_id=5))
    session.keep_only({other})
    assert [list(topic.partitions) for topic in session.request().forgotten_topics()] == [[0, 1]]


def test_without_a_session_every_request_has_all_partitions() -> None:
    session = FetchSession()
    want(session, 0, 10)
    for _ in range(3):
        request = granted(session, session_id=0)
        assert (request.session_epoch, named(request)) == (0, [(0, 10)])


def new_sessions(
    *, first_session_id: int = 1, on_unsettled: Callable[[TopicPartition, BrokerId, int], None] = lambda *_: None
) -> FetchSessions:
    return FetchSessions(slots_max=10, first_session_id=first_session_id, on_unsettled=on_unsettled)


def ask(sessions: FetchSessions, request: SessionRequest, *, now_ms: int = 0) -> FetchContext | ErrorCode:
    fetch = FetchRequest(
        replica_id=FOLLOWER,
        max_wait_ms=0,
        min_bytes=1,
        session_id=request.session_id,
        session_epoch=request.session_epoch,
        topics=request.topics(),
        forgotten_topics=request.forgotten_topics(),
    )
    return sessions.context(fetch, version=VERSION, now_ms=now_ms)


def test_each_diverging_epoch_is_sent() -> None:
    """A truncation may take several rounds (KIP-595), in which neither the high watermark nor the log start changes."""
    sessions = new_sessions()
    replica = FetchSession()
    for offset, epoch in ((40, 4), (20, 2)):
        want(replica, 0, offset)
        context = ask(sessions, replica.request())
        assert isinstance(context, FetchContext)
        diverging = EpochEndOffset(epoch=epoch, end_offset=offset - 10)
        result = FetchPartitionResponse(
            partition_index=0, high_watermark=8, log_start_offset=0, records=(), diverging_epoch=diverging
        )
        assert context.changed([(key(0), result)]) == [(key(0), result)]
        assert replica.answered(FetchResponse(session_id=context.session_id))


STEPS = st.one_of(
    st.tuples(st.just("want"), st.integers(0, 3), st.integers(0, 3)),
    st.tuples(st.just("forget"), st.integers(0, 3), st.just(0)),
    st.tuples(st.sampled_from(["ask", "ask", "answer lost", "request lost", "leader forgets"]), st.just(0), st.just(0)),
)


@given(st.lists(STEPS, max_size=40))
def test_the_leader_reads_the_wanted_partitions(steps: list[tuple[str, int, int]]) -> None:
    session = FetchSession()
    sessions = new_sessions()
    model: dict[PartitionKey, FetchPartition] = {}
    for what, partition, offset in [*steps, ("ask", 0, 0), ("ask", 0, 0)]:
        if what == "want":
            want(session, partition, offset)
            model[key(partition)] = at(partition, offset)
        elif what == "forget":
            session.forget(key(partition))
            model.pop(key(partition), None)
        elif what == "leader forgets":
            sessions = new_sessions(first_session_id=100)
        elif model:
            request = session.request()
            context = ErrorCode.NONE if what == "request lost" else ask(sessions, request)
            if what != "ask":
                session.reset()
            elif isinstance(context, FetchContext):
                assert dict(context.to_read()) == model
                assert session.answered(FetchResponse(session_id=context.session_id))
            else:
                assert not session.answered(FetchResponse(error_code=context))
                assert request.session_epoch > 0, "a new session is refused"


RARE = ["read", "forget", "metadata changes", "answer lost", "leader forgets"]
CHANGES = st.tuples(
    st.sampled_from(["ask"] * 6 + ["append"] * 3 + ["want"] * 3 + RARE),
    st.integers(0, 3),
)


class Leader:
    """A leader with one follower, which names what it has read, and a model of what the leader should know."""

    def __init__(self) -> None:
        self.sessions = new_sessions(on_unsettled=self._unsettled)
        self.session = FetchSession()
        self.wanted: dict[int, int] = {}
        self.ends = [0] * 4
        self.sent: dict[int, int] = {}
        """The high watermark that the follower was sent, while it has a session."""
        self.now_ms = 0
        self.caught_up_ms = [-1] * 4
        """What a Fetch told, or the end of being settled."""
        self.had_all_ms = [-1] * 4
        """When the follower really was at the end for the last time."""

    def _unsettled(self, tp: TopicPartition, replica: BrokerId, at_ms: int) -> None:
        assert replica == FOLLOWER
        self.caught_up_ms[tp.partition] = max(self.caught_up_ms[tp.partition], at_ms)

    def want(self, partition: int, offset: int) -> None:
        self.wanted[partition] = offset
        want(self.session, partition, offset)

    def append(self, partition: int) -> None:
        self.ends[partition] += 1
        self.sessions.changed(TopicPartition("t", partition))
        assert self.caught_up_ms[partition] == self.had_all_ms[partition]

    def ask(self, *, answered: bool) -> None:
        if not self.wanted:
            return
        self.now_ms += 1
        request = self.session.request()
        context = ask(self.sessions, request, now_ms=self.now_ms)
        if not isinstance(context, FetchContext):
            assert not self.session.answered(FetchResponse(error_code=context))
            return
        if not context.is_incremental:
            self.sent = {}
        results = []
        for name, wanted in context.to_read():
            at_end = wanted.fetch_offset == self.ends[name.partition]
            if at_end:
                self.caught_up_ms[name.partition] = self.now_ms
            result = FetchPartitionResponse(
                partition_index=name.partition,
                high_watermark=self.ends[name.partition],
                log_start_offset=0,
                records=() if at_end else (memoryview(b"x"),),
            )
            if at_end:
                context.settle(name, TopicPartition("t", name.partition), result)
            results.append((name, result))
        read = {name.partition for name, _ in results}
        for partition, offset in self.wanted.items():
            if offset == self.ends[partition]:
                self.had_all_ms[partition] = self.now_ms
            if partition not in read:
                assert (offset, self.sent[partition]) == (self.ends[partition],) * 2, "it has news, and was not read"
        if not answered:
            self.session.reset()
            return
        for name, result in context.changed(results):
            self.sent[name.partition] = result.high_watermark
            if result.records:
                self.want(name.partition, self.ends[name.partition])
        assert self.session.answered(FetchResponse(session_id=context.session_id))


@given(st.lists(CHANGES, max_size=100))
def test_what_is_not_read_has_no_news(steps: list[tuple[str, int]]) -> None:
    leader = Leader()
    for what, partition in [*steps, ("ask", 0), ("ask", 0)]:
        match what:
            case "want":
                leader.want(partition, leader.ends[partition])
            case "read":
                leader.want(partition, 0)
            case "forget":
                leader.session.forget(key(partition))
                leader.wanted.pop(partition, None)
            case "append":
                leader.append(partition)
            case "metadata changes":
                leader.sessions.all_changed()
            case "leader forgets":
                leader.sessions = new_sessions(first_session_id=100, on_unsettled=leader._unsettled)
                leader.caught_up_ms = list(leader.had_all_ms)
            case "ask" | "answer lost":
                leader.ask(answered=what == "ask")
