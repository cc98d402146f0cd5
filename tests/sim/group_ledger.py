"""The responses that all members of one group received: none may contradict a durable one.

Durable are responses that a coordinator sent after committing their records: assignments (SyncGroup) and offset
commits. Joins are not: their generation may be lost with the coordinator, and its number be used again.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from raylog.groupcoord import records
from raylog.groupcoord.classic.subscription import assigned_partitions
from raylog.groupcoord.records import GroupCommitted, KeyedRecord, OffsetCommitted
from raylog.protocol.records.batch import parse_header
from raylog.protocol.records.reader import read_batches

NO_GENERATION = -1


@dataclass(slots=True)
class SentCommit:
    """One offset commit in flight. `number` counts them; it is sent as the commit's metadata."""

    number: int
    generation_id: int
    member_id: str
    partition: int
    offset: int
    acknowledged: bool = False
    refused: bool = False
    """Whether the coordinator has rejected it for certain."""

    @property
    def place(self) -> tuple[int, int]:
        """Its order in the log among commits of its partition, unless a later one of its generation overtook it."""
        return self.generation_id, self.number


class GroupLedger:
    """The state of one group as far as its members know it."""

    def __init__(self, group_id: str, topic: str) -> None:
        self.group_id = group_id
        self.topic = topic
        self.generation_id = NO_GENERATION
        """The highest generation in which a member has its assignment."""
        self._holders: dict[tuple[int, str], object] = {}
        self._given_ids: set[str] = set()
        self._owners: dict[tuple[int, int], str] = {}
        self._parts: dict[tuple[int, str], frozenset[int]] = {}
        self._commits: list[SentCommit] = []
        self._least: dict[int, SentCommit] = {}
        """By partition: the last commit that is known to be applied."""

    # --- members

    def id_given(self, member_id: str) -> None:
        assert member_id not in self._given_ids, f"{self.group_id}: member id {member_id} was assigned twice"
        self._given_ids.add(member_id)

    def joined(self, generation_id: int, member_id: str, holder: object, *, known_before: int) -> None:
        """`holder` identifies one life of one member; `known_before` is the generation known when it sent the join."""
        assert generation_id >= known_before, f"{self.group_id}: generation {generation_id} after {known_before}"
        held_by = self._holders.setdefault((generation_id, member_id), holder)
        assert held_by is holder, f"{self.group_id}: two members have id {member_id} in generation {generation_id}"

    def synced(
        self, generation_id: int, member_id: str, instance: str | None, part: Iterable[int], *, known_before: int
    ) -> None:
        assert generation_id >= known_before, (
            f"{self.group_id}: an assignment of generation {generation_id} after {known_before}"
        )
        owner = instance or member_id
        for partition in part:
            owned_by = self._owners.setdefault((generation_id, partition), owner)
            assert owned_by == owner, (
                f"{self.group_id}: {owned_by} and {owner} own {partition} in generation {generation_id}"
            )
        part = frozenset(part)
        told = self._parts.setdefault((generation_id, member_id), part)
        assert told == part, (
            f"{self.group_id}: {member_id} got assignment {told}, then {part}, in generation {generation_id}"
        )
        self.generation_id = max(self.generation_id, generation_id)

    # --- commits

    def commit(self, generation_id: int, member_id: str, partition: int, offset: int) -> SentCommit:
        sent = SentCommit(len(self._commits), generation_id, member_id, partition, offset)
        self._commits.append(sent)
        return sent

    def acknowledged(self, sent: SentCommit, *, known_before: int) -> None:
        assert sent.generation_id >= known_before, (
            f"{self.group_id}: a commit of generation {sent.generation_id} was accepted after {known_before} had begun"
        )
        sent.acknowledged = True
        self._counted(sent)

    def least(self, partition: int) -> SentCommit | None:
        return self._least.get(partition)

    def fetched(self, partition: int, offset: int, metadata: str, *, least: SentCommit | None) -> None:
        """`least` is the commit known to be applied when the fetch was sent."""
        if not metadata:
            assert offset == -1, f"{self.group_id}: offset {offset} was never committed for {partition}"
            assert least is None, f"{self.group_id}: {least} was acknowledged, but no offset is stored"
            return
        found = self._commits[int(metadata)]
        assert (found.partition, found.offset) == (partition, offset), (
            f"{found} was stored as offset {offset} of {partition}"
        )
        assert not found.refused, f"{self.group_id}: {found} was refused, but is stored"
        self._check_not_before(found, least)
        self._counted(found)

    def _counted(self, sent: SentCommit) -> None:
        least = self._least.get(sent.partition)
        if least is None or sent.place > least.place:
            self._least[sent.partition] = sent

    def _check_not_before(self, found: SentCommit, least: SentCommit | None) -> None:
        """A commit without a response may still be applied as long as its generation lasts."""
        if least is not None and found.place < least.place:
            overtaken = found.generation_id == least.generation_id and not found.acknowledged
            assert overtaken, f"{self.group_id}: {least} was acknowledged, but {found} is stored"

    # --- the final log

    def check_log(self, group_records: Iterable[KeyedRecord]) -> None:
        """`group_records` are the records of this group in the log of its coordinator, in order."""
        group: GroupCommitted | None = None
        parts: dict[tuple[int, str], frozenset[int]] = {}
        written: set[int] = set()
        last: dict[int, SentCommit] = {}
        for record in group_records:
            if isinstance(record, GroupCommitted):
                self._check_follows(group, record)
                group = record
                for member in record.members:
                    parts[record.generation_id, member.member_id] = self.part(member.assignment)
            elif isinstance(record, OffsetCommitted):
                sent = self._commits[int(record.metadata)]
                assert sent.number not in written, f"{sent} was written twice"
                assert not sent.refused, f"{sent} was refused, but is in the log"
                assert (record.partition, record.offset) == (sent.partition, sent.offset)
                assert group is not None, f"{sent} was written before the group's first record"
                assert sent.generation_id == group.generation_id, (
                    f"{sent} was written during generation {group.generation_id}"
                )
                assert any(sent.member_id == member.member_id for member in group.members), (
                    f"{sent} was written, but is not from a member"
                )
                written.add(sent.number)
                last[sent.partition] = sent
        for sent in self._commits:
            assert sent.number in written or not sent.acknowledged, f"{sent} was acknowledged, but is lost"
        for partition, least in self._least.items():
            self._check_not_before(last[partition], least)
        for told, part in self._parts.items():
            assert parts.get(told) == part, f"{told} got assignment {part}, but the log has {parts.get(told)}"

    def part(self, assignment: bytes) -> frozenset[int]:
        return frozenset(tp.partition for tp in assigned_partitions(assignment) if tp.topic == self.topic)

    def _check_follows(self, before: GroupCommitted | None, record: GroupCommitted) -> None:
        """Generations increase. Within one, a process may replace a static member and keeps its assignment."""
        if before is None or record.generation_id > before.generation_id:
            return
        assert record.generation_id == before.generation_id, (
            f"{self.group_id}: generation {record.generation_id} was written after {before.generation_id}"
        )
        assert _by_instance(record) == _by_instance(before), (
            f"{self.group_id}: generation {record.generation_id} has two assignments"
        )


def read_group_records(batches: bytes) -> list[tuple[int, KeyedRecord]]:
    """All records of a partition of __consumer_offsets, each with its leader epoch."""
    found: list[tuple[int, KeyedRecord]] = []
    position = 0
    while position < len(batches):
        header = parse_header(batches, position)
        batch = batches[position : position + header.size_bytes]
        for record in read_batches(batch, from_offset=header.base_offset):
            decoded = records.decode(record.key or b"", record.value)
            assert decoded is not None, f"unexpected record key {record.key!r}"
            found.append((header.partition_leader_epoch, decoded))
        position += header.size_bytes
    return found


def _by_instance(record: GroupCommitted) -> dict[str, bytes]:
    return {member.group_instance_id or member.member_id: member.assignment for member in record.members}
