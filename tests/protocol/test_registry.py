"""The table of supported APIs agrees with the messages, with stock clients and with Kafka's list of keys."""

from __future__ import annotations

from kio.schema.index import api_key_map

from raylog.protocol.registry import API_VERSIONS, APIS, KAFKA_APIS, PRODUCE, api_for


def test_the_version_ranges_are_those_that_stock_clients_need() -> None:
    advertised = {spec.name: (spec.advertised_from, spec.highest) for spec in APIS}
    assert advertised == {
        "Produce": (0, 13),
        "Fetch": (4, 18),
        "ListOffsets": (1, 11),
        "Metadata": (0, 13),
        "OffsetCommit": (2, 10),
        "OffsetFetch": (1, 10),
        "FindCoordinator": (0, 6),
        "JoinGroup": (0, 9),
        "Heartbeat": (0, 4),
        "LeaveGroup": (0, 5),
        "SyncGroup": (0, 5),
        "DescribeGroups": (0, 6),
        "ListGroups": (0, 5),
        "SaslHandshake": (0, 1),
        "ApiVersions": (0, 4),
        "CreateTopics": (2, 7),
        "DeleteTopics": (1, 6),
        "DeleteRecords": (0, 2),
        "InitProducerId": (0, 5),
        "OffsetForLeaderEpoch": (2, 4),
        "AddPartitionsToTxn": (0, 5),
        "AddOffsetsToTxn": (0, 4),
        "EndTxn": (0, 5),
        "WriteTxnMarkers": (1, 2),
        "TxnOffsetCommit": (0, 5),
        "DescribeAcls": (1, 3),
        "CreateAcls": (1, 3),
        "DeleteAcls": (1, 3),
        "DescribeConfigs": (1, 4),
        "AlterConfigs": (0, 2),
        "AlterReplicaLogDirs": (1, 2),
        "DescribeLogDirs": (1, 5),
        "SaslAuthenticate": (0, 2),
        "CreatePartitions": (0, 3),
        "CreateDelegationToken": (1, 3),
        "RenewDelegationToken": (1, 2),
        "ExpireDelegationToken": (1, 2),
        "DescribeDelegationToken": (1, 3),
        "DeleteGroups": (0, 2),
        "ElectLeaders": (0, 2),
        "IncrementalAlterConfigs": (0, 1),
        "AlterPartitionReassignments": (0, 1),
        "ListPartitionReassignments": (0, 0),
        "OffsetDelete": (0, 0),
        "DescribeClientQuotas": (0, 1),
        "AlterClientQuotas": (0, 1),
        "DescribeUserScramCredentials": (0, 0),
        "AlterUserScramCredentials": (0, 0),
        "DescribeQuorum": (0, 2),
        "UpdateFeatures": (0, 2),
        "AddRaftVoter": (0, 1),
        "RemoveRaftVoter": (0, 0),
        "DescribeCluster": (0, 2),
        "DescribeProducers": (0, 0),
        "DescribeTransactions": (0, 0),
        "ListTransactions": (0, 2),
        "GetTelemetrySubscriptions": (0, 0),
        "PushTelemetry": (0, 0),
        "ListConfigResources": (0, 1),
        "UnregisterBroker": (0, 0),
        "ConsumerGroupHeartbeat": (0, 1),
        "ConsumerGroupDescribe": (0, 1),
        "DescribeTopicPartitions": (0, 0),
        "ShareGroupHeartbeat": (1, 1),
        "StreamsGroupHeartbeat": (0, 0),
        "StreamsGroupDescribe": (0, 0),
        "ShareGroupDescribe": (1, 1),
        "ShareFetch": (1, 2),
        "ShareAcknowledge": (1, 2),
        "InitializeShareGroupState": (0, 0),
        "ReadShareGroupState": (0, 0),
        "WriteShareGroupState": (0, 1),
        "DeleteShareGroupState": (0, 0),
        "ReadShareGroupStateSummary": (0, 1),
        "DescribeShareGroupOffsets": (0, 1),
        "AlterShareGroupOffsets": (0, 0),
        "DeleteShareGroupOffsets": (0, 0),
    }
    assert {spec.key: spec.lowest for spec in APIS if spec.lowest != spec.advertised_from} == {PRODUCE: 3}


def test_every_row_agrees_with_its_messages() -> None:
    for spec in APIS:
        for cls in (spec.request, spec.response):
            assert (cls.api.key, cls.api.name, cls.api.flexible_from) == (spec.key, spec.name, spec.flexible_from)
            assert cls.api.lowest <= spec.lowest <= spec.highest <= cls.api.highest


def test_rows_are_found_by_key() -> None:
    assert [api_for(spec.key) for spec in APIS] == list(APIS)
    assert api_for(93) is api_for(-1) is api_for(9999) is None
    spec = api_for(API_VERSIONS)
    assert spec is not None
    assert [spec.serves(version) for version in (-1, 0, 4, 5)] == [False, True, True, False]


def test_all_keys_of_kafka_are_named() -> None:
    assert list(KAFKA_APIS) == list(range(93))
    assert {key: KAFKA_APIS[key].lower() for key in api_key_map} == {
        key: name.replace("_", "") for key, name in api_key_map.items()
    }
    assert all(KAFKA_APIS[spec.key] == spec.name for spec in APIS)
