"""UpdateFeatures (key 57), v0-2: raise the finalized level of `raylog.metadata` (KIP-584).

v1 upgrade type in place of allow_downgrade, validate_only; v2 one error for the whole request in place of one for each
feature. Nothing is changed if an update fails. Levels cannot be lowered. Requires ALTER on the cluster.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from raylog.controller import features
from raylog.core.errors import ErrorCode, KafkaError
from raylog.core.outcome import Outcome
from raylog.metadata.records import MetadataRecord
from raylog.protocol.messages.update_features import (
    UpdatableFeatureResult,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)
from raylog.security.acl import CLUSTER, Operation

if TYPE_CHECKING:
    from raylog.controller.services import ControllerServices
    from raylog.transport.exchange import Exchange

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
    records: list[MetadataRecord] = []
    results: list[UpdatableFeatureResult] = []
    refused: KafkaError | None = None
    for each in request.feature_updates:
        result = UpdatableFeatureResult(feature=each.feature)
        try:
            outcome = features.update_feature(
                controller.image, each.feature, each.max_version_level, voters=controller.voter.levels.supported
            )
            records += outcome.records
        except KafkaError as error:
            refused = error
            result = UpdatableFeatureResult(feature=each.feature, error_code=error.code, error_message=error.message)
        results.append(result)
    if refused is None and not request.validate_only:
        try:
            controller.decide(Outcome(None, records), exchange.now)
        except KafkaError as error:
            return UpdateFeaturesResponse(error_code=error.code, error_message=error.message)
    if exchange.api_version < FIRST_VERSION_WITHOUT_RESULTS:
        return UpdateFeaturesResponse(results=tuple(results))
    if refused is not None:
        return UpdateFeaturesResponse(error_code=refused.code, error_message=refused.message)
    return UpdateFeaturesResponse()
