"""Generated documents are current, and every file that a text names exists."""

from __future__ import annotations

import ast
import io
import re
import shlex
import subprocess
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

import raylog
from raylog.cli.main import make_parser

ROOT = Path(__file__).resolve().parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
NAMED_FILE = re.compile(r"(?<![\w./<>*{}-])((?:[\w.-]+/)*[\w-]+\.(?:py|md)|script/[a-z][\w-]*)\b")
"""A module, a document or a script. `broker/handlers/<api>.py` stands for many and is not looked for."""


def sources() -> list[Path]:
    """The project's own: Python files, documents and scripts, and nothing of what else may lie in the root."""
    folders = [path.parent for path in ROOT.glob("*/__init__.py")]
    found = [
        *ROOT.glob("*.md"),
        *ROOT.glob("*.py"),
        *ROOT.glob("docs/**/*.md"),
        *ROOT.glob("script/*"),
        *ROOT.glob(".ci/*"),
    ]
    found += [path for folder in folders for path in folder.rglob("*.py")]
    return sorted(path for path in found if path.is_file())


def prose(path: Path) -> Iterator[str]:
    """What a file says to its reader: all of a document, docstrings and comments of Python, comments of a script."""
    text = path.read_text()
    if not NAMED_FILE.search(text):
        return
    if path.suffix == ".md":
        yield text
    elif path.suffix == ".py":
        for node in ast.walk(ast.parse(text)):
            if (
                isinstance(node, ast.Expr)
                and isinstance(node.value, ast.Constant)
                and isinstance(node.value.value, str)
            ):
                yield node.value.value
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            if token.type == tokenize.COMMENT:
                yield token.string
    else:
        yield from (line for line in text.splitlines() if line.lstrip().startswith("#"))


def missing_files(text: str, existing: set[str]) -> list[str]:
    """Files named in `text` of which there is none, neither by the whole path nor by its end."""
    return [name for name in NAMED_FILE.findall(text) if not any(f"/{path}".endswith(f"/{name}") for path in existing)]


def test_generated_documents_are_current() -> None:
    check = [sys.executable, "script/generate_docs.py", "--check"]
    result = subprocess.run(check, cwd=ROOT, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr


def headings(document: Path) -> set[str]:
    """The anchors of a document's headings, as GitHub and MkDocs make them."""
    titles = re.findall(r"^#+ (.+)$", document.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles}


def test_every_link_of_the_readme_exists() -> None:
    links = re.findall(r"\]\((?!https?:)([^)#]*)(?:#([^)]+))?\)", (ROOT / "README.md").read_text())
    assert len(links) > 20
    broken = [
        (name, anchor)
        for name, anchor in links
        if not (ROOT / name).exists() or (anchor and anchor not in headings(ROOT / (name or "README.md")))
    ]
    assert broken == []


def test_the_api_page_names_all_that_the_package_offers() -> None:
    named = re.findall(r"^::: raylog\.(\w+)$", (ROOT / "docs" / "api.md").read_text(), re.MULTILINE)
    assert sorted(named) == sorted(raylog.__all__)


def test_the_site_has_every_page_and_no_broken_link(tmp_path: Path) -> None:
    build = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path)]
    result = subprocess.run(build, cwd=ROOT, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    assert (tmp_path / "configuration.html").exists()
    assert 'id="raylog.Producer.send"' in (tmp_path / "api.html").read_text(), "made from the docstrings"


def commands(page: Path) -> Iterator[list[str]]:
    """The arguments of each `raylog` command in a block of a page, up to a pipe, a redirection or a comment."""
    for language, block in re.findall(r"^```(\w*)$(.*?)^```$", page.read_text(), re.MULTILINE | re.DOTALL):
        if language not in ("", "sh"):
            continue
        for line in block.replace("\\\n", " ").splitlines():
            for command in re.findall(r"(?:^|[|;&] *)raylog ((?:[^|;&>#'\"]|'[^']*'|\"[^\"]*\")*)", line):
                if not re.search(r"\.\.\.|<\w", command):  # what stands for something else
                    yield shlex.split(command.partition("<")[0])


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_command_of_a_page_is_valid(page: Path, capsys: pytest.CaptureFixture[str]) -> None:
    parser = make_parser()
    for arguments in commands(page):
        try:
            parser.parse_args(arguments)
        except SystemExit as ended:
            pytest.fail(f"raylog {' '.join(arguments)}: {ended.code}: {capsys.readouterr().err}")


def test_every_file_that_a_text_names_exists() -> None:
    files = sources()
    existing = {str(path.relative_to(ROOT)) for path in files}
    missing = [
        f"{path.relative_to(ROOT)}: {name}"
        for path in files
        for text in prose(path)
        for name in missing_files(text, existing)
    ]
    assert missing == []


@pytest.mark.parametrize(
    ("text", "missing"),
    [
        ("see log/gone.py", ["log/gone.py"]),
        ("see `gone.py`, which", ["gone.py"]),
        ("docs/gone.md says how", ["docs/gone.md"]),
        ("script/gone starts it", ["script/gone"]),
        ("see store/log.py, log.py and script/run", []),
        ("og.py ends like another", ["og.py"]),
        ("handlers/<api>.py is one for each", []),
    ],
)
def test_the_check_detects_missing_files(text: str, missing: list[str]) -> None:
    assert missing_files(text, {"store/log.py", "script/run"}) == missing


def test_every_alert_has_a_row_and_a_section_that_says_what_to_do() -> None:
    alerts = re.findall(r"^ *- alert: (\w+)$", (ROOT / "docs/monitoring/alerts.yml").read_text(), re.MULTILINE)
    rows = re.findall(r"^\| (Raylog\w+) \|", (ROOT / "docs/monitoring.md").read_text(), re.MULTILINE)
    sections = re.findall(r"^### (Raylog\w+)$", (ROOT / "docs/operations.md").read_text(), re.MULTILINE)
    assert alerts == rows == sections
