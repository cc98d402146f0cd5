"""The events of a consumer group in the order of their observation, and the guarantees that they must satisfy.

Producers, members and observers only append to it; `check` only reads it. All are threads of one process, so its order
is that of time: entries before an entry were known when that one was made.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Acknowledged:
    """The producer's value was acknowledged at that offset."""

    partition: int
    offset: int
    value: bytes


@dataclass(frozen=True, slots=True)
class Assigned:
    """From here on the member reads these partitions; it has not fetched their committed offsets yet."""

    member: str
    partitions: frozenset[int]


@dataclass(frozen=True, slots=True)
class Consumed:
    member: str
    partition: int
    offset: int
    value: bytes


@dataclass(frozen=True, slots=True)
class CommitBegun:
    """The member is about to send it; `number` is that of one commit of one member."""

    member: str
    number: int
    offsets: Mapping[int, int]


@dataclass(frozen=True, slots=True)
class Committed:
    """The coordinator has acknowledged that commit for these partitions."""

    member: str
    number: int
    offsets: Mapping[int, int]


@dataclass(frozen=True, slots=True)
class FetchBegun:
    """An observer is about to fetch the committed offsets."""

    number: int


@dataclass(frozen=True, slots=True)
class Fetched:
    """The response to that fetch: the partitions without an error, 0 if nothing was committed."""

    number: int
    offsets: Mapping[int, int]


@dataclass(frozen=True, slots=True)
class Killed:
    roles: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Recovered:
    """All nodes run again, the group is stable with all members, and has committed all records before the kill."""

    seconds: float


Entry = Acknowledged | Assigned | Consumed | CommitBegun | Committed | FetchBegun | Fetched | Killed | Recovered


class Violation(AssertionError):
    """The ledger violates a guarantee."""


def check(entries: Sequence[Entry], *, partitions: int, consumed_per_kill_min: int) -> None:
    """Raises Violation unless all of these hold:

    - Every acknowledged record was consumed, with its value; a value has one offset, and an offset one value.
    - No offset was committed before every record below it was consumed.
    - No commit goes back: not one that began after another was acknowledged, no fetch, no new owner's first record.
    - After every kill the group recovered before the next, and the last fetch finds everything committed.
    - Between two kills every partition was consumed by at least the given number: an idle group proves nothing.
    """
    _check_records(entries, partitions)
    _check_commits(entries)
    _check_first_records(entries)
    _check_kills(entries, partitions, consumed_per_kill_min)
    _check_end(entries, partitions)


def _check_records(entries: Sequence[Entry], partitions: int) -> None:
    values: dict[tuple[int, int], bytes] = {}
    consumed: set[tuple[int, int]] = set()
    for entry in entries:
        if isinstance(entry, Acknowledged | Consumed):
            place = entry.partition, entry.offset
            if values.setdefault(place, entry.value) != entry.value:
                raise Violation(f"two values at {place}: {values[place]!r} and {entry.value!r}")
            if isinstance(entry, Consumed):
                consumed.add(place)
    twice = [value for value, count in Counter(values.values()).items() if count > 1]
    if twice:
        raise Violation(f"{len(twice)} values have more than one offset, such as {twice[0]!r}")
    acknowledged = {(each.partition, each.offset) for each in entries if isinstance(each, Acknowledged)}
    if lost := sorted(acknowledged - consumed):
        raise Violation(f"{len(lost)} acknowledged records were never consumed, the first at {lost[0]}")
    if {partition for partition, _ in consumed} != set(range(partitions)):
        raise Violation("a partition was not consumed at all")


def _check_commits(entries: Sequence[Entry]) -> None:
    consumed: dict[int, set[int]] = defaultdict(set)
    consumed_to: Counter[int] = Counter()
    """By partition: every offset below was consumed."""
    floor: Counter[int] = Counter()
    """By partition: the highest acknowledged commit."""
    floor_then: dict[tuple[str, int], Counter[int]] = {}
    """By commit or fetch: the floor when it was sent."""
    for entry in entries:
        match entry:
            case Consumed(_, partition, offset, _):
                consumed[partition].add(offset)
                while consumed_to[partition] in consumed[partition]:
                    consumed[partition].remove(consumed_to[partition])
                    consumed_to[partition] += 1
            case CommitBegun(member, number, offsets):
                floor_then[member, number] = floor.copy()
                for partition, offset in offsets.items():
                    if offset > consumed_to[partition]:
                        raise Violation(
                            f"{member} commits {offset} in partition {partition}, and {consumed_to[partition]} was not"
                            " consumed"
                        )
            case FetchBegun(number):
                floor_then["", number] = floor.copy()
            case Committed(member, number, offsets):
                _check_not_below(offsets, floor_then[member, number], f"a commit of {member}")
                for partition, offset in offsets.items():
                    floor[partition] = max(floor[partition], offset)
            case Fetched(number, offsets):
                _check_not_below(offsets, floor_then["", number], "what is found committed")


def _check_not_below(offsets: Mapping[int, int], floor: Mapping[int, int], what: str) -> None:
    for partition, offset in offsets.items():
        if offset < floor[partition]:
            raise Violation(f"{what} goes back in partition {partition}: to {offset} from {floor[partition]}")


def _check_first_records(entries: Sequence[Entry]) -> None:
    floor: Counter[int] = Counter()
    expected: dict[tuple[str, int], int] = {}
    """By member and partition it was newly assigned: what was committed then."""
    for entry in entries:
        match entry:
            case Committed(_, _, offsets):
                for partition, offset in offsets.items():
                    floor[partition] = max(floor[partition], offset)
            case Assigned(member, partitions):
                for partition in partitions:
                    expected[member, partition] = floor[partition]
            case Consumed(member, partition, offset, _):
                committed = expected.pop((member, partition), 0)
                if offset < committed:
                    raise Violation(
                        f"{member} begins partition {partition} at {offset}, and {committed} was committed before"
                    )


def _check_kills(entries: Sequence[Entry], partitions: int, consumed_per_kill_min: int) -> None:
    alive = True
    consumed: Counter[int] = Counter()
    for entry in entries:
        match entry:
            case Consumed(_, partition, _, _):
                consumed[partition] += 1
            case Killed(roles):
                if not alive:
                    raise Violation(f"{roles} killed before the group had recovered from the last time")
                if few := [number for number in range(partitions) if consumed[number] < consumed_per_kill_min]:
                    raise Violation(f"partitions {few} were hardly consumed between two kills: {dict(consumed)}")
                alive = False
                consumed.clear()
            case Recovered():
                alive = True
    if not alive:
        raise Violation("the group did not recover from the last kill")


def _check_end(entries: Sequence[Entry], partitions: int) -> None:
    counts = Counter(each.partition for each in entries if isinstance(each, Acknowledged))
    last = next((each for each in reversed(entries) if isinstance(each, Fetched)), None)
    if last is None or any(last.offsets.get(number) != counts[number] for number in range(partitions)):
        raise Violation(f"in the end {last} is committed, and {dict(counts)} records were acknowledged")
