"""The result of a command on an event-sourced state machine: a response, and the records that must be written first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

Response = TypeVar("Response", covariant=True)
Event = TypeVar("Event", covariant=True)


@dataclass(frozen=True, slots=True)
class Outcome(Generic[Response, Event]):
    """The command itself changes no state: the caller appends `records`, replays them, then sends `response`.

    A read, or a rejected command, has no records.
    """

    response: Response
    records: Sequence[Event] = ()
