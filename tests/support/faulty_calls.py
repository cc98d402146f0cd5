"""Makes system calls of a running node fail or take long, and its wall clock wrong (faulty_calls.c)."""

from __future__ import annotations

import struct
import subprocess
from pathlib import Path
from shutil import which

_LAYOUT = struct.Struct("=qiii108s")
_SOURCE = Path(__file__).with_suffix(".c")
COMPILER = "cc"


def why_no_faulty_calls() -> str:
    """Why system calls cannot be replaced; empty if they can."""
    return "" if which(COMPILER) else f"{COMPILER} is not installed"


def build(path: Path) -> Path:
    """Compile the library into the directory `path`."""
    library = path / "faulty_calls.so"
    subprocess.run([COMPILER, "-shared", "-fPIC", "-O1", "-o", str(library), str(_SOURCE), "-ldl"], check=True)
    return library


class FaultyCalls:
    """The faults of one node, which begin with none."""

    def __init__(self, library: Path, path: Path) -> None:
        """`path` is the file by which the node gets them."""
        self._path = path
        path.write_bytes(bytes(_LAYOUT.size))
        self.environment = {"LD_PRELOAD": str(library), "FAULTY_CALLS": str(path)}
        """Of the node."""

    def set(
        self,
        *,
        clock_offset_seconds: int = 0,
        failing_syncs: int = 0,
        sync_ms: int = 0,
        write_ms: int = 0,
        path: str = "",
    ) -> None:
        """Replace the faults. The number of failing syncs counts down; only files whose path contains `path` fail."""
        faults = _LAYOUT.pack(clock_offset_seconds, failing_syncs, sync_ms, write_ms, path.encode())
        with self._path.open("r+b") as file:
            file.write(faults)
