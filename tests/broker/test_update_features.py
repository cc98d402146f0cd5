"""UpdateFeatures raises the metadata level of the cluster, if every node supports it."""

from __future__ import annotations

import pytest

from raylog.controller import features
from raylog.core.errors import ErrorCode
from raylog.groupcoord.shards import OFFSETS_TOPIC
from raylog.metadata.levels import FIRST_LEVEL, LATEST_LEVEL, METADATA_FEATURE
from raylog.protocol.messages.api_versions import ApiVersionsRequest, FinalizedFeatureKey
from raylog.protocol.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest, UpdateFeaturesResponse
from tests.support.direct_cluster import DirectCluster
from tests.support.transactional_client import group_coordinator

LEVEL_LOWER, LEVEL_UNKNOWN = 0, LATEST_LEVEL + 1
CANNOT = "raylog.metadata cannot be set to level"


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> DirectCluster:
    """At the first level, as after an upgrade of all nodes."""
    monkeypatch.setattr(features, "NEW_CLUSTER", ())
    cluster = DirectCluster(3)
    assert [member.broker.image.metadata_level for member in cluster.brokers] == [FIRST_LEVEL] * 3
    return cluster


def update(
    cluster: DirectCluster, *updates: tuple[str, int], version: int = 2, validate_only: bool = False
) -> UpdateFeaturesResponse:
    keys = tuple(FeatureUpdateKey(feature=name, max_version_level=level) for name, level in updates)
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
            FinalizedFeatureKey(name="group.version", max_version_level=1, min_version_level=1),
            FinalizedFeatureKey(name="share.version", max_version_level=1, min_version_level=1),
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
        ("metadata.version", 1, "'metadata.version' is not a feature of this cluster; it has raylog.metadata."),
        ("", 1, "'' is not a feature of this cluster; it has raylog.metadata."),
    ],
)
def test_a_refused_update_changes_nothing(cluster: DirectCluster, feature: str, level: int, why: str) -> None:
    both = [(METADATA_FEATURE, LATEST_LEVEL)] if feature != METADATA_FEATURE else []
    response = update(cluster, *both, (feature, level))
    assert (response.error_code, response.error_message) == (ErrorCode.INVALID_UPDATE_VERSION, why)
    response = update(cluster, *both, (feature, level), version=1)
    assert response.error_code == ErrorCode.NONE
    assert [(each.error_code, each.error_message) for each in response.results][-1] == (
        ErrorCode.INVALID_UPDATE_VERSION,
        why,
    )
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
