"""One topic without an id costs no other topic its offsets, and a retry never overwrites a later commit."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any
from uuid import UUID

import pytest

from raylog.client.consumer.assignors import ASSIGNORS
from raylog.client.consumer.core import ConsumerCore
from raylog.client.group_offsets import OffsetAndMetadata
from raylog.config.consumer import CONSUMER_CONFIG, consumer_settings
from raylog.core.clock import Now
from raylog.core.config import Configs, ConfigSource, Layer
from raylog.core.errors import ErrorCode
from raylog.core.ids import TopicPartition
from raylog.protocol.messages.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from raylog.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from raylog.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)

A, B = TopicPartition("a", 0), TopicPartition("b", 0)
IDS = {"a": UUID(int=1), "b": UUID(int=2)}
LATEST = 10
INTERVAL_MS = 5_000
Codes = Mapping[str, ErrorCode]


class Bench:
    """A consumer of a-0 and b-0, by `assign`, whose requests for offsets are answered by the test."""

    def __init__(self, **settings: str) -> None:
        given = {"group.id": "g", "enable.auto.commit": "false", **settings}
        layer = Layer(ConfigSource.STATIC_BROKER_CONFIG, CONSUMER_CONFIG.parse(given))
        self.core = ConsumerCore(
            "h:1",
            consumer_settings(Configs(CONSUMER_CONFIG, [layer])),
            random.Random(1),
            assignors=list(ASSIGNORS.values()),
        )
        self.ms = 1000
        self.sent: list[tuple[Any, int, Any]] = []
        """Of each commit in flight: the request, its version, and what to call with the response."""
        self.fetching: list[tuple[Any, int, Any]] = []
        """The same of requests for committed offsets."""
        network: Any = self.core.network
        network.ask = self._ask
        coordinators: Any = self.core._coordinators
        coordinators.node_id = lambda *_: 1
        self.core.assign([A, B])
        self.core.run(self.now)
        self.shows({})

    @property
    def now(self) -> Now:
        return Now(self.ms, 0)

    def _ask(self, _: int, request: Any, answered: Any, failed: Any, now: Now, **how: Any) -> None:
        built = request(lambda _: LATEST) if callable(request) else request
        sent = built, min(LATEST, how.get("version_max") or LATEST), answered
        if isinstance(built, OffsetCommitRequest):
            self.sent.append(sent)
        elif isinstance(built, OffsetFetchRequest):
            self.fetching.append(sent)

    def shows(self, codes: Codes) -> None:
        """A metadata response: topics with an error have no id."""
        topics = [
            MetadataResponseTopic(error_code=codes[name], name=name)
            if name in codes
            else MetadataResponseTopic(
                name=name, topic_id=topic_id, partitions=(MetadataResponsePartition(leader_id=1, leader_epoch=0),)
            )
            for name, topic_id in IDS.items()
        ]
        broker = MetadataResponseBroker(node_id=1, host="h", port=1)
        response = MetadataResponse(brokers=(broker,), topics=tuple(topics))
        self.core.network.metadata.answered(response, self.now)

    def pass_time(self, ms: int) -> None:
        self.ms += ms
        self.core.run(self.now)

    def seek(self, offset: int) -> None:
        for tp in (A, B):
            self.core.subscription.state(tp).seek(offset)

    def commit(self, offset: int) -> Any:
        return self.core.commit({A: OffsetAndMetadata(offset)}, self.now, 60_000, retries=True)

    def poll(self) -> None:
        self.core.begin_poll(self.now)
        self.core.end_poll(self.now)

    def committing(self) -> list[dict[str, int]]:
        """The offsets by topic, in each commit in flight."""
        names = {topic_id: name for name, topic_id in IDS.items()}
        return [
            {
                (names[topic.topic_id] if version >= 10 else topic.name): topic.partitions[0].committed_offset
                for topic in request.topics
            }
            for request, version, _ in self.sent
        ]

    def answer_commit(self, codes: Codes) -> None:
        """To the first request in flight."""
        request, version, answered = self.sent.pop(0)
        topics = tuple(
            OffsetCommitResponseTopic(
                name="" if version >= 10 else topic.name,
                topic_id=topic.topic_id,
                partitions=(
                    OffsetCommitResponsePartition(partition_index=0, error_code=codes.get(topic.name, ErrorCode.NONE)),
                ),
            )
            for topic in request.topics
        )
        answered(OffsetCommitResponse(topics=topics), self.now)
        self.core.run(self.now)


LOST = [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.TOPIC_AUTHORIZATION_FAILED]


def test_offsets_are_committed_by_topic_id() -> None:
    bench = Bench()
    bench.seek(5)
    commit = bench.core.commit(None, bench.now, 60_000, retries=True)
    ((request, version, _),) = bench.sent
    assert (version, [topic.topic_id for topic in request.topics]) == (10, list(IDS.values()))
    bench.core.network.metadata.topics.clear()  # the ids of the request are those of its response
    bench.answer_commit({})
    assert (commit.done, commit.error) == (True, None)


@pytest.mark.parametrize("code", LOST)
def test_a_topic_without_an_id_does_not_stop_the_commit_of_another(code: ErrorCode) -> None:
    bench = Bench()
    bench.seek(5)
    bench.shows({"b": code})
    commit = bench.core.commit(None, bench.now, 60_000, retries=True)
    assert bench.committing() == [{"a": 5, "b": 5}]
    bench.answer_commit({"b": code})
    assert commit.error is not None
    assert (commit.error.code, commit.done) == (code, not code.retriable)
    assert "b-0" in commit.error.message
    assert "a-0" not in commit.error.message


def test_a_topic_id_that_the_broker_does_not_know_is_asked_for_again() -> None:
    bench = Bench()
    bench.seek(5)
    commit = bench.core.commit(None, bench.now, 60_000, retries=True)
    bench.answer_commit({"b": ErrorCode.UNKNOWN_TOPIC_ID})
    assert bench.core.network.metadata._stale
    bench.shows({"b": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION})
    bench.pass_time(1000)
    ((_, version, _),) = bench.sent
    assert version == 9
    bench.answer_commit({})
    assert (commit.done, commit.error) == (True, None)


@pytest.mark.parametrize("code", LOST)
def test_the_error_of_one_topic_does_not_hide_one_that_can_be_retried(code: ErrorCode) -> None:
    bench = Bench(**{"enable.auto.commit": "true"})
    bench.seek(5)
    commit = bench.core.commit_positions(bench.now, 60_000)
    assert commit is not None
    bench.answer_commit({"a": code, "b": ErrorCode.COORDINATOR_LOAD_IN_PROGRESS})
    assert not commit.done
    bench.pass_time(1000)
    bench.answer_commit({"a": code})
    assert commit.done
    assert commit.error is not None
    assert commit.error.code is code


@pytest.mark.parametrize("code", LOST)
def test_a_topic_without_an_id_does_not_keep_another_from_its_position(code: ErrorCode) -> None:
    bench = Bench()
    bench.seek(5)
    bench.fetching.clear()
    bench.shows({"b": code})
    fetch = bench.core.committed([A, B], bench.now, 60_000)
    bench.core.run(bench.now)
    ((request, version, answered),) = bench.fetching
    assert (version, [topic.name for topic in request.groups[0].topics]) == (9, ["a", "b"])
    topics = tuple(
        OffsetFetchResponseTopics(
            name=name, partitions=(OffsetFetchResponsePartitions(partition_index=0, committed_offset=offset),)
        )
        for name, offset in (("a", 7), ("b", -1))
    )
    answered(OffsetFetchResponse(groups=(OffsetFetchResponseGroup(group_id="g", topics=topics),)), bench.now)
    assert (fetch.done, fetch.error, fetch.result) == (True, None, {A: OffsetAndMetadata(7)})


def test_a_deleted_topic_does_not_delay_the_commit_before_a_rebalance() -> None:
    bench = Bench(**{"enable.auto.commit": "true"})
    bench.seek(5)
    bench.shows({"b": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION})
    revoked = [A, B]
    assert not bench.core._commit_before_revocation(revoked, bench.now)
    bench.answer_commit({"b": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION})
    assert bench.core._commit_before_revocation(revoked, bench.now)
    bench.pass_time(1000)
    assert not bench.sent


def test_a_retry_does_not_overwrite_a_later_commit() -> None:
    bench = Bench(**{"enable.auto.commit": "true"})
    bench.seek(100)
    bench.poll()
    bench.pass_time(INTERVAL_MS)
    bench.poll()
    assert bench.committing() == [{"a": 100, "b": 100}]
    bench.answer_commit(dict.fromkeys(IDS, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS))
    later = bench.commit(200)
    bench.answer_commit({})
    assert (later.done, later.error) == (True, None)
    bench.pass_time(1000)
    assert bench.committing() == [{"b": 100}]


def test_a_commit_that_later_ones_replace_is_not_retried() -> None:
    bench = Bench()
    first = bench.commit(100)
    bench.answer_commit({"a": ErrorCode.COORDINATOR_LOAD_IN_PROGRESS})
    bench.commit(200)
    bench.answer_commit({"a": ErrorCode.COORDINATOR_LOAD_IN_PROGRESS})
    bench.pass_time(1000)
    assert bench.committing() == [{"a": 200}]
    assert (first.done, first.error) == (True, None)


def test_automatic_commits_are_retried_with_the_newest_positions() -> None:
    bench = Bench(**{"enable.auto.commit": "true"})
    bench.seek(100)
    bench.poll()
    bench.pass_time(INTERVAL_MS)
    bench.poll()
    bench.answer_commit(dict.fromkeys(IDS, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS))
    bench.seek(200)
    bench.ms += INTERVAL_MS
    bench.poll()
    assert bench.committing() == [{"a": 200, "b": 200}]
