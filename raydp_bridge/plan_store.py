"""(shell) The plans of a stream, in a directory: each is on disk before a task reads what it says.

    <location>/stream.json          the subscription and the number of tasks
    <location>/query                the id of the query whose checkpoint the plans belong to
    <location>/batches/17.json      start and end offsets of batch 17

A file is written under another name, synced, and linked to its own name, which fails if it exists. So a plan never
changes, whatever is killed, and two planners of one directory agree.
"""

from __future__ import annotations

import json
import os
import re
import uuid
from pathlib import Path
from typing import Any, Final

from raylog.core.errors import ConfigError
from raylog.raydp_bridge.stream_plan import BatchPlan

_SCHEME: Final = re.compile(r"\w[\w+.-]*:")
PLANS_KEPT = 100
"""As many as Spark keeps batches in a checkpoint (spark.sql.streaming.minBatchesToRetain)."""


class PlanStore:
    """The plans in one directory, which is created if it does not exist."""

    def __init__(self, location: str | os.PathLike[str]) -> None:
        """Raises ConfigError."""
        given: Any = location
        text = re.sub("^file:(//)?", "", os.fspath(given)) if isinstance(given, (str, os.PathLike)) else ""
        if not text or _SCHEME.match(text):
            raise ConfigError(
                f"plan_location={location!r}: must be a directory in the file system of the driver's node"
            )
        self.location = Path(text).absolute()
        self._batches = self.location / "batches"
        try:
            self._batches.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ConfigError(f"plan_location={text!r}: cannot be created: {error.strerror}") from None

    def open(self, subscription: str, tasks: int) -> int:
        """The number of tasks of the stream, which is the given one when it begins.

        Raises ConfigError if the directory belongs to a stream with another subscription.
        """
        path = self.location / "stream.json"
        text = self._create(path, json.dumps({"version": 1, "subscription": subscription, "tasks": tasks}) + "\n")
        try:
            kept = json.loads(text)
            known, number = str(kept["subscription"]), int(kept["tasks"])
        except (ValueError, KeyError, TypeError):
            raise ConfigError(f"{path}: is damaged; delete the plan location and the checkpoint of the query") from None
        if known != subscription or number < 1:
            raise ConfigError(
                f"plan_location={self.location}: belongs to a stream with {known}; use another location, and another "
                f"checkpoint, for {subscription}"
            )
        return number

    def check_query(self, query_id: str) -> None:
        """Raises ConfigError if the plans belong to another query."""
        known = self._create(self.location / "query", query_id).strip()
        if known != query_id:
            raise ConfigError(
                f"plan_location={self.location}: belongs to the query {known}, not to {query_id}; each checkpoint "
                "needs a plan location of its own, which is deleted with it"
            )

    def get(self, batch: int) -> BatchPlan | None:
        """Raises ConfigError for a damaged file."""
        path = self._path(batch)
        try:
            return BatchPlan.of_json(path.read_text())
        except FileNotFoundError:
            return None
        except ConfigError as error:
            raise ConfigError(f"{path}: {error.message}") from None

    def add(self, batch: int, plan: BatchPlan) -> BatchPlan:
        """The plan of the batch, once it is on disk: the given one, unless there is one already."""
        kept = BatchPlan.of_json(self._create(self._path(batch), plan.to_json()))
        self._path(batch - PLANS_KEPT).unlink(missing_ok=True)
        return kept

    def batches(self) -> dict[int, BatchPlan]:
        """The plans that are kept, by number."""
        numbers = sorted(int(path.stem) for path in self._batches.glob("*.json") if path.stem.isdigit())
        found = ((number, self.get(number)) for number in numbers)
        return {number: plan for number, plan in found if plan is not None}

    def _path(self, batch: int) -> Path:
        return self._batches / f"{batch}.json"

    def _create(self, path: Path, text: str) -> str:
        """The text of the file, which is the given one if there was no file."""
        if not path.exists():
            written = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
            try:
                with written.open("w") as file:
                    file.write(text)
                    file.flush()
                    os.fsync(file.fileno())
                try:
                    os.link(written, path)
                except FileExistsError:
                    pass
            finally:
                written.unlink(missing_ok=True)
            _sync(path.parent)
        return path.read_text()


def _sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
