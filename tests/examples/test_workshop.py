"""A workshop removes its files and processes, prints collected output only on failure, and defers interrupts."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.hang import HANG_SECONDS

ROOT = Path(__file__).resolve().parent.parent.parent


def run(program: str) -> subprocess.CompletedProcess[str]:
    """In a process of its own: signals, file descriptors and the environment are changed."""
    return subprocess.run(
        [sys.executable, "-c", "from examples.workshop import *\nimport subprocess\n" + program],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=HANG_SECONDS,
        check=False,
    )


def test_files_and_processes_are_removed_at_the_end() -> None:
    done = run(
        "with workshop() as place:\n"
        "    (place.path / 'data').write_text('x')\n"
        "    child = subprocess.Popen(['sleep', '100'], start_new_session=True)\n"
        "    print(place.path, child.pid)\n"
        f"child.wait({HANG_SECONDS})\n"
    )
    assert (done.returncode, done.stderr) == (0, "")
    path, child = done.stdout.split()
    assert not Path(path).exists()
    with pytest.raises(ProcessLookupError):
        os.kill(int(child), 0)


def test_output_is_printed_only_on_failure(tmp_path: Path) -> None:
    block = f"with quiet_screen(Path({str(tmp_path / 'log')!r})):\n    os.system('echo noise; echo more >&2')\n"
    quiet = run("print('before')\n" + block + "print('after')")
    assert (quiet.stdout, quiet.stderr) == ("before\nafter\n", "")
    assert (tmp_path / "log").read_text() == "noise\nmore\n"
    failed = run(block + "    1 / 0")
    assert failed.stdout == ""
    assert "| noise\n   | more\n" in failed.stderr
    assert "ZeroDivisionError" in failed.stderr


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_waits_for_a_protected_section(number: int) -> None:
    done = run(
        "take_signals()\n"
        "try:\n"
        "    with signals_held_back():\n"
        f"        os.kill(os.getpid(), {number})\n"
        "        print('finished')\n"
        "    print('not reached')\n"
        "except KeyboardInterrupt:\n"
        "    print('interrupted', interrupted())\n"
    )
    assert (done.stdout, done.stderr) == ("finished\ninterrupted True\n", "")


def test_an_interrupt_swallowed_by_a_library_is_noticed() -> None:
    done = run(
        "take_signals()\n"
        "signal.signal(signal.SIGINT, lambda *_: None)\n"
        "print(interrupted())\n"
        "os.kill(os.getpid(), signal.SIGINT)\n"
        "print(interrupted(), interrupted())\n"
    )
    assert (done.stdout, done.stderr) == ("False\nTrue True\n", "")
