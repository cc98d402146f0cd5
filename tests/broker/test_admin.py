"""Topics, configurations, offsets and producer ids are administered over the wire as on Kafka, and survive restarts."""

from __future__ import annotations

import errno
from contextlib import suppress
from typing import Any

import pytest

from raylog.config import table
from raylog.core.config import ConfigKey, ConfigSchema, ConfigType
from raylog.core.errors import ErrorCode, InvariantViolation
from raylog.core.ids import NO_BROKER_ID, ZERO_TOPIC_ID, BrokerId, TopicPartition
from raylog.core.outcome import Outcome
from raylog.core.password import Password
from raylog.metadata.records import BrokerConfigsChanged
from raylog.protocol.fetch import FetchPartition, FetchRequest, FetchTopic
from raylog.protocol.messages import alter_configs, incremental_alter_configs
from raylog.protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from raylog.protocol.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from raylog.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from raylog.protocol.messages.describe_cluster import DescribeClusterRequest
from raylog.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from raylog.protocol.messages.find_coordinator import FindCoordinatorRequest
from raylog.protocol.messages.init_producer_id import InitProducerIdRequest
from raylog.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from raylog.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from raylog.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from raylog.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from raylog.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from tests.logstore.batches import batch
from tests.support.direct_broker import DirectBroker
from tests.support.sim_disk import Killed


@pytest.fixture
def broker() -> DirectBroker:
    return DirectBroker()


def create(broker: DirectBroker, *topics: CreatableTopic, version: int = 7, validate_only: bool = False) -> list[Any]:
    request = CreateTopicsRequest(topics=topics, timeout_ms=1000, validate_only=validate_only)
    return list(broker.call(request, version=version).topics)


def topic(name: str = "t", partitions: int = 1, replicas: int = 1, **configs: str | None) -> CreatableTopic:
    entries = tuple(CreatableTopicConfig(name=key.replace("_", "."), value=value) for key, value in configs.items())
    return CreatableTopic(name=name, num_partitions=partitions, replication_factor=replicas, configs=entries)


