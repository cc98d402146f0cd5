"""`source script/env` works from any directory, and an error closes no shell of a reader but stops the scripts."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ENV = Path(__file__).resolve().parent.parent / "script" / "env"
SHELLS = [shell for shell in ("bash", "zsh") if shutil.which(shell)]


def run(shell: str, commands: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    own = {name: value for name, value in os.environ.items() if name not in {"VIRTUAL_ENV", "RAYLOG_VENV"}}
    return subprocess.run([shell, "-c", commands], cwd=cwd, env=own, capture_output=True, text=True, check=False)


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """A clone with an environment of almost nothing, in a path with a space."""
    root = tmp_path / "a clone"
    (root / "script").mkdir(parents=True)
    shutil.copy(ENV, root / "script" / "env")
    (root / ".venv" / "bin").mkdir(parents=True)
    (root / ".venv" / "bin" / "python").symlink_to(sys.executable)
    return root


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize("cwd", [".", "script", ".."])
def test_the_environment_is_that_of_the_checkout(clone: Path, shell: str, cwd: str) -> None:
    place = os.path.relpath(clone / "script" / "env", clone / cwd)
    found = run(shell, f'source "./{place}" && echo "$VIRTUAL_ENV" && command -v python', clone / cwd)
    assert found.stdout == f"{clone}/.venv\n{clone}/.venv/bin/python\n"


@pytest.mark.parametrize("shell", SHELLS)
def test_without_an_environment_the_shell_stays_open_and_a_script_stops(clone: Path, shell: str) -> None:
    shutil.rmtree(clone / ".venv")
    stays = run(shell, "source script/env; echo stays $?", clone)
    assert stays.stdout == "stays 1\n"
    assert stays.stderr == f"no {clone}/.venv yet: run script/setup first\n"
    stops = run(shell, "set -eu; source script/env; echo goes on", clone)
    assert (stops.returncode, stops.stdout) == (1, "")
