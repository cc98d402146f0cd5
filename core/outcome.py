"""What a command on an event-sourced machine answers: the response, and the records that make it true."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

Response = TypeVar("Response", covariant=True)
Event = TypeVar("Event", covariant=True)


@dataclass(frozen=True, slots=True)
class Outcome(Generic[Response, Event]):
    """The command has changed nothing yet: append `records`, replay them, then send `response`.

    Without records the command was a read or a refusal.
    """

    response: Response
    records: Sequence[Event] = ()
