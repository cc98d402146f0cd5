"""Tables for the terminal: columns as wide as their widest cell, separated by two spaces."""

from __future__ import annotations

from collections.abc import Sequence

from raylog.cli.values import printable


def columns(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Cells may come from clients of the cluster: what is not printable is escaped."""
    shown = [head, *([printable(cell) for cell in row] for row in rows)]
    widths = [max(len(row[column]) for row in shown) for column in range(len(head))]
    lines = ("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in shown)
    return "\n".join(line.rstrip() for line in lines)
