"""The leader of a classic group assigns the topics that exist, and assigns anew when one is created or deleted."""

from __future__ import annotations

import random
import re
from collections.abc import Mapping
from typing import Any
from uuid import UUID

import pytest

from raylog.client.consumer.assignors import ASSIGNORS
from raylog.client.consumer.core import ConsumerCore
from raylog.client.consumer.group_member import GroupMember, Step
from raylog.config.consumer import CONSUMER_CONFIG, consumer_settings
from raylog.core.clock import Now
from raylog.core.config import Configs, ConfigSource, Layer
from raylog.core.errors import ErrorCode
from raylog.protocol import consumer_protocol
from raylog.protocol.consumer_protocol import ConsumerProtocolAssignment, ConsumerProtocolSubscription
from raylog.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse, JoinGroupResponseMember
from raylog.protocol.messages.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from raylog.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse

IDS = {"a": UUID(int=1), "b": UUID(int=2)}
Topics = Mapping[str, int | ErrorCode]
"""How many partitions each has, or its error."""


class Bench:
    """A member whose JoinGroup and SyncGroup are answered by the test; it leads the group."""

    def __init__(self, topics: list[str] | re.Pattern[str]) -> None:
        given = {"group.id": "g", "enable.auto.commit": "false"}
        layer = Layer(ConfigSource.STATIC_BROKER_CONFIG, CONSUMER_CONFIG.parse(given))
        settings = consumer_settings(Configs(CONSUMER_CONFIG, [layer]))
        self.core = ConsumerCore("h:1", settings, random.Random(1), assignors=[ASSIGNORS["range"]])
        self.now = Now(1000, 0)
        self.sent: list[tuple[Any, Any]] = []
        network: Any = self.core.network
        network.ask = self._ask
        coordinators: Any = self.core._coordinators
        coordinators.node_id = lambda *_: 1
        assert isinstance(self.core.member, GroupMember)
        self.member = self.core.member
        if isinstance(topics, re.Pattern):
            self.core.subscribe([], topics)
        else:
            self.core.subscribe(topics, None)
        self.core.run(self.now)

    def _ask(self, _: int, request: Any, answered: Any, failed: Any, now: Now, **how: Any) -> None:
        if isinstance(request, JoinGroupRequest | SyncGroupRequest):
            self.sent.append((request, answered))

    def shows(self, topics: Topics) -> None:
        """A metadata response."""
        shown = [
            MetadataResponseTopic(error_code=what, name=name)
            if isinstance(what, ErrorCode)
            else MetadataResponseTopic(
                name=name,
                topic_id=IDS[name],
                partitions=tuple(
                    MetadataResponsePartition(partition_index=number, leader_id=1, leader_epoch=0)
                    for number in range(what)
                ),
            )
            for name, what in topics.items()
        ]
        broker = MetadataResponseBroker(node_id=1, host="h", port=1)
        self.core.network.metadata.answered(MetadataResponse(brokers=(broker,), topics=tuple(shown)), self.now)
        self.poll()

    def poll(self) -> None:
        self.core.begin_poll(self.now)
        self.core.run(self.now)
        while (self.member.next_callback()) is not None:
            self.member.callback_done(self.now)
        self.core.end_poll(self.now)

    def joined(self, topics: list[str], *, skip_assignment: bool = False) -> None:
        """As the leader of a group whose only member wants these."""
        ((request, answered),) = self.sent
        self.sent.clear()
        assert isinstance(request, JoinGroupRequest)
        data = consumer_protocol.encode(ConsumerProtocolSubscription(topics=tuple(topics)))
        member = JoinGroupResponseMember(member_id="m", metadata=data)
        response = JoinGroupResponse(
            generation_id=1,
            protocol_name="range",
            leader="m",
            member_id="m",
            members=(member,),
            skip_assignment=skip_assignment,
        )
        answered(response, self.now)
        self.poll()

    def assigned(self) -> dict[str, list[int]]:
        """What the leader assigns, in its SyncGroup, to the member, which gets it."""
        ((request, answered),) = self.sent
        self.sent.clear()
        data = request.assignments[0].assignment
        answered(SyncGroupResponse(assignment=data), self.now)
        self.poll()
        content = consumer_protocol.decode(ConsumerProtocolAssignment, data)
        found: dict[str, list[int]] = {}
        for tp in consumer_protocol.flat(content.assigned_partitions):
            found.setdefault(tp.topic, []).append(tp.partition)
        return found


@pytest.mark.parametrize("code", [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.TOPIC_AUTHORIZATION_FAILED])
def test_the_leader_assigns_anew_when_a_topic_is_lost_and_when_it_is_back(code: ErrorCode) -> None:
    bench = Bench(["a", "b"])
    bench.shows({"a": 1, "b": 2})
    bench.joined(["a", "b"])
    assert bench.assigned() == {"a": [0], "b": [0, 1]}
    bench.shows({"a": 1, "b": 2})
    assert bench.member.step is Step.IN
    bench.shows({"a": 1, "b": code})
    bench.joined(["a", "b"])
    assert bench.assigned() == {"a": [0]}
    bench.shows({"a": 1, "b": code})
    assert bench.member.step is Step.IN
    bench.shows({"a": 1, "b": 1})
    bench.joined(["a", "b"])
    assert bench.assigned() == {"a": [0], "b": [0]}


def test_a_leader_by_pattern_waits_for_one_response_and_assigns_what_it_shows() -> None:
    bench = Bench(re.compile("[ab]"))
    bench.shows({"a": 1})
    bench.joined(["a", "b", "misspelt"])
    assert (bench.member.step, bench.sent) == (Step.ASSIGNING, [])
    assert bench.core.network.metadata._stale
    bench.shows({"a": 1})
    assert bench.assigned() == {"a": [0]}
    bench.shows({"a": 1})
    assert (bench.member.step, bench.sent) == (Step.IN, [])


def test_a_leader_whose_assignment_is_kept_assigns_anew_only_when_a_topic_changes() -> None:
    """As a static leader that is restarted (KIP-814); another member wants topic b."""
    bench = Bench(["a"])
    bench.shows({"a": 1})
    bench.joined(["a", "b"], skip_assignment=True)
    bench.shows({"a": 1, "b": 2})
    ((request, answered),) = bench.sent
    bench.sent.clear()
    assert request.assignments == ()
    answered(SyncGroupResponse(assignment=consumer_protocol.encode(ConsumerProtocolAssignment())), bench.now)
    bench.poll()
    bench.shows({"a": 1, "b": 2})
    assert (bench.member.step, bench.sent) == (Step.IN, [])
    bench.shows({"a": 1, "b": 3})
    bench.joined(["a", "b"])
    assert bench.assigned() == {"a": [0], "b": [0, 1, 2]}
