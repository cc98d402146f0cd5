"""The wheel and the source distribution install in an empty environment, work there, and have types, on each Python."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.support.environment import without_ray

pytestmark = pytest.mark.packaging

ROOT = Path(__file__).parents[2]
PROGRAM = Path(__file__).with_name("program.py")
PYTHONS = ("3.11", "3.12", "3.13")
OLD_RAYS = ("2.20.0", "2.40.0", "2.59.0")
"""Versions with which the program works too, against what pyproject.toml permits: the oldest that was tried, and some
between."""
COMPILED = (
    "client.producer._appending",
    "protocol.records._compaction",
    "protocol.records._decoding",
    "protocol.records._encoding",
    "protocol.records._record_scan",
)
"""What a compiler makes of the sources in C."""


def run(*command: str | Path, folder: Path, environment: Mapping[str, str] | None = None) -> str:
    inherited = without_ray()
    inherited.pop("PYTHONPATH", None)  # a checkout in it would be imported instead of the wheel
    done = subprocess.run(
        list(map(str, command)),
        cwd=folder,
        env={**inherited, **(environment or {})},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


def uv(*arguments: str | Path, folder: Path, environment: Mapping[str, str] | None = None) -> str:
    return run(Path(sys.executable).with_name("uv"), *arguments, folder=folder, environment=environment)


PRINT_VERSION = "import sys; print(*sys.version_info[:2], sep='.', end='')"


def interpreter(version: str) -> str:
    """Its path, of those on PATH and of pyenv. The test is skipped where there is none."""
    on_path = (shutil.which(name) for name in (f"python{version}", "python3", "python"))
    of_pyenv = map(str, Path.home().glob(f".pyenv/versions/{version}.*/bin/python"))
    for path in filter(None, (*on_path, *of_pyenv)):
        if subprocess.run([path, "-c", PRINT_VERSION], capture_output=True, text=True, check=False).stdout == version:
            return path
    pytest.skip(f"there is no Python {version}")


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The source distribution, made from what git knows of this checkout, and changes to it."""
    clone, folder = tmp_path_factory.mktemp("clone"), tmp_path_factory.mktemp("source")
    names = run("git", "ls-files", "-co", "--exclude-standard", folder=ROOT).split("\n")
    for name in filter(None, names):
        copy = clone / name
        copy.parent.mkdir(parents=True, exist_ok=True)
        if (ROOT / name).is_symlink():
            copy.symlink_to(os.readlink(ROOT / name))
        elif (ROOT / name).exists():
            shutil.copy(ROOT / name, copy)
    uv("build", "--quiet", "--sdist", "--out-dir", folder, clone, folder=clone)
    (found,) = folder.glob("*.tar.gz")
    return found


@pytest.mark.parametrize("version", PYTHONS)
def test_a_wheel_works_in_an_empty_environment(source: Path, tmp_path: Path, version: str) -> None:
    python = interpreter(version)
    uv("build", "--quiet", "--wheel", "--python", python, "--out-dir", tmp_path, source, folder=tmp_path)
    (wheel,) = tmp_path.glob("*.whl")
    uv("venv", "--quiet", "--python", python, "empty", folder=tmp_path)
    empty = tmp_path / "empty"
    uv("pip", "install", "--quiet", wheel, "mypy", folder=tmp_path, environment={"VIRTUAL_ENV": str(empty)})
    modules = [f"raylog.{name}" for name in COMPILED]
    run(empty / "bin/python", "-c", f"import {', '.join(modules)}", folder=tmp_path)
    help_text = run(empty / "bin/raylog", "--help", folder=tmp_path)
    assert "topics" in help_text
    page = "from raylog.console.application import _static_files; print(sorted(_static_files()))"
    assert "app.js" in run(empty / "bin/python", "-c", page, folder=tmp_path)
    run_program(empty, tmp_path)
    assert run(empty / "bin/mypy", "--strict", tmp_path / PROGRAM.name, folder=tmp_path).startswith("Success")
    wrong = tmp_path / "wrong.py"
    wrong.write_text(PROGRAM.read_text().replace(".result().offset", ".result().no_such_attribute"))
    with pytest.raises(AssertionError, match='has no attribute "no_such_attribute"'):
        run(empty / "bin/mypy", "--strict", wrong, folder=tmp_path)


@pytest.mark.parametrize("ray", OLD_RAYS)
def test_the_program_works_with_older_versions_of_ray(source: Path, tmp_path: Path, ray: str) -> None:
    python = interpreter(PYTHONS[0])
    uv("build", "--quiet", "--wheel", "--python", python, "--out-dir", tmp_path, source, folder=tmp_path)
    (wheel,) = tmp_path.glob("*.whl")
    uv("venv", "--quiet", "--python", python, "empty", folder=tmp_path)
    empty, overrides = tmp_path / "empty", tmp_path / "overrides.txt"
    overrides.write_text(f"ray=={ray}\n")
    own = {"VIRTUAL_ENV": str(empty)}
    uv("pip", "install", "--quiet", "--overrides", overrides, wheel, folder=tmp_path, environment=own)
    run_program(empty, tmp_path)


def run_program(environment: Path, folder: Path) -> None:
    """With the Python of the environment, and Ray's files in a folder of its own."""
    program = Path(shutil.copy(PROGRAM, folder))  # not where types would be found beside it
    with TemporaryDirectory(prefix="ray-", ignore_cleanup_errors=True) as short:  # for the sockets in it
        own = {"RAY_TMPDIR": short, "PATH": f"{environment / 'bin'}:{os.environ['PATH']}"}
        run(environment / "bin/python", program, folder=folder, environment=own)
