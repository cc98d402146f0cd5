"""A heartbeat of a member of a consumer group, the response, and what no group could accept."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from raylog.config.consumer_groups import ConsumerGroupSettings
from raylog.core import regular_expressions
from raylog.core.errors import ErrorCode, KafkaError
from raylog.groupcoord.consumer.group import LEFT_FOR_A_WHILE
from raylog.groupcoord.consumer.records import Partitions

JOINING: Final = 0
LEAVING: Final = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Heartbeat:
    """What a member says. None, and -1 for the timeout: it is as it was."""

    group_id: str
    member_id: str
    member_epoch: int
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int = -1
    topic_names: tuple[str, ...] | None = None
    topic_regex: str | None = None
    server_assignor: str | None = None
    owned: Partitions | None = None
    client_id: str = ""
    client_host: str = ""

    @property
    def is_full(self) -> bool:
        """Whether the member says everything, as it does when it joins or when it may have missed a response."""
        subscribes = self.topic_names is not None or self.topic_regex is not None
        return self.member_epoch == JOINING or (
            self.rebalance_timeout_ms != -1 and subscribes and self.owned is not None
        )


@dataclass(frozen=True, slots=True)
class Answer:
    """The response to a heartbeat; without an assignment the member keeps the one it has."""

    member_id: str
    member_epoch: int
    assignment: Partitions | None = None
    heartbeat_interval_ms: int = 0
    """Until the next heartbeat; 0 for a member that leaves."""


def check(request: Heartbeat, settings: ConsumerGroupSettings) -> None:
    """Raises KafkaError, INVALID_REQUEST and others, for a heartbeat that no group could accept."""
    for name, text in (
        ("GroupId", request.group_id),
        ("InstanceId", request.instance_id),
        ("RackId", request.rack_id),
    ):
        if text is not None and not text.strip():
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"{name} can't be empty.")
    if request.member_epoch != JOINING and not request.member_id:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "MemberId can't be empty.")
    if request.member_epoch == JOINING:
        _check_first(request)
    elif request.member_epoch == LEFT_FOR_A_WHILE:
        if request.instance_id is None:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "InstanceId can't be null.")
    elif request.member_epoch < LEFT_FOR_A_WHILE:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"MemberEpoch is invalid: {request.member_epoch}.")
    if request.rebalance_timeout_ms < -1:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"RebalanceTimeoutMs is invalid: {request.rebalance_timeout_ms}.")
    if request.server_assignor is not None and request.server_assignor not in settings.assignors:
        raise KafkaError(
            ErrorCode.UNSUPPORTED_ASSIGNOR,
            f"ServerAssignor {request.server_assignor} is not supported. Supported assignors:"
            f" {', '.join(settings.assignors)}.",
        )
    if request.topic_regex:
        regular_expressions.check(request.topic_regex)


def _check_first(request: Heartbeat) -> None:
    """What a member must say when it joins."""
    if request.rebalance_timeout_ms == -1:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "RebalanceTimeoutMs must be provided in first request.")
    if request.owned is None or request.owned:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "TopicPartitions must be empty when (re-)joining.")
    if request.topic_names is None and request.topic_regex is None:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining.",
        )
