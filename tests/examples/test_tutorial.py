"""The commands and programs of docs/tutorial.md print what the page shows."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import pytest

from tests.support.environment import without_ray
from tests.support.forms import by_form
from tests.support.hang import HANG_SECONDS
from tests.support.ports import free_ports

pytestmark = [pytest.mark.ray, pytest.mark.compat]

PAGE = Path(__file__).parents[2] / "docs" / "tutorial.md"
BLOCK = re.compile(r"^```(sh|python|text)\b.*?\n(.*?)^```$", re.MULTILINE | re.DOTALL)
WITHOUT_ADDRESS = re.compile(r"\braylog (?:(?:topics|groups) \w+|produce|consume)\b(?!.*--command-config)")
FIRST_PORT = 9092
BROKERS = 3


class Step(NamedTuple):
    """A block of the page that is run, and the lines that it must print."""

    code: str
    printed: list[str]


def usual(page: str) -> str:
    """Without the section that starts a Spark of its own, which takes a minute."""
    before, section, rest = page.partition("## A DataFrame")
    assert section
    return before + rest[rest.index("\n## ") :]


def steps(page: str) -> Iterator[Step]:
    """Blocks of `sh` share one shell, one of `python` is a program, one of `text` is printed by the block before."""
    found: list[Step] = []
    for language, text in BLOCK.findall(page):
        if language == "text":
            found[-1].printed.extend(text.splitlines())
        elif language == "sh":
            found.append(Step(text, []))
        else:
            found.append(Step(f"python - <<'END'\n{text}END\n", []))
    yield from found


def moved(page: str, folder: Path) -> str:
    """The page with a directory and ports of this test's own, which commands without an address must be given."""
    page = page.replace("/tmp/", f"{folder}/")
    ports = free_ports(BROKERS)
    for number, port in enumerate(ports):
        page = page.replace(str(FIRST_PORT + number), str(port))
    return WITHOUT_ADDRESS.sub(rf"\g<0> -b 127.0.0.1:{ports[0]}", page)


def is_printed(line: str, output: str) -> bool:
    """Whatever stands for `...`, and however wide the spaces are."""
    beginning, is_open, _ = line.partition(" ...")
    words = beginning.split()
    return any(
        printed.split()[: len(words)] == words and (is_open or len(printed.split()) == len(words))
        for printed in output.splitlines()
    )


def test_each_step_prints_what_the_page_shows(tmp_path: Path) -> None:
    page = moved(PAGE.read_text() if by_form(0, long=1) else usual(PAGE.read_text()), tmp_path)
    with TemporaryDirectory(prefix="ray-", ignore_cleanup_errors=True) as folder:  # short, for the sockets in it
        environment = without_ray() | {"HOME": str(tmp_path), "RAY_TMPDIR": folder, "RAY_worker_niceness": "0"}
        outputs = run([step.code for step in steps(page)], tmp_path, environment)
    assert len(outputs) > 10
    for step, output in zip(steps(page), outputs, strict=True):
        missing = [line for line in step.printed if line and not is_printed(line, output)]
        assert missing == [], f"{step.code}\nprinted:\n{output}"


def run(codes: list[str], folder: Path, environment: Mapping[str, str]) -> list[str]:
    """What each of them printed, in one shell in `folder`. The shell's processes end with it."""
    end = "end of a step"
    script = "set -euo pipefail\ntrap 'kill $(jobs -p) 2>/dev/null || true; wait' EXIT\n" + "".join(
        f"{code}\necho '{end}'\n" for code in codes
    )
    bin_folder = f"{Path(sys.executable).parent}:{environment['PATH']}"
    with subprocess.Popen(
        ["bash", "-c", script],
        cwd=folder,
        env={**environment, "PATH": bin_folder},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    ) as shell:
        try:
            output, _ = shell.communicate(timeout=HANG_SECONDS * len(codes))
        except BaseException:
            os.killpg(shell.pid, signal.SIGTERM)  # raylog start stops its cluster
            raise
    outputs = output.split(f"{end}\n")
    assert shell.returncode == 0, outputs[-1]
    return outputs[:-1]
