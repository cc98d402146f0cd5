"""How a task writes its rows of a batch exactly once, however often and by how many attempts it is run. Pure.

Every batch of a job is divided into the same number of tasks. Task k writes with one transactional id, and partition k
of the sink's progress topic has a record for each batch that the task has written, appended in the transaction of its
rows:

1. The producer is initialized. From then on no earlier attempt of the task can write or commit anything, and its last
   transaction is either complete or aborted.
2. The task reads the last record of its partition. Only now the record is certain to be the last one.
3. If the batch is recorded there, nothing is written. Otherwise rows and record are written in one transaction.

What it promises holds for each task, not for a batch: the tasks commit one after another. The rows of a replayed batch
must be those of the first time, in any order, and in the same tasks; the digest in the record shows it if they are not.
"""

from __future__ import annotations

import json
import re
from collections.abc import Generator
from dataclasses import asdict, dataclass
from enum import Enum
from typing import Any, Final

from raylog.client.given_values import is_text, shown
from raylog.core.errors import ConfigError, ErrorCode, KafkaError
from raylog.raydp_bridge.arguments import checked_integer, optional_integer

_VERSION: Final = 1
_SINK_NAME: Final = re.compile(r"[A-Za-z0-9._]{1,100}")
_JOB_ID: Final = re.compile(r"[A-Za-z0-9._-]{1,100}")
TASKS_MAX: Final = 10_000
BATCH_ID_MAX: Final = (1 << 63) - 1


class BatchRefused(KafkaError):
    """A batch that cannot be written exactly once; nothing of it was written by this attempt."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.INVALID_REQUEST, message)

    def __reduce__(self) -> tuple[type[BatchRefused], tuple[str]]:
        return BatchRefused, (self.message,)


@dataclass(frozen=True, slots=True)
class SinkId:
    """One sink of one job; a streaming query is a job, and its id that of the job. Raises ConfigError."""

    job_id: str
    sink: str = "sink"
    first_batch: int = 0
    """The id of the first batch that is written to the sink."""

    def __post_init__(self) -> None:
        if not is_text(self.job_id) or not _JOB_ID.fullmatch(self.job_id):
            raise ConfigError(f"job id {shown(self.job_id)}: must be 1 to 100 of the characters A-Z a-z 0-9 . _ -")
        if not is_text(self.sink) or not _SINK_NAME.fullmatch(self.sink):
            raise ConfigError(f"sink={shown(self.sink)}: must be 1 to 100 of the characters A-Z a-z 0-9 . _")
        checked_integer("first_batch", self.first_batch, 0, BATCH_ID_MAX)

    @property
    def progress_topic(self) -> str:
        return f"{self.job_id}-{self.sink}-progress"

    def transactional_id(self, task: int) -> str:
        return f"{self.job_id}-{self.sink}-{task}"


@dataclass(frozen=True, slots=True)
class TaskRows:
    """The rows of one task of one batch."""

    batch_id: int
    digest: str
    """Of the rows in any order."""
    rows: int
    tasks: int
    """Into how many tasks the rows of the batch are divided."""

    def encode(self) -> bytes:
        """The value of a record in the progress topic."""
        return json.dumps({"version": _VERSION, **asdict(self)}).encode()

    @classmethod
    def decode(cls, value: bytes | None) -> TaskRows:
        """Raises BatchRefused for anything else than what `encode` returns."""
        try:
            found = json.loads(value or b"")
            version = found.pop("version")
            made = cls(**found) if version == _VERSION else None
            numbers = [] if made is None else [made.batch_id, made.rows, made.tasks]
            valid = all(type(number) is int and number >= 0 for number in numbers)
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
            version, made, valid = _VERSION, None, False
        if version != _VERSION:
            raise BatchRefused(f"the progress topic has records of version {version!r}, this raylog knows {_VERSION}")
        if made is None or not valid:
            raise BatchRefused(f"the progress topic has a record that no sink has written: {value!r:.200}")
        return made


class Decision(Enum):
    WRITE = "write"
    SKIP = "skip"
    """The rows were written."""


def decide(sink: SinkId, task: int, recorded: TaskRows | None, wanted: TaskRows) -> Decision:
    """`recorded` is the last record of the task's partition. Raises BatchRefused."""
    where = f"{sink.progress_topic}-{task}"
    if recorded is None:
        decide_without_record(sink, wanted.batch_id, where)
        return Decision.WRITE
    if recorded.tasks != wanted.tasks:
        raise BatchRefused(
            f"batch {wanted.batch_id}: {where} was written by {recorded.tasks} tasks, not {wanted.tasks}; the number of"
            " partitions of the progress topic must not be changed"
        )
    if recorded.batch_id == wanted.batch_id:
        if (recorded.digest, recorded.rows) == (wanted.digest, wanted.rows):
            return Decision.SKIP
        raise BatchRefused(
            f"batch {wanted.batch_id} has other rows than when task {task} wrote it ({recorded.rows} rows then,"
            f" {wanted.rows} now): the query is not deterministic, or it was changed. Its rows must not depend on time,"
            " chance or the order of a sum of floating-point numbers"
        )
    if recorded.batch_id > wanted.batch_id:
        raise BatchRefused(
            f"batch {wanted.batch_id}: {where} has batch {recorded.batch_id}, a later one. The checkpoint is an old"
            " copy, or this is an attempt that was replaced long ago"
        )
    if recorded.batch_id < wanted.batch_id - 1:
        raise BatchRefused(
            f"batch {wanted.batch_id}: the last batch in {where} is {recorded.batch_id}. Every batch must be written to"
            " the sink, also one without rows"
        )
    return Decision.WRITE


def decide_without_record(sink: SinkId, batch_id: int, where: str) -> None:
    """Raises BatchRefused unless the batch is the first one. `where` its progress would be: a topic or a partition."""
    if batch_id < sink.first_batch:
        raise BatchRefused(f"batch {batch_id}: the sink begins with batch {sink.first_batch} (first_batch)")
    if batch_id > sink.first_batch:
        raise BatchRefused(
            f"batch {batch_id}: {where} has no record of batch {batch_id - 1}. It was deleted, or the batch before was"
            f" not written to this sink. If the sink is new to the query, set first_batch={batch_id}"
        )


def check_tasks(given: int | None, fixed: int | None, *, default: int) -> int:
    """The number of tasks: that of the partitions of the progress topic, if it exists. Raises ConfigError."""
    given = optional_integer("tasks", given, 1, TASKS_MAX)
    if fixed is None:
        return default if given is None else given
    if given not in (None, fixed):
        raise ConfigError(f"tasks={given}: the first batch of the query was written by {fixed} tasks, which is kept")
    return fixed


class Step(Enum):
    """What the task does next."""

    INITIALIZE = "initialize the producer"
    READ_PROGRESS = "read the progress"
    """Answered with the last record, or None."""
    BEGIN = "begin the transaction"
    SEND_ROWS = "send the rows"
    SEND_PROGRESS = "send the record of the progress topic"
    COMMIT = "commit the transaction"


Steps = Generator[Step, Any, Decision]


def steps(sink: SinkId, task: int, wanted: TaskRows) -> Steps:
    """The steps in order; returns what was decided. Raises BatchRefused."""
    yield Step.INITIALIZE
    recorded = yield Step.READ_PROGRESS
    decision = decide(sink, task, recorded, wanted)
    if decision is Decision.WRITE:
        yield Step.BEGIN
        yield Step.SEND_ROWS
        yield Step.SEND_PROGRESS
        yield Step.COMMIT
    return decision
