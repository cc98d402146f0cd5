"""What a flow changes in its target follows from what is found in both clusters, by MirrorMaker 2's rules."""

from __future__ import annotations

import pytest

from raylog.client.admin.configs import ConfigEntry
from raylog.client.group_offsets import OffsetAndMetadata
from raylog.core.config import ConfigSource
from raylog.core.ids import TopicPartition
from raylog.mirror.config import FlowConfig, mirror_config
from raylog.mirror.formats import Checkpoint, OffsetSync
from raylog.mirror.offset_translation import OffsetSyncStore
from raylog.mirror.planning import (
    internal_topics,
    new_topic,
    plan_acls,
    plan_checkpoints,
    plan_configs,
    plan_group_offsets,
    plan_topics,
    remote_topics,
    translated,
    wanted_configs,
)
from raylog.mirror.schedule import RETRY_MS, Schedule
from raylog.security.acl import AclBinding, Operation, PatternType, Permission, ResourceType

TWO = {"clusters": "A, B", "A.bootstrap.servers": "a:1", "B.bootstrap.servers": "b:1", "A->B.enabled": "true"}
OWN, DYNAMIC, BROKER, DEFAULT = (
    ConfigSource.DYNAMIC_TOPIC_CONFIG,
    ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG,
    ConfigSource.STATIC_BROKER_CONFIG,
    ConfigSource.DEFAULT_CONFIG,
)
TP = TopicPartition("A.t", 0)


def flow(**changes: str) -> FlowConfig:
    return mirror_config({**TWO, **{name.replace("_", "."): text for name, text in changes.items()}}).pairs[0]


def entries(**values: tuple[str | None, ConfigSource]) -> dict[str, ConfigEntry]:
    return {
        name.replace("_", "."): ConfigEntry(name.replace("_", "."), value, source)
        for name, (value, source) in values.items()
    }


def test_internal_topics_are_those_that_the_flow_uses() -> None:
    in_source, in_target = internal_topics(flow())
    assert [topic.name for topic in in_source] == ["mm2-offset-syncs.B.internal"]
    assert [topic.name for topic in in_target] == ["heartbeats", "A.checkpoints.internal"]
    assert {(topic.num_partitions, topic.replication_factor) for topic in in_source + in_target} == {(1, 3)}
    assert all(topic.configs == {"cleanup.policy": "compact"} for topic in in_source + in_target)
    located = mirror_config({**TWO, "offset-syncs.topic.location": "target"}).pairs[0]
    assert [topic.name for topic in internal_topics(located)[1]][2:] == ["mm2-offset-syncs.A.internal"]
    reverse = mirror_config(TWO).pairs[1]
    assert [[topic.name for topic in topics] for topics in internal_topics(reverse)] == [[], ["heartbeats"]]


def test_topics_that_are_missing_or_too_small_are_found() -> None:
    remotes, problems = remote_topics(flow(), ["t", "u", "v", "B.x", "__y", "x" * 249])
    assert remotes == {"t": "A.t", "u": "A.u", "v": "A.v"}
    assert ["251 characters" in str(problem) for problem in problems] == [True]
    plan = plan_topics(remotes, {"t": 3, "u": 3, "v": 3}, {"A.t": 2, "A.u": 5, "t": 9})
    assert (plan.missing, plan.growing) == ({"v": 3}, {"A.t": 3})


def test_two_topics_never_share_a_copy() -> None:
    (found,) = mirror_config(TWO, rename=lambda source, topic: topic.lower()).flows
    remotes, problems = remote_topics(found, ["t", "T"])
    assert remotes == {"T": "t"}
    assert str(problems[0]) == "topic t: not copied: t is already the copy of T"


def test_a_new_topic_has_its_source_s_own_configuration() -> None:
    found = entries(
        retention_ms=("5", OWN),
        segment_bytes=("7", BROKER),
        segment_ms=("8", DYNAMIC),
        flush_ms=("9", DEFAULT),
        message_timestamp_type=("LogAppendTime", OWN),
        min_insync_replicas=("2", OWN),
        strange_key=("1", OWN),
    )
    topic = new_topic(flow(), "A.t", 4, found, {"retention.ms", "segment.bytes", "segment.ms", "flush.ms"})
    assert topic.configs == {"retention.ms": "5", "segment.ms": "8"}
    assert (topic.num_partitions, topic.replication_factor) == (4, 2)
    assert "strange.key" in (new_topic(flow(), "A.t", 4, found, None).configs or {})


def test_configurations_follow_and_go_back_to_the_target_s_defaults() -> None:
    source = entries(retention_ms=("5", OWN), segment_bytes=("7", DEFAULT), flush_ms=("9", DEFAULT), x=("1", OWN))
    found = entries(retention_ms=("6", OWN), segment_bytes=("8", OWN), flush_ms=("1", DEFAULT))
    changes, unknown = plan_configs(wanted_configs(flow(), source), found)
    assert (changes, unknown) == ({"retention.ms": "5", "segment.bytes": None}, ["x"])
    from_source = wanted_configs(flow(use_defaults_from="source"), source)
    assert plan_configs(from_source, found)[0] == {"retention.ms": "5", "segment.bytes": "7", "flush.ms": "9"}
    assert plan_configs(wanted_configs(flow(), entries(retention_ms=("6", OWN))), found) == ({}, [])
    of_broker = entries(segment_bytes=("7", BROKER), flush_ms=("9", BROKER))
    assert plan_configs(wanted_configs(flow(), of_broker), found) == ({"segment.bytes": None}, [])
    assert wanted_configs(flow(use_defaults_from="source"), of_broker) == {"segment.bytes": "7", "flush.ms": "9"}


