"""Errors of calls that a client refuses itself."""

from __future__ import annotations

from raylog.core.errors import ErrorCode, KafkaError


class ClientClosedError(KafkaError):
    """The client is closed."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.INVALID_REQUEST, message)

    def __reduce__(self) -> tuple[type[ClientClosedError], tuple[str]]:
        return ClientClosedError, (self.message,)


class SerializationError(KafkaError):
    """A key, value or header cannot be sent as it is."""

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


class BufferExhaustedError(KafkaError):
    """buffer.memory is used up by records that are not acknowledged yet."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.REQUEST_TIMED_OUT, message)

    def __reduce__(self) -> tuple[type[BufferExhaustedError], tuple[str]]:
        return BufferExhaustedError, (self.message,)


class FencedError(KafkaError):
    """Another producer with the same transactional.id is active: this one can only be closed."""


class AbortableError(KafkaError):
    """The transaction cannot be committed: abort it, and begin another one. `code` tells what has failed."""


class TransactionAbortedError(KafkaError):
    """The record was not sent because its transaction was aborted."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.TRANSACTION_ABORTABLE, message)

    def __reduce__(self) -> tuple[type[TransactionAbortedError], tuple[str]]:
        return TransactionAbortedError, (self.message,)
