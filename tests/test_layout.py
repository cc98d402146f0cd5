"""Packages are linked and named as required, and pure files use neither time nor randomness."""

from __future__ import annotations

import ast
import os
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import grimp
import pytest

ROOT = Path(__file__).resolve().parent.parent
NOT_PACKAGED = {"tests", "benchmarks", "examples"}
"""Root folders with an `__init__.py` that are no part of the library."""

PACKAGES = sorted(path.parent.name for path in ROOT.glob("*/__init__.py") if path.parent.name not in {"raylog"})
LINKED = sorted(set(PACKAGES) - NOT_PACKAGED)

SHELL_PACKAGES = {"actors", "raydp_bridge", "cli"}
"""Packages that are shells throughout: they work with Ray, Spark or the terminal."""

WORLD = {"time", "random", "socket", "ssl", "asyncio", "threading"}
"""Modules for time, randomness and communication, which pure files must not import."""


def sources(*folders: str) -> list[Path]:
    return sorted(path for folder in folders for path in (ROOT / folder).rglob("*.py"))


@cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text(), filename=str(path))


def is_shell(path: Path) -> bool:
    return "(shell)" in (ast.get_docstring(tree_of(path)) or "")


def imports(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Line and full module name of every import, at whatever depth it stands."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.lineno, "." * node.level + (node.module or "")


def swallows_everything(handler: ast.ExceptHandler) -> bool:
    """`except:`, `except Exception` or `except BaseException`, unless it only tidies up and raises again."""
    if handler.type is None:
        catches = True
    else:
        names = {node.id for node in ast.walk(handler.type) if isinstance(node, ast.Name)}
        catches = not names.isdisjoint({"Exception", "BaseException"})
    last = handler.body[-1]
    return catches and not (isinstance(last, ast.Raise) and last.exc is None)


def impurities(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """What only a shell may contain."""
    for line, module in imports(tree):
        if module.split(".")[0] in WORLD:
            yield line, f"imports {module}"
    for node in ast.walk(tree):
        if isinstance(node, ast.AsyncFunctionDef):
            yield node.lineno, f"async def {node.name}"
        elif isinstance(node, ast.ExceptHandler) and swallows_everything(node):
            yield node.lineno, "swallows every exception"


def test_every_package_is_linked_into_raylog_by_a_relative_link_and_nothing_else_is() -> None:
    links = {path.name: os.readlink(path) for path in (ROOT / "raylog").iterdir() if path.is_symlink()}
    assert links == {name: f"../{name}" for name in LINKED}


def test_raylog_itself_contains_public_names_only() -> None:
    own = {path.name for path in (ROOT / "raylog").iterdir() if not path.is_symlink()} - {"__pycache__"}
    assert own == {"__init__.py", "py.typed"}


def test_every_folder_of_a_package_is_a_package() -> None:
    bare = [
        str(folder.relative_to(ROOT))
        for package in LINKED
        for folder in (ROOT / package).rglob("*/")
        if any(folder.glob("*.py")) and not (folder / "__init__.py").exists()
    ]
    assert not bare


def test_no_import_uses_a_bare_or_relative_name() -> None:
    bare = [
        f"{path.relative_to(ROOT)}:{line}: {module}"
        for path in sources(*PACKAGES, "raylog", "script")
        for line, module in imports(tree_of(path))
        if module.split(".")[0] in LINKED or module.startswith(".")
    ]
    assert not bare, "write raylog.<package>..."


def test_pure_files_use_no_clock_socket_thread_or_random_source() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{line}: {what}"
        for path in sources(*(name for name in LINKED if name not in SHELL_PACKAGES))
        if not is_shell(path)
        for line, what in impurities(tree_of(path))
    ]
    assert not found, "decide in a pure object, act in a file whose docstring says (shell)"


@pytest.mark.parametrize(
    ("source", "what"),
    [
        ("import time", "imports time"),
        ("def f():\n    from asyncio.streams import X", "imports asyncio.streams"),
        ("async def serve(): ...", "async def serve"),
        ("try: f()\nexcept (OSError, Exception): pass", "swallows every exception"),
        ("try: f()\nexcept: pass", "swallows every exception"),
    ],
)
def test_the_check_detects_violations(source: str, what: str) -> None:
    assert [found for _, found in impurities(ast.parse(source))] == [what]


def test_cleanup_with_reraise_is_allowed() -> None:
    assert not list(impurities(ast.parse("try: f()\nexcept BaseException:\n    close()\n    raise")))


def test_all_tools_are_configured_for_every_package() -> None:
    """pyproject.toml names the packages in three places; a new one must be in each."""
    tools = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]
    layers = next(contract for contract in tools["importlinter"]["contracts"] if contract["type"] == "layers")["layers"]
    assert sorted(name for layer in layers for name in layer.split(" | ")) == LINKED
    assert sorted(tools["coverage"]["run"]["source"]) == LINKED
    banned = tools["ruff"]["lint"]["flake8-tidy-imports"]["banned-api"]
    assert {name: entry["msg"] for name, entry in banned.items()} == {name: f"write raylog.{name}" for name in LINKED}


def test_no_modules_import_each_other_in_a_cycle() -> None:
    """Not even for type checking: what two of them share has a module of its own."""
    graph = grimp.build_graph("raylog", exclude_type_checking_imports=False, cache_dir=None)
    left = {module: graph.find_modules_directly_imported_by(module) for module in graph.modules}
    while free := [module for module, imported in left.items() if not imported & left.keys()]:
        for module in free:
            del left[module]
    assert sorted(left) == []
