"""What the members of a share group get, and what brokers decide about it: both are checked as they happen.

A second account of each share-partition is kept beside the one of the leader, from the calls that it gets.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from raylog.broker.handlers import share_fetch
from raylog.broker.share.share_partition import SharePartition
from raylog.core.ids import TopicPartition
from raylog.protocol.share import AcknowledgeType
from tests.sim.planting import Replacement, replaced

FINAL = (AcknowledgeType.ACCEPT, AcknowledgeType.REJECT)


@dataclass
class _Account:
    """Of one share-partition, as long as one broker leads it."""

    holders: dict[int, tuple[str, int]] = field(default_factory=dict)
    """By offset: who has acquired it, and when."""
    counts: dict[int, int] = field(default_factory=dict)
    """The delivery count from which the next acquisition counts on."""


class ShareLedger:
    """Of one group."""

    def __init__(self) -> None:
        self.deliveries: Counter[tuple[TopicPartition, int]] = Counter()
        """How often each record was acquired."""
        self.settled: set[tuple[TopicPartition, int]] = set()
        """Those that were accepted or rejected."""
        self.values: dict[TopicPartition, dict[int, bytes]] = defaultdict(dict)
        self.limit = 0
        self._accounts: dict[SharePartition, _Account] = defaultdict(_Account)
        self._partitions: dict[SharePartition, TopicPartition] = {}

    # --- members

    def got(self, tp: TopicPartition, offset: int, value: bytes, delivery_count: int) -> None:
        before = self.values[tp].setdefault(offset, value)
        assert before == value, f"{tp}, offset {offset}: {before!r} has changed to {value!r}"
        assert 1 <= delivery_count <= self.deliveries[tp, offset], f"{tp}, offset {offset}: count {delivery_count}"

    # --- leaders

    def acquired(self, machine: SharePartition, member_id: str, ranges: Any, now_ms: int) -> None:
        tp, account, limits = self._partitions[machine], self._accounts[machine], machine._limits()
        self.limit = limits.delivery_count_max
        for first, last, count in ranges:
            assert count <= self.limit, f"{tp}, offset {first}: delivered {count} times"
            for offset in range(first, last + 1):
                holder, since_ms = account.holders.get(offset, ("", 0))
                assert not holder or now_ms >= since_ms + limits.lock_duration_ms, (
                    f"{tp}, offset {offset}: {member_id} has acquired what {holder} has since {now_ms - since_ms} ms"
                )
                expected = account.counts.get(offset, count - 1) + 1
                assert count == expected, f"{tp}, offset {offset}: delivery {count}, expected {expected}"
                account.holders[offset], account.counts[offset] = (member_id, now_ms), count
                self.deliveries[tp, offset] += 1
                assert count <= self.deliveries[tp, offset], f"{tp}, offset {offset}: delivery {count} was not made"

    def acknowledged(self, machine: SharePartition, member_id: str, acknowledgements: Any, now_ms: int) -> None:
        tp, account = self._partitions[machine], self._accounts[machine]
        for first, last, kind in acknowledgements:
            for offset in range(max(first, machine.start_offset), last + 1):
                holder, _ = account.holders.get(offset, ("", 0))
                who = holder or "nobody"
                assert holder == member_id, f"{tp}, offset {offset}: {kind.name} of {member_id}, but {who} has it"
                if kind is AcknowledgeType.RENEW:
                    account.holders[offset] = member_id, now_ms
                    continue
                del account.holders[offset]
                if kind in FINAL:
                    self.settled.add((tp, offset))

    def released(self, machine: SharePartition, member_id: str, *, orderly: bool) -> None:
        account = self._accounts[machine]
        for offset in [offset for offset, (holder, _) in account.holders.items() if holder == member_id]:
            del account.holders[offset]
            if orderly:
                account.counts[offset] -= 1

    # --- the end

    def check(self, tp: TopicPartition, written: list[bytes | None]) -> None:
        """`written` are the values of the log: each was delivered until it was settled, or as often as it may be."""
        for offset, value in enumerate(written):
            if value is not None:
                times = self.deliveries[tp, offset]
                assert times, f"{tp}, offset {offset} was never delivered"
                is_done = (tp, offset) in self.settled or times >= self.limit
                assert is_done, f"{tp}, offset {offset} was delivered {times} times, and never accepted"
                assert self.values[tp].get(offset, value) == value, f"{tp}, offset {offset}: another value was read"

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Within the context every leader's decisions are checked."""
        acquire, acknowledge, release = (vars(SharePartition)[name] for name in ("acquire", "acknowledge", "release"))
        fetch_acquire = share_fetch._ShareFetch._acquire

        def watched_fetch(fetch: Any, piece: Any, max_records: int) -> Any:
            topic_id, number = piece.topic_id_partition
            self._partitions[piece.machine] = TopicPartition(fetch._broker.image.topics_by_id[topic_id].name, number)
            return fetch_acquire(fetch, piece, max_records)

        def watched_acquire(machine: Any, member_id: str, spans: Any, **how: Any) -> Any:
            found = acquire(machine, member_id, spans, **how)
            self.acquired(machine, member_id, found, how["now_ms"])
            return found

        def watched_acknowledge(machine: Any, member_id: str, acknowledgements: Any, now_ms: int) -> Any:
            decided = acknowledge(machine, member_id, acknowledgements, now_ms)
            self.acknowledged(machine, member_id, acknowledgements, now_ms)
            return decided

        def watched_release(machine: Any, member_id: str, *, orderly: bool) -> Any:
            decided = release(machine, member_id, orderly=orderly)
            self.released(machine, member_id, orderly=orderly)
            return decided

        watch: list[Replacement] = [
            (share_fetch._ShareFetch, "_acquire", watched_fetch),
            (SharePartition, "acquire", watched_acquire),
            (SharePartition, "acknowledge", watched_acknowledge),
            (SharePartition, "release", watched_release),
        ]
        with replaced(watch):
            yield
