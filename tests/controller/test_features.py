"""Records are written only at a metadata level that all nodes support; the level is raised when all support it."""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID

import pytest

from raylog.controller import brokers, features
from raylog.controller.features import (
    NEW_CLUSTER,
    FeatureUpdate,
    UpgradeType,
    check_writable,
    raise_level,
    update_feature,
)
from raylog.core.errors import ErrorCode, KafkaError
from raylog.core.ids import BrokerId
from raylog.core.outcome import Outcome
from raylog.metadata.features import GROUP_FEATURE, REGISTERED, TRANSACTION_FEATURE
from raylog.metadata.image import MetadataImage
from raylog.metadata.levels import (
    COMPACTION_LEVEL,
    FIRST_LEVEL,
    LATEST_LEVEL,
    METADATA_FEATURE,
    LevelRange,
    UnsupportedLevel,
)
from raylog.metadata.records import (
    BrokerRegistered,
    FeatureLevelChanged,
    MetadataRecord,
    TopicConfigsChanged,
    TopicCreated,
    required_level,
)
from tests.controller.metadata import carry_out, image_of, registered, replay

VOTERS = {BrokerId(1000): LevelRange(1, 2)}


def supporting(broker_id: int, lowest: int, highest: int) -> BrokerRegistered:
    return replace(registered(broker_id, epoch=90 + broker_id), features=((METADATA_FEATURE, lowest, highest),))


def register(image: MetadataImage, *supported: tuple[str, int, int]) -> Outcome[int, MetadataRecord]:
    return brokers.register_broker(
        image,
        BrokerId(5),
        incarnation_id=UUID(int=55),
        endpoints=(),
        rack=None,
        directory_ids=(),
        features=supported,
        broker_epoch=500,
        predecessor_alive=False,
    )


def at_level_2(*broker_ids: int) -> MetadataImage:
    image = image_of(*broker_ids)
    replay(image, [FeatureLevelChanged(METADATA_FEATURE, 2)])
    return image


def test_a_new_cluster_starts_at_the_newest_level() -> None:
    image = MetadataImage()
    assert image.metadata_level == FIRST_LEVEL
    replay(image, NEW_CLUSTER)
    assert image.metadata_level == LATEST_LEVEL


def test_the_level_is_raised_if_all_brokers_support_it() -> None:
    image = MetadataImage()
    replay(image, [supporting(0, 1, 2), supporting(1, 2, 7)])
    outcome = raise_level(image, 2, voters=VOTERS)
    assert outcome.records == [FeatureLevelChanged(METADATA_FEATURE, 2)]
    carry_out(image, outcome)
    assert image.metadata_level == 2
    assert not raise_level(image, 2, voters=VOTERS).records, "it is there already"


@pytest.mark.parametrize(
    ("level", "why"),
    [
        (1, "raylog.metadata cannot be set to level 1. It is at level 2 and cannot be lowered."),
        (4, "raylog.metadata cannot be set to level 4. Controller 1001 supports levels 1 to 3."),
        (3, "raylog.metadata cannot be set to level 3. Broker 1 supports levels 1 to 2."),
    ],
)
def test_a_level_that_a_node_does_not_support_is_refused(level: int, why: str) -> None:
    image = at_level_2()
    replay(image, [supporting(0, 1, 3), supporting(1, 1, 2)])  # both are fenced: they count all the same
    with pytest.raises(KafkaError) as refused:
        raise_level(image, level, voters={BrokerId(1000): LevelRange(1, 4), BrokerId(1001): LevelRange(1, 3)})
    assert (refused.value.code, refused.value.message) == (ErrorCode.INVALID_UPDATE_VERSION, why)


