"""(shell) docs/benchmarks.md, from the newest results of each part: `script/bench --page`."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, Final

from benchmarks.figures import RESULTS

PAGE: Final = Path("docs/benchmarks.md")
ALL: Final = "all"
TITLES: Final = {
    "start-up": "Start",
    "groups": "Groups",
    "storm": "Rebalances beside producers",
    "partitions": "Many partitions",
    "replication": "Replication",
    "small-records": "Small records",
    "audit": "Audit",
    "security": "TLS and logins",
    "compaction": "Compaction",
    "mirror": "Mirror",
    "wire": "The wire protocol",
    "clients": "Python clients, one broker",
    "local": "Readers of the same machine",
    "spark": "Spark, against its own source and sink on Apache Kafka 4.1.0",
    ALL: "All parts",
}
BEGINNING: Final = """# Benchmarks

What raylog does on one small machine, beside Apache Kafka and other clients where they can do the same work there.
Measure on yours with

```
script/bench                      # an hour; --only spark is one part of it
script/bench --page               # write this page: of each part the newest results that are there
```

## Method

Yardsticks run in turn with raylog, in the same minutes: another client with the same broker, librdkafka's in-memory
mock broker, a plain copy to a file, or Apache Kafka with the same Spark. A figure is the median of the runs; the lowest
and highest show how much the machine varied, and a ratio says more than a rate. CPU time is that of the process, per
record or per GB (10^9 bytes) of record batches; it varies less than rates. Client, broker and yardstick share the
cores, so a rate is what is left for each of them. Latencies in Spark are from the time of a record in its source topic
to the time of the one made from it in the target topic, and contain the trigger.
"""


def write_page() -> None:
    """Parts without results here keep what the page says of them. Raises LookupError if there are no results."""
    newest: dict[str, dict[str, Any]] = {}
    for path in sorted(RESULTS.glob("*.json")):
        found = json.loads(path.read_text())
        newest[found["arguments"]["only"] or ALL] = {**found, "measured": path.stem[:10]}
    if not newest:
        raise LookupError(f"{RESULTS} has no results: run script/bench first")
    known = _sections(PAGE.read_text()) if PAGE.exists() else {}
    made = {title: _section(title, newest[part]) for part, title in TITLES.items() if part in newest}
    shown = {**known, **made}
    PAGE.write_text("\n".join([BEGINNING, *(shown[title] for title in TITLES.values() if title in shown)]))
    print(f"written: {PAGE}")


def _sections(page: str) -> dict[str, str]:
    """Those of the page by title."""
    parts = re.split(r"^## (.+)\n", page, flags=re.MULTILINE)
    return {title: f"## {title}\n{text.rstrip()}\n" for title, text in zip(parts[1::2], parts[2::2], strict=True)}


def _section(title: str, found: dict[str, Any]) -> str:
    machine, arguments = found["machine"], found["arguments"]
    described = ", ".join(str(machine[key]) for key in ("cpu", "memory", "system", "python", "ray") if key in machine)
    load = f"load average {machine['load'][0]:.0f} at the end"
    rows = [
        f"## {title}",
        "",
        f"{found['measured']}: {arguments['runs']} runs on {machine['cpus']} cores ({described}; {load}).",
        "",
        "| | median | lowest | highest | unit |",
        "| --- | ---: | ---: | ---: | --- |",
    ]
    for each in found["figures"]:
        name = each["path"]
        shown = f"&nbsp;&nbsp;{name.strip()}" if name.startswith(" ") else name
        low, high = min(each["runs"]), max(each["runs"])
        rows.append(f"| {shown} | {_number(each['median'])} | {_number(low)} | {_number(high)} | {each['unit']} |")
    return "\n".join(rows) + "\n"


def _number(value: float) -> str:
    """Three digits."""
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}" if value >= 1 else f"{value:.3f}"
