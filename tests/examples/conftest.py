"""The examples lie beside the tests, not in the library: `python -m pytest` finds them, plain `pytest` needs this."""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = str(Path(__file__).resolve().parent.parent.parent)
if ROOT not in sys.path:
    sys.path.append(ROOT)
