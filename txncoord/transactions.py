"""The transactions of one partition of __transaction_state: commands return records, and only replay changes state.

    Empty -> Ongoing -> PrepareCommit -> CompleteCommit -> Ongoing ...
                     -> PrepareAbort  -> CompleteAbort  -> Ongoing ...

The record of a Prepare state decides the outcome: the current coordinator then writes markers to every partition, and
the Complete state when all have theirs. Source: KIP-98; KIP-360 for producers that request a new epoch with their
present id; KIP-890 for the verification of partitions, and for transactions of version 2.

In version 2 each end of a transaction raises the producer epoch, and leaders add partitions when the first batch
arrives. The records of an end have the raised epoch, and so do its markers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

from raylog.core.errors import ErrorCode, KafkaError
from raylog.core.ids import NO_PRODUCER_ID, NO_TIMESTAMP_MS, ProducerId, ProducerIdentity, TopicPartition
from raylog.core.outcome import Outcome
from raylog.txncoord.records import (
    NO_IDENTITY,
    TransactionForgotten,
    TransactionRecord,
    TransactionState,
    TransactionUpdated,
)

PRODUCER_EPOCH_MAX = 32_767
"""The last epoch is reserved for fencing and never given to a producer."""
TRANSACTIONAL_ID_BYTES_MAX = 32_767
"""The largest length of a string with an int16 length."""
VERSION_2 = 2
"""The version of transactions whose end raises the producer epoch."""

_PREPARED = {True: TransactionState.PREPARE_COMMIT, False: TransactionState.PREPARE_ABORT}
_COMPLETED = {
    TransactionState.PREPARE_COMMIT: TransactionState.COMPLETE_COMMIT,
    TransactionState.PREPARE_ABORT: TransactionState.COMPLETE_ABORT,
}


class Transactions:
    """State: the newest transaction of each transactional id."""

    def __init__(self) -> None:
        self.by_id: dict[str, TransactionUpdated] = {}

    # --- commands

    def init_producer(
        self,
        transactional_id: str,
        *,
        timeout_ms: int,
        expected: ProducerIdentity,
        new_producer_id: Callable[[], ProducerId],
        now_ms: int,
    ) -> Outcome[ProducerIdentity | None, TransactionRecord]:
        """The producer id and a new epoch, which fences producers with older epochs.

        None if a transaction is open or being completed: the client must retry (CONCURRENT_TRANSACTIONS). The records
        abort an open one. `expected` is the client's present identity, or `NO_IDENTITY`. Raises KafkaError:
        PRODUCER_FENCED, or the error of `new_producer_id`.
        """
        now = self.by_id.get(transactional_id)
        if now is None:
            identity = ProducerIdentity(new_producer_id(), 0)
            return Outcome(identity, [_empty(transactional_id, identity, timeout_ms, now_ms)])
        if expected not in (NO_IDENTITY, now.producer, now.given, now.replaced):
            raise _fenced(now, expected)
        if now.state.is_decided:
            return Outcome(None)
        if now.state is TransactionState.ONGOING:
            if expected not in (NO_IDENTITY, now.producer):
                raise _fenced(now, expected)
            return Outcome(None, [_aborted(now, now_ms)])
        if expected not in (NO_IDENTITY, now.producer):  # a retry: the response was lost
            return Outcome(now.producer)
        producer_id, producer_epoch = now.producer
        if producer_epoch >= PRODUCER_EPOCH_MAX - 1:
            identity = ProducerIdentity(new_producer_id(), 0)
        else:
            identity = ProducerIdentity(producer_id, producer_epoch + 1)
        return Outcome(identity, [_empty(transactional_id, identity, timeout_ms, now_ms, replaced=expected)])

    def add_partitions(
        self,
        transactional_id: str,
        identity: ProducerIdentity,
        partitions: Iterable[TopicPartition],
        *,
        client_version: int = 0,
        now_ms: int,
    ) -> Outcome[None, TransactionRecord]:
        """Add the partitions to the producer's transaction, which begins with the first one. Raises KafkaError.

        `client_version` is 2 if the producer uses transactions of version 2.
        """
        recorded = self._undecided(transactional_id, identity)
        ongoing = recorded.state is TransactionState.ONGOING
        before = recorded.partitions if ongoing else frozenset()
        after = before.union(partitions)
        if ongoing and after == before:
            return Outcome(None)
        begun = replace(
            recorded,
            state=TransactionState.ONGOING,
            partitions=after,
            update_timestamp_ms=now_ms,
            start_timestamp_ms=recorded.start_timestamp_ms if ongoing else now_ms,
            client_version=client_version,
        )
        return Outcome(None, [begun])

    def verify(
        self, transactional_id: str, identity: ProducerIdentity, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, ErrorCode]:
        """NONE for each partition in the transaction, else TRANSACTION_ABORTABLE. Leaders call it before a first batch.

        Raises KafkaError as `add_partitions` does.
        """
        recorded = self._undecided(transactional_id, identity)
        within = recorded.partitions if recorded.state is TransactionState.ONGOING else frozenset()
        return {tp: ErrorCode.NONE if tp in within else ErrorCode.TRANSACTION_ABORTABLE for tp in partitions}

    def end(
        self, transactional_id: str, identity: ProducerIdentity, *, committed: bool, now_ms: int
    ) -> Outcome[None, TransactionRecord]:
        """Decide the outcome. Raises KafkaError: CONCURRENT_TRANSACTIONS while the same outcome is being completed,
        INVALID_TXN_STATE for the other outcome, or if no transaction is open."""
        recorded = self._of(transactional_id, identity)
        prepared = _PREPARED[committed]
        if recorded.state is TransactionState.ONGOING:
            return Outcome(None, [replace(recorded, state=prepared, update_timestamp_ms=now_ms, client_version=0)])
        if recorded.state is prepared:
            raise KafkaError(ErrorCode.CONCURRENT_TRANSACTIONS)
        if recorded.state is _COMPLETED[prepared]:
            return Outcome(None)
        raise _not_in_state(recorded, committed=committed)

    def end_2(
        self,
        transactional_id: str,
        identity: ProducerIdentity,
        *,
        committed: bool,
        new_producer_id: Callable[[], ProducerId],
        now_ms: int,
    ) -> Outcome[ProducerIdentity, TransactionRecord]:
        """Decide the outcome of a transaction of version 2, and return the producer's identity from now on.

        Its epoch is the next one, or 0 of a new producer id when the epochs are exhausted. Nothing that belongs to this
        transaction can arrive in the next one. A producer may abort what has no partitions, because it does not know
        which of its batches have arrived. A repeated request with the identity of before gets the same answer. Raises
        KafkaError as `end` does, and the error of `new_producer_id`.
        """
        prepared = _PREPARED[committed]
        found = self.by_id.get(transactional_id)
        if found is not None and _has_ended(found, identity):
            if found.state is prepared:
                raise KafkaError(ErrorCode.CONCURRENT_TRANSACTIONS)
            if found.state is _COMPLETED[prepared]:
                return Outcome(found.producer)
            raise _not_in_state(found, committed=committed)
        recorded = self._undecided(transactional_id, identity)
        ongoing = recorded.state is TransactionState.ONGOING
        if committed and not ongoing:
            raise _not_in_state(recorded, committed=committed)
        producer_id, producer_epoch = identity
        is_exhausted = producer_epoch >= PRODUCER_EPOCH_MAX - 1
        decided = replace(
            recorded,
            producer=ProducerIdentity(producer_id, min(producer_epoch + 1, PRODUCER_EPOCH_MAX)),
            state=prepared,
            partitions=recorded.partitions if ongoing else frozenset(),
            update_timestamp_ms=now_ms,
            start_timestamp_ms=recorded.start_timestamp_ms if ongoing else now_ms,
            replaced=identity,
            client_version=VERSION_2,
            previous_producer_id=producer_id,
            next_producer_id=new_producer_id() if is_exhausted else NO_PRODUCER_ID,
        )
        return Outcome(decided.given, [decided])

    def complete(self, decided: TransactionUpdated, *, now_ms: int) -> Outcome[None, TransactionRecord]:
        """All partitions have their markers: complete the transaction. No records if it is not the newest any more."""
        if self.by_id.get(decided.transactional_id) != decided:
            return Outcome(None)
        completed = replace(
            decided,
            producer=decided.given,
            state=_COMPLETED[decided.state],
            partitions=frozenset(),
            update_timestamp_ms=now_ms,
            next_producer_id=NO_PRODUCER_ID,
        )
        return Outcome(None, [completed])

    # --- time

    def time_out(self, *, now_ms: int) -> list[TransactionRecord]:
        """The records that abort transactions which have been open for longer than their timeout."""
        return [
            _aborted(recorded, now_ms)
            for recorded in self.by_id.values()
            if recorded.state is TransactionState.ONGOING and now_ms - recorded.start_timestamp_ms > recorded.timeout_ms
        ]

    def expire(self, *, expiration_ms: int, now_ms: int) -> list[TransactionRecord]:
        """The records that remove transactional ids which were not used for this long."""
        return [
            TransactionForgotten(recorded.transactional_id)
            for recorded in self.by_id.values()
            if not recorded.state.is_open and now_ms - recorded.update_timestamp_ms >= expiration_ms
        ]

    # --- state

    def replay(self, record: TransactionRecord) -> None:
        if isinstance(record, TransactionForgotten):
            self.by_id.pop(record.transactional_id, None)
        else:
            self.by_id[record.transactional_id] = record

    def decided(self) -> Iterator[TransactionUpdated]:
        """The decided transactions, whose markers must be written."""
        return (recorded for recorded in self.by_id.values() if recorded.state.is_decided)

    def described(self, transactional_id: str) -> TransactionUpdated:
        """Raises KafkaError(TRANSACTIONAL_ID_NOT_FOUND)."""
        found = self.by_id.get(transactional_id)
        if found is None:
            raise KafkaError(ErrorCode.TRANSACTIONAL_ID_NOT_FOUND)
        return found

    def _undecided(self, transactional_id: str, identity: ProducerIdentity) -> TransactionUpdated:
        """Raises KafkaError as `_of`, and CONCURRENT_TRANSACTIONS while the transaction before is being completed."""
        found = self.by_id.get(transactional_id)
        if found is not None and found.state.is_decided and found.given == identity:
            raise KafkaError(ErrorCode.CONCURRENT_TRANSACTIONS)
        return self._of(transactional_id, identity)

    def _of(self, transactional_id: str, identity: ProducerIdentity) -> TransactionUpdated:
        """Raises KafkaError: INVALID_PRODUCER_ID_MAPPING, PRODUCER_FENCED."""
        found = self.by_id.get(transactional_id)
        if found is None or found.producer.producer_id != identity.producer_id:
            message = f"transactional id {transactional_id!r} does not have producer id {identity.producer_id}"
            raise KafkaError(ErrorCode.INVALID_PRODUCER_ID_MAPPING, message)
        if found.producer != identity:
            raise _fenced(found, identity)
        return found


def _empty(
    transactional_id: str,
    identity: ProducerIdentity,
    timeout_ms: int,
    now_ms: int,
    *,
    replaced: ProducerIdentity = NO_IDENTITY,
) -> TransactionUpdated:
    return TransactionUpdated(
        transactional_id,
        identity,
        timeout_ms,
        TransactionState.EMPTY,
        frozenset(),
        now_ms,
        NO_TIMESTAMP_MS,
        replaced,
    )


def _aborted(ongoing: TransactionUpdated, now_ms: int) -> TransactionUpdated:
    """Abort on behalf of the coordinator, under a later producer epoch, which fences the producer.

    In version 2 it is the one after the next, because with the next one the producer would seem to have ended the
    transaction itself.
    """
    producer_id, producer_epoch = ongoing.producer
    bump = 2 if ongoing.client_version >= VERSION_2 else 1
    return replace(
        ongoing,
        producer=ProducerIdentity(producer_id, min(producer_epoch + bump, PRODUCER_EPOCH_MAX)),
        state=TransactionState.PREPARE_ABORT,
        update_timestamp_ms=now_ms,
        replaced=NO_IDENTITY,
    )


def _has_ended(found: TransactionUpdated, identity: ProducerIdentity) -> bool:
    """Whether the producer with this identity has ended its transaction of version 2, which has raised the epoch."""
    if found.client_version < VERSION_2 or found.state in (TransactionState.EMPTY, TransactionState.ONGOING):
        return False
    producer_id, producer_epoch = identity
    if producer_epoch < PRODUCER_EPOCH_MAX - 1:
        return found.producer == (producer_id, producer_epoch + 1)
    new_id = found.given.producer_id
    return found.previous_producer_id == producer_id != new_id and found.given == (new_id, 0)


def _not_in_state(recorded: TransactionUpdated, *, committed: bool) -> KafkaError:
    asked = "commit" if committed else "abort"
    message = f"transactional id {recorded.transactional_id!r}: cannot {asked} in state {recorded.state.shown}"
    return KafkaError(ErrorCode.INVALID_TXN_STATE, message)


def _fenced(found: TransactionUpdated, identity: ProducerIdentity) -> KafkaError:
    message = f"transactional id {found.transactional_id!r}: {identity} is not the current producer {found.producer}"
    return KafkaError(ErrorCode.PRODUCER_FENCED, message)
