"""The committed message modules are those of the generator, and agree with Kafka's schemas."""

from __future__ import annotations

import re
import subprocess
import sys
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
from kafka.protocol.schemas import load_json

from raylog.protocol.registry import APIS, FETCH, PRODUCE
from raylog.protocol.schema import LATEST, Wire
from tests.protocol.messages import UNKNOWN_TO_KAFKA_PYTHON

ROOT = Path(__file__).resolve().parent.parent.parent
OURS_NOT_KAFKAS = {  # the two messages made by hand call some things by shorter names
    "topic_data": "topics",
    "partition_data": "partitions",
    "partition_responses": "partitions",
    "topic": "name",
    "forgotten_topics_data": "forgotten_topics",
}


@pytest.mark.slow
def test_the_committed_modules_are_those_of_the_generator() -> None:
    command = [sys.executable, str(ROOT / "script" / "generate_messages.py"), "--check"]
    answer = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (answer.returncode, answer.stdout + answer.stderr) == (0, "")


def snake(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()


def range_of(text: str, lowest: int, highest: int) -> tuple[int, int] | None:
    """Kafka's "3+", "0-7", "2" within the versions served; None where nothing is left."""
    if text == "none":
        return None
    first, _, last = text.replace("+", f"-{LATEST}").partition("-")
    low, high = max(int(first), lowest), min(int(last or first), highest)
    return (low, high) if low <= high else None


MESSAGES = [
    (cls, spec.lowest, spec.highest)
    for spec in APIS
    if spec.key not in UNKNOWN_TO_KAFKA_PYTHON
    for cls in (spec.request, spec.response)
]


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # kafka-python's way to read its own files
@pytest.mark.parametrize(("cls", "lowest", "highest"), MESSAGES, ids=[cls.__name__ for cls, _, _ in MESSAGES])
def test_names_versions_nulls_tags_and_defaults_are_kafkas(cls: type[Any], lowest: int, highest: int) -> None:
    schema: dict[str, Any] = load_json(cls.__name__)
    assert schema["apiKey"] == cls.api.key
    flexible = schema["flexibleVersions"]
    assert (None if flexible == "none" else int(flexible.rstrip("+"))) == cls.api.flexible_from
    compare(cls, schema["fields"], lowest, highest, by_hand=cls.api.key in (PRODUCE, FETCH))


def compare(cls: type[Any], theirs: list[dict[str, Any]], lowest: int, highest: int, *, by_hand: bool) -> None:
    known = {}
    for said in theirs:
        name = snake(said["name"])
        known[OURS_NOT_KAFKAS.get(name, name) if by_hand else name] = said
    ours = {each.name: each for each in fields(cls)}
    served = {name for name, each in known.items() if range_of(each["versions"], lowest, highest)}
    assert served <= set(ours)
    for name, each in ours.items():
        how: Wire = each.metadata["wire"]
        said = known[name]
        within = range_of(said["versions"], lowest, highest)
        if within is None:  # the classes may know a version more than is served
            assert how.since > highest
            continue
        assert (max(how.since, lowest), min(how.until, highest)) == within, name
        nullable = range_of(said.get("nullableVersions", "none"), *within)
        first_null = max(how.null_since, within[0])
        assert (nullable[0] if nullable else None) == (first_null if first_null <= within[1] else None), name
        assert how.tag == said.get("tag"), name
        assert how.is_array == said["type"].startswith("[]"), name
        if "default" in said:
            assert each.default == plain(said["default"], said["type"]), name
        if isinstance(how.element, type):
            compare(how.element, said["fields"], *within, by_hand=by_hand)


def plain(text: Any, kind: str) -> object:
    if text == "null":
        return None
    if kind == "bool":
        return text in (True, "true")
    return text if kind == "string" else int(str(text), 0)
