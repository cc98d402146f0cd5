"""UpdateFeatures sets the levels of the cluster's features, if every node supports them."""

from __future__ import annotations

import pytest

from raylog.controller import features
from raylog.controller.features import UpgradeType
from raylog.core.errors import ErrorCode
from raylog.groupcoord.shards import OFFSETS_TOPIC
from raylog.metadata.features import GROUP_FEATURE, KRAFT_FEATURE, TRANSACTION_FEATURE
from raylog.metadata.levels import FIRST_LEVEL, LATEST_LEVEL, METADATA_FEATURE
from raylog.protocol.messages.api_versions import ApiVersionsRequest, FinalizedFeatureKey
from raylog.protocol.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest, UpdateFeaturesResponse
from tests.support.direct_cluster import DirectCluster
from tests.support.transactional_client import group_coordinator

LEVEL_LOWER, LEVEL_UNKNOWN = 0, LATEST_LEVEL + 1
KNOWN = (
    "raylog.metadata, metadata.version, transaction.version, group.version, share.version, streams.version,"
    " kraft.version"
)
CANNOT = "raylog.metadata cannot be set to level"


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> DirectCluster:
    """At the first level, as after an upgrade of all nodes."""
    monkeypatch.setattr(features, "NEW_CLUSTER", ())
    cluster = DirectCluster(3)
    assert [member.broker.image.metadata_level for member in cluster.brokers] == [FIRST_LEVEL] * 3
    return cluster


def update(
    cluster: DirectCluster,
    *updates: tuple[str, int],
    version: int = 2,
    validate_only: bool = False,
    upgrade_type: int = UpgradeType.UPGRADE,
) -> UpdateFeaturesResponse:
    keys = tuple(
        FeatureUpdateKey(
            feature=name,
            max_version_level=level,
            upgrade_type=upgrade_type,
            allow_downgrade=upgrade_type != UpgradeType.UPGRADE,
        )
        for name, level in updates
    )
    request = UpdateFeaturesRequest(feature_updates=keys, validate_only=validate_only)
    response: UpdateFeaturesResponse = cluster.brokers[1].call(request, version=version)
    return response


@pytest.mark.parametrize("version", [0, 1, 2])
def test_every_broker_shows_the_raised_level(cluster: DirectCluster, version: int) -> None:
    response = update(cluster, (METADATA_FEATURE, LATEST_LEVEL), version=version)
    assert response.error_code == ErrorCode.NONE
    expected = [] if version == 2 else [(METADATA_FEATURE, ErrorCode.NONE)]
    assert [(each.feature, each.error_code) for each in response.results] == expected
    for member in cluster.brokers:
        shown = member.call(ApiVersionsRequest(client_software_name="test", client_software_version="1"), version=3)
        assert shown.finalized_features == (
            FinalizedFeatureKey(name=METADATA_FEATURE, max_version_level=LATEST_LEVEL, min_version_level=LATEST_LEVEL),
            FinalizedFeatureKey(name=GROUP_FEATURE, max_version_level=1, min_version_level=1),
            FinalizedFeatureKey(name="metadata.version", max_version_level=25, min_version_level=25),
        )


def test_nothing_changes_if_the_update_is_only_validated(cluster: DirectCluster) -> None:
    response = update(cluster, (METADATA_FEATURE, LATEST_LEVEL), validate_only=True)
    assert response.error_code == ErrorCode.NONE
    assert cluster.active.image.metadata_level == FIRST_LEVEL
    response = update(cluster, (METADATA_FEATURE, LEVEL_UNKNOWN), validate_only=True)
    assert response.error_code == ErrorCode.INVALID_UPDATE_VERSION


@pytest.mark.parametrize(
    ("feature", "level", "why"),
    [
        (
            METADATA_FEATURE,
            LEVEL_UNKNOWN,
            f"{CANNOT} {LEVEL_UNKNOWN}. Controller 1000 supports levels 1 to {LATEST_LEVEL}.",
        ),
        (METADATA_FEATURE, LEVEL_LOWER, f"{CANNOT} 0. It is at level 1 and cannot be lowered."),
        (METADATA_FEATURE, -32768, f"{CANNOT} -32768. It is at level 1 and cannot be lowered."),
        (
            "metadata.version",
            1,
            "metadata.version cannot be set to level 1. It follows raylog.metadata: upgrade that feature.",
        ),
        (
            "",
            1,
            f"'' is not a feature of this cluster; it has {KNOWN}.",
        ),
        (
            "eligible.leader.replicas.version",
            1,
            f"'eligible.leader.replicas.version' is not a feature of this cluster; it has {KNOWN}.",
        ),
        (
            TRANSACTION_FEATURE,
            1,
            "transaction.version cannot be set to level 1. It requires level 6 of raylog.metadata.",
        ),
    ],
)
def test_a_refused_update_changes_nothing(cluster: DirectCluster, feature: str, level: int, why: str) -> None:
    both = [(METADATA_FEATURE, LATEST_LEVEL - 1)] if feature != METADATA_FEATURE else []
    response = update(cluster, *both, (feature, level))
    assert (response.error_code, response.error_message) == (ErrorCode.INVALID_UPDATE_VERSION, why)
    response = update(cluster, *both, (feature, level), version=1)
    assert response.error_code == ErrorCode.NONE
    assert [(each.error_code, each.error_message) for each in response.results][-1] == (
        ErrorCode.INVALID_UPDATE_VERSION,
        why,
    )
    assert {each.error_code for each in response.results[:-1]} <= {ErrorCode.FEATURE_UPDATE_FAILED}
    assert cluster.active.image.metadata_level == FIRST_LEVEL


