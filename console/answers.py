"""Answers of the console: JSON of bounded size, and the HTTP status of each error. Pure."""

from __future__ import annotations

import json
from typing import Any, Final

from raylog.client.errors import AdminError
from raylog.core.errors import ErrorCode, KafkaError

ANSWER_BYTES_MAX: Final = 8 << 20
MESSAGE_CHARACTERS_MAX: Final = 2_000
_STATUS: Final = {
    ErrorCode.SASL_AUTHENTICATION_FAILED: 401,
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: 403,
    ErrorCode.GROUP_AUTHORIZATION_FAILED: 403,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: 403,
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: 403,
    ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED: 403,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: 404,
    ErrorCode.GROUP_ID_NOT_FOUND: 404,
    ErrorCode.TRANSACTIONAL_ID_NOT_FOUND: 404,
    ErrorCode.RESOURCE_NOT_FOUND: 404,
    ErrorCode.REQUEST_TIMED_OUT: 504,
    ErrorCode.NETWORK_EXCEPTION: 502,
    ErrorCode.UNKNOWN_SERVER_ERROR: 502,
}


def status_of(error: KafkaError) -> int:
    """400 where the cluster has refused what was asked for."""
    return _STATUS.get(error.code, 503 if error.code.retriable else 400)


def refused(error: KafkaError) -> dict[str, Any]:
    """The answer for an error of the cluster, with that of each item that has failed."""
    items = error.errors if isinstance(error, AdminError) else {}
    shown = {str(item): short(each.message) for item, each in list(items.items())[:100]}
    return {"error": {"code": error.code.name, "message": short(error.message or error.code.sentence), "items": shown}}


def short(text: str) -> str:
    return text if len(text) <= MESSAGE_CHARACTERS_MAX else f"{text[:MESSAGE_CHARACTERS_MAX]}..."


def encoded(answer: Any) -> bytes:
    """Raises KafkaError for an answer that is too long for a page."""
    text = json.dumps(answer, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    found = text.encode(errors="replace")
    if len(found) > ANSWER_BYTES_MAX:
        rule = f"the answer has {len(found)} bytes, more than {ANSWER_BYTES_MAX}: ask for less"
        raise KafkaError(ErrorCode.INVALID_REQUEST, rule)
    return found
