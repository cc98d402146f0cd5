"""StreamsGroupHeartbeat (key 88), v0: join, remain in and leave a streams group (KIP-1071).

Requires READ on the group and DESCRIBE on the topics of the topology. Internal topics that are missing are created if
the client has CREATE on the cluster or on all of them.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from raylog.broker.topic_creation import Requester
from raylog.core.errors import ErrorCode, KafkaError
from raylog.groupcoord.streams.configured import Status as GroupStatus
from raylog.groupcoord.streams.configured import StatusCode
from raylog.groupcoord.streams.heartbeat import JOINING, StreamsAnswer, StreamsHeartbeat, check
from raylog.groupcoord.streams.tasks import TaskId, Tasks, by_subtopology
from raylog.groupcoord.streams.topology import check_names, shown
from raylog.metadata.features import STREAMS_FEATURE
from raylog.protocol.messages.streams_group_heartbeat import (
    Status,
    StreamsGroupHeartbeatRequest,
    StreamsGroupHeartbeatResponse,
    TaskIds,
)
from raylog.security.acl import CLUSTER, Operation, Resource

if TYPE_CHECKING:
    from raylog.broker.services import BrokerServices
    from raylog.transport.exchange import Exchange

ERROR_HEARTBEATS: Final = 2
"""For how many heartbeats the error of a topic's creation is kept."""
ERRORS_SHOWN_MAX: Final = 3


def handle(
    broker: BrokerServices, exchange: Exchange, request: StreamsGroupHeartbeatRequest
) -> StreamsGroupHeartbeatResponse:
    try:
        answer = _serve(broker, exchange, request)
    except KafkaError as error:
        return StreamsGroupHeartbeatResponse(error_code=error.code, error_message=error.message)
    tasks = answer.tasks
    return StreamsGroupHeartbeatResponse(
        member_id=answer.member_id,
        member_epoch=answer.member_epoch,
        heartbeat_interval_ms=broker.streams_group_settings(request.group_id).heartbeat_interval_ms,
        status=tuple(
            Status(status_code=each.code, status_detail=each.detail)
            for each in _statuses(broker, exchange, answer, request)
        ),
        active_tasks=None if tasks is None else _task_ids(tasks.active),
        standby_tasks=None if tasks is None else _task_ids(tasks.standby),
        warmup_tasks=None if tasks is None else _task_ids(tasks.warmup),
        endpoint_information_epoch=answer.endpoint_epoch,
        partitions_by_user_endpoint=answer.endpoints,
    )


def _serve(broker: BrokerServices, exchange: Exchange, request: StreamsGroupHeartbeatRequest) -> StreamsAnswer:
    if not broker.settings.streams_groups.enabled or not broker.image.feature_level(STREAMS_FEATURE):
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, "Streams groups are not enabled.")
    broker.authorization.check(exchange, Operation.READ, Resource.group(request.group_id))
    if request.topology is not None:
        for name in check_names(request.topology):
            broker.authorization.check(exchange, Operation.DESCRIBE, Resource.topic(name))
    for name, offsets in (("TaskOffsets", request.task_offsets), ("TaskEndOffsets", request.task_end_offsets)):
        if offsets is not None:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"{name} are not supported yet.")
    heartbeat = _heartbeat(exchange, request)
    check(heartbeat)
    shard = broker.groups.shard(exchange, request.group_id)
    if request.member_epoch == JOINING:
        broker.groups.check_room(exchange, request.group_id)
    return shard.streams_heartbeat(heartbeat, exchange.now)


def _heartbeat(exchange: Exchange, request: StreamsGroupHeartbeatRequest) -> StreamsHeartbeat:
    endpoint, tags = request.user_endpoint, request.client_tags
    return StreamsHeartbeat(
        group_id=request.group_id,
        member_id=request.member_id,
        member_epoch=request.member_epoch,
        endpoint_epoch=request.endpoint_information_epoch,
        instance_id=request.instance_id,
        rack_id=request.rack_id,
        rebalance_timeout_ms=request.rebalance_timeout_ms,
        topology=request.topology,
        owned=_owned(request),
        process_id=request.process_id,
        endpoint=None if endpoint is None else (endpoint.host, endpoint.port),
        client_tags=None if tags is None else tuple((each.key, each.value) for each in tags),
        shuts_down=request.shutdown_application,
        client_id=exchange.client_id or "",
        client_host=f"/{exchange.connection.peer_host}",
    )


def _owned(request: StreamsGroupHeartbeatRequest) -> Tasks | None:
    """Raises KafkaError(INVALID_REQUEST) if the member says only a part of it."""
    active, standby, warmup = request.active_tasks, request.standby_tasks, request.warmup_tasks
    if active is None and standby is None and warmup is None:
        return None
    if active is None or standby is None or warmup is None:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "If one task-type is non-null, all must be non-null.")
    return Tasks(_ids(active), _ids(standby), _ids(warmup))


def _ids(tasks: Iterable[TaskIds]) -> frozenset[TaskId]:
    return frozenset((each.subtopology_id, partition) for each in tasks for partition in each.partitions)


def _task_ids(tasks: frozenset[TaskId]) -> tuple[TaskIds, ...]:
    return tuple(
        TaskIds(subtopology_id=subtopology_id, partitions=partitions)
        for subtopology_id, partitions in by_subtopology(tasks).items()
    )


def _statuses(
    broker: BrokerServices, exchange: Exchange, answer: StreamsAnswer, request: StreamsGroupHeartbeatRequest
) -> list[GroupStatus]:
    """The statuses of the group; that of missing topics says as well why they are not created."""
    if not answer.missing_topics:
        return list(answer.statuses)
    why = _create_topics(broker, exchange, answer, request)
    return [
        GroupStatus(each.code, each.detail + why) if each.code is StatusCode.MISSING_INTERNAL_TOPICS else each
        for each in answer.statuses
    ]


def _create_topics(
    broker: BrokerServices, exchange: Exchange, answer: StreamsAnswer, request: StreamsGroupHeartbeatRequest
) -> str:
    """Have the missing topics created. Returns what to add to the status."""
    missing, authorization = answer.missing_topics, broker.authorization
    if not authorization.may(exchange, Operation.CREATE, CLUSTER, logs_denial=False):
        names = [topic.name for topic in missing]
        denied = [name for name in names if not authorization.may(exchange, Operation.CREATE, Resource.topic(name))]
        if denied:
            return f"; Unauthorized to CREATE on topics {shown(denied)}."
    interval_ms = broker.streams_group_settings(request.group_id).heartbeat_interval_ms
    requester = Requester.of(exchange)
    broker.streams_topics.create(missing, requester, exchange.now, errors_ms=ERROR_HEARTBEATS * interval_ms)
    errors = broker.streams_topics.errors(missing, exchange.now)
    if not errors:
        return ""
    first = ", ".join(f"{name} ({message})" for name, message in errors[:ERRORS_SHOWN_MAX])
    more = f" and {len(errors) - ERRORS_SHOWN_MAX} more" if len(errors) > ERRORS_SHOWN_MAX else ""
    return f"; Creation failed: {first}{more}."