def test_secrets_and_read_only_keys_are_left_out() -> None:
    secret = {"a": ConfigEntry("a", None, OWN, is_sensitive=True), "b": ConfigEntry("b", "1", OWN, is_read_only=True)}
    assert wanted_configs(flow(), secret) == {}


def acl(
    name: str,
    operation: Operation = Operation.READ,
    permission: Permission = Permission.ALLOW,
    pattern: PatternType = PatternType.LITERAL,
    resource: ResourceType = ResourceType.TOPIC,
) -> AclBinding:
    return AclBinding(resource, name, pattern, "User:alice", "*", operation, permission)


def test_acls_are_copied_without_the_right_to_write() -> None:
    source = [
        acl("t"),
        acl("t", Operation.DESCRIBE),
        acl("t", Operation.WRITE),
        acl("t", Operation.WRITE, Permission.DENY),
        acl("t", Operation.ALL),
        acl("t", Operation.ALL, Permission.DENY),
        acl("t", pattern=PatternType.PREFIXED),
        acl("*"),
        acl("other"),
        acl("t", resource=ResourceType.GROUP),
    ]
    assert plan_acls(flow(), {"t": "A.t"}, source, [acl("A.t", Operation.DESCRIBE), acl("A.t", Operation.ALTER)]) == [
        acl("A.t"),
        acl("A.t", Operation.WRITE, Permission.DENY),
        acl("A.t", Operation.ALL, Permission.DENY),
    ]


def checkpoint(upstream: int, downstream: int) -> Checkpoint:
    return Checkpoint("g", TP, upstream, downstream, "m")


def test_a_group_s_offsets_are_translated_where_its_topic_is_copied() -> None:
    syncs = OffsetSyncStore()
    syncs.loaded()
    for partition in (0, 1, 2):
        syncs.add(OffsetSync(TopicPartition("t", partition), 10, 100))
    committed = {
        TopicPartition("t", 0): OffsetAndMetadata(15, "m"),
        TopicPartition("t", 1): OffsetAndMetadata(9),
        TopicPartition("t", 2): None,
        TopicPartition("u", 0): OffsetAndMetadata(15),
    }
    assert translated("g", {"t": "A.t"}, committed, syncs) == {TP: checkpoint(15, 101)}


@pytest.mark.parametrize(
    ("last", "end", "is_written"),
    [
        (None, 200, True),
        (checkpoint(14, 100), 200, True),
        (checkpoint(15, 101), 200, False),
        (checkpoint(14, 102), 200, False),  # the target never goes back
        (checkpoint(20, 102), 200, True),  # but for a group that was reset in the source
        (None, 101, True),
        (None, 100, False),  # beyond what was copied
        (None, None, False),
    ],
)
def test_a_checkpoint_is_written_when_a_group_moved_on(
    last: Checkpoint | None, end: int | None, is_written: bool
) -> None:
    ends = {} if end is None else {TP: end}
    chosen, problems = plan_checkpoints({TP: checkpoint(15, 101)}, {} if last is None else {TP: last}, ends)
    assert chosen == ([checkpoint(15, 101)] if is_written else [])
    assert [problem.subject for problem in problems] == (["group g, A.t-0"] if end in (100, None) else [])


@pytest.mark.parametrize(
    ("state", "committed", "end", "is_committed"),
    [
        (None, None, 200, True),
        ("Empty", None, 200, True),
        ("Empty", 100, 200, True),
        ("Empty", 101, 200, False),
        ("Empty", 150, 200, False),
        (None, 150, 200, False),
        ("Stable", None, 200, False),
        ("PreparingRebalance", None, 200, False),
        ("Empty", None, 100, False),
        ("Empty", None, None, False),
    ],
)
def test_offsets_are_committed_forward_for_groups_without_members(
    state: str | None, committed: int | None, end: int | None, is_committed: bool
) -> None:
    present = {TP: None if committed is None else OffsetAndMetadata(committed)}
    wanted = plan_group_offsets({TP: checkpoint(15, 101)}, state, present, {} if end is None else {TP: end})
    assert wanted == ({TP: OffsetAndMetadata(101, "m")} if is_committed else {})


def test_tasks_are_due_at_once_then_by_their_intervals_and_sooner_after_a_failure() -> None:
    schedule = Schedule({"once": None, "often": 1_000, "seldom": 600_000}, 0)
    assert all(schedule.is_due(name, 0) for name in ("once", "often", "seldom"))
    assert not schedule.is_due("unknown", 0)
    for name in ("once", "often", "seldom"):
        schedule.ran(name, 0, failed=False)
    assert (schedule.is_due("once", 10**9), schedule.is_due("often", 999), schedule.is_due("often", 1_000)) == (
        False,
        False,
        True,
    )
    schedule.ran("seldom", 600_000, failed=True)
    schedule.ran("often", 600_000, failed=True)
    schedule.ran("once", 600_000, failed=True)
    assert schedule.is_due("seldom", 600_000 + RETRY_MS)
    assert schedule.is_due("once", 600_000 + RETRY_MS)
    assert schedule.next_ms() == 601_000
