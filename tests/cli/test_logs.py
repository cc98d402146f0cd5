"""`raylog logs` prints the end of each node's log, whatever it contains."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from raylog.actors.log_file import TAIL_BYTES_MAX, LogTail, log_tail
from raylog.cli.logs import as_json, as_text

TAILS = {"broker-0": LogTail("/tmp/worker.err", ["first\tline", "\x1b[2Jsecond"]), "controller-0": LogTail("", [])}


def test_text_contains_nothing_that_a_terminal_obeys() -> None:
    assert as_text(TAILS) == (
        "broker-0: /tmp/worker.err\nfirst\tline\n\ufffd[2Jsecond\n\ncontroller-0: its log does not go to a file"
    )


def test_json() -> None:
    assert json.loads(as_json(TAILS)) == {
        "broker-0": {"path": "/tmp/worker.err", "lines": ["first\tline", "\x1b[2Jsecond"]},
        "controller-0": {"path": "", "lines": []},
    }


@pytest.mark.parametrize(
    ("content", "wanted", "lines"),
    [
        (b"", 5, []),
        (b"a\nb\nc\n", 2, ["b", "c"]),
        (b"a\nb\nc", 9, ["a", "b", "c"]),
        (b"\xff\n", 1, ["\ufffd"]),
        (b"x" * TAIL_BYTES_MAX + b"\nlast\n", 5, ["last"]),
    ],
)
def test_the_end_of_a_log_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: bytes, wanted: int, lines: list[str]
) -> None:
    path = tmp_path / "worker.err"
    path.write_bytes(content)
    with path.open("a") as file:
        monkeypatch.setattr(sys, "stderr", file)
        assert log_tail(wanted) == LogTail(str(path), lines)


def test_a_log_that_goes_to_no_file(monkeypatch: pytest.MonkeyPatch) -> None:
    with open("/dev/null", "w") as device:
        monkeypatch.setattr(sys, "stderr", device)
        assert log_tail(5) == LogTail("", [])
