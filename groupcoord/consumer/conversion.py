"""Groups that change their protocol while they have members (KIP-848, "Upgrade and downgrade").

A classic group becomes a consumer group in its generation: each member keeps what it was assigned. A consumer group
whose last member of the consumer protocol has left becomes a classic one in its epoch, and its members rebalance.
"""

from __future__ import annotations

from typing import Final

from raylog.core.clock import Now
from raylog.core.errors import ErrorCode, KafkaError
from raylog.core.ids import TopicPartition
from raylog.groupcoord.classic.group import ClassicGroup, GroupState
from raylog.groupcoord.classic.group import Member as OfClassicGroup
from raylog.groupcoord.classic.subscription import CONSUMER
from raylog.groupcoord.consumer.group import ConsumerGroup, Member
from raylog.groupcoord.consumer.member_records import assignment_of, subscription_of
from raylog.groupcoord.consumer.records import (
    ClassicProtocols,
    ConsumerRecord,
    GroupEpochBumped,
    MemberTargeted,
    Partitions,
    TargetDecided,
)
from raylog.groupcoord.topics import Topics
from raylog.protocol import consumer_protocol
from raylog.protocol.consumer_protocol import ConsumerProtocolAssignment, ConsumerProtocolSubscription

KNOWN_ASSIGNORS: Final = frozenset({"range", "roundrobin", "sticky", "cooperative-sticky"})
"""What their leaders add to assignments is not needed any more: librdkafka's cooperative-sticky repeats what a member
had. Kafka refuses it, as that of other assignors."""


def upgraded(group: ClassicGroup, topics: Topics) -> list[ConsumerRecord]:
    """The records of the consumer group that a classic group becomes.

    Raises KafkaError (GROUP_ID_NOT_FOUND) if its members do not say what they have, or say that they share partitions.
    """
    epoch = group.generation_id
    made: list[ConsumerRecord] = [GroupEpochBumped(group.group_id, epoch, 0)]
    owned: set[object] = set()
    for each in group.members.values():
        metadata = each.metadata_for(group.protocol_name) or each.protocols[0][1]
        try:
            wanted = consumer_protocol.decode(ConsumerProtocolSubscription, metadata)
            assigned = partitions_of(wanted, topics)  # what a cooperative member uses until it has synced
            if each.assignment:
                assigned |= _assigned(each.assignment, topics, keeps_nothing=group.protocol_name in KNOWN_ASSIGNORS)
        except KafkaError as error:
            raise _not_upgraded(group, error.message) from error
        if not owned.isdisjoint(assigned):
            raise _not_upgraded(group, "two members have the same partition")
        owned |= assigned
        member = Member(
            each.member_id,
            each.group_instance_id,
            wanted.rack_id,
            each.client_id,
            each.client_host,
            tuple(sorted(set(wanted.topics))),
            rebalance_timeout_ms=each.rebalance_timeout_ms,
            classic=ClassicProtocols(each.session_timeout_ms, each.protocols),
            member_epoch=epoch,
            previous_epoch=epoch,
            assigned=assigned,
        )
        made.append(subscription_of(group.group_id, member))
        made.append(MemberTargeted(group.group_id, each.member_id, assigned))
        made.append(assignment_of(group.group_id, member))
    return [*made, TargetDecided(group.group_id, epoch)]


def downgraded(group: ConsumerGroup, generation_id: int, topics: Topics, now: Now) -> ClassicGroup | None:
    """The classic group that a group of classic members alone becomes; None if they have no assignor in common."""
    made = ClassicGroup(
        group.group_id, GroupState.STABLE, generation_id, protocol_type=CONSUMER, state_since_ms=now.wall_ms
    )
    for each in group.members.values():
        assert each.classic is not None, "a member of the consumer protocol in a classic group"
        made.add(
            OfClassicGroup(
                each.member_id,
                each.instance_id,
                each.client_id,
                each.client_host,
                each.rebalance_timeout_ms,
                each.classic.session_timeout_ms,
                each.classic.protocols,
                expires_ms=0,
                assignment=encoded_assignment(each, each.assigned | each.revoking, topics),
            )
        )
    if not made.common_protocols():
        return None
    made.protocol_name = made.select_protocol()
    made.update_subscriptions()
    return made


def encoded_assignment(member: Member, partitions: Partitions, topics: Topics) -> bytes:
    """As an assignment of a classic member, in the version in which it has said its subscription."""
    assert member.classic is not None
    named = [
        TopicPartition(name, number) for topic_id, number in partitions if (name := topics.name(topic_id)) is not None
    ]
    content = ConsumerProtocolAssignment(assigned_partitions=consumer_protocol.grouped(named), user_data=b"")
    return consumer_protocol.encode(content, consumer_protocol.version_of(member.classic.protocols[0][1]))


def partitions_of(said: ConsumerProtocolAssignment | ConsumerProtocolSubscription, topics: Topics) -> Partitions:
    """What a member has by its own words, as far as the topics exist."""
    named = said.assigned_partitions if isinstance(said, ConsumerProtocolAssignment) else said.owned_partitions
    found = ((topics.shape(tp.topic), tp.partition) for tp in consumer_protocol.flat(named))
    return frozenset((shape.topic_id, number) for shape, number in found if shape is not None)


def _assigned(assignment: bytes, topics: Topics, *, keeps_nothing: bool) -> Partitions:
    """Raises KafkaError. `keeps_nothing`: user data may be lost."""
    content = consumer_protocol.decode(ConsumerProtocolAssignment, assignment)
    if content.user_data and not keeps_nothing:
        raise KafkaError(ErrorCode.UNSUPPORTED_ASSIGNOR, "an assignor of its own kind is in use")
    return partitions_of(content, topics)


def _not_upgraded(group: ClassicGroup, why: str) -> KafkaError:
    return KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Cannot upgrade the classic group {group.group_id}: {why}.")
