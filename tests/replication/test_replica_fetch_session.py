"""With lost responses and sessions too, the leader reads what its replica wants, and each change is sent once."""

from __future__ import annotations

from collections.abc import Callable
from uuid import UUID

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
    FetchTopic,
    ForgottenTopic,
)
from raylog.replication.fetch_sessions import FetchContext, FetchSessions, PartitionKey
from raylog.replication.replica_fetch_session import ReplicaFetchSession, SessionRequest

TOPIC_ID = UUID(int=7)
VERSION = 17
FOLLOWER = BrokerId(3)


def key(partition: int) -> PartitionKey:
    return PartitionKey("", TOPIC_ID, partition)


def at(partition: int, offset: int) -> FetchPartition:
    return FetchPartition(partition=partition, fetch_offset=offset, partition_max_bytes=100)


def want(session: ReplicaFetchSession, partition: int, offset: int) -> None:
    session.want(key(partition), at(partition, offset))


def named(request: SessionRequest) -> list[tuple[int, int]]:
    return [(wanted.partition, wanted.fetch_offset) for _, wanted in request.named]


def granted(session: ReplicaFetchSession, *, session_id: int = 5) -> SessionRequest:
    """One request, and an answer in the session."""
    request = session.request()
    assert session.answered(FetchResponse(session_id=session_id))
    return request


def test_wanted_partitions_are_sent_once() -> None:
    session = ReplicaFetchSession()
    want(session, 0, 10)
    want(session, 1, 20)
    first = granted(session)
    assert (first.session_id, first.session_epoch, named(first)) == (0, 0, [(0, 10), (1, 20)])
    assert granted(session) == SessionRequest(5, 1, [], [])
    want(session, 0, 10)
    want(session, 1, 21)
    assert granted(session) == SessionRequest(5, 2, [(key(1), at(1, 21))], [])


def test_unwanted_partitions_are_forgotten_once() -> None:
    session = ReplicaFetchSession()
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
    session = ReplicaFetchSession()
    want(session, 0, 10)
    session.request()
    want(session, 1, 20)
    session.forget(key(0))
    assert session.answered(FetchResponse(session_id=5))
    assert session.request() == SessionRequest(5, 1, [(key(1), at(1, 20))], [key(0)])


def test_a_refused_or_lost_session_starts_again_with_all_partitions() -> None:
    for error_code in (ErrorCode.FETCH_SESSION_ID_NOT_FOUND, ErrorCode.INVALID_FETCH_SESSION_EPOCH, None):
        session = ReplicaFetchSession()
        want(session, 0, 10)
        want(session, 1, 20)
        granted(session)
        session.forget(key(1))
        session.request()
        if error_code is None:
            session.reset()
        else:
            assert not session.answered(FetchResponse(error_code=error_code))
        assert granted(session) == SessionRequest(0, 0, [(key(0), at(0, 10))], [])


def test_without_a_session_every_request_has_all_partitions() -> None:
    session = ReplicaFetchSession()
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
        topics=[FetchTopic(topic_id=TOPIC_ID, partitions=[wanted for _, wanted in request.named])],
        forgotten_topics=[ForgottenTopic(topic_id=TOPIC_ID, partitions=[each.partition for each in request.forgotten])],
    )
    return sessions.context(fetch, version=VERSION, now_ms=now_ms)


def test_each_diverging_epoch_is_sent() -> None:
    """A truncation may take several rounds (KIP-595), in which neither the high watermark nor the log start changes."""
    sessions = new_sessions()
    replica = ReplicaFetchSession()
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
    session = ReplicaFetchSession()
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
        self.session = ReplicaFetchSession()
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
