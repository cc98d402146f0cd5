"""The transactions of a producer (KIP-98, KIP-360, KIP-447): from the calls of a program to requests. Sans-IO.

    uninitialized --> initializing --> ready <-----------------+
                                         |                     |
                                   in transaction -> committing|
                                         |    |        |       |
                                         |    v        v       |
                                         |  abortable error    |
                                         v    v                |
                                        aborting --------------+

Any state can end in the fatal error: another producer with the same transactional.id has fenced this one, or a request
was refused for good. Only one request is in flight. After an error that leaves the sequence numbers of a partition in
doubt, an abort ends with a new producer epoch.

In transactions of version 1, which every broker serves, the producer adds partitions and groups itself, and keeps its
epoch from one transaction to the next. Where the cluster has `transaction.version` 2, brokers add them, and the end of
each transaction returns the identity of the next (KIP-890). Which of the two is decided when a transaction begins.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import partial
from typing import Any, Final

from raylog.client.backoff import backoff_ms
from raylog.client.coordinators import Coordinators, KeyType
from raylog.client.errors import AbortableError, FencedError
from raylog.client.given_values import checked_offsets, is_text, shown
from raylog.client.group_offsets import GroupMetadata, OffsetAndMetadata, Offsets
from raylog.client.network_client import NetworkClient
from raylog.core.clock import Now
from raylog.core.errors import ErrorCode, KafkaError
from raylog.core.ids import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, TopicPartition, by_topic
from raylog.metadata.features import TRANSACTION_FEATURE, TRANSACTIONS_2
from raylog.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from raylog.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from raylog.protocol.messages.end_txn import EndTxnRequest
from raylog.protocol.messages.init_producer_id import InitProducerIdRequest
from raylog.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from raylog.protocol.schema import Message

PRODUCE_VERSION_MAX: Final = 11
INIT_VERSION_MAX: Final = 5
ADD_PARTITIONS_VERSION_MAX: Final = 3
ADD_OFFSETS_VERSION_MAX: Final = 4
COMMIT_OFFSETS_VERSION_MAX: Final = 4
END_VERSION_MAX: Final = 4
"""This and those above: the versions of the requests in transactions of version 1."""
CONCURRENT_PAUSE_MS: Final = 20
"""First pause while the coordinator still completes the transaction before; it seldom takes long."""
FENCED: Final = (ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH)
IDENTITY_LOST: Final = (ErrorCode.UNKNOWN_PRODUCER_ID, ErrorCode.INVALID_PRODUCER_ID_MAPPING)
ABORTABLE: Final = frozenset(
    {
        *IDENTITY_LOST,
        ErrorCode.TRANSACTION_ABORTABLE,
        ErrorCode.OPERATION_NOT_ATTEMPTED,
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.INVALID_TOPIC_EXCEPTION,
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
        ErrorCode.INVALID_GROUP_ID,
        ErrorCode.OFFSET_METADATA_TOO_LARGE,
        ErrorCode.INVALID_COMMIT_OFFSET_SIZE,
        ErrorCode.FENCED_INSTANCE_ID,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.STALE_MEMBER_EPOCH,
        ErrorCode.REBALANCE_IN_PROGRESS,
    }
)
"""Errors of the coordinators after which the producer can abort, and go on."""


class State(Enum):
    UNINITIALIZED = "not initialized: call init_transactions() first"
    INITIALIZING = "being initialized"
    READY = "not in a transaction: call begin_transaction() first"
    IN_TRANSACTION = "in a transaction"
    COMMITTING = "committing a transaction"
    ABORTING = "aborting a transaction"
    ABORTABLE_ERROR = "in a transaction that must be aborted"
    FATAL_ERROR = "unusable"


class Operation:
    """A call of the program that waits for the cluster."""

    __slots__ = ("done", "error", "name")

    def __init__(self, name: str) -> None:
        self.name = name
        self.done = False
        self.error: KafkaError | None = None

    def end(self, error: KafkaError | None = None) -> None:
        self.done, self.error = True, error


@dataclass(frozen=True, slots=True)
class OffsetCommit:
    """Offsets of a group that are to be committed with the transaction."""

    operation: Operation
    group: GroupMetadata
    left: dict[TopicPartition, OffsetAndMetadata]
    """Those that the group coordinator has not accepted yet."""


class Transactions:
    """Run by the sender before it sends. The calls of the program raise KafkaError where they are not permitted."""

    def __init__(
        self,
        network: NetworkClient,
        coordinators: Coordinators,
        transactional_id: str,
        *,
        timeout_ms: int,
        has_unfinished: Callable[[], bool],
        on_identity: Callable[[int, int], None],
    ) -> None:
        """`has_unfinished` tells whether batches are unfinished; `on_identity` takes a new producer id and epoch."""
        self.transactional_id = transactional_id
        self.state = State.UNINITIALIZED
        self.failure: KafkaError | None = None
        """In the two states of an error: what has failed."""
        self._network = network
        self._coordinators = coordinators
        self._timeout_ms = timeout_ms
        self._has_unfinished = has_unfinished
        self._on_identity = on_identity
        self._producer = NO_PRODUCER_ID, NO_PRODUCER_EPOCH
        self._operation: Operation | None = None
        """That of the initialization, commit or abort in progress."""
        self._last: Operation | None = None
        """The same, or the last one that was."""
        self._left: Operation | None = None
        """The last one if its caller has not got its outcome."""
        self._new: dict[TopicPartition, None] = {}
        """Partitions of the transaction that the coordinator does not know yet."""
        self._added: set[TopicPartition] = set()
        self._groups: set[str] = set()
        """Groups of which the coordinator knows."""
        self._offsets: deque[OffsetCommit] = deque()
        self._started = False
        """Whether the coordinator may have something of this transaction."""
        self.version_2 = False
        """Whether the transaction is one of version 2."""
        self._needs_epoch = False
        self._asking = False
        self._attempts = 0
        self._last_error: KafkaError | None = None
        """Of the last request, if it is repeated."""
        self._due_ms = 0

    # --- what the program calls

    def init(self) -> Operation:
        """Get the producer id: it fences former producers with this transactional.id, and ends their transactions."""
        return self._start("init_transactions", State.INITIALIZING, State.UNINITIALIZED)

    def begin(self) -> None:
        self._check_left("begin_transaction")
        self._check("begin_transaction", State.READY)
        self.version_2 = self._network.feature_level(TRANSACTION_FEATURE) >= TRANSACTIONS_2
        self.state = State.IN_TRANSACTION

    def commit(self) -> Operation:
        """Send what waits, and commit; the operation fails with AbortableError if a record was not appended."""
        return self._start("commit_transaction", State.COMMITTING, State.IN_TRANSACTION)

    def abort(self) -> Operation:
        """Drop what was not sent yet, and abort."""
        operation = self._start("abort_transaction", State.ABORTING, State.IN_TRANSACTION, State.ABORTABLE_ERROR)
        self._new.clear()
        self._drop_offsets(KafkaError(ErrorCode.INVALID_TXN_STATE, "the transaction was aborted"))
        return operation

    def commit_offsets(self, offsets: Offsets, group: str | GroupMetadata) -> Operation:
        self._check("send_offsets_to_transaction", State.IN_TRANSACTION)
        operation = Operation("send_offsets_to_transaction")
        given = checked_offsets(offsets)
        member: Any = GroupMetadata(group) if isinstance(group, str) else group
        if not isinstance(member, GroupMetadata) or not is_text(member.group_id):
            text = f"the group must be its id, or what Consumer.group_metadata() returns, not {shown(group)}"
            raise KafkaError(ErrorCode.INVALID_GROUP_ID, text)
        if not given:
            operation.end()
        else:
            self._offsets.append(OffsetCommit(operation, member, given))
        return operation

    def timed_out(self, operation: Operation, seconds: float) -> KafkaError:
        """The error of a call that has waited so long, with that of the last request which is repeated."""
        reason = "" if self._last_error is None else f": {self._last_error}"
        return KafkaError(ErrorCode.REQUEST_TIMED_OUT, f"{operation.name}() did not end within {seconds} s{reason}")

    def leave(self, operation: Operation) -> None:
        """The caller does not wait for its end any more: the same call again gets its outcome, though it has ended."""
        if operation is self._last:
            self._left = operation

    def check_send(self) -> None:
        """Raises KafkaError unless a record may be sent now."""
        if self.state is not State.IN_TRANSACTION:
            self._check("send", State.IN_TRANSACTION)

    @property
    def is_open(self) -> bool:
        """Whether a transaction was begun, and has not ended."""
        return self.state in (State.IN_TRANSACTION, State.COMMITTING, State.ABORTING, State.ABORTABLE_ERROR)

    # --- the sender's questions and reports

    def add(self, tp: TopicPartition) -> bool:
        """A record for the partition was taken. Returns whether the partition is new in the transaction."""
        if tp in self._added or tp in self._new:
            return False
        if self.version_2:
            self._added.add(tp)
            self._started = True
        else:
            self._new[tp] = None
        return True

    def sends_to(self, tp: TopicPartition) -> bool:
        return tp in self._added

    @property
    def completes(self) -> bool:
        """Whether batches go out without lingering."""
        return self.state is State.COMMITTING

    @property
    def drops(self) -> bool:
        """Whether batches without a sequence number are not sent any more."""
        return self.state in (State.ABORTING, State.ABORTABLE_ERROR)

    def batch_failed(self, error: KafkaError, *, sent: bool) -> None:
        """A batch of the transaction has failed; `sent`: it had a sequence number."""
        self._needs_epoch = self._needs_epoch or sent
        self._must_abort(error)

    def run(self, now: Now) -> None:
        """Send the next request, if there is one."""
        if self._asking or now.monotonic_ms < self._due_ms:
            return
        if self.state is State.INITIALIZING:
            self._ask_identity(now)
        elif self.state is State.ABORTING and not self._has_unfinished():
            if self._started:
                self._end(now, committed=False)
            elif self._needs_epoch:
                self._ask_identity(now)
            else:
                self._ended()
        elif self.state in (State.IN_TRANSACTION, State.COMMITTING):
            if self._new:
                self._add_partitions(now)
            elif self._offsets:
                self._commit_offsets(self._offsets[0], now)
            elif self.state is State.COMMITTING and not self._has_unfinished():
                if self._started:
                    self._end(now, committed=True)
                else:
                    self._ended()

    def next_deadline_ms(self) -> int:
        """The end of the last pause."""
        return self._due_ms

    def fail(self, error: KafkaError) -> None:
        """The producer cannot go on."""
        if error.code in FENCED and not isinstance(error, FencedError):
            error = FencedError(error.code, error.message)
        self.state = State.FATAL_ERROR
        self.failure = error
        self._end_operation(error)
        self._drop_offsets(error)

    # --- states

    def _check(self, call: str, *permitted: State) -> None:
        if self.failure is not None and self.state not in permitted:
            raise self.failure
        if self.state not in permitted:
            raise KafkaError(ErrorCode.INVALID_TXN_STATE, f"{call}(): the producer is {self.state.value}")

    def _check_left(self, name: str) -> Operation | None:
        """The operation that was left, if this is its call again. Raises KafkaError where its outcome would be lost."""
        left = self._left
        if left is not None and left.name != name and left.error is None:
            text = f"{name}(): the last call of {left.name}() did not wait for its end: call that again first"
            raise KafkaError(ErrorCode.INVALID_TXN_STATE, text)
        self._left = None
        return left if left is not None and left.name == name else None

    def _start(self, name: str, state: State, *permitted: State) -> Operation:
        """Enter the state; the operation that was left if it is this one, and the one in progress likewise."""
        left = self._check_left(name)
        if left is not None:
            return left
        if self.state is state and self._operation is not None and self._operation.name == name:
            return self._operation
        self._check(name, *permitted)
        self.state = state
        self.failure = None
        self._operation = self._last = Operation(name)
        self._due_ms = 0
        return self._operation

    def _end_operation(self, error: KafkaError | None = None) -> None:
        operation, self._operation = self._operation, None
        if operation is not None:
            operation.end(error)

    def _drop_offsets(self, error: KafkaError) -> None:
        while self._offsets:
            self._offsets.popleft().operation.end(error)

    def _ended(self) -> None:
        """The producer can begin another transaction."""
        self._new.clear()
        self._added.clear()
        self._groups.clear()
        self._started = self._needs_epoch = False
        self.state = State.READY
        self.failure = None
        self._end_operation()

    def _must_abort(self, error: KafkaError) -> None:
        if self.state in (State.IN_TRANSACTION, State.COMMITTING):
            self.state = State.ABORTABLE_ERROR
            self.failure = AbortableError(error.code, error.message)
            self._new.clear()
            self._end_operation(self.failure)
            self._drop_offsets(self.failure)

    # --- requests

    def _ask_identity(self, now: Now) -> None:
        producer_id, producer_epoch = self._producer
        request = InitProducerIdRequest(
            transactional_id=self.transactional_id,
            transaction_timeout_ms=self._timeout_ms,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
        )
        self._ask(request, self._got_identity, now, INIT_VERSION_MAX)

    def _got_identity(self, response: Any, now: Now) -> None:
        if self._refused(response.error_code, now):
            return
        self._producer = response.producer_id, response.producer_epoch
        self._on_identity(*self._producer)
        self._ended()

    def _add_partitions(self, now: Now) -> None:
        producer_id, producer_epoch = self._producer
        asked = tuple(self._new)
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.transactional_id,
            v3_and_below_producer_id=producer_id,
            v3_and_below_producer_epoch=producer_epoch,
            v3_and_below_topics=tuple(
                AddPartitionsToTxnTopic(name=topic, partitions=tuple(indexes)) for topic, indexes in by_topic(asked)
            ),
        )
        if self._ask(request, self._added_partitions, now, ADD_PARTITIONS_VERSION_MAX):
            self._started = True

    def _added_partitions(self, response: Any, now: Now) -> None:
        codes = {
            TopicPartition(topic.name, each.partition_index): each.partition_error_code
            for topic in response.results_by_topic_v3_and_below
            for each in topic.results_by_partition
        }
        worst = _worst(list(codes.values()))
        refused = ", ".join(str(tp) for tp, code in codes.items() if code is worst)
        if not self._refused(worst, now, detail=f"{refused}: {worst.sentence}"):
            for tp in codes.keys() & self._new.keys():
                del self._new[tp]
                self._added.add(tp)

    def _commit_offsets(self, commit: OffsetCommit, now: Now) -> None:
        producer_id, producer_epoch = self._producer
        group = commit.group
        if group.group_id not in self._groups and not self.version_2:
            add = AddOffsetsToTxnRequest(
                transactional_id=self.transactional_id,
                producer_id=producer_id,
                producer_epoch=producer_epoch,
                group_id=group.group_id,
            )
            if self._ask(add, partial(self._added_group, group.group_id), now, ADD_OFFSETS_VERSION_MAX):
                self._started = True
            return
        request = TxnOffsetCommitRequest(
            transactional_id=self.transactional_id,
            group_id=group.group_id,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            generation_id=group.generation_id,
            member_id=group.member_id,
            group_instance_id=group.group_instance_id,
            topics=tuple(
                TxnOffsetCommitRequestTopic(
                    name=topic,
                    partitions=tuple(_position(index, commit.left[TopicPartition(topic, index)]) for index in indexes),
                )
                for topic, indexes in by_topic(commit.left)
            ),
        )
        at = KeyType.GROUP, group.group_id
        version_max = None if self.version_2 else COMMIT_OFFSETS_VERSION_MAX
        if self._ask(request, partial(self._committed_offsets, commit), now, version_max, at):
            self._started = True

    def _added_group(self, group_id: str, response: Any, now: Now) -> None:
        if not self._refused(response.error_code, now, detail=f"group {group_id!r}: {response.error_code.sentence}"):
            self._groups.add(group_id)

    def _committed_offsets(self, commit: OffsetCommit, response: Any, now: Now) -> None:
        codes = []
        for topic in response.topics:
            for each in topic.partitions:
                codes.append(each.error_code)
                if each.error_code is ErrorCode.NONE:
                    commit.left.pop(TopicPartition(topic.name, each.partition_index), None)
        group_id = commit.group.group_id
        worst = _worst(codes)
        detail = f"group {group_id!r}: {worst.sentence}"
        refused = self._refused(worst, now, (KeyType.GROUP, group_id), detail=detail)
        if not refused and not commit.operation.done:
            self._offsets.remove(commit)
            commit.operation.end()

    def _end(self, now: Now, *, committed: bool) -> None:
        producer_id, producer_epoch = self._producer
        request = EndTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            committed=committed,
        )
        self._ask(request, self._answered_end, now, None if self.version_2 else END_VERSION_MAX)

    def _answered_end(self, response: Any, now: Now) -> None:
        code = response.error_code
        if self.state is State.ABORTING and code in ABORTABLE:
            self._started, self._needs_epoch = False, True  # the new epoch ends what the coordinator may have
            return
        if self.state is State.ABORTING and code is ErrorCode.INVALID_TXN_STATE and not (self._added or self._groups):
            code = ErrorCode.NONE  # no request that would have begun the transaction has arrived
        if self._refused(code, now):
            return
        self._started = False
        if self.version_2 and response.producer_id != NO_PRODUCER_ID:
            self._producer = response.producer_id, response.producer_epoch
            self._on_identity(*self._producer)
            self._needs_epoch = False
        if not self._needs_epoch:
            self._ended()

    # --- what is common to them

    def _ask(
        self,
        request: Message,
        on_answer: Callable[[Any, Now], None],
        now: Now,
        version_max: int | None,
        at: tuple[KeyType, str] | None = None,
    ) -> bool:
        """Send to a coordinator, without `at` that of the transaction. False while it is not known."""
        at = at or (KeyType.TRANSACTION, self.transactional_id)
        try:
            node_id = self._coordinators.node_id(*at)
        except KafkaError as error:
            self._refused(error.code, now, at, detail=error.message)
            return False
        if node_id is None:
            return False

        def answered(response: Any, now: Now) -> None:
            self._asking = False
            if self.state is not State.FATAL_ERROR:
                on_answer(response, now)

        def failed(error: KafkaError, now: Now) -> None:
            self._asking = False
            if self.state is not State.FATAL_ERROR:
                self._refused(error.code, now, at, detail=error.message)

        self._asking = True
        self._network.ask(node_id, request, answered, failed, now, version_max=version_max)
        return True

    def _refused(self, code: ErrorCode, now: Now, at: tuple[KeyType, str] | None = None, *, detail: str = "") -> bool:
        """Whether the code is an error; it then decides how the producer goes on."""
        if code is ErrorCode.NONE:
            self._attempts, self._last_error = 0, None
            return False
        self._coordinators.refused(*(at or (KeyType.TRANSACTION, self.transactional_id)), code)
        error = KafkaError(code, f"transactional.id {self.transactional_id!r}: {detail or code.sentence}")
        if code.retriable:
            self._last_error = error
            settings = self._network.settings
            first_ms = settings.retry_backoff_ms
            if code is ErrorCode.CONCURRENT_TRANSACTIONS:
                first_ms = min(CONCURRENT_PAUSE_MS, first_ms)
            self._attempts += 1
            pause_ms = backoff_ms(self._attempts, first_ms, settings.retry_backoff_ms_max, self._network.jitter)
            self._due_ms = now.monotonic_ms + pause_ms
        elif code in ABORTABLE and self.state is not State.INITIALIZING:
            self._needs_epoch = self._needs_epoch or code in IDENTITY_LOST
            self._must_abort(error)
        else:
            self.fail(error)
        return True


def _worst(codes: Sequence[ErrorCode]) -> ErrorCode:
    """The error that decides about a request for several partitions: a fatal one goes before an abortable one."""
    if not codes:
        return ErrorCode.UNKNOWN_SERVER_ERROR

    def weight(code: ErrorCode) -> int:
        if code is ErrorCode.NONE:
            return 0
        if code is ErrorCode.OPERATION_NOT_ATTEMPTED:
            return 1
        if code.retriable:
            return 2
        return 3 if code in ABORTABLE else 4

    return max(codes, key=weight)


def _position(index: int, position: OffsetAndMetadata) -> TxnOffsetCommitRequestPartition:
    return TxnOffsetCommitRequestPartition(
        partition_index=index,
        committed_offset=position.offset,
        committed_leader_epoch=-1 if position.leader_epoch is None else position.leader_epoch,
        committed_metadata=position.metadata,
    )
