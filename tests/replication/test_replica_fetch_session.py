"""With lost responses and sessions too, the leader reads what its replica wants, and each change is sent once."""

from __future__ import annotations

from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from raylog.core.errors import ErrorCode
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


def ask(sessions: FetchSessions, request: SessionRequest) -> FetchContext | ErrorCode:
    fetch = FetchRequest(
        max_wait_ms=0,
        min_bytes=1,
        session_id=request.session_id,
        session_epoch=request.session_epoch,
        topics=[FetchTopic(topic_id=TOPIC_ID, partitions=[wanted for _, wanted in request.named])],
        forgotten_topics=[ForgottenTopic(topic_id=TOPIC_ID, partitions=[each.partition for each in request.forgotten])],
    )
    return sessions.context(fetch, version=VERSION, now_ms=0)


def test_each_diverging_epoch_is_sent() -> None:
    """A truncation may take several rounds (KIP-595), in which neither the high watermark nor the log start changes."""
    sessions = FetchSessions(slots_max=10, first_session_id=1)
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
    sessions = FetchSessions(slots_max=10, first_session_id=1)
    model: dict[PartitionKey, FetchPartition] = {}
    for what, partition, offset in [*steps, ("ask", 0, 0), ("ask", 0, 0)]:
        if what == "want":
            want(session, partition, offset)
            model[key(partition)] = at(partition, offset)
        elif what == "forget":
            session.forget(key(partition))
            model.pop(key(partition), None)
        elif what == "leader forgets":
            sessions = FetchSessions(slots_max=10, first_session_id=100)
        elif model:
            request = session.request()
            context = ErrorCode.NONE if what == "request lost" else ask(sessions, request)
            if what != "ask":
                session.reset()
            elif isinstance(context, FetchContext):
                assert dict(context.partitions) == model
                assert session.answered(FetchResponse(session_id=context.session_id))
            else:
                assert not session.answered(FetchResponse(error_code=context))
                assert request.session_epoch > 0, "a new session is refused"
