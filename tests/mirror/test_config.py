"""mm2.properties is read as MirrorMaker 2 reads it; what has no counterpart is reported, and what is wrong is named."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raylog.config.properties import format_properties
from raylog.core.errors import ConfigError
from raylog.core.password import Password
from raylog.mirror.config import CLUSTERS_MAX, FlowConfig, MirrorConfig, mirror_config, parse_mirror_config
from raylog.mirror.config_keys import FLOW_KEYS
from raylog.mirror.policies import IdentityPolicy, RenamingPolicy, ReplicationPolicy

TWO = {"clusters": "A, B", "A.bootstrap.servers": "a:9092", "B.bootstrap.servers": "b:9092", "A->B.enabled": "true"}

OF_KAFKA = """
# two clusters, as in Kafka's own example
clusters = A, B
A.bootstrap.servers = A_host1:9092, A_host2:9092
B.bootstrap.servers = B_host1:9092
A->B.enabled = true
A->B.topics = .*
B->A.enabled = true
B->A.topics = orders.*, items
replication.factor=1
checkpoints.topic.replication.factor=1
heartbeats.topic.replication.factor=1
offset-syncs.topic.replication.factor=1
offset.storage.replication.factor=1
status.storage.replication.factor=1
config.storage.replication.factor=1
sync.topic.acls.enabled = false
emit.heartbeats.interval.seconds = 5
"""


def read(**changes: str) -> MirrorConfig:
    return mirror_config({**TWO, **changes})


def with_entries(entries: dict[str, str]) -> MirrorConfig:
    return mirror_config({**TWO, **entries})


def flow(entries: dict[str, str] | None = None) -> FlowConfig:
    (found,) = with_entries(entries or {}).flows
    return found


def test_a_file_as_kafka_s_example_is_read_as_it_is() -> None:
    config = parse_mirror_config(OF_KAFKA)
    assert [pair.name for pair in config.flows] == ["A->B", "B->A"]
    there, back = config.flows
    assert there.source.bootstrap_servers == "A_host1:9092, A_host2:9092"
    assert there.replication_factor == there.checkpoints_replication_factor == 1
    assert there.emit_heartbeats_ms == 5_000
    assert there.sync_topic_acls_ms is None
    assert there.copies_topic("anything")
    assert [topic for topic in ("orders-1", "items", "items2") if back.copies_topic(topic)] == ["orders-1", "items"]
    assert sorted(note.key for note in config.notes) == [
        "config.storage.replication.factor",
        "offset.storage.replication.factor",
        "status.storage.replication.factor",
    ]


def test_defaults_are_those_of_mirror_maker() -> None:
    found = flow()
    assert (found.replication_factor, found.checkpoints_replication_factor, found.offset_lag_max) == (2, 3, 100)
    assert (found.refresh_topics_ms, found.refresh_groups_ms, found.emit_checkpoints_ms) == (600_000, 600_000, 60_000)
    assert (found.sync_topic_configs_ms, found.sync_topic_acls_ms) == (600_000, 600_000)
    assert found.sync_group_offsets_ms is None
    assert (found.emit_heartbeats_ms, found.tasks_max, found.exactly_once) == (1_000, 1, False)
    assert found.offset_syncs_in_source
    assert (found.offset_syncs_topic, found.checkpoints_topic) == (
        "mm2-offset-syncs.B.internal",
        "A.checkpoints.internal",
    )
    assert [
        key
        for key in ("message.timestamp.type", "min.insync.replicas", "retention.ms")
        if key in found.excluded_configs
    ] == ["message.timestamp.type", "min.insync.replicas"]
    assert [group for group in ("connect-a", "console-consumer-1", "__x", "billing") if group in found.groups] == [
        "billing"
    ]


def test_a_flow_s_key_goes_before_that_of_all_flows() -> None:
    entries = {"tasks.max": "3", "A->B.tasks.max": "5", "B->A.enabled": "true"}
    assert [found.tasks_max for found in with_entries(entries).flows] == [5, 3]


def test_the_reverse_of_a_flow_only_writes_heartbeats() -> None:
    assert [(pair.name, pair.enabled) for pair in read().pairs] == [("A->B", True), ("B->A", False)]
    assert [pair.name for pair in with_entries({"emit.heartbeats.enabled": "false"}).pairs] == ["A->B"]


@pytest.mark.parametrize(
    ("entries", "expected"),
    [
        ({}, False),
        ({"B.exactly.once.source.support": "enabled"}, True),
        ({"A.exactly.once.source.support": "enabled"}, False),
        ({"exactly.once.source.support": "enabled"}, True),
        ({"exactly.once.source.support": "enabled", "A->B.exactly.once.source.support": "disabled"}, False),
        ({"B.exactly.once.source.support": "preparing"}, False),
    ],
)
def test_exactly_once_is_set_for_a_target(entries: dict[str, str], expected: bool) -> None:
    assert flow(entries).exactly_once is expected


@pytest.mark.parametrize(
    "entries",
    [
        {"consumer.fetch.min.bytes": "7"},
        {"consumer.fetch.min.bytes": "1", "A->B.consumer.fetch.min.bytes": "7"},
        {"A->B.consumer.fetch.min.bytes": "1", "A.consumer.fetch.min.bytes": "7"},
        {"A.consumer.fetch.min.bytes": "1", "A->B.source.consumer.fetch.min.bytes": "7"},
    ],
)
def test_of_a_client_s_keys_the_most_specific_one_counts(entries: dict[str, str]) -> None:
    found = flow(entries)
    assert found.source.consumer["fetch.min.bytes"] == "7"
    assert "fetch.min.bytes" not in found.source.producer


def test_a_cluster_s_security_is_that_of_all_its_clients_and_passwords_are_never_shown() -> None:
    jaas = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="u" password="geheim";'
    entries = {"B.security.protocol": "SASL_PLAINTEXT", "B.sasl.mechanism": "PLAIN", "B.sasl.jaas.config": jaas}
    found = flow(entries)
    for properties in (found.target.consumer, found.target.producer, found.target.admin):
        assert properties["security.protocol"] == "SASL_PLAINTEXT"
        assert properties["sasl.jaas.config"] == Password(jaas)
    assert "security.protocol" not in found.source.admin
    assert "geheim" not in repr(with_entries(entries))


def test_the_source_is_read_from_its_beginning() -> None:
    assert flow().source.consumer["auto.offset.reset"] == "earliest"
    assert flow({"A.consumer.auto.offset.reset": "latest"}).source.consumer["auto.offset.reset"] == "latest"


@pytest.mark.parametrize(
    ("key", "reason"),
    [
        ("offset.storage.topic", "Connect"),
        ("A.offset.storage.topic", "Connect"),
        ("dedicated.mode.enable.internal.rest", "Connect"),
        ("topics.blacklist", "topics.exclude"),
        ("A->B.topics.blacklist", "topics.exclude"),
        ("no.such.key", "unknown"),
        ("A->B.no.such.key", "unknown"),
        ("C.bootstrap.servers", "unknown"),
        ("A.replication.factor", "not used here"),
        ("enabled", "not used here"),
        ("A.consumer.no.such.key", "not a key of raylog's consumer"),
        ("A.sasl.login.connect.timeout.ms", "of the Java client"),
    ],
)
def test_keys_without_effect_are_reported(key: str, reason: str) -> None:
    (note,) = with_entries({key: "1"}).notes
    assert note.key == key
    assert reason in note.reason


@pytest.mark.parametrize("flow", ["", "A->B."])
@pytest.mark.parametrize("key", ["admin.timeout.ms", "consumer.poll.timeout.ms"])
def test_a_flow_s_key_that_begins_as_those_of_clients_is_not_reported(flow: str, key: str) -> None:
    config = mirror_config({**TWO, f"{flow}{key}": "7"})
    assert not config.notes
    assert 7 in (config.flows[0].admin_timeout_ms, config.flows[0].consumer_poll_timeout_ms)


def test_a_file_without_flows_is_reported() -> None:
    (note,) = with_entries({"A->B.enabled": "false"}).notes
    assert "no flow is enabled" in str(note)


@pytest.mark.parametrize(
    ("entries", "words"),
    [
        ({"clusters": ""}, ["clusters: must be set"]),
        ({"clusters": "A, A"}, ["clusters='A'", "once"]),
        ({"clusters": "A, B B"}, ["clusters='B B'"]),
        ({"clusters": ",".join(f"c{n}" for n in range(CLUSTERS_MAX + 1))}, ["51 aliases"]),
        ({"clusters": "A, B, C.D", "C.D.bootstrap.servers": "c:1"}, ["clusters='C.D'", "separator"]),
        ({"A.bootstrap.servers": ""}, ["A.bootstrap.servers: must be set"]),
        ({"X->B.enabled": "true"}, ["X->B.enabled", "clusters"]),
        ({"A->B.enabled": "yes"}, ["A->B.enabled='yes'", "true or false"]),
        ({"A->B.tasks.max": "0"}, ["A->B.tasks.max='0'", "between 1 and 1000"]),
        ({"tasks.max": "1e3"}, ["tasks.max='1e3'", "whole number"]),
        ({"refresh.topics.interval.seconds": "0"}, ["between 1 and"]),
        ({"refresh.topics.interval.seconds": "9" * 400}, ["must be between"]),
        ({"replication.factor": "0"}, ["replication.factor='0'", "or -1"]),
        ({"offset-syncs.topic.location": "mars"}, ["source, target"]),
        ({"topics": "a, (b"}, ["topics", "'(b' is no regular expression"]),
        ({"groups.exclude": "*x"}, ["groups.exclude", "'*x'"]),
        ({"replication.policy.class": "com.example.Policy"}, ["com.example.Policy", "unknown Java class"]),
        ({"replication.policy.class": "no_such_module:f"}, ["cannot be imported"]),
        ({"replication.policy.class": "json:__doc__"}, ["must be a function"]),
        ({"replication.policy.separator": "::"}, ["replication.policy.separator"]),
        ({"topic.filter.class": "com.example.Filter"}, ["topic.filter.class", "unknown Java class"]),
        ({"A->B.config.property.filter.class": "X"}, ["A->B.config.property.filter.class", "unknown Java class"]),
        ({"A.consumer.interceptor.classes": "com.example.X"}, ["A.consumer.interceptor.classes", "unknown Java class"]),
        ({"transforms": "mask"}, ["transforms='mask'", "not transformed"]),
        ({"config.providers": "file"}, ["config.providers", "write the values"]),
        ({"emit.offset-syncs.enabled": "false"}, ["emit.offset-syncs.enabled", "emit.checkpoints.enabled"]),
        ({"A.consumer.fetch.min.bytes": "-1"}, ["A.consumer.fetch.min.bytes='-1'"]),
        ({"A.security.protocol": "TLS"}, ["A.security.protocol='TLS'"]),
        ({"A.ssl.no.such.thing": "x"}, ["A.ssl.no.such.thing", "not supported"]),
        ({"A.ssl.client.auth": "x"}, ["A.ssl.client.auth"]),
        ({"A.sasl.client.callback.handler.class": "x"}, ["A.sasl.client.callback.handler.class"]),
    ],
)
def test_what_is_wrong_is_named(entries: dict[str, str], words: list[str]) -> None:
    with pytest.raises(ConfigError) as refused:
        with_entries(entries)
    for word in words:
        assert word in refused.value.message


def test_the_policies_of_mirror_maker_and_a_function_name_topics() -> None:
    package = "org.apache.kafka.connect.mirror."
    assert type(flow({"replication.policy.class": f"{package}DefaultReplicationPolicy"}).policy) is ReplicationPolicy
    identity = flow({"replication.policy.class": f"{package}IdentityReplicationPolicy"})
    assert isinstance(identity.policy, IdentityPolicy)
    assert identity.remote_topic("t") == "t"
    named = flow({"replication.policy.class": f"{__name__}:{copy_of.__name__}"})
    assert isinstance(named.policy, RenamingPolicy)
    assert named.remote_topic("t") == "copy-of-t-in-A"
    (given_function,) = mirror_config(TWO, rename=lambda source, topic: f"{source}_{topic}").flows
    assert given_function.remote_topic("t") == "A_t"


def copy_of(source: str, topic: str) -> str:
    return f"copy-of-{topic}-in-{source}"


def test_internal_topics_can_keep_the_dot() -> None:
    underscore = {"replication.policy.separator": "_"}
    assert flow(underscore).checkpoints_topic == "A_checkpoints_internal"
    dot = {**underscore, "replication.policy.internal.topic.separator.enabled": "false"}
    assert flow(dot).checkpoints_topic == "A.checkpoints.internal"
    assert flow(dot).remote_topic("t") == "A_t"


def test_topics_of_the_target_and_internal_topics_are_not_copied() -> None:
    found = flow({"topics": ".*"})
    topics = ["t", "C.t", "B.t", "C.B.t", "x.internal", "x-internal", "__x", ".x", "t.replica", "heartbeats"]
    assert [topic for topic in topics if found.copies_topic(topic)] == ["t", "C.t", "heartbeats"]
    assert flow({"topics": "t"}).copies_topic("C.heartbeats")
    assert not flow({"topics": "t", "heartbeats.replication.enabled": "false"}).copies_topic("heartbeats")


@given(
    st.dictionaries(
        st.one_of(
            st.sampled_from([key.name for key in FLOW_KEYS] + list(TWO)).flatmap(
                lambda name: st.sampled_from(["", "A.", "A->B.", "B->A.", "A->", "A.consumer."]).map(
                    lambda prefix: prefix + name
                )
            ),
            st.text(min_size=1, max_size=20),
        ),
        st.one_of(st.text(max_size=20), st.sampled_from(["true", "-1", "9" * 30, ".*,(", "\0", "A,B"])),
        max_size=6,
    )
)
def test_any_file_is_read_or_refused_by_name(entries: dict[str, str]) -> None:
    refused = ""
    try:
        config = parse_mirror_config(format_properties({**TWO, **entries}))
        json.dumps([[str(note) for note in config.notes], [pair.name for pair in config.pairs]])
    except ConfigError as error:
        refused = error.message or "without words"
    assert refused != "without words"
    assert len(refused) < 2_000
