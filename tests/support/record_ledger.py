"""Records that clients sent, that were acknowledged and that were finally read; and a program that checks them.

    python -m tests.support.record_ledger FILE [--least N]

FILE has one JSON array to a line, in any order but for those of one partition:

    ["sent", partition, value]                   handed to the producer, in this order
    ["acknowledged", partition, offset, value]   the producer got an acknowledgement
    ["read", partition, offset, value]           read after all faults had ended, from the beginning

Acknowledged records must not be lost, moved or changed; no record may be duplicated, reordered, or not have been sent.
A run that acknowledged little proves little: fewer than N records of a partition are a failure as well.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path


class Ledger:
    """The lines of one run, by partition."""

    def __init__(self, lines: Iterable[str]) -> None:
        """Raises ValueError for a line of another kind."""
        self.sent: dict[int, list[str]] = defaultdict(list)
        self.acknowledged: dict[int, dict[int, str]] = defaultdict(dict)
        self.read: dict[int, list[tuple[int, str]]] = defaultdict(list)
        self.complaints: list[str] = []
        for line in lines:
            kind, partition, *rest = json.loads(line)
            if kind == "sent":
                self.sent[partition].append(rest[0])
            elif kind == "acknowledged":
                offset, value = rest
                if self.acknowledged[partition].setdefault(offset, value) != value:
                    self.complaints.append(f"partition {partition}: offset {offset} was given to two records")
            elif kind == "read":
                self.read[partition].append((rest[0], rest[1]))
            else:
                raise ValueError(f"{line!r} is no line of a ledger")

    def judge(self, *, least: int) -> list[str]:
        """The violations, as sentences; empty if there are none."""
        complaints = list(self.complaints)
        for partition in sorted({*self.sent, *self.acknowledged, *self.read}):
            complaints += [f"partition {partition}: {what}" for what in self._judge(partition, least)]
        return complaints or ([] if self.sent else ["nothing was sent"])

    def _judge(self, partition: int, least: int) -> Iterable[str]:
        acknowledged, read = self.acknowledged[partition], self.read[partition]
        if len(acknowledged) < least:
            yield f"{len(acknowledged)} records were acknowledged, of at least {least}"
        at = dict(read)
        if len(at) != len(read) or [offset for offset, _ in read] != sorted(at):
            yield "offsets were read twice, or not in their order"
        lost = [offset for offset, value in acknowledged.items() if at.get(offset) != value]
        if lost:
            what = f"{acknowledged[lost[0]]!r} at {lost[0]}, where {at.get(lost[0])!r} was read"
            yield f"{len(lost)} acknowledged records are not where they were, such as {what}"
        order = {value: number for number, value in enumerate(self.sent[partition])}
        numbers = [order.get(value, -1) for _, value in read]
        if -1 in numbers:
            yield f"{numbers.count(-1)} records were read that no producer sent"
        if len(set(numbers)) != len(numbers):
            yield f"{len(numbers) - len(set(numbers))} records were read twice"
        if numbers != sorted(numbers):
            yield "records were read in another order than they were sent in"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path)
    parser.add_argument("--least", type=int, default=1, help="records of each partition that must be acknowledged")
    options = parser.parse_args()
    with options.file.open() as lines:
        ledger = Ledger(lines)
    complaints = ledger.judge(least=options.least)
    for complaint in complaints:
        sys.stderr.write(f"{complaint}\n")
    counts = [sum(map(len, kind.values())) for kind in (ledger.sent, ledger.acknowledged, ledger.read)]
    said = f"{counts[0]} sent, {counts[1]} acknowledged, {counts[2]} read, {len(complaints)} complaints"
    sys.stdout.write(f"{said}\n")
    return 1 if complaints else 0


if __name__ == "__main__":
    sys.exit(main())
