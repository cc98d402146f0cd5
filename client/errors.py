"""Errors of calls that a client refuses itself, and of operations that have failed for some of their items."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, Final

from raylog.core.errors import ErrorCode, KafkaError


class ClientClosedError(KafkaError):
    """The client is closed."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.INVALID_REQUEST, message)

    def __reduce__(self) -> tuple[type[ClientClosedError], tuple[str]]:
        return ClientClosedError, (self.message,)


class SerializationError(KafkaError):
    """A key, value or header cannot be serialized, or a record cannot be deserialized."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.INVALID_RECORD, message)

    def __reduce__(self) -> tuple[type[SerializationError], tuple[str]]:
        return SerializationError, (self.message,)


class WakeupError(KafkaError):
    """Another thread has called `wakeup`."""

    def __init__(self) -> None:
        super().__init__(ErrorCode.NONE, "poll() was woken up")

    def __reduce__(self) -> tuple[type[WakeupError], tuple[()]]:
        return WakeupError, ()


class LargeMessageDroppedError(KafkaError):
    """A large message of which chunks were read will not be returned. The position is behind what was read of it."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.INVALID_RECORD, message)

    def __reduce__(self) -> tuple[type[LargeMessageDroppedError], tuple[str]]:
        return LargeMessageDroppedError, (self.message,)


class ValueMissingError(KafkaError):
    """The value of a record, which is in a store, cannot be fetched. The position stays at the record."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.INVALID_RECORD, message)

    def __reduce__(self) -> tuple[type[ValueMissingError], tuple[str]]:
        return ValueMissingError, (self.message,)


class BufferExhaustedError(KafkaError):
    """buffer.memory is used up by records that are not acknowledged yet."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.REQUEST_TIMED_OUT, message)

    def __reduce__(self) -> tuple[type[BufferExhaustedError], tuple[str]]:
        return BufferExhaustedError, (self.message,)


class UnknownPartitionError(KafkaError):
    """The topic exists, but has no partition with this number."""


class FencedError(KafkaError):
    """Another producer with the same transactional.id is active: this one can only be closed."""


class AbortableError(KafkaError):
    """The transaction cannot be committed: abort it, and begin another one. `code` tells what has failed."""


class InvalidBatchError(KafkaError):
    """The record was not appended because the broker has refused others of its batch; it may be sent again."""


class TransactionAbortedError(KafkaError):
    """The record was not sent because its transaction was aborted."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.TRANSACTION_ABORTABLE, message)

    def __reduce__(self) -> tuple[type[TransactionAbortedError], tuple[str]]:
        return TransactionAbortedError, (self.message,)


class AdminError(KafkaError):
    """An operation of an admin client has failed, for all or for some of what it was asked for."""

    def __init__(
        self,
        code: ErrorCode,
        message: str = "",
        errors: Mapping[Any, KafkaError] | None = None,
        results: Mapping[Any, Any] | None = None,
    ) -> None:
        super().__init__(code, message)
        self.errors: dict[Any, KafkaError] = dict(errors or {})
        """By item: topics, partitions, groups..."""
        self.results: dict[Any, Any] = dict(results or {})
        """Of the items that have not failed."""

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.code, self.message, self.errors, self.results)

    @staticmethod
    def of(errors: Mapping[Any, KafkaError], results: Mapping[Any, Any]) -> AdminError:
        """The code is that of the first error, the class that of all of them."""
        first = next(iter(errors.values()))
        kinds = {_KINDS.get(error.code, AdminError) for error in errors.values()}
        texts = dict.fromkeys(error.message for error in errors.values())
        made: type[AdminError] = kinds.pop() if len(kinds) == 1 else AdminError
        by_item = {item: error for item, error in errors.items() if item is not None}
        return made(first.code, "; ".join(texts), by_item, results)


class UnknownTopicError(AdminError):
    """A topic or partition does not exist."""


class AuthorizationError(AdminError):
    """The client is not permitted to do this."""


_KINDS: Final[dict[ErrorCode, type[AdminError]]] = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: UnknownTopicError,
    ErrorCode.UNKNOWN_TOPIC_ID: UnknownTopicError,
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: AuthorizationError,
    ErrorCode.GROUP_AUTHORIZATION_FAILED: AuthorizationError,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: AuthorizationError,
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: AuthorizationError,
    ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED: AuthorizationError,
}


class ProcessingError(KafkaError):
    """A pool of `raylog.process` has stopped: by a record that cannot be processed, or because of what it works with.

    `topic`, `partition` and `offset` are those of the record; None if no record is the cause. `cause` is the class of
    the exception, and `trace` its traceback in the worker.
    """

    def __init__(
        self,
        message: str,
        *,
        code: ErrorCode = ErrorCode.UNKNOWN_SERVER_ERROR,
        topic: str | None = None,
        partition: int | None = None,
        offset: int | None = None,
        cause: str = "",
        trace: str = "",
    ) -> None:
        super().__init__(code, message)
        self.topic = topic
        self.partition = partition
        self.offset = offset
        self.cause = cause
        self.trace = trace

    def __str__(self) -> str:
        return self.message

    def __reduce__(self) -> tuple[Any, ...]:
        fields = {name: getattr(self, name) for name in ("code", "topic", "partition", "offset", "cause", "trace")}
        return partial(ProcessingError, **fields), (self.message,)
