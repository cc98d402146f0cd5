"""All producer ids that brokers have allocated: each must be allocated once."""

from __future__ import annotations

from collections import Counter
from typing import Any

from raylog.core.errors import ErrorCode
from tests.sim.ledger import MetadataLedger


class GivenProducerIds:
    """One for the whole run."""

    def __init__(self, ledger: MetadataLedger, marks: Counter[str]) -> None:
        self._ledger = ledger
        self._marks = marks
        self._given: set[int] = set()

    def is_new(self, answer: Any) -> bool:
        """Whether the InitProducerId response has an id. Asserts that the id is new."""
        if answer.error_code != ErrorCode.NONE:
            assert answer.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, answer.error_code
            self._marks["producer ids had run out"] += 1
            return False
        assert answer.producer_id not in self._given, f"producer id {answer.producer_id} was allocated twice"
        self._given.add(answer.producer_id)
        assert answer.producer_id < self._ledger.image.next_producer_id, "a producer id from an uncommitted block"
        return True
