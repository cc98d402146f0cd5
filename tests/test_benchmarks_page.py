"""The page of benchmarks has the newest results of each part, with the machine and the spread of the runs."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from benchmarks import figures, page
from benchmarks.figures import figure


def test_the_newest_results_of_each_part_are_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("docs").mkdir()
    with pytest.raises(LookupError, match="bench-results has no results"):
        page.write_page()
    for stamp, value in (("2026-01-01T000000", 1.0), ("2026-02-01T000000", 1234.5)):
        monkeypatch.setattr(time, "strftime", lambda _, stamp=stamp: stamp)
        figures.write([figure("reads", "M/s", [0.0123, value, value])], {"only": "clients", "runs": 3})
    monkeypatch.setattr(time, "strftime", lambda _: "2026-03-01T000000")
    figures.write([figure("  p99", "ms", [45.67])], {"only": "spark", "runs": 1})
    page.write_page()
    text = Path("docs/benchmarks.md").read_text()
    assert text.count("\n## ") == 3  # the method, clients and Spark
    assert "| &nbsp;&nbsp;p99 | 45.7 | 45.7 | 45.7 | ms |" in text
    assert "2026-02-01: 3 runs on" in text
    assert "| reads | 1,234 | 0.012 | 1,234 | M/s |" in text
    assert "Python 3." in text
    for path in Path("bench-results").glob("*.json"):
        path.unlink()
    figures.write([figure("reads", "M/s", [7.0])], {"only": "clients", "runs": 3})
    page.write_page()
    again = Path("docs/benchmarks.md").read_text()
    assert "| reads | 7.00 | 7.00 | 7.00 | M/s |" in again
    assert again.partition("\n## Spark")[2] == text.partition("\n## Spark")[2], "its results are not here any more"
