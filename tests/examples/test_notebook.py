"""The cells of the notebook run in order, and leave nothing behind."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.ray
NOTEBOOK = Path(__file__).parents[2] / "examples" / "first_steps.ipynb"


@pytest.mark.usefixtures("ray_runtime")
def test_the_cells_run_in_order() -> None:
    cells = json.loads(NOTEBOOK.read_text())["cells"]
    programs = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    assert all(not cell["outputs"] for cell in cells if cell["cell_type"] == "code")
    names: dict[str, Any] = {}
    try:
        for number, program in enumerate(programs):
            exec(compile(program, f"cell {number}", "exec"), names)
    finally:
        if "cluster" in names:
            names["cluster"].stop()
    assert "stock" in names["topics"]
    assert len(names["records"]) == names["rows"] == 1000
    assert sum(each.offset for each in names["committed"].values()) == 1000
