"""The member of a consumer group says what has changed, gives up before it gets, and outlives or names each error."""

from __future__ import annotations

import random
from typing import Any
from uuid import UUID

import pytest

from raylog.client.consumer.consumer_group_member import ConsumerGroupMember, Step
from raylog.client.consumer.core import ConsumerCore
from raylog.client.consumer.rebalance_callbacks import CallbackKind
from raylog.client.group_offsets import OffsetAndMetadata
from raylog.config.consumer import CONSUMER_CONFIG, consumer_settings
from raylog.core.clock import Now
from raylog.core.config import Configs, ConfigSource, Layer
from raylog.core.errors import ErrorCode, KafkaError
from raylog.core.ids import TopicPartition
from raylog.protocol.messages.consumer_group_heartbeat import (
    Assignment,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)

TOPIC_ID = UUID(int=7)
INTERVAL_MS = 5000
Owned = list[int] | None


class Bench:
    """A member whose heartbeats are taken from it, and answered by the test."""

    def __init__(self, **settings: str) -> None:
        given = {"group.id": "g", "group.protocol": "consumer", "enable.auto.commit": "false", **settings}
        layer = Layer(ConfigSource.STATIC_BROKER_CONFIG, CONSUMER_CONFIG.parse(given))
        self.core = ConsumerCore(
            "h:1", consumer_settings(Configs(CONSUMER_CONFIG, [layer])), random.Random(1), assignors=[]
        )
        self.ms = 1000
        self.sent: list[tuple[Any, Any, Any]] = []
        self.called: list[tuple[CallbackKind, list[int]]] = []
        network: Any = self.core.network
        network.ask = self._ask
        network.metadata.name_of = lambda topic_id: "t" if topic_id == TOPIC_ID else None
        coordinators: Any = self.core._coordinators
        coordinators.node_id = lambda *_: 1
        assert isinstance(self.core.member, ConsumerGroupMember)
        self.member = self.core.member
        self.core.subscribe(["t"], None)

    @property
    def now(self) -> Now:
        return Now(self.ms, 0)

    def _ask(self, _: int, request: Any, answered: Any, failed: Any, now: Now, **how: Any) -> None:
        built = request(lambda _: 1)
        if isinstance(built, ConsumerGroupHeartbeatRequest):
            self.sent.append((built, answered, failed))

    def poll(self, *, calls: bool = True) -> None:
        self.core.begin_poll(self.now)
        while calls and (callback := self.member.next_callback()) is not None:
            self.called.append((callback.kind, [tp.partition for tp in callback.partitions]))
            self.member.callback_done(self.now)
        self.core.end_poll(self.now)

    def pass_time(self, ms: int) -> None:
        self.ms += ms
        self.member.run(self.now)

    def request(self) -> Any:
        """The heartbeat in flight, the only one."""
        ((request, _, _),) = self.sent
        return request

    def answer(self, epoch: int = 0, assigned: Owned = None, *, code: ErrorCode = ErrorCode.NONE) -> None:
        ((_, answered, _),) = self.sent
        self.sent.clear()
        assignment = None
        if assigned is not None:
            topics = (TopicPartitions(topic_id=TOPIC_ID, partitions=tuple(assigned)),) if assigned else ()
            assignment = Assignment(topic_partitions=topics)
        response = ConsumerGroupHeartbeatResponse(
            error_code=code,
            member_id=self.member._member_id,
            member_epoch=epoch,
            heartbeat_interval_ms=INTERVAL_MS,
            assignment=assignment,
        )
        answered(response, self.now)

    def join(self, epoch: int = 1, assigned: Owned = None) -> None:
        self.poll()
        self.answer(epoch, [0, 1] if assigned is None else assigned)
        self.poll()
        if self.sent:
            self.answer(epoch)

    @property
    def owned(self) -> list[int]:
        return [tp.partition for tp in self.core.subscription.partitions]


@pytest.fixture
def bench() -> Bench:
    return Bench()


def owned_in(request: Any) -> Owned:
    if request.topic_partitions is None:
        return None
    return [number for topic in request.topic_partitions for number in topic.partitions]


