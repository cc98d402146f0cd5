"""UpdateFeatures (key 57), v0-2: set the finalized levels of features (KIP-584).

v1 upgrade type in place of allow_downgrade, validate_only; v2 one error for the whole request in place of one for each
feature. Nothing is changed if an update fails: the others get FEATURE_UPDATE_FAILED. Requires ALTER on the cluster.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from raylog.controller import features
from raylog.controller.features import FeatureUpdate, UpgradeType
from raylog.controller.quorum_membership import raise_kraft_version
from raylog.core.errors import ErrorCode, KafkaError
from raylog.core.outcome import Outcome
from raylog.metadata.control_records import ControlRecord
from raylog.metadata.levels import METADATA_FEATURE
from raylog.metadata.records import FeatureLevelChanged, MetadataRecord
from raylog.protocol.messages.update_features import (
    FeatureUpdateKey,
    UpdatableFeatureResult,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)
from raylog.security.acl import CLUSTER, Operation

if TYPE_CHECKING:
    from raylog.controller.services import ControllerServices
    from raylog.transport.exchange import Exchange

FIRST_VERSION_WITH_UPGRADE_TYPE = 1
FIRST_VERSION_WITHOUT_RESULTS = 2


def handle(
    controller: ControllerServices, exchange: Exchange, request: UpdateFeaturesRequest
) -> UpdateFeaturesResponse:
    try:
        controller.authorization.check(exchange, Operation.ALTER, CLUSTER)
        names = [each.feature for each in request.feature_updates]
        if len(names) != len(set(names)):
            raise KafkaError(ErrorCode.INVALID_REQUEST, "A feature is named more than once.")
    except KafkaError as error:
        return UpdateFeaturesResponse(error_code=error.code, error_message=error.message)
    updates = [_update(exchange.api_version, each) for each in request.feature_updates]
    proposed = {each.feature: each.level for each in updates}
    records: list[MetadataRecord] = []
    refused: dict[str, KafkaError] = {}
    for each in updates:
        try:
            voters = controller.voter.levels.of_all(controller.quorum.voters.ids)
            records += features.update_feature(
                controller.image,
                each,
                proposed=proposed,
                voters=voters,
                raise_kraft_version=lambda: raise_kraft_version(controller.quorum, controller.as_voter),
            ).records
        except KafkaError as error:
            refused[each.feature] = error
    if not refused and not request.validate_only:
        try:
            data = [each for each in records if not isinstance(each, ControlRecord)]
            control = [each for each in records if isinstance(each, ControlRecord)]
            controller.decide(Outcome(None, sorted(data, key=_is_not_metadata_level)), exchange.now)
            controller.decide(Outcome(None, control), exchange.now)
        except KafkaError as error:
            return UpdateFeaturesResponse(error_code=error.code, error_message=error.message)
    if exchange.api_version < FIRST_VERSION_WITHOUT_RESULTS:
        return UpdateFeaturesResponse(results=tuple(_result(each.feature, refused) for each in updates))
    if refused:
        first = next(iter(refused.values()))
        return UpdateFeaturesResponse(error_code=first.code, error_message=first.message)
    return UpdateFeaturesResponse()


def _update(api_version: int, key: FeatureUpdateKey) -> FeatureUpdate:
    upgrade_type = key.upgrade_type
    if api_version < FIRST_VERSION_WITH_UPGRADE_TYPE:
        upgrade_type = UpgradeType.SAFE_DOWNGRADE if key.allow_downgrade else UpgradeType.UPGRADE
    return FeatureUpdate(key.feature, key.max_version_level, upgrade_type)


def _is_not_metadata_level(record: MetadataRecord) -> bool:
    """The level of `raylog.metadata` goes first: other records may require it."""
    return not isinstance(record, FeatureLevelChanged) or record.feature != METADATA_FEATURE


def _result(feature: str, refused: Mapping[str, KafkaError]) -> UpdatableFeatureResult:
    error = refused.get(feature)
    if error is None and refused:
        error = KafkaError(ErrorCode.FEATURE_UPDATE_FAILED, "Not updated, because another update was refused.")
    if error is None:
        return UpdatableFeatureResult(feature=feature)
    return UpdatableFeatureResult(feature=feature, error_code=error.code, error_message=error.message)
