"""DeleteTopics (key 20). Made by script/generate_messages.py; change that, not this."""

from dataclasses import dataclass
from typing import ClassVar
from uuid import UUID

from raylog.core.errors import ErrorCode
from raylog.protocol.schema import Api, array, error, int32, string, uuid

API = Api(key=20, name="DeleteTopics", lowest=1, highest=6, flexible_from=4)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteTopicState:
    """Stands in `DeleteTopicsRequest.topics`, versions 6-6."""

    name: str | None = string(None, null_since=6)
    topic_id: UUID = uuid()


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteTopicsRequest:
    """Deletes topics by name or by id."""

    api: ClassVar[Api] = API
    topic_names: tuple[str, ...] = array(string, until=5)
    topics: tuple[DeleteTopicState, ...] = array(DeleteTopicState, since=6)
    timeout_ms: int = int32()


@dataclass(frozen=True, slots=True, kw_only=True)
class DeletableTopicResult:
    """Stands in `DeleteTopicsResponse.responses`."""

    name: str | None = string(null_since=6)
    topic_id: UUID = uuid(since=6)
    error_code: ErrorCode = error()
    error_message: str | None = string(None, since=5, null_since=5)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteTopicsResponse:
    """What became of each topic."""

    api: ClassVar[Api] = API
    throttle_time_ms: int = int32()
    responses: tuple[DeletableTopicResult, ...] = array(DeletableTopicResult)