def test_the_first_heartbeat_says_everything_and_the_next_ones_what_has_changed(bench: Bench) -> None:
    bench.poll()
    first = bench.request()
    assert (first.member_epoch, first.rebalance_timeout_ms, first.topic_partitions) == (0, 300_000, ())
    assert (first.subscribed_topic_names, first.subscribed_topic_regex) == (("t",), None)
    assert first.member_id == str(UUID(first.member_id))
    bench.answer(1, [0, 1])
    bench.poll(calls=False)
    assert not bench.sent
    bench.poll()
    assert bench.called == [(CallbackKind.ASSIGNED, [0, 1])]
    told = bench.request()
    assert (told.member_epoch, owned_in(told), told.rebalance_timeout_ms) == (1, [0, 1], -1)
    assert told.subscribed_topic_names is None
    bench.answer(1)
    bench.pass_time(INTERVAL_MS - 1)
    assert not bench.sent
    bench.pass_time(1)
    idle = bench.request()
    assert (idle.subscribed_topic_names, idle.topic_partitions, idle.server_assignor) == (None, None, None)


def test_it_does_not_join_before_it_polls(bench: Bench) -> None:
    bench.pass_time(10_000)
    assert not bench.sent


def test_what_it_is_to_give_up_is_given_up_and_said_before_it_gets_more(bench: Bench) -> None:
    bench.join()
    bench.pass_time(INTERVAL_MS)
    bench.answer(1, [1])
    bench.called.clear()
    bench.poll(calls=False)
    assert not bench.sent
    assert bench.owned == [0, 1]
    bench.poll()
    assert bench.called == [(CallbackKind.REVOKED, [0])]
    assert owned_in(bench.request()) == [1]
    bench.answer(2, [1, 2])
    bench.poll()
    assert bench.called[1:] == [(CallbackKind.ASSIGNED, [2])]
    assert owned_in(bench.request()) == [1, 2]


def test_offsets_are_committed_before_partitions_are_given_up(bench: Bench) -> None:
    bench.join()
    asked: list[list[int]] = []
    done = [False]

    def commit(partitions: Any, _: Now) -> bool:
        asked.append([tp.partition for tp in partitions])
        return done[0]

    bench.member.callbacks.commit = commit
    bench.pass_time(INTERVAL_MS)
    bench.answer(1, [])
    bench.called.clear()
    bench.poll()
    assert (asked[-1], bench.called, bench.sent) == ([0, 1], [], [])
    done[0] = True
    bench.poll()
    assert bench.called == [(CallbackKind.REVOKED, [0, 1])]
    assert owned_in(bench.request()) == []


@pytest.mark.parametrize("code", [ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID])
@pytest.mark.parametrize("while_revoking", [False, True])
def test_a_fenced_member_loses_everything_and_joins_again(bench: Bench, code: ErrorCode, while_revoking: bool) -> None:
    bench.join()
    bench.called.clear()
    bench.pass_time(INTERVAL_MS)
    if while_revoking:
        bench.answer(1, [1])
        bench.poll(calls=False)
        bench.pass_time(INTERVAL_MS)
    bench.answer(code=code)
    assert not bench.member.is_member
    bench.pass_time(INTERVAL_MS)
    assert not bench.sent
    bench.poll()
    assert bench.called == [(CallbackKind.LOST, [0, 1])]
    again = bench.request()
    assert (again.member_epoch, again.topic_partitions, again.subscribed_topic_names) == (0, (), ("t",))
    bench.answer(5, [3])
    bench.poll()
    assert bench.owned == [3]


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.UNRELEASED_INSTANCE_ID,
        ErrorCode.FENCED_INSTANCE_ID,
        ErrorCode.UNSUPPORTED_ASSIGNOR,
        ErrorCode.GROUP_MAX_SIZE_REACHED,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.INVALID_REGULAR_EXPRESSION,
        ErrorCode.UNSUPPORTED_VERSION,
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
        ErrorCode.GROUP_ID_NOT_FOUND,
    ],
)
def test_errors_that_stay_are_those_of_every_poll(bench: Bench, code: ErrorCode) -> None:
    bench.poll()
    bench.answer(code=code)
    for _ in range(2):
        bench.pass_time(60_000)
        bench.poll()
        with pytest.raises(KafkaError) as raised:
            bench.core.raise_error()
        assert raised.value.code is code
    assert not bench.sent


@pytest.mark.parametrize("code", [ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS])
def test_after_an_error_that_passes_everything_is_said_again(bench: Bench, code: ErrorCode) -> None:
    bench.join()
    bench.pass_time(INTERVAL_MS)
    bench.answer(code=code)
    assert not bench.sent
    bench.pass_time(1000)
    again = bench.request()
    assert (again.member_epoch, owned_in(again), again.subscribed_topic_names) == (1, [0, 1], ("t",))
    bench.core.raise_error()


def test_a_heartbeat_without_an_answer_is_sent_again_in_full(bench: Bench) -> None:
    bench.join()
    bench.pass_time(INTERVAL_MS)
    ((_, _, failed),) = bench.sent
    bench.sent.clear()
    failed(KafkaError(ErrorCode.REQUEST_TIMED_OUT, "late"), bench.now)
    bench.pass_time(1000)
    assert owned_in(bench.request()) == [0, 1]


