"""Writes what can be read off the code into the documents: README's table of requests and docs/configuration.md.

`python script/generate_docs.py` writes, with `--check` it only says whether they are fresh (a test does).
"""

from __future__ import annotations

import sys
from pathlib import Path

from raylog.config.broker import BROKER_CONFIG
from raylog.config.topic import TOPIC_CONFIG
from raylog.core.config import ConfigSchema
from raylog.protocol.registry import APIS, KAFKA_APIS

ROOT = Path(__file__).resolve().parent.parent
BEGIN, END = "<!-- made by script/generate_docs.py -->", "<!-- end -->"
AMONG_BROKERS = frozenset({4, 5, 6, 7, 52, 53, 54, 56, 58, 59, 62, 63, 67, 70, 73, 80, 81, 82, 83, 84, 85, 86, 87})
"""Requests that only brokers and controllers of Kafka send each other: no client misses them."""


def documents() -> dict[Path, str]:
    """Every made document with its text as it should be."""
    readme = ROOT / "README.md"
    before, _, rest = readme.read_text().partition(BEGIN)
    _, _, after = rest.partition(END)
    return {
        readme: f"{before}{BEGIN}\n{_requests()}\n{END}{after}",
        ROOT / "docs" / "configuration.md": _configuration(),
    }


def _requests() -> str:
    rows = ["| request | key | versions |", "| --- | --- | --- |"]
    for spec in sorted(APIS, key=lambda spec: spec.key):
        advertised = "" if spec.advertised_from == spec.lowest else f" (advertised from {spec.advertised_from})"
        rows.append(f"| {spec.name} | {spec.key} | {spec.lowest}-{spec.highest}{advertised} |")
    served = {spec.key for spec in APIS}
    missing = [name for key, name in KAFKA_APIS.items() if key not in served | AMONG_BROKERS]
    return "\n".join(rows) + "\n\nNot served yet, and not advertised: " + ", ".join(missing) + "."


def _configuration() -> str:
    head = (
        "# Configuration\n\nMade from the declarations in `broker/config.py` and `broker/topic_config.py` by"
        " `script/generate_docs.py`. Names, defaults and\nmeanings are Kafka's; a key that is not listed is refused.\n"
    )
    left_out = (
        "\n## Left out\n\n`num.replica.fetchers` is refused. In Kafka it is how many threads copy from one leader, each"
        " with a part of the\npartitions by their hash. A broker here has one thread, so more of them would copy no"
        " faster. It has two connections to\neach leader instead: one for partitions that have records coming, one"
        " for all the others.\n"
    )
    topics = "\n## Topics\n\nA topic's key overrides the broker's key beside it.\n\n" + _table(TOPIC_CONFIG)
    return head + "\n## Brokers\n\n" + _table(BROKER_CONFIG) + topics + left_out


def _table(schema: ConfigSchema) -> str:
    rows = ["| key | type | default | meaning |", "| --- | --- | --- | --- |"]
    for name, key in sorted(schema.keys.items()):
        default = key.format(key.default)
        meaning = key.doc if key.broker_key is None else f"{key.doc} (`{key.broker_key.name}`)"
        shown = f"`{default}`" if default else "none"
        rows.append(f"| `{name}` | {key.type.name.lower()} | {shown} | {meaning} |")
    return "\n".join(rows) + "\n"


def main() -> int:
    stale = [path for path, text in documents().items() if not path.exists() or path.read_text() != text]
    if "--check" in sys.argv[1:]:
        for path in stale:
            print(f"{path.relative_to(ROOT)} is stale: python script/generate_docs.py", file=sys.stderr)
        return 1 if stale else 0
    for path in stale:
        path.write_text(documents()[path])
        print(f"written: {path.relative_to(ROOT)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