class TestMetadata:
    @pytest.mark.parametrize("version", range(14))
    def test_every_version_describes_a_topic(self, broker: DirectBroker, version: int) -> None:
        broker.create_topic("t", partitions=2)
        answer = broker.describe("t", version=version)
        assert [(b.node_id, b.host, b.port) for b in answer.brokers] == [(0, "127.0.0.1", 9092)]
        assert len(answer.topics[0].partitions) == 2

    def test_auto_creation_follows_configuration_and_request(self, broker: DirectBroker) -> None:
        assert broker.describe("new").topics[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert broker.describe("new", create=True).topics[0].error_code == ErrorCode.LEADER_NOT_AVAILABLE
        assert len(broker.describe("new", create=True).topics[0].partitions) == 1
        assert broker.describe("bad name", create=True).topics[0].error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
        strict = DirectBroker({"auto.create.topics.enable": "false"})
        assert strict.describe("new", create=True).topics[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    def test_all_topics_no_topics_and_topics_by_id(self, broker: DirectBroker) -> None:
        topic_id = broker.create_topic("t")
        assert len(broker.call(MetadataRequest(topics=None), version=12).topics) == 1
        assert len(broker.call(MetadataRequest(topics=()), version=12).topics) == 0
        assert len(broker.call(MetadataRequest(topics=()), version=0).topics) == 1
        by_id = MetadataRequest(topics=(MetadataRequestTopic(name=None, topic_id=topic_id),))
        assert broker.call(by_id, version=12).topics[0].name == "t"
        unknown = MetadataRequest(topics=(MetadataRequestTopic(name=None, topic_id=broker.cluster.new_id()),))
        assert broker.call(unknown, version=12).topics[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID

    @pytest.mark.parametrize("version", [10, 11])
    def test_topics_by_id_are_invalid_in_the_versions_that_have_the_field_only(
        self, broker: DirectBroker, version: int
    ) -> None:
        topic_id = broker.create_topic("t")
        for asked in (
            MetadataRequestTopic(name=None, topic_id=topic_id),
            MetadataRequestTopic(name=None),
            MetadataRequestTopic(name="t", topic_id=topic_id),
        ):
            request = MetadataRequest(topics=(MetadataRequestTopic(name="t"), asked))
            answer = broker.call(request, version=version)
            assert [topic.error_code for topic in answer.topics] == [ErrorCode.INVALID_REQUEST] * 2
            assert [topic.name for topic in answer.topics] == ["t", asked.name or ""]


class TestTopics:
    def test_create_grow_delete_and_restart(self, broker: DirectBroker) -> None:
        (created,) = create(broker, topic("t", partitions=3, retention_ms="5000"))
        assert (created.error_code, created.num_partitions) == (ErrorCode.NONE, 3)
        assert {entry.name: entry.value for entry in created.configs}["retention.ms"] == "5000"
        grown = CreatePartitionsRequest(topics=(CreatePartitionsTopic(name="t", count=4, assignments=None),))
        assert broker.call(grown).results[0].error_code == ErrorCode.NONE
        broker.produce([b"x"], partition=3)
        for clean in (True, False):
            broker.restart(clean=clean)
            assert len(broker.describe("t").topics[0].partitions) == 4
            assert broker.describe("t").topics[0].topic_id == created.topic_id
        gone = DeleteTopicsRequest(topics=(DeleteTopicState(name="t"), DeleteTopicState(name="other")))
        codes = [result.error_code for result in broker.call(gone).responses]
        assert codes == [ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
        broker.restart(clean=False)
        assert broker.describe("t").topics[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert not [name for name in broker.disk.listdir("/broker-0") if name.startswith("t")]

    def test_a_topic_recreated_after_deletion_by_id_has_a_new_id(self, broker: DirectBroker) -> None:
        (first,) = create(broker, topic())
        broker.produce([b"old"])
        wanted = DeleteTopicState(name=None, topic_id=first.topic_id)
        assert broker.call(DeleteTopicsRequest(topics=(wanted,))).responses[0].name == "t"
        assert broker.call(DeleteTopicsRequest(topics=(wanted,))).responses[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID
        (second,) = create(broker, topic())
        assert second.topic_id != first.topic_id
        assert broker.produce([b"new"]).base_offset == 0

    def test_defaults_and_validate_only(self) -> None:
        broker = DirectBroker({"num.partitions": "5"})
        (answer,) = create(broker, topic("t", partitions=-1, replicas=-1), validate_only=True)
        assert (answer.error_code, answer.num_partitions, answer.replication_factor) == (ErrorCode.NONE, 5, 1)
        assert broker.describe("t").topics[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    @pytest.mark.parametrize(
        ("wanted", "code"),
        [
            (topic("bad/name"), ErrorCode.INVALID_TOPIC_EXCEPTION),
            (topic("__consumer_offsets"), ErrorCode.INVALID_TOPIC_EXCEPTION),
            (topic(partitions=0), ErrorCode.INVALID_PARTITIONS),
            (topic(replicas=2), ErrorCode.INVALID_REPLICATION_FACTOR),
            (topic(segment_bytes="1048575"), ErrorCode.INVALID_CONFIG),
            (topic(no_such="3"), ErrorCode.INVALID_CONFIG),
            (topic(cleanup_policy="squeeze"), ErrorCode.INVALID_CONFIG),
            (topic(retention_ms=None), ErrorCode.INVALID_CONFIG),
            (
                CreatableTopic(
                    name="t",
                    num_partitions=2,
                    replication_factor=-1,
                    assignments=(CreatableReplicaAssignment(partition_index=0, broker_ids=(0,)),),
                ),
                ErrorCode.INVALID_REQUEST,
            ),
            (
                CreatableTopic(
                    name="t",
                    num_partitions=-1,
                    replication_factor=-1,
                    assignments=(CreatableReplicaAssignment(partition_index=1, broker_ids=(0,)),),
                ),
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            ),
        ],
    )
    def test_errors(self, broker: DirectBroker, wanted: CreatableTopic, code: ErrorCode) -> None:
        (answer,) = create(broker, wanted)
        assert answer.error_code == code
        assert answer.error_message
        assert broker.broker.image.topics == {}

    def test_duplicate_topics_in_a_request(self, broker: DirectBroker) -> None:
        assert [answer.error_code for answer in create(broker, topic(), topic())] == [ErrorCode.INVALID_REQUEST]

    def test_a_topic_is_deleted_only_if_it_is_named_once_by_its_name_or_by_its_id(self, broker: DirectBroker) -> None:
        ids = {name: broker.create_topic(name) for name in ("a", "b", "c", "d")}
        wanted = (
            DeleteTopicState(name="b", topic_id=ids["a"]),
            DeleteTopicState(name="c"),
            DeleteTopicState(name=None, topic_id=ids["d"]),
            DeleteTopicState(name=None, topic_id=ZERO_TOPIC_ID),
            DeleteTopicState(name="c"),
            DeleteTopicState(name=None, topic_id=ids["d"]),
        )
        responses = broker.call(DeleteTopicsRequest(topics=wanted)).responses
        assert {each.error_code for each in responses} == {ErrorCode.INVALID_REQUEST}
        assert [(each.name, each.topic_id, each.error_message) for each in responses] == [
            ("b", ids["a"], "You may not specify both topic name and topic id."),
            ("c", ZERO_TOPIC_ID, "Duplicate topic name."),
            (None, ids["d"], "Duplicate topic id."),
            (None, ZERO_TOPIC_ID, "Neither topic name nor id were specified."),
        ]
        assert sorted(broker.controller.image.topics) == ["a", "b", "c", "d"]
        [response] = broker.call(DeleteTopicsRequest(topic_names=("c", "c")), version=5).responses
        assert response.error_code == ErrorCode.INVALID_REQUEST
        assert "c" in broker.controller.image.topics

    def test_deletion_can_be_disabled(self) -> None:
        broker = DirectBroker({"delete.topic.enable": "false"})
        broker.create_topic("t")
        answer = broker.call(DeleteTopicsRequest(topics=(DeleteTopicState(name="t"),)))
        assert answer.responses[0].error_code == ErrorCode.TOPIC_DELETION_DISABLED


class TestConfigs:
    def describe(self, broker: DirectBroker, kind: int, name: str, keys: tuple[str, ...] | None = None) -> Any:
        resource = DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=keys)
        request = DescribeConfigsRequest(resources=(resource,), include_synonyms=True, include_documentation=True)
        return broker.call(request).results[0]

    def test_a_topic_with_sources_and_synonyms(self) -> None:
        broker = DirectBroker({"log.retention.bytes": "99"})
        broker.create_topic("t", retention_ms="7")
        (config,) = self.describe(broker, 2, "t", ("retention.ms",)).configs
        assert (config.value, config.config_source, config.config_type) == ("7", 1, 5)
        assert [(synonym.name, synonym.source) for synonym in config.synonyms] == [
            ("retention.ms", 1),
            ("log.retention.ms", 5),
        ]
        assert config.documentation
        (inherited,) = self.describe(broker, 2, "t", ("retention.bytes",)).configs
        assert (inherited.value, inherited.config_source) == ("99", 4)

    def test_a_resource_that_a_request_contains_twice_is_not_changed(self, broker: DirectBroker) -> None:
        broker.create_topic("t")
        broker.create_topic("u")
        replaced = (("t", "1"), ("u", "2"), ("t", "3"))
        for request in (
            alter_configs.AlterConfigsRequest(
                resources=tuple(
                    alter_configs.AlterConfigsResource(
                        resource_type=2,
                        resource_name=name,
                        configs=(alter_configs.AlterableConfig(name="retention.ms", value=value),),
                    )
                    for name, value in replaced
                )
            ),
            incremental_alter_configs.IncrementalAlterConfigsRequest(
                resources=tuple(
                    incremental_alter_configs.AlterConfigsResource(
                        resource_type=2,
                        resource_name=name,
                        configs=(
                            incremental_alter_configs.AlterableConfig(
                                name="retention.ms", config_operation=0, value=value
                            ),
                        ),
                    )
                    for name, value in replaced
                )
            ),
        ):
            once = (ErrorCode.INVALID_REQUEST, "Each resource must appear at most once.")
            responses = broker.call(request).responses
            assert [each.resource_name for each in responses] == ["t", "u", "t"]
            codes = [(each.error_code, each.error_message) for each in responses]
            assert codes == [once, (ErrorCode.NONE, None), once]
            topics = broker.controller.image.topics
            assert (topics["t"].configs, topics["u"].configs) == ({}, {"retention.ms": "2"})

    def test_no_keys_are_all_keys(self, broker: DirectBroker) -> None:
        assert self.describe(broker, 4, "0", ()).configs == self.describe(broker, 4, "0").configs
        assert len(self.describe(broker, 4, "0").configs) > 50

    def test_listener_overrides(self) -> None:
        broker = DirectBroker({"listener.name.plaintext.max.connections": "7"})
        described = {entry.name: entry for entry in self.describe(broker, 4, "0").configs}
        override = described["listener.name.plaintext.max.connections"]
        assert (override.value, override.config_source, override.read_only) == ("7", 4, True)
        assert described["max.connections"].value == "2147483647"

    def test_passwords_are_sensitive_and_null(self, monkeypatch: pytest.MonkeyPatch) -> None:
        key: ConfigKey[Password | None] = ConfigKey("the.password", ConfigType.PASSWORD, None, "P.", per_listener=True)
        monkeypatch.setattr(table, "BROKER_CONFIG", ConfigSchema((*table.BROKER_CONFIG.keys.values(), key)))
        names = ("the.password", "listener.name.plaintext.the.password")
        broker = DirectBroker(dict.fromkeys(names, "hunter2"))
        result = self.describe(broker, 4, "0", names)
        assert [(entry.name, entry.value, entry.is_sensitive) for entry in result.configs] == [
            ("listener.name.plaintext.the.password", None, True),
            ("the.password", None, True),
        ]
        assert "hunter2" not in repr(result)
        assert not any(entry.is_sensitive for entry in self.describe(broker, 4, "0", ("num.partitions",)).configs)

    def test_the_broker_and_unknown_resources(self, broker: DirectBroker) -> None:
        values = {entry.name: entry.value for entry in self.describe(broker, 4, "0").configs}
        assert values["num.partitions"] == "1"
        assert self.describe(broker, 4, "9").error_code == ErrorCode.INVALID_REQUEST
        assert self.describe(broker, 2, "none").error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert self.describe(broker, 3, "0").error_code == ErrorCode.INVALID_REQUEST

    def change(self, broker: DirectBroker, broker_id: int, **configs: str) -> None:
        entries = tuple((name.replace("_", "."), value) for name, value in configs.items())
        broker.controller.decide(Outcome(None, [BrokerConfigsChanged(BrokerId(broker_id), entries)]), broker.now())
        broker.controller.run(broker.now())
        broker.settle()

    def test_changes_for_another_broker_cost_nothing(self, broker: DirectBroker) -> None:
        before = broker.broker.settings
        self.change(broker, 9, log_retention_ms="1000")
        assert broker.broker.settings is before
        for broker_id in (0, NO_BROKER_ID):
            before = broker.broker.settings
            self.change(broker, broker_id, log_retention_ms="1000")
            assert broker.broker.settings is not before

    def test_a_change_is_computed_once_for_each_topic(self, broker: DirectBroker) -> None:
        broker.create_topic("t", partitions=3)
        self.change(broker, 0, log_retention_ms="1000")
        one, *others = [broker.broker.partitions[TopicPartition("t", number)].log.settings for number in range(3)]
        assert one.retention_ms == 1000
        assert all(other is one for other in others)


class TestOffsets:
    def list_offset(
        self, broker: DirectBroker, timestamp: int, version: int = 11, isolation_level: int = 0
    ) -> tuple[Any, ...]:
        wanted = ListOffsetsPartition(partition_index=0, timestamp=timestamp)
        topics = (ListOffsetsTopic(name="t", partitions=(wanted,)),)
        request = ListOffsetsRequest(replica_id=-1, isolation_level=isolation_level, topics=topics)
        found = broker.call(request, version=version).topics[0].partitions[0]
        return found.error_code, found.offset, found.timestamp

    def test_a_partition_named_twice_is_refused(self, broker: DirectBroker) -> None:
        broker.create_topic("t", partitions=2)
        wanted = tuple(ListOffsetsPartition(partition_index=each, timestamp=-1) for each in (0, 1, 0))
        request = ListOffsetsRequest(replica_id=-1, topics=(ListOffsetsTopic(name="t", partitions=wanted),))
        answered = broker.call(request, version=11).topics[0].partitions
        refused = ErrorCode.INVALID_REQUEST
        assert [each.error_code for each in answered] == [refused, ErrorCode.NONE, refused]

    def test_offsets_by_timestamp_and_special_timestamps(self, broker: DirectBroker) -> None:
        broker.create_topic("t")
        start = broker.now().wall_ms
        for _ in range(3):
            broker.produce([b"x"])
            broker.pass_time(1000)
        none = ErrorCode.NONE
        assert self.list_offset(broker, -1) == (none, 3, -1)
        assert self.list_offset(broker, -2) == (none, 0, -1)
        assert self.list_offset(broker, -3) == (none, 2, start + 2000)
        assert self.list_offset(broker, start + 1) == (none, 1, start + 1000)
        assert self.list_offset(broker, start + 9999) == (none, -1, -1)
        assert self.list_offset(broker, -4) == (none, 0, -1)
        assert self.list_offset(broker, -5) == (none, -1, -1)
        assert self.list_offset(broker, -6) == (none, -1, -1)
        assert self.list_offset(broker, -3, version=6)[0] == ErrorCode.UNSUPPORTED_VERSION

    def test_read_committed_ends_at_an_open_transaction(self, broker: DirectBroker) -> None:
        broker.create_topic("t")
        broker.produce([b"x"])
        start = broker.now().wall_ms
        record_set = batch(b"y", timestamp_ms=start + 5, producer=(7, 0, 0), transactional=True)
        partition = broker.broker.partition(TopicPartition("t", 0))
        partition.append_as_leader(memoryview(record_set), now_ms=start, from_client=False)
        for timestamp, uncommitted, committed in ((-1, 2, 1), (-3, 1, 0), (start + 5, 1, -1)):
            assert self.list_offset(broker, timestamp)[1] == uncommitted
            assert self.list_offset(broker, timestamp, isolation_level=1)[1] == committed

    def test_end_offsets_of_leader_epochs(self, broker: DirectBroker) -> None:
        broker.create_topic("t")
        broker.produce([b"a", b"b"])
        broker.restart()
        broker.produce([b"c"])

        def ends(epoch: int) -> tuple[int, int]:
            wanted = OffsetForLeaderPartition(partition=0, current_leader_epoch=-1, leader_epoch=epoch)
            topics = (OffsetForLeaderTopic(topic="t", partitions=(wanted,)),)
            found = broker.call(OffsetForLeaderEpochRequest(replica_id=-1, topics=topics)).topics[0].partitions[0]
            return found.leader_epoch, found.end_offset

        assert ends(0) == (0, 2)
        assert ends(1) == (0, 2)  # there was no leader
        assert ends(2) == (2, 3)
        assert ends(3) == (-1, -1)

    @pytest.mark.parametrize("version", range(2, 11))
    def test_commit_and_fetch_in_every_version(self, broker: DirectBroker, version: int) -> None:
        topic_id = broker.create_topic("t")
        broker.call(FindCoordinatorRequest(key="g", key_type=0), version=1)
        by_id = {"topic_id": topic_id} if version >= 10 else {"name": "t"}
        part = OffsetCommitRequestPartition(partition_index=0, committed_offset=42, committed_metadata="note")
        topics = (OffsetCommitRequestTopic(partitions=(part,), **by_id),)
        request = OffsetCommitRequest(group_id="g", generation_id_or_member_epoch=-1, topics=topics)
        answer = broker.call(request, version=version)
        assert answer.topics[0].partitions[0].error_code == ErrorCode.NONE
        broker.restart(clean=False)
        assert self.fetch(broker, min(version, 7)) == [(42, "note")]
        assert self.fetch(broker, 9) == [(42, "note")]
        assert self.fetch(broker, 10, topic_id) == [(42, "note")]

    def fetch(self, broker: DirectBroker, version: int, topic_id: Any = ZERO_TOPIC_ID) -> list[tuple[int, str]]:
        if version < 8:
            one = OffsetFetchRequestTopic(name="t", partition_indexes=(0,))
            topics = broker.call(OffsetFetchRequest(group_id="g", topics=(one,)), version=version).topics
        else:
            wanted = OffsetFetchRequestTopics(name="t", topic_id=topic_id, partition_indexes=(0,))
            group = OffsetFetchRequestGroup(group_id="g", topics=(wanted,))
            topics = broker.call(OffsetFetchRequest(groups=(group,)), version=version).groups[0].topics
        return [(found.committed_offset, found.metadata) for found in topics[0].partitions]

    def test_all_offsets_of_a_group_without_deleted_topics(self, broker: DirectBroker) -> None:
        broker.create_topic("t")
        broker.call(FindCoordinatorRequest(key="g", key_type=0), version=1)
        part = OffsetCommitRequestPartition(partition_index=0, committed_offset=42, committed_metadata=None)
        unknown = OffsetCommitRequestPartition(partition_index=9, committed_offset=42, committed_metadata=None)
        topics = (OffsetCommitRequestTopic(name="t", partitions=(part, unknown)),)
        answer = broker.call(
            OffsetCommitRequest(group_id="g", generation_id_or_member_epoch=-1, topics=topics), version=9
        )
        codes = [result.error_code for result in answer.topics[0].partitions]
        assert codes == [ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
        everything = OffsetFetchRequest(groups=(OffsetFetchRequestGroup(group_id="g", topics=None),))
        assert [found.name for found in broker.call(everything, version=9).groups[0].topics] == ["t"]
        broker.call(DeleteTopicsRequest(topics=(DeleteTopicState(name="t"),)))
        assert broker.call(everything, version=9).groups[0].topics == ()


class TestCoordinatorsAndProducers:
    def test_find_coordinator_in_both_forms(self, broker: DirectBroker) -> None:
        early = broker.call(FindCoordinatorRequest(key="g"), version=0)
        assert (early.error_code, early.node_id) == (ErrorCode.COORDINATOR_NOT_AVAILABLE, -1)
        old = broker.call(FindCoordinatorRequest(key="g"), version=0)
        assert (old.error_code, old.node_id, old.port) == (ErrorCode.NONE, 0, 9092)
        new = broker.call(FindCoordinatorRequest(key_type=0, coordinator_keys=("a", "b")), version=6)
        assert [(found.key, found.error_code) for found in new.coordinators] == [("a", 0), ("b", 0)]
        assert len(broker.describe("__consumer_offsets").topics[0].partitions) == 50

    def test_producer_ids_are_not_reused_after_a_crash(self, broker: DirectBroker) -> None:
        ids = []
        for _ in range(3):
            ids += [broker.call(InitProducerIdRequest(transaction_timeout_ms=-1)).producer_id for _ in range(3)]
            broker.restart(clean=False)
        assert len(set(ids)) == 9

    @pytest.mark.parametrize(("producer_id", "epoch"), [(1, -1), (-1, 1)])
    @pytest.mark.parametrize("transactional_id", [None, "t"])
    def test_a_producer_id_without_its_epoch_is_refused(
        self, broker: DirectBroker, producer_id: int, epoch: int, transactional_id: str | None
    ) -> None:
        request = InitProducerIdRequest(
            transactional_id=transactional_id,
            transaction_timeout_ms=1000,
            producer_id=producer_id,
            producer_epoch=epoch,
        )
        if transactional_id is not None:
            broker.call(FindCoordinatorRequest(key_type=1, coordinator_keys=(transactional_id,)), version=6)
        answered = broker.call(request, version=5)
        assert (answered.error_code, answered.producer_id) == (ErrorCode.INVALID_REQUEST, -1)

    def test_describe_cluster(self, broker: DirectBroker) -> None:
        answer = broker.call(DescribeClusterRequest())
        assert (answer.controller_id, len(answer.brokers)) == (0, 1)


class TestConnections:
    def test_connection_limits(self) -> None:
        broker = DirectBroker({"max.connections": "3", "max.connections.per.ip": "2"})
        open_ = broker.broker.connection_opened
        listener = broker.listeners[0]  # one connection from 127.0.0.1 is open already
        assert open_(listener, "127.0.0.1", broker.now()) is not None
        assert open_(listener, "127.0.0.1", broker.now()) is None
        other = open_(listener, "10.0.0.1", broker.now())
        assert other is not None
        assert open_(listener, "10.0.0.2", broker.now()) is None
        broker.broker.connection_closed(other, broker.now())
        assert open_(listener, "10.0.0.2", broker.now()) is not None

    def test_a_listener_with_its_own_limit(self) -> None:
        broker = DirectBroker(
            {
                "listeners": "PLAINTEXT://h:1,OTHER://h:2",
                "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,OTHER:PLAINTEXT",
                "listener.name.other.max.connections": "1",
            }
        )
        plaintext, other = broker.listeners[:2]
        open_ = broker.broker.connection_opened
        first = open_(other, "10.0.0.1", broker.now())
        assert first is not None
        assert open_(other, "10.0.0.2", broker.now()) is None
        assert open_(plaintext, "10.0.0.2", broker.now()) is not None
        broker.broker.connection_closed(first, broker.now())
        assert open_(other, "10.0.0.2", broker.now()) is not None

    def test_idle_connections_are_closed_and_busy_ones_kept(self) -> None:
        broker = DirectBroker({"connections.max.idle.ms": "10000"})
        idle, busy = broker.connect(), broker.connect()
        for _ in range(12):
            broker.pass_time(1000)
            broker.call(MetadataRequest(topics=()), version=1, connection=busy)
        assert idle.closing
        assert not busy.closing

    def test_a_client_is_not_idle_when_it_has_just_got_a_response_or_reads_one(self) -> None:
        broker = DirectBroker({"connections.max.idle.ms": "10000"})
        broker.create_topic("t")
        answered, reading = broker.connect(), broker.connect()
        wanted = FetchTopic(name="t", partitions=[FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1)])
        request = FetchRequest(max_wait_ms=14_500, min_bytes=1, topics=[wanted])
        sent = broker.send(request, version=11, connection=answered)
        for _ in range(4):
            broker.pass_time(5000)
            broker.broker.output_sent(reading, 100, broker.now())
        assert broker.answer(sent, connection=answered) is not None
        assert (answered.closing, reading.closing) == (False, False)
        broker.pass_time(11_000)
        assert (answered.closing, reading.closing) == (True, True)


class TestStart:
    def test_an_unknown_directory_is_refused_and_kept(self, broker: DirectBroker) -> None:
        broker.create_topic("t")
        broker.stop()
        broker.disk.rename("/broker-0/t-0", "/broker-0/other-0")
        with pytest.raises(InvariantViolation, match="is not in the cluster metadata"):
            broker.start()
        assert broker.disk.exists("/broker-0/other-0")

    @pytest.mark.parametrize("who", ["broker", "controller"])
    def test_a_broker_killed_at_any_point_of_topic_creation_starts_and_serves(self, who: str) -> None:
        for kill_at_op in range(1, 40):
            broker = DirectBroker(seed=kill_at_op)
            disk = broker.disk if who == "broker" else broker.controller_disk
            disk.arm(kill_at_op=kill_at_op)
            with suppress(Killed):
                broker.create_topic("t", partitions=2)
            disk.arm(kill_at_op=None)
            broker.restart(clean=False)
            broker.describe("t", create=True)
            assert broker.produce([b"x"]).error_code == ErrorCode.NONE, f"killed at operation {kill_at_op}"

    def test_an_uncommitted_topic_is_not_remembered(self, broker: DirectBroker) -> None:
        broker.controller_disk.capacity_bytes = broker.controller_disk.used_bytes()
        (refused,) = create(broker, topic("t"))
        assert refused.error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert broker.describe("t").topics[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        broker.controller_disk.capacity_bytes = None
        (created,) = create(broker, topic("t"))
        assert created.error_code == ErrorCode.NONE
        assert broker.produce([b"x"]).base_offset == 0

    def test_a_partition_without_disk_space_is_created_once_there_is_space(self) -> None:
        broker = DirectBroker({"log.retention.check.interval.ms": "1000"})
        broker.disk.capacity_bytes = broker.disk.used_bytes()
        (created,) = create(broker, topic("t"))
        assert created.error_code == ErrorCode.NONE
        (partition,) = broker.describe("t").topics[0].partitions
        assert (partition.error_code, partition.leader_id) == (ErrorCode.LEADER_NOT_AVAILABLE, -1)
        assert broker.produce([b"x"]).error_code == ErrorCode.KAFKA_STORAGE_ERROR
        broker.disk.capacity_bytes = None
        broker.pass_time(1000)
        assert broker.produce([b"x"]).base_offset == 0

    def test_a_deleted_topic_that_cannot_be_removed_does_not_prevent_serving(self, broker: DirectBroker) -> None:
        broker.create_topic("t")
        broker.create_topic("other")
        broker.produce([b"old"])
        broker.stop()
        broker.cluster.delete_topic("t")
        broker.disk.fail_next("rename", errno.EIO)
        broker.start()
        assert broker.produce([b"x"], topic="other").base_offset == 0
        assert broker.disk.exists("/broker-0/t-0")
        broker.create_topic("t")
        assert broker.produce([b"new"]).base_offset == 0
