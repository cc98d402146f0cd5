"""What a topology needs: tasks and internal topics follow from its sources, and what cannot work is refused."""

from __future__ import annotations

import pytest

from raylog.core.errors import ErrorCode, KafkaError
from raylog.groupcoord.streams.configured import TASKS_MAX, Configured, StatusCode, configure
from raylog.groupcoord.streams.topology import TOPOLOGY_ITEMS_MAX, check_names, check_topology
from raylog.protocol.messages.streams_group_heartbeat import (
    CopartitionGroup,
    KeyValue,
    Subtopology,
    TopicInfo,
    Topology,
)
from tests.groupcoord.consumer_coordinator import FakeTopics
from tests.groupcoord.streams_coordinator import COUNT, subtopology, topology


def configured(which: Topology, **topics: int) -> Configured:
    fake = FakeTopics()
    for name, count in topics.items():
        fake.create(name.replace("_", "-"), count)
    check_topology(which)
    return configure(which, fake)


def counts(found: Configured) -> dict[str, int]:
    return {topic.name: topic.partitions for topic in found.missing}


def status(found: Configured) -> tuple[StatusCode, str]:
    assert found.status is not None
    return found.status.code, found.status.detail


def refusal(which: Topology, **topics: int) -> tuple[ErrorCode, str]:
    with pytest.raises(KafkaError) as raised:
        configured(which, **topics)
    return raised.value.code, raised.value.message


def invalid(which: Topology, **topics: int) -> str:
    code, message = refusal(which, **topics)
    assert code == ErrorCode.STREAMS_INVALID_TOPOLOGY
    return message


class TestCounts:
    def test_internal_topics_follow_from_the_sources(self) -> None:
        found = configured(COUNT, words=4)
        assert status(found) == (StatusCode.MISSING_INTERNAL_TOPICS, "Internal topics are missing: counts, mid")
        assert counts(found) == {"mid": 4, "counts": 4}
        assert found.task_counts == {"0": 4, "1": 4}
        assert found.stateful == {"1"}
        assert not found.is_ready

    def test_it_is_ready_once_they_exist(self) -> None:
        found = configured(COUNT, words=4, mid=4, counts=4)
        assert found.is_ready
        assert (found.missing, found.partition_counts) == ((), {"mid": 4, "counts": 4})

    def test_chains_of_repartition_topics_in_any_order(self) -> None:
        chain = topology(
            subtopology("a", reads=["third"], stores=["log"]),
            subtopology("b", reads=["second"], writes=["third"]),
            subtopology("c", reads=["first"], writes=["second"]),
            subtopology("d", "in", writes=["first"]),
        )
        assert counts(configured(chain, **{"in": 7})) == {"first": 7, "second": 7, "third": 7, "log": 7}

    def test_the_largest_source_counts(self) -> None:
        which = topology(
            subtopology("0", "small", writes=["wide"]),
            subtopology("1", "large", writes=["mid"]),
            subtopology("2", "small", reads=["mid"], writes=["out"]),
            subtopology("3", reads=["out", "wide"]),
        )
        found = configured(which, small=2, large=9)
        assert counts(found) == {"wide": 2, "mid": 9, "out": 9}
        assert found.task_counts == {"0": 2, "1": 9, "2": 9, "3": 9}

    def test_a_subtopology_waits_for_all_its_sources(self) -> None:
        which = topology(
            subtopology("0", "small", writes=["a"]),
            subtopology("1", reads=["a", "b"], writes=["out"]),
            subtopology("2", "large", writes=["b"]),
            subtopology("3", reads=["out"]),
        )
        assert counts(configured(which, small=2, large=9)) == {"a": 2, "b": 9, "out": 9}

    def test_a_given_number(self) -> None:
        which = topology(
            subtopology("0", "in", writes=["mid"]), subtopology("1", reads=[TopicInfo(name="mid", partitions=3)])
        )
        assert counts(configured(which, **{"in": 5})) == {"mid": 3}

    def test_a_loop_with_a_source_of_its_own(self) -> None:
        which = topology(
            subtopology("0", "in", reads=["back"], writes=["forth"]), subtopology("1", reads=["forth"], writes=["back"])
        )
        assert counts(configured(which, **{"in": 3})) == {"back": 3, "forth": 3}

    def test_configuration_and_replication_factor_are_kept(self) -> None:
        changelog = TopicInfo(
            name="log", replication_factor=3, topic_configs=(KeyValue(key="cleanup.policy", value="compact"),)
        )
        which = topology(Subtopology(subtopology_id="0", source_topics=("in",), state_changelog_topics=(changelog,)))
        (missing,) = configured(which, **{"in": 2}).missing
        assert (missing.partitions, missing.replication_factor) == (2, 3)
        assert missing.topic_configs == changelog.topic_configs

    def test_the_hash_depends_on_the_topics(self) -> None:
        few, more = configured(COUNT, words=2, mid=2, counts=2), configured(COUNT, words=3, mid=3, counts=3)
        assert len({few.metadata_hash, more.metadata_hash, 0}) == 3

    def test_no_subtopologies(self) -> None:
        assert configured(topology()).is_ready


