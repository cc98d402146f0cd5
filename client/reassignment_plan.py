"""Reassignment plans in the format of kafka-reassign-partitions, and how raylog makes them. Pure.

{"version": 1, "partitions": [{"topic": "flights", "partition": 0, "replicas": [1, 2], "log_dirs": ["any", "any"]}]}
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple, TypeAlias

from raylog.core.errors import ErrorCode, KafkaError
from raylog.core.ids import TopicPartition
from raylog.core.json_text import element_of, field_of, parse_json

VERSION = 1
ANY_LOG_DIR = "any"
Plan: TypeAlias = dict[TopicPartition, tuple[int, ...]]
"""The replicas of each partition, the preferred leader first."""
Racks: TypeAlias = Mapping[int, str | None]


class ThrottledReplicas(NamedTuple):
    """The throttled replicas in a topic's configuration: those copied from, and those copied to."""

    leaders: str
    followers: str


def parse_plan(text: str) -> Plan:
    """Parse a plan. Raises KafkaError(INVALID_REQUEST) that names the error."""
    try:
        document = parse_json(text)
        version = field_of(document, "version", int, at="the document")
        if version != VERSION:
            raise _refusal(f"version {version!s:.100}: must be {VERSION}")
        plan: Plan = {}
        for number, entry in enumerate(field_of(document, "partitions", list, at="the document")):
            at = f"partitions[{number}]"
            tp = TopicPartition(field_of(entry, "topic", str, at=at), field_of(entry, "partition", int, at=at))
            listed = field_of(entry, "replicas", list, at=at)
            replicas = tuple(element_of(one, int, at=f"each of 'replicas' of {at}") for one in listed)
            if tp in plan:
                raise _refusal(f"contains {tp} twice")
            if not replicas or len(set(replicas)) != len(replicas):
                raise _refusal(f"{tp}: replicas must be one or more different brokers")
            log_dirs = field_of(entry, "log_dirs", list, at=at) if "log_dirs" in entry else ()
            if any(log_dir != ANY_LOG_DIR for log_dir in log_dirs):
                raise _refusal(f"{tp}: log_dirs must be 'any'; a log directory cannot be chosen")
            plan[tp] = replicas
    except ValueError as error:
        raise _refusal(f"must be JSON as in kafka-reassign-partitions: {error}") from None
    if not plan:
        raise _refusal("contains no partitions")
    return plan


def format_plan(plan: Plan) -> str:
    entries = [
        {
            "topic": tp.topic,
            "partition": tp.partition,
            "replicas": list(replicas),
            "log_dirs": [ANY_LOG_DIR] * len(replicas),
        }
        for tp, replicas in sorted(plan.items())
    ]
    return json.dumps({"version": VERSION, "partitions": entries})


def spread(present: Plan, brokers: Racks) -> Plan:
    """A plan that spreads the partitions evenly over these brokers, and each over as many racks as possible.

    It moves as few replicas as possible. Raises KafkaError(INVALID_REPLICATION_FACTOR).
    """
    placement = _Placement(present, brokers)
    placement.move_off(lambda broker_id: broker_id not in brokers)
    placement.balance_replicas()
    placement.balance_leaders()
    return placement.plan


def emptied(present: Plan, leaving: int, brokers: Racks) -> Plan:
    """A plan that moves all replicas off the broker `leaving`; `brokers` are the others.

    Each replica moves to the broker with the fewest. Raises KafkaError(INVALID_REPLICATION_FACTOR).
    """
    placement = _Placement(present, brokers)
    placement.move_off(lambda broker_id: broker_id == leaving)
    return {tp: replicas for tp, replicas in placement.plan.items() if replicas != present[tp]}


def throttled_replicas(present: Plan, wanted: Plan) -> dict[str, ThrottledReplicas]:
    """The replicas that a move to `wanted` copies from and to, by topic: the present ones, and those added (KIP-73)."""
    leaders: dict[str, list[str]] = {}
    followers: dict[str, list[str]] = {}
    for tp, replicas in sorted(wanted.items()):
        coming = [broker_id for broker_id in replicas if broker_id not in present[tp]]
        if coming:
            leaders.setdefault(tp.topic, []).extend(f"{tp.partition}:{broker_id}" for broker_id in present[tp])
            followers.setdefault(tp.topic, []).extend(f"{tp.partition}:{broker_id}" for broker_id in coming)
    return {topic: ThrottledReplicas(",".join(leaders[topic]), ",".join(followers[topic])) for topic in leaders}


class _Placement:
    """A plan that is changed one replica at a time."""

    def __init__(self, present: Plan, racks: Racks) -> None:
        self.plan = dict(sorted(present.items()))
        self._racks = racks
        self._held = Counter(dict.fromkeys(racks, 0))
        for replicas in present.values():
            self._held.update(replicas)

    def move_off(self, is_to_go: Callable[[int], bool]) -> None:
        for tp, replicas in self.plan.items():
            for leaving in replicas:
                if is_to_go(leaving):
                    self._move(tp, leaving, self._emptiest_for(tp, leaving))

    def balance_replicas(self) -> None:
        """Move replicas until no broker has two more than another, or no move between them is possible."""
        while (step := next(self._better_steps(), None)) is not None:
            self._move(*step)

    def balance_leaders(self) -> None:
        """Balance preferred leaders by reordering replicas, which copies nothing."""
        while True:
            first = Counter(dict.fromkeys(self._racks, 0))
            first.update(replicas[0] for replicas in self.plan.values())
            swap = next(
                (
                    (tp, other)
                    for tp, replicas in self.plan.items()
                    for other in replicas
                    if first[replicas[0]] - first[other] > 1
                ),
                None,
            )
            if swap is None:
                return
            tp, other = swap
            self.plan[tp] = (other, *(one for one in self.plan[tp] if one != other))

    def _better_steps(self) -> Iterator[tuple[TopicPartition, int, int]]:
        by_load = sorted(self._racks, key=lambda broker_id: (self._held[broker_id], broker_id))
        for fullest in reversed(by_load):
            for emptiest in by_load:
                if self._held[fullest] - self._held[emptiest] < 2:
                    break
                for tp, replicas in self.plan.items():
                    if fullest in replicas and emptiest not in replicas and self._keeps_racks(tp, fullest, emptiest):
                        yield tp, fullest, emptiest

    def _keeps_racks(self, tp: TopicPartition, leaving: int, coming: int) -> bool:
        others = [self._racks.get(one) for one in self.plan[tp] if one != leaving]
        return len({*others, self._racks[coming]}) >= len({*others, self._racks[leaving]})

    def _emptiest_for(self, tp: TopicPartition, leaving: int) -> int:
        """The broker with the fewest replicas, on another rack than the partition's other replicas if possible."""
        others = {self._racks.get(one) for one in self.plan[tp] if one != leaving}
        able = [one for one in self._racks if one not in self.plan[tp]]
        if not able:
            message = f"{tp} has {len(self.plan[tp])} replicas, but only {len(self._racks)} brokers are available"
            raise KafkaError(ErrorCode.INVALID_REPLICATION_FACTOR, message)
        return min(able, key=lambda one: (self._racks[one] in others, self._held[one], one))

    def _move(self, tp: TopicPartition, leaving: int, coming: int) -> None:
        self.plan[tp] = tuple(coming if one == leaving else one for one in self.plan[tp])
        self._held[leaving] -= 1
        self._held[coming] += 1


def _refusal(what: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, f"the plan: {what}")
