"""The records that the program has got from poll() and that are not done, and what it says of them. Pure.

    DELIVERED --acknowledge--> --poll or commit--> an Acknowledgement, sent --response--> done
        ^                                                    |
        +------- poll <-------- renewed <-------- RENEW -----+

The last word before poll or commit counts. A record that is acquired again, because its lock has timed out, takes the
place of the one that was there.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from raylog.client.share.acquired import Held, Leader, Place
from raylog.core.errors import ErrorCode, KafkaError
from raylog.protocol.share import AcknowledgeType


@dataclass(slots=True, eq=False)
class Acknowledgement:
    """What was said of records of one partition, to be sent to the leader that they were acquired from."""

    leader: Leader
    kinds: dict[int, AcknowledgeType] = field(default_factory=dict)
    """By offset."""
    renewals: list[Held] = field(default_factory=list)
    """The records to hold on to."""
    deadline_ms: int = 0
    """When it is given up (monotonic)."""
    due_ms: int = 0
    """The pause after an error."""
    attempts: int = 0
    done: bool = False
    error: KafkaError | None = None
    """Why it has failed, or why its last attempt has."""

    @property
    def offsets(self) -> list[int]:
        """Those of records, without gaps."""
        return sorted(offset for offset, kind in self.kinds.items() if kind is not AcknowledgeType.GAP)

    def batches(self) -> list[tuple[int, int, tuple[AcknowledgeType, ...]]]:
        """(first offset, last offset, types) of consecutive offsets: one type for all, or one for each."""
        found: list[tuple[int, int, tuple[AcknowledgeType, ...]]] = []
        run: list[int] = []
        for offset in (*sorted(self.kinds), None):
            if run and offset != run[-1] + 1:
                kinds = tuple(self.kinds[each] for each in run)
                found.append((run[0], run[-1], kinds[:1] if len(set(kinds)) == 1 else kinds))
                run = []
            if offset is not None:
                run.append(offset)
        return found


class InFlight:
    """Lifecycle: `deliver`, `acknowledge`, `take`, `finished`, in turns."""

    def __init__(self, *, explicit: bool) -> None:
        self._explicit = explicit
        self._held: dict[Place, Held] = {}
        self._own: dict[Leader, Acknowledgement] = {}
        """What the client says itself: gaps, and records that cannot be read."""
        self._renewing: set[Acknowledgement] = set()
        self._renewed: list[Held] = []

    def __len__(self) -> int:
        """The number of records that the program has got and that are not acknowledged."""
        return len(self._held)

    @property
    def renews(self) -> bool:
        """Whether there are renewed records to return, or a renewal was sent: nothing new is acquired meanwhile."""
        return bool(self._renewing or self._renewed)

    def deliver(self, records: Iterable[Held]) -> None:
        """The program gets these."""
        for held in records:
            self._held[held.record[:3]] = held

    def settle(self, leader: Leader, offsets: Iterable[int], kind: AcknowledgeType) -> None:
        """These are acknowledged by the client itself."""
        own = self._own.setdefault(leader, Acknowledgement(leader))
        own.kinds |= dict.fromkeys(offsets, kind)

    def acknowledge(self, place: Place, kind: AcknowledgeType) -> None:
        """Raises KafkaError: INVALID_REQUEST, or INVALID_RECORD_STATE for a record that the program does not hold."""
        if not self._explicit:
            text = "share.acknowledgement.mode is implicit: poll() and commit_sync() accept what poll() has returned"
            raise KafkaError(ErrorCode.INVALID_REQUEST, text)
        if kind is AcknowledgeType.GAP:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST, "GAP is for offsets without a record; a program cannot acknowledge with it"
            )
        held = self._held.get(place)
        if held is None:
            topic, partition, offset = place
            what = f"the record {topic}-{partition}, offset {offset}, is not one of the last poll(), or is done already"
            raise KafkaError(ErrorCode.INVALID_RECORD_STATE, what)
        held.kind = kind

    def release(self, place: Place) -> None:
        """The client cannot return this record, which was delivered. The program may still reject it."""
        self._held[place].kind = AcknowledgeType.RELEASE

    def before_poll(self) -> None:
        """Raises KafkaError(INVALID_REQUEST) if the program has not acknowledged each record, as it must."""
        self.accept_all()
        left = [held.record for held in self._held.values() if held.kind is None]
        if left:
            topic, partition, offset = left[0][:3]
            text = f"all records must be acknowledged before poll() is called again; {len(left)} are not, the first of"
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"{text} which is {topic}-{partition}, offset {offset}")

    def accept_all(self) -> None:
        """In the implicit mode, what was returned is accepted."""
        for held in () if self._explicit else self._held.values():
            held.kind = held.kind or AcknowledgeType.ACCEPT

    def take(self, deadline_ms: int) -> list[Acknowledgement]:
        """What is to be sent, and given up at the deadline. Each ends with `finished`."""
        found, self._own = self._own, {}
        for place, held in list(self._held.items()):
            if held.kind is None:
                continue
            del self._held[place]
            one = found.setdefault(held.leader, Acknowledgement(held.leader))
            one.kinds[held.record.offset] = held.kind
            if held.kind is AcknowledgeType.RENEW:
                one.renewals.append(held)
        for each in found.values():
            each.deadline_ms = deadline_ms
            if each.renewals:
                self._renewing.add(each)
        return list(found.values())

    def forget(self) -> None:
        """The sessions end, and release what the program holds."""
        self._held.clear()
        self._renewed.clear()

    def finished(self, acknowledgement: Acknowledgement, error: KafkaError | None) -> None:
        """The leader has stored it; or it has not, and the records are delivered again once their locks time out."""
        acknowledgement.done, acknowledgement.error = True, error
        self._renewing.discard(acknowledgement)
        if error is None:
            self._renewed += acknowledgement.renewals

    def take_renewed(self) -> list[Held]:
        """The records whose locks were renewed, which the program gets again."""
        renewed, self._renewed = self._renewed, []
        for held in renewed:
            held.kind = None
        self.deliver(renewed)
        return renewed
