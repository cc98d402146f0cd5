"""A stream of Datasets plans and commits its batches; without Ray."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from raylog.client.admin.admin_client import AdminClient
from raylog.client.client_config import ClientConfig
from raylog.client.group_offsets import OffsetAndMetadata
from raylog.client.producer.producer import Producer
from raylog.client.producer.transactions import Operation, State, Transactions
from raylog.core.errors import ConfigError, ErrorCode, KafkaError
from raylog.core.ids import TopicPartition
from raylog.raydp_bridge import dataset_stream
from raylog.raydp_bridge.dataset_stream import DatasetStream, stream_datasets
from raylog.raydp_bridge.group_plan import BatchPlan
from raylog.raydp_bridge.offset_ranges import Bounds
from raylog.raydp_bridge.partition_offsets import LATEST
from raylog.raydp_bridge.read_options import Position, ReadOptions
from tests.client.served import Served, serve
from tests.raydp_bridge.test_ranges import A0, A1, B0


class Committed:
    """Commits at once what it is given."""

    def __init__(self) -> None:
        self.committed: dict[TopicPartition, OffsetAndMetadata] = {}
        self._sent: dict[TopicPartition, OffsetAndMetadata] = {}

    def begin_transaction(self) -> None:
        self._sent = {}

    def send_offsets_to_transaction(self, offsets: Mapping[TopicPartition, OffsetAndMetadata], group: str) -> None:
        self._sent |= offsets

    def commit_transaction(self) -> None:
        self.committed |= self._sent


class Slow:
    """The transactions of a producer, whose calls time out where `timeouts` has their name, and end afterwards."""

    def __init__(self, *timeouts: str) -> None:
        self.timeouts = list(timeouts)
        self.done: list[str] = []
        network = cast(Any, SimpleNamespace(feature_level=lambda _: 0))
        self._core = Transactions(
            network, cast(Any, None), "x", timeout_ms=1, has_unfinished=lambda: False, on_identity=lambda *_: None
        )
        self._core.state = State.READY

    def begin_transaction(self) -> None:
        self._core.begin()

    def send_offsets_to_transaction(self, offsets: Mapping[TopicPartition, OffsetAndMetadata], group: str) -> None:
        self._wait(self._core.commit_offsets(offsets, group))

    def commit_transaction(self) -> None:
        self._wait(self._core.commit())

    def abort_transaction(self) -> None:
        self._wait(self._core.abort())

    def _wait(self, operation: Operation) -> None:
        timed_out = operation.name in self.timeouts
        if timed_out:
            self.timeouts.remove(operation.name)
            self._core.leave(operation)
        else:
            self.done.append(operation.name)
        if not operation.done and operation.name != "send_offsets_to_transaction":
            self._core._ended()
        if timed_out:
            raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, f"{operation.name}() did not end")


def stream_of(producer: Any, *topics: str, stored: Mapping[TopicPartition, int], **options: Any) -> DatasetStream:
    parsed = ReadOptions.parse(
        {"kafka.bootstrap.servers": "nowhere:9092", "subscribe": ",".join(topics), "startingOffsets": "earliest"},
        streaming=True,
    )
    stream = DatasetStream(
        replace(parsed, **options),
        ClientConfig("nowhere:9092"),
        "group",
        stop_at_latest=False,
        poll_interval_ms=1,
        concurrency=None,
    )
    stream._producer = cast(Producer, producer)
    stream._stored = {tp: OffsetAndMetadata(offset) for tp, offset in stored.items()}
    return stream


def test_a_loss_that_does_not_last_is_none(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    answers = [Bounds({A0: 0}, {A0: 9}), Bounds({A0: 0, A1: 0}, {A0: 10, A1: 10})]
    monkeypatch.setattr(dataset_stream, "bounds_of", lambda *_, **__: answers.pop(0))
    stream = stream_of(Committed(), "a", stored={A0: 10, A1: 8}, fail_on_data_loss=False)
    monkeypatch.setattr(stream._closed, "wait", lambda _: False)
    plan = stream._next_plan()
    assert plan is not None
    assert (plan.starts, plan.ends) == ({A0: 10, A1: 8}, {A0: 10, A1: 10})
    assert not caplog.records


def test_a_deleted_topic_is_reported_once_and_read_from_its_beginning_if_it_is_created_again(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    found = {"bounds": Bounds({}, {})}
    monkeypatch.setattr(dataset_stream, "bounds_of", lambda *_, **__: found["bounds"])
    committed = Committed()
    stream = stream_of(committed, "a", stored={A0: 10}, fail_on_data_loss=False)
    monkeypatch.setattr(stream._closed, "wait", lambda _: False)
    assert stream._next_plan() is None
    assert stream._next_plan() is None
    assert [record.__dict__["reason"] for record in caplog.records] == ["a-0 is gone"]
    found["bounds"] = Bounds({A0: 0}, {A0: 12})
    plan = stream._next_plan()
    assert plan is not None
    assert (plan.starts, plan.ends) == ({A0: 0}, {A0: 12})
    assert committed.committed[A0].offset == 0
    assert len(caplog.records) == 1
    failing = stream_of(committed, "a", stored={A0: 10})
    found["bounds"] = Bounds({}, {})
    with pytest.raises(KafkaError, match="a-0 is gone"):
        failing._next_plan()


def test_a_group_that_has_read_other_topics_begins_at_the_starting_offsets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dataset_stream, "bounds_of", lambda *_, **__: Bounds({B0: 0}, {B0: 9}))
    stream = stream_of(Committed(), "b", stored={A0: 10}, starting=Position("startingOffsets", LATEST))
    assert stream._next_plan() is None
    assert stream._stored[B0].offset == 9


def test_offsets_are_committed_again_before_they_expire(monkeypatch: pytest.MonkeyPatch) -> None:
    now = {"s": 1000.0}
    monkeypatch.setattr(dataset_stream, "time", SimpleNamespace(monotonic=lambda: now["s"]))
    monkeypatch.setattr(dataset_stream, "bounds_of", lambda *_, **__: Bounds({A0: 0, A1: 0}, {A0: 10, A1: 8}))
    committed = Committed()
    stream = stream_of(committed, "a", stored={A0: 10, A1: 8})
    for passed_s, commits in ((0, True), (1, False), (dataset_stream.RENEW_SECONDS - 2, False), (1, True), (1, False)):
        now["s"] += passed_s
        assert stream._next_plan() is None
        assert committed.committed.keys() == ({A0, A1} if commits else set())
        committed.committed.clear()


def test_a_batch_of_other_topics_that_is_not_committed_is_an_error() -> None:
    stream = stream_of(Committed(), "b", "c", stored={})
    stream._stored = BatchPlan(3, {A0: 5, B0: 0}, {A0: 9, B0: 2}).announced({})
    with pytest.raises(ConfigError, match=r"group group has a batch of topics a, b that .* reads topics b, c: "):
        stream._next_plan()


SEND, COMMIT, ABORT = "send_offsets_to_transaction", "commit_transaction", "abort_transaction"


@pytest.mark.parametrize(
    ("timeouts", "done"),
    [
        ([COMMIT], [SEND, COMMIT]),
        ([COMMIT, COMMIT], [SEND, COMMIT]),
        ([SEND], [ABORT, SEND, COMMIT]),
        ([SEND, ABORT], [ABORT, SEND, COMMIT]),
    ],
)
def test_a_commit_that_timed_out_can_be_repeated(timeouts: list[str], done: list[str]) -> None:
    producer = Slow(*timeouts)
    stream = stream_of(producer, "a", stored={A0: 1})
    offsets = {A0: OffsetAndMetadata(5)}
    while producer.timeouts:
        with pytest.raises(KafkaError, match="did not end"):
            stream._commit(offsets)
    stream._commit(offsets)
    assert producer.done == done
    assert stream._stored == offsets
    stream._commit({A0: OffsetAndMetadata(6)})
    assert producer.done == [*done, SEND, COMMIT]


def test_a_plan_whose_commit_timed_out_is_that_of_the_next_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    ends = iter([10, 20])
    monkeypatch.setattr(dataset_stream, "bounds_of", lambda *_, **__: Bounds({A0: 0}, {A0: next(ends)}))
    stream = stream_of(Slow(COMMIT), "a", stored={A0: 5})
    with pytest.raises(KafkaError, match="did not end"):
        stream._next_plan()
    plan = stream._next_plan()
    assert plan is not None
    assert (plan.starts, plan.ends) == ({A0: 5}, {A0: 10})


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with serve(tmp_path_factory.mktemp("served")) as served:
        yield served


def written(served: Served) -> str:
    """A new topic with a record."""
    topic = served.new_topic()
    with Producer(bootstrap_servers=served.plain) as producer:
        producer.send(topic, b"record").result()
    return topic


def open_stream(served: Served, group: str, *topics: str, **more: Any) -> DatasetStream:
    properties = {"max.block.ms": 5_000}
    return stream_datasets(topics, group_id=group, bootstrap_servers=served.plain, client_config=properties, **more)


@pytest.fixture
def no_ray(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dataset_stream, "dataset_of", lambda *_, **__: None)


@pytest.mark.usefixtures("no_ray")
def test_a_batch_whose_topic_was_deleted_is_committed_without_it(
    served: Served, caplog: pytest.LogCaptureFixture
) -> None:
    kept, deleted, group = written(served), written(served), served.new_group()
    with open_stream(served, group, kept, deleted, fail_on_data_loss=False) as stream:
        batch = next(stream)
        with AdminClient(bootstrap_servers=served.plain) as admin:
            admin.delete_topics(deleted)
        batch.commit()
        losses = [record.__dict__["reason"] for record in caplog.records if record.message == "data lost"]
        assert losses == [f"{deleted}-0 is gone"]
        with Producer(bootstrap_servers=served.plain) as producer:
            producer.send(kept, b"more").result()
        more = next(stream)
        assert (more.batch_id, [(each.topic, each.start_offset) for each in more.ranges]) == (1, [(kept, 1)])
        more.commit()
    with open_stream(served, group, kept, stop_at_latest=True) as again:
        assert list(again) == []


@pytest.mark.usefixtures("no_ray")
def test_a_batch_all_of_whose_topics_were_deleted_is_done(served: Served) -> None:
    topic = written(served)
    with open_stream(served, served.new_group(), topic, fail_on_data_loss=False, stop_at_latest=True) as stream:
        batch = next(stream)
        with AdminClient(bootstrap_servers=served.plain) as admin:
            admin.delete_topics(topic)
        batch.commit()
        assert list(stream) == []
        assert stream._progress().next_batch_id == 1


@pytest.mark.usefixtures("no_ray")
def test_a_commit_for_a_deleted_topic_fails_at_once_and_names_it(served: Served) -> None:
    topic = written(served)
    with open_stream(served, served.new_group(), topic) as stream:
        batch = next(stream)
        with AdminClient(bootstrap_servers=served.plain) as admin:
            admin.delete_topics(topic)
        with pytest.raises(KafkaError, match=f"batch 0: {topic}-0 is gone") as refused:
            batch.commit()
        assert refused.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
