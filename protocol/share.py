"""What members of share groups and brokers say of records (KIP-932), with the numbers of the protocol."""

from __future__ import annotations

from enum import IntEnum


class AcknowledgeType(IntEnum):
    """What a member says of a record that it has acquired."""

    GAP = 0
    """There is no record at this offset."""
    ACCEPT = 1
    """It was processed."""
    RELEASE = 2
    """It was not processed: another member, or the same, gets it again."""
    REJECT = 3
    """It cannot be processed: it is not delivered again."""
    RENEW = 4
    """Still being processed: the acquisition lock begins anew (KIP-1222)."""


class AcquireMode(IntEnum):
    """What the largest number of records of a ShareFetch means (KIP-1206)."""

    BATCH_OPTIMIZED = 0
    """The batch of the last record is acquired whole."""
    RECORD_LIMIT = 1