class TestCopartitioning:
    def test_a_repartition_topic_follows_the_others(self) -> None:
        which = topology(
            subtopology("0", "wide", writes=["mid"]), subtopology("1", "in", reads=["mid"], together=[([0], [0])])
        )
        assert counts(configured(which, **{"in": 2, "wide": 8})) == {"mid": 2}

    def test_repartition_topics_take_the_largest_number(self) -> None:
        which = topology(
            subtopology("0", "small", writes=["a"]),
            subtopology("1", "large", writes=["b"]),
            subtopology("2", reads=["a", "b"], together=[([], [0, 1])]),
        )
        assert counts(configured(which, small=2, large=6)) == {"a": 6, "b": 6}

    def test_a_given_number_comes_first(self) -> None:
        which = topology(
            subtopology("0", "large", writes=["a", "b"]),
            subtopology("1", reads=["a", TopicInfo(name="b", partitions=3)], together=[([], [0, 1])]),
        )
        assert counts(configured(which, large=6)) == {"a": 3, "b": 3}

    @pytest.mark.parametrize(
        ("which", "detail"),
        [
            (
                topology(subtopology("0", "small", "large", together=[([0, 1], [])])),
                "Following topics do not have the same number of partitions: [large=6, small=2]",
            ),
            (
                topology(
                    subtopology("0", "small", writes=["a"]),
                    subtopology("1", "large", reads=[TopicInfo(name="a", partitions=3)], together=[([0], [0])]),
                ),
                (
                    "Number of partitions [3] of repartition topic [a] doesn't match number of partitions [6] of the"
                    " source topic."
                ),
            ),
            (
                topology(
                    subtopology("0", "small", writes=["a", "b"]),
                    subtopology(
                        "1",
                        reads=[TopicInfo(name="a", partitions=3), TopicInfo(name="b", partitions=4)],
                        together=[([], [0, 1])],
                    ),
                ),
                "Following topics do not have the same number of partitions: [a=3, b=4]",
            ),
        ],
    )
    def test_topics_that_do_not_fit(self, which: Topology, detail: str) -> None:
        found = configured(which, small=2, large=6)
        assert status(found) == (StatusCode.INCORRECTLY_PARTITIONED_TOPICS, detail)
        assert (found.task_counts, found.missing) == ({}, ())

    def test_a_topic_that_exists_with_another_number(self) -> None:
        assert status(configured(COUNT, words=4, counts=3)) == (
            StatusCode.INCORRECTLY_PARTITIONED_TOPICS,
            "Existing topic counts has different number of partitions: expected 4, found 3",
        )

    def test_missing_sources(self) -> None:
        which = topology(*(subtopology(str(number), f"in{number}") for number in range(5)))
        assert status(configured(which, in3=1)) == (
            StatusCode.MISSING_SOURCE_TOPICS,
            "Source topics in0, in1, in2 and 1 additional topics are missing.",
        )


