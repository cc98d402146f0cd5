"""Which offset in the target belongs to a group's offset in the source, from offset syncs, as in MirrorMaker 2.

A sync says where one committed record of the source is in the target. Between two syncs nothing is known: records may
be missing in the target (control and aborted batches, compaction) or stand there twice (after a restart without
exactly once). So a translation is the nearest sync at or before the group's offset, plus one if the group is past that
record, never a difference of offsets. A group may read again some records that it had read; it never skips one that it
had not. The exception, as in MirrorMaker: without exactly once, a worker that died is replaced by one that copies some
records a second time. A group that fails over before these are copied may begin behind the first copy of some of them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import groupby

from raylog.core.ids import TopicPartition
from raylog.mirror.formats import BEFORE_FIRST, OffsetSync


@dataclass(slots=True)
class _Observed:
    """Of one partition of the source."""

    upstream_offset: int
    downstream_offset: int
    synced_upstream: int
    synced_downstream: int


class OffsetSyncEmitter:
    """Decides which positions the data path writes as offset syncs: MirrorMaker's rule, with its `offset.lag.max`.

    The contract of the caller:

    1. `observe` is called for each run of records that was appended to the target, per partition in order of the
       source, and only after the transaction that contains them is committed (without transactions: after they are
       acknowledged by all in-sync replicas). `upstream_offset` and `downstream_offset` are those of the first record,
       and the `count - 1` records after it must follow without a gap on both sides; a batch that was copied whole is
       one run.
    2. A sync that is returned is written to `FlowConfig.offset_syncs_topic`, partition 0, as `OffsetSync.encode` gives
       it. It need not be in the transaction: losing it costs precision only.
    3. `pending` is called when a partition has been quiet for a while, and once a minute under load: it gives the last
       observed position of each partition that no sync describes yet, so that groups at the end of a quiet partition
       are translated to that end.
    4. `forget` is called for a partition that another worker takes over. The first record of a new owner is always
       synced.
    """

    def __init__(self, offset_lag_max: int) -> None:
        self._lag_max = offset_lag_max
        self._observed: dict[TopicPartition, _Observed] = {}

    def observe(
        self, tp: TopicPartition, upstream_offset: int, downstream_offset: int, count: int = 1
    ) -> list[OffsetSync]:
        """A run of `count` records of the source partition `tp` is committed in the target. See the class.

        The syncs are of its first record, where it does not follow the run before it, and of its last one, where the
        latest sync is too far behind.
        """
        assert count > 0
        found = []
        known = self._observed.get(tp)
        if known is None:
            known = self._observed[tp] = _Observed(upstream_offset, downstream_offset, -1, -1)
            found.append(self._synced(tp, known))
        elif upstream_offset != known.upstream_offset + 1 or downstream_offset < known.downstream_offset:
            known.upstream_offset, known.downstream_offset = upstream_offset, downstream_offset
            found.append(self._synced(tp, known))
        known.upstream_offset, known.downstream_offset = upstream_offset + count - 1, downstream_offset + count - 1
        if known.downstream_offset - (known.synced_downstream + 1) >= self._lag_max:
            found.append(self._synced(tp, known))
        return found

    def pending(self) -> list[OffsetSync]:
        """The last positions that no sync describes; from now on they count as synced."""
        return [
            self._synced(tp, known)
            for tp, known in self._observed.items()
            if known.upstream_offset != known.synced_upstream
        ]

    def forget(self, tp: TopicPartition) -> None:
        self._observed.pop(tp, None)

    def _synced(self, tp: TopicPartition, known: _Observed) -> OffsetSync:
        known.synced_upstream, known.synced_downstream = known.upstream_offset, known.downstream_offset
        return OffsetSync(tp, known.upstream_offset, known.downstream_offset)


def latest_syncs(syncs: Iterable[OffsetSync]) -> list[OffsetSync]:
    """The last one of each partition, behind the one that says that the partition was created again."""
    began: dict[TopicPartition, OffsetSync] = {}
    latest: dict[TopicPartition, OffsetSync] = {}
    for sync in syncs:
        if sync.upstream_offset == BEFORE_FIRST:
            began[sync.tp] = sync
            latest.pop(sync.tp, None)
        else:
            latest[sync.tp] = sync
    return [*began.values(), *latest.values()]


class OffsetSyncStore:
    """The syncs of all partitions, in the order in which they were read, thinned out with their age.

    Nothing is translated before `loaded` was called. Until then a sync replaces the one before it: the topic is
    compacted, and the syncs that are left may be from before and after a partition was created again, without the one
    between that would have told so.

    A sync with an earlier record of the source, further on in the target, says that records are copied a second time.
    It is left out until the copying has passed the latest sync: the records between are not yet behind it, and the
    syncs before it are still true. A source topic that was created again looks the same, so its first sync is
    BEFORE_FIRST: the syncs before it are void.
    """

    def __init__(self) -> None:
        self._syncs: dict[TopicPartition, list[OffsetSync]] = {}
        """With ascending offsets on both sides."""
        self._is_loaded = False

    def add(self, sync: OffsetSync) -> None:
        """Read from the topic of offset syncs."""
        syncs = self._syncs.setdefault(sync.tp, [])
        if not self._is_loaded or sync.upstream_offset == BEFORE_FIRST:
            syncs.clear()
        elif syncs and _is_second_copy(syncs[-1], sync):
            return
        elif syncs and sync.downstream_offset < syncs[-1].downstream_offset:
            syncs.clear()  # the partition of the target was created again
        if syncs and syncs[-1].upstream_offset == sync.upstream_offset:
            syncs[-1] = sync
        else:
            syncs.append(sync)
        self._syncs[sync.tp] = _thinned(syncs)

    def loaded(self) -> None:
        """The topic was read up to what was its end when reading began."""
        self._is_loaded = True

    def translate(self, tp: TopicPartition, upstream_offset: int) -> int | None:
        """The offset in the target for a group's offset in the partition `tp` of the source.

        None if it is not known: no sync is at or before the offset.
        """
        if not self._is_loaded:
            return None
        for sync in reversed(self._syncs.get(tp, ())):
            if sync.upstream_offset <= upstream_offset:
                return sync.downstream_offset + (sync.upstream_offset < upstream_offset)
        return None

    def translate_back(self, tp: TopicPartition, downstream_offset: int) -> int | None:
        """The offset in the partition `tp` of the source for a group's offset in its copy; None if it is not known.

        As `translate`, the other way: the group may read again in the source what it has read in the copy.
        """
        if not self._is_loaded:
            return None
        for sync in reversed(self._syncs.get(tp, ())):
            if sync.downstream_offset <= downstream_offset:
                return max(0, sync.upstream_offset + (sync.downstream_offset < downstream_offset))
        return None

    def __len__(self) -> int:
        return sum(map(len, self._syncs.values()))


def _is_second_copy(latest: OffsetSync, sync: OffsetSync) -> bool:
    return sync.upstream_offset < latest.upstream_offset and sync.downstream_offset > latest.downstream_offset


def _thinned(syncs: list[OffsetSync]) -> list[OffsetSync]:
    """The first and the last of each stretch that ends twice as far from the newest as the one before: at most 128."""
    newest = syncs[-1].upstream_offset
    kept: list[OffsetSync] = []
    for _, stretch in groupby(syncs, lambda sync: (newest - sync.upstream_offset).bit_length()):
        members = list(stretch)
        kept += members if len(members) < 3 else (members[0], members[-1])
    return kept