def test_topics_that_may_not_be_read_are_told_while_it_tries_again(bench: Bench) -> None:
    bench.poll()
    bench.answer(code=ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    with pytest.raises(KafkaError):
        bench.core.raise_error()
    bench.pass_time(1000)
    bench.answer(1, [0])
    bench.core.raise_error()
    assert bench.member.step is Step.IN


def test_a_changed_subscription_is_said_at_once(bench: Bench) -> None:
    bench.join()
    bench.core.subscribe([], None, "u.*")
    bench.pass_time(1)
    changed = bench.request()
    assert (changed.subscribed_topic_names, changed.subscribed_topic_regex) == ((), "u.*")
    assert changed.topic_partitions is None
    bench.answer(1)
    bench.core.subscribe(["t"], None)
    bench.pass_time(1)
    changed = bench.request()
    assert (changed.subscribed_topic_names, changed.subscribed_topic_regex) == (("t",), "")


def test_topics_whose_names_are_not_known_are_waited_for(bench: Bench) -> None:
    metadata: Any = bench.core.network.metadata
    name_of, metadata.name_of = metadata.name_of, lambda _: None
    bench.poll()
    bench.answer(1, [0])
    bench.poll()
    assert bench.called == []
    metadata.name_of = name_of
    bench.poll()
    assert bench.called == [(CallbackKind.ASSIGNED, [0])]


def test_assigned_topics_that_the_metadata_lacks_for_a_while_are_kept(bench: Bench) -> None:
    bench.join()
    bench.called.clear()
    metadata: Any = bench.core.network.metadata
    metadata.name_of = lambda _: None
    bench.pass_time(INTERVAL_MS)
    bench.answer(1, [0, 1, 2])
    bench.poll()
    assert bench.called == [(CallbackKind.ASSIGNED, [2])]


@pytest.mark.parametrize(
    ("instance", "leave_group", "epoch"),
    [("", None, -1), ("", True, -1), ("", False, None), ("i", None, -2), ("i", True, -1), ("i", False, -2)],
)
def test_how_it_leaves(instance: str, leave_group: bool | None, epoch: int | None) -> None:
    bench = Bench(**({"group.instance.id": instance} if instance else {}))
    bench.join()
    request = bench.member.leave("test", bench.now, 1000, leave_group=leave_group)
    said: Any = None if request is None else request.request(lambda _: 1)
    assert (None if said is None else said.member_epoch) == epoch
    assert not bench.member.is_member
    assert bench.member.metadata.generation_id == -1


def test_a_member_that_does_not_poll_leaves(bench: Bench) -> None:
    bench.join()
    bench.pass_time(299_999)
    assert bench.member.is_member
    bench.pass_time(1)
    assert not bench.member.is_member
    bench.sent.clear()
    bench.called.clear()
    bench.poll()
    assert bench.called == [(CallbackKind.LOST, [0, 1])]
    assert bench.request().member_epoch == 0


def test_a_commit_with_a_stale_epoch_is_sent_again_while_the_partitions_are_owned(bench: Bench) -> None:
    bench.join()
    tp = TopicPartition("t", 0)
    stale = KafkaError(ErrorCode.STALE_MEMBER_EPOCH, "stale")

    def begun() -> Any:
        return bench.core.commit({tp: OffsetAndMetadata(5)}, bench.now, 1000, retries=True)

    commit = begun()
    assert not commit.may_retry(stale)  # there is no newer epoch
    bench.pass_time(INTERVAL_MS)
    bench.answer(2, [0, 1])
    assert commit.may_retry(stale)
    assert commit._member.generation_id == 2
    commit = begun()
    bench.pass_time(INTERVAL_MS)
    bench.answer(3, [1])
    bench.poll()
    bench.answer(4, [0, 1])
    bench.poll()
    assert bench.owned == [0, 1]
    assert not commit.may_retry(stale)  # another member may have had it meanwhile


def test_brokers_that_cannot_resolve_an_expression() -> None:
    bench = Bench()
    bench.core.subscribe([], None, "t.*")
    asked: list[Any] = []
    network: Any = bench.core.network
    network.ask = lambda _, request, *__, **___: asked.append(request)
    bench.poll()
    with pytest.raises(KafkaError, match="cannot resolve regular expressions") as raised:
        asked[0](lambda _: 0)
    assert raised.value.code is ErrorCode.UNSUPPORTED_VERSION
