"""What the descriptions of all kinds of groups have in common: they are permitted, found, and made in steps."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar
from uuid import UUID

from raylog.core.errors import ErrorCode, KafkaError
from raylog.metadata.image import MetadataImage
from raylog.protocol.codec import EncodedElements
from raylog.protocol.schema import Message
from raylog.security.acl import Operation, Resource
from raylog.security.authorization import NOT_ASKED

if TYPE_CHECKING:
    from raylog.broker.services import BrokerServices
    from raylog.groupcoord.shard import GroupShard
    from raylog.transport.exchange import Exchange

STEP_MEMBERS: Final = 500
"""How many groups and members are described before others are served."""

Response = TypeVar("Response", bound=Message)
Group = TypeVar("Group")


class AssignedGroup(Protocol):
    """A group whose coordinator assigns partitions."""

    @property
    def members(self) -> Mapping[str, Any]: ...

    def topic_names(self) -> set[str]: ...


def described_in_steps(
    exchange: Exchange,
    response: type[Response],
    described_group: type[Any],
    group_ids: Iterable[str],
    describe: Callable[[str], Any],
) -> Generator[None, None, Response]:
    """The response with each group once; `described_group` is the structure of a group in it."""
    groups = EncodedElements(described_group, of=response, version=exchange.api_version)
    described = (describe(group_id) for group_id in dict.fromkeys(group_ids))
    yield from groups.add_in_steps(described, step=STEP_MEMBERS, work=lambda group: 1 + len(group.members))
    make: Callable[..., Response] = response
    return make(groups=groups)


def permitted_group(
    broker: BrokerServices,
    exchange: Exchange,
    group_id: str,
    kind: str,
    groups_of: Callable[[GroupShard], Mapping[str, Group]],
) -> tuple[GroupShard, Group]:
    """The group, with its shard, if the client may describe it. Raises KafkaError; `kind` is for its text."""
    broker.authorization.check(exchange, Operation.DESCRIBE, Resource.group(group_id))
    if not group_id:
        raise KafkaError(ErrorCode.INVALID_GROUP_ID)
    shard = broker.groups.shard(exchange, group_id)
    group = groups_of(shard).get(group_id)
    if group is None:
        why = f"is not a {kind} group" if shard.has(group_id) else "not found"
        raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} {why}.")
    return shard, group


def check_topics(broker: BrokerServices, exchange: Exchange, group: AssignedGroup) -> None:
    """Raises KafkaError if the client may not describe each topic that the members have or subscribe to."""
    if broker.authorization.authorizer is None:
        return
    owned = {topic_id for member in group.members.values() for topic_id, _ in member.assigned}
    names = group.topic_names() | {name for topic_id in owned if (name := topic_name(broker.image, topic_id))}
    message = "The group has described topic(s) that the client is not authorized to describe."
    check_topic_names(broker, exchange, names, message)


def check_topic_names(broker: BrokerServices, exchange: Exchange, names: Iterable[str], message: str) -> None:
    """Raises KafkaError(TOPIC_AUTHORIZATION_FAILED) if the description would show a topic that is to be hidden."""
    if not all(broker.authorization.may(exchange, Operation.DESCRIBE, Resource.topic(name)) for name in sorted(names)):
        raise KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, message)


def operations(broker: BrokerServices, exchange: Exchange, group_id: str, *, asked: bool) -> int:
    """The bits of the operations that the client is permitted on the group."""
    return broker.authorization.operations(exchange, Resource.group(group_id)) if asked else NOT_ASKED


def topic_name(image: MetadataImage, topic_id: UUID) -> str | None:
    topic = image.topics_by_id.get(topic_id)
    return None if topic is None else topic.name
