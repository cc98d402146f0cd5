"""The metrics of several nodes as one exposition, in which a label says whose each series is. Pure.

Prometheus' text format wants all series of a metric in one group, so the texts of the nodes are first divided into
their metrics, and then written metric by metric. Both is done in short pieces, as `metrics.exposition` does it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from raylog.core.metrics import PIECE_STEPS, escaped
from raylog.core.metrics_text import HEAD, LABEL, SERIES

NODE: Final = "node"
"""The label that is added."""
EXPORTED: Final = "exported_node"
"""What a label of that name is called then, as Prometheus calls it."""


class _Part(NamedTuple):
    """The series of one metric in the text of one node: from one position to another."""

    node: str
    begin: int
    end: int


class _Family:
    """One metric: its HELP and TYPE lines, of the first node that has it, and where its series are."""

    __slots__ = ("head", "parts")

    def __init__(self) -> None:
        self.head: dict[str, str] = {}
        self.parts: list[_Part] = []


def merged(texts: Mapping[str, str]) -> Iterator[str]:
    """One exposition of those of all nodes, by node, in short pieces; a piece may be empty.

    Lines that are no series are left out, and so are series without a HELP or TYPE line before them.
    """
    families: dict[str, _Family] = {}
    for node, text in texts.items():
        yield from _divide(node, text, families)
    lines: list[str] = []
    for family in families.values():
        lines += family.head.values()
        for node, begin, end in family.parts:
            label = f'{NODE}="{escaped(node)}"'
            for line in _lines(texts[node], begin, end):
                lines += _labelled(line, label)
                if len(lines) >= PIECE_STEPS:
                    yield _joined(lines)
                    lines = []
    yield _joined(lines)


def _divide(node: str, text: str, families: dict[str, _Family]) -> Iterator[str]:
    """Find the metrics of a text; yields between two of them."""
    position = steps = 0
    current: _Family | None = None
    begin = 0
    while (position := _next_head(text, position)) >= 0:
        line_end = text.find("\n", position)
        line = text[position : line_end if line_end >= 0 else len(text)]
        head = HEAD.fullmatch(line)
        if head is not None:
            if current is not None and position > begin:
                current.parts.append(_Part(node, begin, position))
            current = families.setdefault(head["name"], _Family())
            current.head.setdefault(head["what"], line)
            begin = position + len(line) + 1
        position += len(line)
        steps += 1
        if steps % PIECE_STEPS == 0:
            yield ""
    if current is not None and begin < len(text):
        current.parts.append(_Part(node, begin, len(text)))


def _next_head(text: str, position: int) -> int:
    """Where the next line begins that is a comment; -1 if there is none."""
    if position == 0 and text.startswith("# "):
        return 0
    found = text.find("\n# ", position)
    return found + 1 if found >= 0 else -1


def _lines(text: str, begin: int, end: int) -> Iterator[str]:
    while begin < end:
        line_end = text.find("\n", begin, end)
        if line_end < 0:
            line_end = end
        yield text[begin:line_end]
        begin = line_end + 1


def _labelled(line: str, label: str) -> tuple[str, ...]:
    """The line of one series with the label; nothing if it is no series."""
    series = SERIES.fullmatch(line)
    if series is None:
        return ()
    name, labels, value = series.groups()
    if labels and f'{NODE}="' in labels:
        labels = LABEL.sub(lambda each: each[0] if each["name"] != NODE else f'{EXPORTED}="{each["value"]}"', labels)
    return (f"{name}{{{label}{f',{labels}' if labels else ''}}} {value}",)


def _joined(lines: list[str]) -> str:
    return "\n".join(lines) + "\n" if lines else ""
