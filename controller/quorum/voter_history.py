"""The voter sets in a voter's log, committed or not: the newest applies, and a truncation restores an earlier one."""

from __future__ import annotations

from typing import NamedTuple

from raylog.core.ids import NO_OFFSET, Offset
from raylog.metadata.voters import VoterSet


class VotersAt(NamedTuple):
    """The voters from the record at `offset` on; -1 for those of the configuration."""

    voters: VoterSet
    offset: Offset
    before: VoterSet
    """The voters before that record; none if the log does not have them any more."""


class VoterHistory:
    """Follows every change of the log: `appended`, `truncated`, and `restarted` from a snapshot."""

    def __init__(self, configured: VoterSet) -> None:
        """`configured` are the voters of a log that contains none."""
        self._configured = configured
        self._sets = [(NO_OFFSET, configured)]

    @property
    def newest(self) -> VotersAt:
        offset, voters = self._sets[-1]
        return VotersAt(voters, offset, self._sets[-2][1] if len(self._sets) > 1 else VoterSet())

    def appended(self, voters: VoterSet, offset: Offset) -> None:
        self._sets.append((offset, voters))

    def truncated(self, end_offset: Offset) -> None:
        """The log ends before `end_offset` now."""
        self._sets = [each for each in self._sets if each[0] < end_offset]

    def restarted(self, voters: VoterSet | None, end_offset: Offset) -> None:
        """The log begins at `end_offset` now, with a snapshot that holds these voters; None: it holds none."""
        self._sets = [(NO_OFFSET, self._configured) if voters is None else (Offset(end_offset - 1), voters)]