def test_internal_topics_become_compacted_with_the_level_of_compaction() -> None:
    image = image_of(0)
    kept = (("retention.ms", "-1"),)
    replay(
        image,
        [
            supporting(0, 1, LATEST_LEVEL),
            FeatureLevelChanged(METADATA_FEATURE, COMPACTION_LEVEL - 1),
            TopicCreated("__consumer_offsets", UUID(int=1), kept),
            TopicCreated("__transaction_state", UUID(int=2), (("cleanup.policy", "delete"),)),
            TopicCreated("other", UUID(int=3), kept),
        ],
    )
    outcome = raise_level(image, COMPACTION_LEVEL, voters={BrokerId(1000): LevelRange(1, LATEST_LEVEL)})
    changed = TopicConfigsChanged(UUID(int=1), (("cleanup.policy", "compact"), *kept))
    assert outcome.records == [FeatureLevelChanged(METADATA_FEATURE, COMPACTION_LEVEL), changed]
    carry_out(image, outcome)
    assert not raise_level(image, COMPACTION_LEVEL, voters={}).records


def test_a_broker_without_a_registered_range_supports_the_first_level_only() -> None:
    with pytest.raises(KafkaError, match="Broker 0 supports levels 1 to 1"):
        raise_level(image_of(0), 2, voters=VOTERS)


def test_a_broker_that_does_not_support_the_finalized_level_is_refused() -> None:
    for supported, told in (((), "1 to 1"), (((METADATA_FEATURE, 3, 5),), "3 to 5")):
        with pytest.raises(KafkaError) as refused:
            register(at_level_2(), *supported)
        assert refused.value.code == ErrorCode.UNSUPPORTED_VERSION
        assert refused.value.message == f"The cluster is at raylog.metadata level 2; the broker supports levels {told}."
    [record] = register(at_level_2(), ("group.version", 0, 1), (METADATA_FEATURE, 1, 2)).records
    assert isinstance(record, BrokerRegistered)
    assert record.features == (("group.version", 0, 1), (METADATA_FEATURE, 1, 2))


def test_brokers_of_the_first_level_may_join_a_cluster_of_that_level() -> None:
    assert register(image_of()).records


def test_a_record_is_refused_below_the_level_that_introduced_it(monkeypatch: pytest.MonkeyPatch) -> None:
    created = TopicCreated("t", UUID(int=1))
    check_writable([created], FIRST_LEVEL)
    check_writable([*NEW_CLUSTER, created], FIRST_LEVEL)
    monkeypatch.setattr(features, "required_level", lambda record: 3 if record is created else required_level(record))
    with pytest.raises(KafkaError) as refused:
        check_writable([created], 2)
    assert refused.value.code == ErrorCode.UNSUPPORTED_VERSION
    assert refused.value.message == "TopicCreated needs raylog.metadata level 3; the cluster is at level 2."
    check_writable([FeatureLevelChanged(METADATA_FEATURE, 3), created], 2)


def test_a_feature_that_a_broker_does_not_support_is_refused() -> None:
    image = MetadataImage()
    replay(image, [*NEW_CLUSTER[:1], supporting(0, 1, LATEST_LEVEL)])
    update = FeatureUpdate(TRANSACTION_FEATURE, 2, UpgradeType.UPGRADE)
    with pytest.raises(KafkaError, match="Broker 0 supports levels 0 to 0"):
        update_feature(image, update, proposed={}, voters={}, raise_kraft_version=lambda: Outcome(None))


def test_a_broker_that_does_not_support_a_finalized_feature_is_refused() -> None:
    image = MetadataImage()
    replay(image, NEW_CLUSTER)
    assert register(image, *REGISTERED).records
    assert register(image, *REGISTERED, ("unknown", 0, 9)).records
    for ranges in (REGISTERED[:1], (*REGISTERED[:1], (TRANSACTION_FEATURE, 0, 1), (GROUP_FEATURE, 0, 1))):
        with pytest.raises(KafkaError, match=r"transaction\.version level 2; the broker supports levels 0 to"):
            register(image, *ranges)


@pytest.mark.parametrize("record", [FeatureLevelChanged("unknown.version", 1), FeatureLevelChanged(GROUP_FEATURE, 2)])
def test_a_log_with_an_unknown_feature_is_refused(record: FeatureLevelChanged) -> None:
    with pytest.raises(UnsupportedLevel, match=record.feature):
        replay(MetadataImage(), [record])
