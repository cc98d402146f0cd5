"""What each node of a cluster uses, sampled over time: a CSV file, a check that it stays flat, and a plot.

python -m tests.operators.resources CSV SVG     plot a file that a soak has written
"""

from __future__ import annotations

import csv
import os
import sys
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from statistics import median
from typing import Final, NamedTuple

from tests.support.node_process import NodeProcess

BLOCK_BYTES = 512


class Kind(NamedTuple):
    """How much a resource may grow from the second to the last quarter of a run: by a part of it, and by an amount."""

    title: str
    part: float
    amount: float


KINDS: Final = {
    "rss_anon_mb": Kind("anonymous memory, MB", 0.15, 15.0),
    "descriptors": Kind("open descriptors", 0.15, 30.0),
    "threads": Kind("threads", 0.0, 4.0),
    "disk_mb": Kind("disk, MB", 0.25, 60.0),
}


class Sample(NamedTuple):
    """What one node used at one moment."""

    seconds: float
    node: str
    values: dict[str, float]


class Sampler:
    """Writes samples to a CSV file as they are taken."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._began = time.monotonic()
        with path.open("w") as file:
            csv.writer(file).writerow(["seconds", "node", *KINDS])

    def sample(self, nodes: Iterable[NodeProcess]) -> None:
        """Nodes that do not run are left out."""
        with self._path.open("a") as file:
            writer = csv.writer(file)
            for node in nodes:
                try:
                    values = used_by(node)
                except (FileNotFoundError, ProcessLookupError):
                    continue
                writer.writerow([round(time.monotonic() - self._began, 1), node.spec.name, *values])


def used_by(node: NodeProcess) -> list[float]:
    """In the order of KINDS."""
    status = dict(
        line.split(":", 1) for line in Path(f"/proc/{node.pid}/status").read_text().splitlines() if ":" in line
    )
    if "RssAnon" not in status:
        raise ProcessLookupError(node.spec.name)
    return [
        round(int(status["RssAnon"].split()[0]) / 1024, 1),
        len(os.listdir(f"/proc/{node.pid}/fd")),
        int(status["Threads"]),
        round(disk_bytes(node.spec.path) / (1 << 20), 1),
    ]


def disk_bytes(path: Path) -> int:
    """Files that are deleted meanwhile do not count."""
    total = 0
    for folder, _, names in os.walk(path):
        for name in names:
            try:
                total += os.lstat(os.path.join(folder, name)).st_blocks * BLOCK_BYTES
            except FileNotFoundError:
                continue
    return total


def load(path: Path) -> list[Sample]:
    with path.open() as file:
        return [
            Sample(float(row["seconds"]), row["node"], {kind: float(row[kind]) for kind in KINDS})
            for row in csv.DictReader(file)
        ]


def growth(samples: Sequence[Sample]) -> list[str]:
    """What has grown from the second to the last quarter by more than permitted, as sentences.

    The medians are compared: peaks are no growth, and a node that is killed begins anew.
    """
    end = max(sample.seconds for sample in samples)
    found = []
    for node in sorted({sample.node for sample in samples}):
        own = [sample for sample in samples if sample.node == node]
        second = [sample for sample in own if end / 4 <= sample.seconds < end / 2]
        last = [sample for sample in own if end * 3 / 4 <= sample.seconds]
        if not second or not last:
            found.append(f"{node}: there are no samples of the second or the last quarter")
            continue
        for name, kind in KINDS.items():
            before, after = (median(sample.values[name] for sample in part) for part in (second, last))
            if after > before * (1 + kind.part) + kind.amount:
                found.append(f"{node}: {kind.title} grew from {before:g} to {after:g}")
    return found


# --- the plot

WIDTH, HEIGHT, MARGIN = 760, 150, 50
COLORS = ("#1f77b4", "#ff7f0e", "#2ca02c", "#9467bd", "#8c564b", "#7f7f7f")


def svg(samples: Sequence[Sample]) -> str:
    """One diagram for each kind of resource, with a line for each node."""
    nodes = sorted({sample.node for sample in samples})
    end = max(sample.seconds for sample in samples) or 1.0
    parts = []
    for number, (name, kind) in enumerate(KINDS.items()):
        top = number * (HEIGHT + MARGIN) + MARGIN
        highest = max(sample.values[name] for sample in samples) * 1.1 or 1.0
        parts.append(f'<text x="{MARGIN}" y="{top - 8}" font-weight="bold">{kind.title}</text>')
        for value in (0.0, highest / 2, highest):
            y = top + HEIGHT * (1 - value / highest)
            parts.append(f'<line x1="{MARGIN}" y1="{y:.1f}" x2="{MARGIN + WIDTH}" y2="{y:.1f}" stroke="#ddd"/>')
            parts.append(f'<text x="{MARGIN - 6}" y="{y + 4:.1f}" text-anchor="end">{value:.0f}</text>')
        for node, color in zip(nodes, COLORS, strict=False):
            points = " ".join(
                f"{MARGIN + WIDTH * sample.seconds / end:.1f},{top + HEIGHT * (1 - sample.values[name] / highest):.1f}"
                for sample in samples
                if sample.node == node
            )
            parts.append(f'<polyline points="{points}" fill="none" stroke="{color}" stroke-width="1.2"/>')
    bottom = len(KINDS) * (HEIGHT + MARGIN) + 10
    parts.append(f'<text x="{MARGIN}" y="{bottom}">0 min</text>')
    parts.append(f'<text x="{MARGIN + WIDTH}" y="{bottom}" text-anchor="end">{end / 60:.0f} min</text>')
    for number, (node, color) in enumerate(zip(nodes, COLORS, strict=False)):
        parts.append(f'<text x="{MARGIN + 120 * number}" y="{bottom + 25}" fill="{color}">{node}</text>')
    size = f'width="{WIDTH + 2 * MARGIN}" height="{bottom + 40}"'
    style = 'font-family="sans-serif" font-size="12"'
    background = '<rect width="100%" height="100%" fill="white"/>'
    return f'<svg xmlns="http://www.w3.org/2000/svg" {size} {style}>\n' + "\n".join([background, *parts]) + "\n</svg>\n"


if __name__ == "__main__":
    Path(sys.argv[2]).write_text(svg(load(Path(sys.argv[1]))))
