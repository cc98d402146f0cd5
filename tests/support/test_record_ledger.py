"""The check of the ledger finds each kind of violation, and reports none for a correct run."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.record_ledger import Ledger

GOOD: list[list[object]] = [
    ["sent", 0, "a"],
    ["sent", 0, "b"],
    ["sent", 0, "c"],
    ["acknowledged", 0, 0, "a"],
    ["acknowledged", 0, 1, "b"],
    ["read", 0, 0, "a"],
    ["read", 0, 1, "b"],
    ["read", 0, 2, "c"],
]


def judge(lines: list[list[object]], *, least: int = 1) -> list[str]:
    return Ledger(map(json.dumps, lines)).judge(least=least)


def test_a_correct_run() -> None:
    assert judge(GOOD) == []
    assert judge(GOOD[:-1]) == [], "what was not acknowledged may be missing"


@pytest.mark.parametrize(
    ("lines", "complaint"),
    [
        ([*GOOD[:6], ["read", 0, 2, "c"]], "1 acknowledged records are not where they were"),
        ([*GOOD[:6], ["read", 0, 1, "c"]], "not where they were"),
        ([*GOOD[:5], ["read", 0, 0, "b"], ["read", 0, 1, "a"]], "in another order"),
        ([*GOOD, ["read", 0, 3, "b"]], "1 records were read twice"),
        ([*GOOD, ["read", 0, 3, "z"]], "no producer sent"),
        ([*GOOD, ["read", 0, 2, "c"]], "offsets were read twice"),
        ([*GOOD[:5], *reversed(GOOD[5:])], "not in their order"),
        ([*GOOD, ["acknowledged", 0, 1, "c"]], "given to two records"),
        ([], "nothing was sent"),
        ([["sent", 1, "x"], *GOOD], "partition 1: 0 records were acknowledged"),
    ],
)
def test_violations_are_reported(lines: list[list[object]], complaint: str) -> None:
    assert any(complaint in each for each in judge(lines)), judge(lines)


def test_a_run_with_too_few_acknowledged_records_fails() -> None:
    assert judge(GOOD, least=3) == ["partition 0: 2 records were acknowledged, of at least 3"]


def test_the_program_returns_an_exit_code(tmp_path: Path) -> None:
    for lines, code in ((GOOD, 0), (GOOD[:6], 1)):
        path = tmp_path / "ledger"
        path.write_text("".join(json.dumps(line) + "\n" for line in lines))
        command = [sys.executable, "-m", "tests.support.record_ledger", str(path)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == code, done.stderr
        assert "3 sent, 2 acknowledged" in done.stdout
