"""Plans of batches are decided once, are on disk before they are used, and follow one another without gaps."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from raylog.client.client_config import ClientConfig
from raylog.core.errors import ConfigError, ErrorCode, KafkaError
from raylog.core.ids import TopicPartition
from raylog.raydp_bridge.plan_store import PLANS_KEPT, PlanStore
from raylog.raydp_bridge.planner import Planner, Stream
from raylog.raydp_bridge.read_options import Limits, ReadOptions
from raylog.raydp_bridge.stream_plan import BatchPlan, plan_batch
from tests.raydp_bridge.test_ranges import A0, A1, B0, Topics

PLAN = BatchPlan({A0: 4, B0: 0}, {A0: 9, B0: 0})


def planner(topics: Topics, location: Path, **options: str) -> Planner:
    given = {"kafka.bootstrap.servers": "nowhere:9092", "startingOffsets": "earliest", **options}
    if "assign" not in given:
        given.setdefault("subscribe", "a,b")
    parsed = ReadOptions.parse(given, streaming=True)
    stream = Stream(str(location), 2, parsed, ClientConfig("nowhere:9092"), topics)
    return Planner(stream, pause=lambda _: None)


def read(planner: Planner, batch: int) -> dict[TopicPartition, tuple[int, int]]:
    """What all tasks of a batch read."""
    ranges = [each for share in planner.ranges(batch) for each in share]
    assert len({each.tp for each in ranges}) == len(ranges)
    return {each.tp: (each.start_offset, each.end_offset) for each in ranges}


def test_a_plan_is_kept_as_it_was() -> None:
    assert BatchPlan.of_json(PLAN.to_json()) == PLAN
    assert json.loads(PLAN.to_json())["endOffsets"] == {"a": {"0": 9}, "b": {"0": 0}}


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("", "must be JSON with version, startOffsets and endOffsets"),
        ("[]", "must be JSON with version"),
        ('{"version":1,"startOffsets":{}}', "must be JSON with version"),
        ('{"version":2,"startOffsets":{},"endOffsets":{}}', "version=2: only version 1 is supported"),
        ('{"version":1,"startOffsets":3,"endOffsets":{}}', "startOffsets='3': must be JSON such as"),
        ('{"version":1,"startOffsets":{"a":{"0":-1}},"endOffsets":{}}', "a-0: -1 must be an integer between 0 and"),
        ('{"version":1,"startOffsets":{"a":{"0":1}},"endOffsets":{}}', "must contain the partitions of startOffsets"),
        ('{"version":1,"startOffsets":{"a":{"0":2}},"endOffsets":{"a":{"0":1}}}', "and not be before them"),
    ],
)
def test_a_damaged_plan_is_refused_with_its_file(tmp_path: Path, text: str, rule: str) -> None:
    store = PlanStore(tmp_path)
    (tmp_path / "batches" / "3.json").write_text(text)
    with pytest.raises(ConfigError) as refused:
        store.get(3)
    assert refused.value.message.startswith(f"{tmp_path}/batches/3.json: ")
    assert rule in refused.value.message


def test_a_plan_is_synced_before_it_has_its_name_and_never_changes(tmp_path: Path) -> None:
    store = PlanStore(tmp_path)
    done: list[str] = []
    fsync, link = os.fsync, os.link

    def noted_fsync(descriptor: int) -> None:
        done.append("sync")
        fsync(descriptor)

    def noted_link(written: Path, path: Path) -> None:
        done.append("link")
        link(written, path)

    with mock.patch("os.fsync", noted_fsync), mock.patch("os.link", noted_link):
        assert store.add(0, PLAN) == PLAN
    assert done == ["sync", "link", "sync"]
    other = BatchPlan({A0: 9}, {A0: 10})
    assert PlanStore(tmp_path).add(0, other) == PLAN
    with mock.patch.object(Path, "exists", return_value=False):  # two planners at the same moment
        assert store.add(0, other) == PLAN
    assert [path.name for path in (tmp_path / "batches").iterdir()] == ["0.json"]


def test_old_plans_are_removed(tmp_path: Path) -> None:
    store = PlanStore(tmp_path)
    for batch in range(PLANS_KEPT + 3):
        store.add(batch, PLAN)
    assert sorted(store.batches()) == list(range(3, PLANS_KEPT + 3))


@pytest.mark.parametrize(
    "location",
    [
        "",
        "file:",
        "s3a://bucket/plans",
        "hdfs://name/plans",
        "dbfs:/plans",
        "file:s3a:/plans",
        "/proc/none/plans",
        5,
        b"p",
        ["p"],
    ],
)
def test_a_location_that_is_no_directory_is_refused(location: Any) -> None:
    with pytest.raises(ConfigError, match="plan_location="):
        PlanStore(location)


def test_a_location_can_be_a_uri_of_a_file(tmp_path: Path) -> None:
    for location in (f"file:{tmp_path}", f"file://{tmp_path}", str(tmp_path)):
        assert PlanStore(location).location == tmp_path


def test_a_location_belongs_to_one_subscription_and_one_query(tmp_path: Path) -> None:
    store = PlanStore(f"file://{tmp_path}")
    assert store.open("subscribe=a", 3) == 3
    assert PlanStore(tmp_path).open("subscribe=a", 5) == 3
    with pytest.raises(ConfigError, match="belongs to a stream with subscribe=a; use another location"):
        store.open("subscribe=b", 3)
    store.check_query("q1")
    PlanStore(tmp_path).check_query("q1")
    with pytest.raises(ConfigError, match="belongs to the query q1, not to q2"):
        store.check_query("q2")
    (tmp_path / "stream.json").write_text("{")
    with pytest.raises(ConfigError, match=r"stream\.json: is damaged"):
        store.open("subscribe=a", 3)


def test_batches_follow_one_another_and_a_repeated_one_is_the_same(tmp_path: Path) -> None:
    topics = Topics()
    first = planner(topics, tmp_path)
    assert read(first, 0) == {A0: (5, 25), A1: (0, 9), B0: (0, 4)}
    topics.bounds |= {A0: (5, 30), B0: (0, 6)}
    assert read(first, 0) == {A0: (5, 25), A1: (0, 9), B0: (0, 4)}
    second = planner(topics, tmp_path)  # after a restart
    assert read(second, 0) == {A0: (5, 25), A1: (0, 9), B0: (0, 4)}
    assert read(second, 1) == {A0: (25, 30), B0: (4, 6)}
    assert read(first, 1) == {A0: (25, 30), B0: (4, 6)}
    assert read(second, 2) == {}
    topics.bounds.clear()  # a repeated batch asks nothing of the brokers
    assert read(second, 2) == {}
    assert read(second, 0) == {A0: (5, 25), A1: (0, 9), B0: (0, 4)}


def test_the_tasks_of_a_batch_share_one_reading_of_its_plan(tmp_path: Path) -> None:
    stream = planner(Topics(), tmp_path)
    with (
        mock.patch.object(stream._store, "get", wraps=stream._store.get) as get,
        mock.patch.object(stream._store, "check_query", wraps=stream._store.check_query) as check_query,
    ):
        shares = stream.ranges(0, "q")
        for _ in range(5):
            assert stream.ranges(0, "q") == shares
        assert (get.call_count, check_query.call_count) == (1, 1)
        for batch in range(1, 5):
            stream.ranges(batch, "q")
        get.reset_mock()
        assert stream.ranges(0, "q") == shares
        assert get.call_count == 1, "only the last ones are kept"


def test_a_stream_starts_at_the_latest_offsets_of_its_first_batch(tmp_path: Path) -> None:
    topics = Topics()
    stream = planner(topics, tmp_path, startingOffsets="latest")
    assert read(stream, 0) == {}
    topics.bounds[A0] = 5, 26
    assert read(stream, 1) == {A0: (25, 26)}


def test_a_checkpoint_and_plans_that_do_not_belong_together_are_refused(tmp_path: Path) -> None:
    stream = planner(Topics(), tmp_path)
    with pytest.raises(ConfigError, match="has no plan of batch 6, which the checkpoint of the query requires"):
        stream.ranges(7)
    stream.ranges(0, "q1")
    with pytest.raises(ConfigError, match="belongs to the query q1"):
        stream.ranges(1, "q2")


def test_a_batch_after_one_that_no_task_read_is_refused_with_the_cause(tmp_path: Path) -> None:
    stream = planner(Topics(), tmp_path)
    stream.ranges(0)
    with pytest.raises(ConfigError, match=r"has no plan of batch 1, .* a function of foreachBatch did not read"):
        stream.ranges(2)


def test_partitions_that_are_added_are_read_from_the_beginning(tmp_path: Path) -> None:
    topics = Topics()
    stream = planner(topics, tmp_path, subscribe="a")
    read(stream, 0)
    topics.bounds[TopicPartition("a", 2)] = 0, 3
    assert read(stream, 1) == {TopicPartition("a", 2): (0, 3)}


@pytest.mark.parametrize(
    ("change", "loss", "after"),
    [
        ({A0: (28, 30)}, "a-0: offset 25 no longer exists, the earliest is 28", {A0: (28, 30)}),
        ({A0: (0, 7)}, "the offset of a-0 was changed from 25 to 7", {}),
        ({B0: None}, "b-0 is gone", {}),
        ({A0: None, A1: None, B0: None}, "a-0 is gone; a-1 is gone; b-0 is gone", {}),
    ],
)
def test_losses_fail_the_batch_or_are_passed_over(
    tmp_path: Path,
    change: dict[TopicPartition, tuple[int, int] | None],
    loss: str,
    after: dict[TopicPartition, tuple[int, int]],
) -> None:
    for fails in ("true", "false"):
        topics = Topics()
        stream = planner(topics, tmp_path / fails, failOnDataLoss=fails)
        read(stream, 0)
        kept = topics.bounds | change
        topics.bounds = {tp: bounds for tp, bounds in kept.items() if bounds is not None}
        if fails == "true":
            for _ in range(2):  # no plan is kept
                with pytest.raises(KafkaError, match=f"{loss}.*failOnDataLoss") as failed:
                    stream.ranges(1)
                assert failed.value.code == ErrorCode.OFFSET_OUT_OF_RANGE
        else:
            assert read(stream, 1) == after


def test_a_topic_that_is_created_again_is_read_from_its_beginning(tmp_path: Path) -> None:
    topics = Topics()
    stream = planner(topics, tmp_path, failOnDataLoss="false")
    read(stream, 0)
    del topics.bounds[B0]
    assert read(stream, 1) == {}
    topics.bounds[B0] = 0, 2
    assert read(stream, 2) == {B0: (0, 2)}


def test_a_loss_is_believed_only_when_it_lasts(tmp_path: Path) -> None:
    topics = Topics()
    stream = planner(topics, tmp_path, failOnDataLoss="false")
    read(stream, 0)
    whole, pauses = dict(topics.bounds), []

    def pause(seconds: float) -> None:
        pauses.append(seconds)
        topics.bounds = dict(whole)

    stream._pause = pause
    topics.bounds[A0] = 5, 24  # a new leader that does not know its high watermark yet
    assert read(stream, 1) == {}
    assert len(pauses) == 1


def test_limits_and_available_now(tmp_path: Path) -> None:
    topics = Topics()
    stream = planner(topics, tmp_path, maxOffsetsPerTrigger="11", minOffsetsPerTrigger="11", maxTriggerDelay="1h")
    assert read(stream, 0) == {A0: (5, 11), A1: (0, 3), B0: (0, 1)}
    until = stream.latest()
    stream.hold(until)
    topics.bounds |= {A0: (5, 1_000), TopicPartition("b", 1): (0, 50)}
    batch = 1
    while stream.is_before(until):
        read(stream, batch)
        batch += 1
    assert batch == 4
    assert stream.ends(batch - 1) == {A0: 25, A1: 9, B0: 4, TopicPartition("b", 1): 0}
    stream.hold(None)
    topics.bounds = {A0: (5, 26), A1: (0, 9), B0: (0, 4), TopicPartition("b", 1): (0, 0)}
    assert read(stream, batch) == {}, "one offset is less than minOffsetsPerTrigger"
    topics.bounds[A0] = 5, 45
    assert read(stream, batch + 1) == {A0: (25, 36)}


def test_a_stream_that_is_past_the_end_of_available_now_reads_nothing() -> None:
    assert plan_batch({A0: 9}, {A0: 20}, Limits(), waited_ms=0, until={A0: 5}).is_empty


@settings(max_examples=50)
@given(st.data())
def test_batches_read_every_offset_once_whatever_is_repeated(data: st.DataObject) -> None:
    """A naive model: offsets are numbers that are appended, and each must be in exactly one batch."""
    ends = {A0: 0, A1: 0}
    starts: dict[TopicPartition, int] = dict(ends)
    limits = Limits(data.draw(st.none() | st.integers(1, 20)))
    seen: dict[TopicPartition, list[int]] = {A0: [], A1: []}
    for _ in range(data.draw(st.integers(1, 8))):
        for tp in ends:
            ends[tp] += data.draw(st.integers(0, 15))
        plan = BatchPlan.of_json(plan_batch(starts, ends, limits, waited_ms=0).to_json())
        shares = plan.shares(data.draw(st.integers(1, 4)), data.draw(st.none() | st.integers(1, 9)))
        for each in (each for share in shares for each in share):
            seen[each.tp] += range(each.start_offset, each.end_offset)
        starts = dict(plan.ends)
    for tp, offsets in seen.items():
        assert sorted(offsets) == list(range(starts[tp]))
