"""(shell) One measured path each, how they are shown, and how they are kept."""

from __future__ import annotations

import json
import os
import platform
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path

RESULTS = Path("bench-results")


@dataclass(frozen=True, slots=True)
class Figure:
    """One measured path: what came out, and what DESIGN asks for."""

    path: str
    unit: str
    median: float
    runs: list[float]
    solid: float | None
    aim: float | None
    more_is_better: bool = False

    def verdict(self) -> str:
        if self.solid is None or self.aim is None:
            return ""
        sign = 1 if self.more_is_better else -1
        if sign * self.median >= sign * self.aim:
            return "aim"
        return "solid" if sign * self.median >= sign * self.solid else "missed"


def figure(
    path: str,
    unit: str,
    runs: list[float],
    *,
    solid: float | None = None,
    aim: float | None = None,
    more_is_better: bool = False,
) -> Figure:
    return Figure(path, unit, statistics.median(runs), runs, solid, aim, more_is_better)


def timed(work: Callable[[], None]) -> float:
    begun = time.perf_counter()
    work()
    return time.perf_counter() - begun


def cpu_seconds(pid: int) -> float:
    """User and system time of the process so far (proc(5), fields 14 and 15)."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def anonymous_megabytes(pid: int) -> float:
    """Memory of the process's own (RssAnon), without files it has mapped."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) / 1024
    raise LookupError("no RssAnon in /proc")


def percentile(ordered: Sequence[float], percent: int) -> float:
    return ordered[len(ordered) * percent // 100]


def progress(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def show(figures: list[Figure]) -> None:
    width = max(len(figure.path) for figure in figures)
    print(f"\n{'path':{width}} {'median':>10} {'min':>8} {'max':>8}  {'unit':10} {'solid':>6} {'aim':>6}  verdict")
    for figure in figures:
        budget = f"{figure.solid or '':>6} {figure.aim or '':>6}"
        spread = f"{figure.median:10.3f} {min(figure.runs):8.3f} {max(figure.runs):8.3f}"
        print(f"{figure.path:{width}} {spread}  {figure.unit:10} {budget}  {figure.verdict()}")


def write(figures: list[Figure], arguments: dict[str, object]) -> None:
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"{time.strftime('%Y-%m-%dT%H%M%S')}.json"
    machine = {"cpus": os.cpu_count(), "load": os.getloadavg(), **_machine()}
    rows = [{**asdict(figure), "verdict": figure.verdict()} for figure in figures]
    path.write_text(json.dumps({"arguments": arguments, "machine": machine, "figures": rows}, indent=2))
    print(f"\nwritten to {path}")


def _machine() -> dict[str, str]:
    """What the figures depend on."""
    models = [line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name")]
    memory_bytes = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return {
        "cpu": models[0].partition(":")[2].strip() if models else platform.machine(),
        "memory": f"{memory_bytes / (1 << 30):.0f} GiB of memory",
        "system": f"{platform.system()} {platform.release().partition('-')[0]}",
        "python": f"Python {platform.python_version()}",
        "ray": f"Ray {version('ray')}",
    }
