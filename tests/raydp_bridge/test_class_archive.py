"""The option names an archive that exists and fits; one that cannot be made is an error, and leaves nothing behind."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from raylog.core.errors import ConfigError
from raylog.raydp_bridge import class_archive


@pytest.fixture
def environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An environment with jars, and a Java whose programs do nothing."""
    for package in ("raydp", "pyspark", "ray"):
        (tmp_path / package / "jars").mkdir(parents=True)
        (tmp_path / package / "jars" / "one.jar").write_bytes(b"1")
    (tmp_path / "java" / "bin").mkdir(parents=True)
    (tmp_path / "java" / "release").write_text('JAVA_VERSION="17.0.15"\nMODULES="jdk.incubator.vector"\n')
    program = tmp_path / "java" / "bin" / "java"
    program.write_text("#!/bin/sh\nexit 3\n")
    program.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "java"))
    monkeypatch.setenv("PATH", str(program.parent), prepend=":")
    monkeypatch.setattr("sys.prefix", str(tmp_path))
    found = {name: SimpleNamespace(origin=str(tmp_path / name / "__init__.py")) for name in ("raydp", "pyspark", "ray")}
    monkeypatch.setattr(importlib.util, "find_spec", found.get)
    return tmp_path


def archive_of(environment: Path) -> Path:
    path = class_archive._path()
    assert path.is_relative_to(environment)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()
    return path


def test_without_an_archive_there_is_no_option(environment: Path) -> None:
    assert class_archive.java_option() == ""


def test_the_archive_of_this_environment_is_used(environment: Path) -> None:
    archive = archive_of(environment)
    assert f"-XX:SharedArchiveFile={archive}" in class_archive.java_option().split()


def test_a_path_with_a_space_is_refused_and_not_given_to_java(
    environment: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.prefix", str(environment / "my environment"))
    archive_of(environment)
    assert class_archive.java_option() == ""
    with pytest.raises(ConfigError, match=r"my environment.*spaces"):
        class_archive.make()


@pytest.mark.parametrize("changed", ["raydp/jars/one.jar", "pyspark/jars/two.jar", "ray/jars/one.jar", "java/release"])
def test_an_archive_of_other_jars_or_another_java_is_not_used(environment: Path, changed: str) -> None:
    archive_of(environment)
    with (environment / changed).open("a") as file:
        file.write(" \n")
    assert class_archive.java_option() == ""


def test_a_link_to_a_jar_that_is_gone_changes_nothing(environment: Path) -> None:
    archive = archive_of(environment)
    (environment / "pyspark" / "jars" / "gone.jar").symlink_to(environment / "nothing.jar")
    assert class_archive._path() == archive


def test_what_a_killed_process_left_is_deleted_and_what_another_one_writes_is_not(environment: Path) -> None:
    folder = archive_of(environment).parent
    for name in ("left", "written"):
        (folder / f".new-{name}").mkdir()
        (folder / f".new-{name}" / "spark-0.jsa").touch()
    os.utime(folder / ".new-left", (0, 0))
    with pytest.raises(ConfigError):
        class_archive.make()
    assert [path.name for path in folder.glob(".new-*")] == [".new-written"]


def test_an_archive_that_was_not_made_is_an_error_and_the_former_one_stays(environment: Path) -> None:
    former = archive_of(environment)
    with pytest.raises(ConfigError, match="the archive of Spark's classes was not made: "):
        class_archive.make()
    assert list(former.parent.iterdir()) == [former]


def test_a_folder_that_cannot_be_written_is_an_error(environment: Path) -> None:
    (environment / "share").write_text("a file where a folder should be")
    with pytest.raises(ConfigError, match=r"was not made: .*share"):
        class_archive.make()
