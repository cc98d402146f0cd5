"""README and docs/configuration.md say what the code does: what is made from it is fresh, every command exists."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def test_made_documents_are_fresh() -> None:
    check = [sys.executable, "script/generate_docs.py", "--check"]
    result = subprocess.run(check, cwd=ROOT, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr


def test_every_link_and_script_of_the_readme_exists() -> None:
    text = (ROOT / "README.md").read_text()
    named = set(re.findall(r"\]\(([A-Za-z][\w./-]+)\)", text)) | set(re.findall(r"\bscript/\w+(?:\.py)?", text))
    assert sorted(name for name in named if not (ROOT / name).exists()) == []
