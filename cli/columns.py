"""Tables for the terminal: columns as wide as their widest cell, separated by two spaces."""

from __future__ import annotations

from collections.abc import Sequence


def columns(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    widths = [max(len(row[column]) for row in [head, *rows]) for column in range(len(head))]
    lines = ("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in [head, *rows])
    return "\n".join(line.rstrip() for line in lines)