class TestRefusals:
    @pytest.mark.parametrize(
        ("which", "words"),
        [
            (topology(subtopology("0", "in", writes=["__consumer_offsets"])), "internal topics __consumer_offsets"),
            (topology(subtopology("0", "in", stores=["a/b"])), "Topic names a/b are not valid"),
            (topology(subtopology("0", "x" * 250)), "are not valid topic names"),
            (topology(subtopology("0", "")), "are not valid topic names"),
            (topology(subtopology("0", "in"), epoch=-1), "must not be negative"),
            (topology(subtopology("0", "in"), subtopology("0", "in")), "Subtopology 0 appears twice"),
            (topology(subtopology("0", writes=["mid"])), "No source topics found for subtopology 0"),
            (topology(subtopology("0", "in", together=[([1], [])])), "copartition group"),
            (topology(subtopology("0", "in", together=[([-1], [])])), "copartition group"),
            (topology(subtopology("0", "in", together=[([], [0])])), "copartition group"),
            (topology(subtopology("0", reads=[TopicInfo(name="mid", partitions=-1)])), "has -1 partitions"),
            (topology(subtopology("0", reads=["mid"])), "never used as a sink topic"),
            (
                topology(subtopology("0", reads=["a"], writes=["b"]), subtopology("1", reads=["b"], writes=["a"])),
                "loops in the topology",
            ),
        ],
    )
    def test_invalid_topologies(self, which: Topology, words: str) -> None:
        assert words in invalid(which, **{"in": 1})

    def test_changelogs_have_no_given_number(self) -> None:
        log = TopicInfo(name="log", partitions=2)
        which = topology(Subtopology(subtopology_id="0", source_topics=("in",), state_changelog_topics=(log,)))
        assert "must have an undefined partition count" in invalid(which)

    def test_regular_expressions(self) -> None:
        which = topology(Subtopology(subtopology_id="0", source_topic_regex=("a" * 1_000_000,)))
        assert refusal(which)[0] == ErrorCode.INVALID_REQUEST
        group = CopartitionGroup(source_topic_regex=(0,))
        which = topology(Subtopology(subtopology_id="0", source_topics=("in",), copartition_groups=(group,)))
        assert "copartition group" in invalid(which)

    def test_too_many_tasks(self) -> None:
        which = topology(subtopology("0", "in"), subtopology("1", "in"))
        assert "tasks, but may have" in invalid(which, **{"in": TASKS_MAX // 2 + 1})
        assert configured(which, **{"in": TASKS_MAX // 2}).is_ready


class TestSize:
    def test_a_topology_of_ten_thousand_subtopologies_is_refused_by_its_size(self) -> None:
        many = tuple(subtopology(str(number), f"in{number}", stores=[f"log{number}"]) for number in range(10_000))
        assert "The topology has 30000 parts" in invalid(topology(*many))

    def test_the_largest_chain_and_the_largest_loop(self) -> None:
        """Each step of a chain that is sent backwards would take a pass over all of it."""
        size = TOPOLOGY_ITEMS_MAX // 3 - 1
        chain = [
            subtopology(f"{size - number:05}", reads=[f"t{number}"], writes=[f"t{number + 1}"])
            for number in range(size)
        ]
        fed = topology(*chain, subtopology("99999", "in", writes=["t0"]))
        assert len(counts(configured(fed, **{"in": 2}))) == size
        loop = topology(*chain[:-1], subtopology("x", reads=[f"t{size - 1}"], writes=["t0"]))
        assert "loops" in invalid(loop)

    def test_names_in_errors_are_cut(self) -> None:
        which = topology(subtopology("0", *(f"{number}/" + "x" * 100_000 for number in range(10))))
        with pytest.raises(KafkaError) as raised:
            check_names(which)
        assert len(raised.value.message) < 1000