def test_a_feature_may_be_named_once(cluster: DirectCluster) -> None:
    response = update(cluster, (METADATA_FEATURE, LATEST_LEVEL), (METADATA_FEATURE, FIRST_LEVEL))
    assert response.error_code == ErrorCode.INVALID_REQUEST
    assert cluster.active.image.metadata_level == FIRST_LEVEL


def test_a_broker_that_is_away_counts(cluster: DirectCluster) -> None:
    """Its registration is part of the metadata until it is unregistered."""
    cluster.brokers[2].stop()
    assert update(cluster, (METADATA_FEATURE, LATEST_LEVEL)).error_code == ErrorCode.NONE


def test_the_offsets_topic_becomes_compacted_with_the_level(cluster: DirectCluster) -> None:
    group_coordinator(cluster)
    topic = cluster.active.image.topics[OFFSETS_TOPIC]
    assert topic.configs["retention.ms"] == "-1"
    assert "cleanup.policy" not in topic.configs  # there may be brokers that refuse the value compact
    update(cluster, (METADATA_FEATURE, LATEST_LEVEL))
    cluster.pass_time(1000)
    logs = [
        partition.log
        for member in cluster.brokers
        for tp, partition in member.broker.partitions.items()
        if tp.topic == OFFSETS_TOPIC
    ]
    assert logs
    assert all(log.settings.is_compacted and not log.settings.is_deleted for log in logs)


ALL_LATEST = ((GROUP_FEATURE, 1), (TRANSACTION_FEATURE, 2), (METADATA_FEATURE, LATEST_LEVEL))


def levels(cluster: DirectCluster) -> list[tuple[int, ...]]:
    """transaction.version, group.version and kraft.version on each broker."""
    features = TRANSACTION_FEATURE, GROUP_FEATURE, KRAFT_FEATURE
    images = [member.broker.image for member in cluster.brokers]
    return sorted({tuple(image.feature_level(name) for name in features) for image in images})


def test_all_features_can_be_raised_at_once(cluster: DirectCluster) -> None:
    assert levels(cluster) == [(0, 0, 0)]
    assert update(cluster, *ALL_LATEST, validate_only=True).error_code == ErrorCode.NONE
    assert levels(cluster) == [(0, 0, 0)]
    assert update(cluster, *ALL_LATEST).error_code == ErrorCode.NONE
    assert levels(cluster) == [(2, 1, 0)]
    assert update(cluster, *ALL_LATEST).error_code == ErrorCode.NONE, "it is so already"


@pytest.mark.parametrize("version", [0, 1, 2])
@pytest.mark.parametrize("downgrade", [UpgradeType.SAFE_DOWNGRADE, UpgradeType.UNSAFE_DOWNGRADE])
def test_a_lower_level_requires_a_downgrade(cluster: DirectCluster, downgrade: UpgradeType, version: int) -> None:
    def code(*updates: tuple[str, int], upgrade_type: UpgradeType = UpgradeType.UPGRADE) -> ErrorCode:
        response = update(cluster, *updates, upgrade_type=upgrade_type, version=version)
        return response.results[-1].error_code if response.results else response.error_code

    assert code(*ALL_LATEST) == ErrorCode.NONE
    assert code((TRANSACTION_FEATURE, 1)) == ErrorCode.INVALID_UPDATE_VERSION
    assert code((TRANSACTION_FEATURE, 1), upgrade_type=downgrade) == ErrorCode.NONE
    assert code((TRANSACTION_FEATURE, 2), upgrade_type=downgrade) == ErrorCode.INVALID_UPDATE_VERSION
    assert code((GROUP_FEATURE, 0), upgrade_type=downgrade) == ErrorCode.NONE
    assert code((METADATA_FEATURE, LATEST_LEVEL - 1), upgrade_type=downgrade) == ErrorCode.INVALID_UPDATE_VERSION
    assert levels(cluster) == [(1, 0, 0)]
    assert code((TRANSACTION_FEATURE, 0), upgrade_type=downgrade) == ErrorCode.NONE
    assert code((TRANSACTION_FEATURE, 2)) == ErrorCode.NONE
    assert levels(cluster) == [(2, 0, 0)]


@pytest.mark.parametrize("upgrade_type", [-128, -1, 0, 4, 127])
def test_an_unknown_upgrade_type_is_refused(cluster: DirectCluster, upgrade_type: int) -> None:
    for feature in (METADATA_FEATURE, TRANSACTION_FEATURE):
        refused = update(cluster, (feature, 1), upgrade_type=upgrade_type)
        assert refused.error_code == ErrorCode.INVALID_UPDATE_VERSION


@pytest.mark.parametrize("level", [-32768, -1, 3, 32767])
def test_a_level_that_no_node_knows_is_refused(cluster: DirectCluster, level: int) -> None:
    update(cluster, *ALL_LATEST)
    for feature in (TRANSACTION_FEATURE, GROUP_FEATURE, KRAFT_FEATURE):
        for upgrade_type in UpgradeType:
            refused = update(cluster, (feature, level), upgrade_type=upgrade_type)
            assert refused.error_code == ErrorCode.INVALID_UPDATE_VERSION
    assert levels(cluster) == [(2, 1, 0)]


def test_a_cluster_of_before_keeps_its_groups_of_the_consumer_protocol(cluster: DirectCluster) -> None:
    assert update(cluster, (METADATA_FEATURE, 5)).error_code == ErrorCode.NONE
    assert levels(cluster) == [(0, 1, 0)]
    assert update(cluster, (METADATA_FEATURE, LATEST_LEVEL)).error_code == ErrorCode.NONE
    assert levels(cluster) == [(0, 1, 0)], "the others stay as they are"
