"""Generates the reference pages in docs from the code, and the table of requests in docs/compatibility.md.

`python script/generate_docs.py` writes them; with `--check`, as a test runs it, it only reports what is out of date.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from commands_page import commands_page
from limits_page import limits_page
from metrics_page import metrics_page

from raylog.config.admin import ADMIN_KEYS
from raylog.config.client import CLIENT_KEYS
from raylog.config.client_metrics import CLIENT_METRICS_CONFIG
from raylog.config.client_network import NETWORK_KEYS
from raylog.config.consumer import CONSUMER_KEYS
from raylog.config.cross_checks import RULES
from raylog.config.group_resource import GROUP_KEYS
from raylog.config.producer import PRODUCER_KEYS
from raylog.config.server_properties import IGNORED
from raylog.config.share_consumer import SHARE_CONSUMER_KEYS
from raylog.config.table import BROKER_KEYS
from raylog.config.topic import TOPIC_KEYS
from raylog.core.config import Bounds, ConfigKey
from raylog.protocol.registry import APIS, KAFKA_APIS

ROOT = Path(__file__).resolve().parent.parent
BEGIN, END = "<!-- made by script/generate_docs.py -->", "<!-- end -->"
AMONG_BROKERS = frozenset({4, 5, 6, 7, 52, 53, 54, 56, 58, 59, 62, 63, 67, 70, 73, 80, 81, 82, 83, 84, 85, 86, 87})
"""Requests that only Kafka's brokers and controllers send to each other; clients do not need them."""

CONFIGURATION = """# Configuration

Keys of brokers are set when a cluster starts: `raylog.start(config={{"log.retention.hours": 24}})`,
`raylog start --config log.retention.hours=24`, or `raylog start --config-file server.properties`. Names, defaults and
meanings are Kafka's. A key that is not listed here is rejected when the cluster starts.

- Keys marked *dynamic* can also be changed while brokers run, for all of them or, unless *cluster-wide*, for one:
  `raylog configs alter --broker-defaults --add log.retention.ms=3600000`.
- Keys marked *dynamic per listener* can be changed while a broker runs, with the prefix of one of its listeners, for
  this broker only: see [security](security.md#new-keys-without-a-restart).
- Keys marked *per listener* can be set for one listener with a prefix: `listener.name.internal.max.connections=100`
  overrides `max.connections` for the listener INTERNAL. The listener's name is written in lower case; it must be one of
  `listeners`, or `inter.broker.listener.name`.
- Keys can be set for a single broker, by its id: `raylog start --broker-config 1:broker.rack=b`,
  `raylog start --broker-config-file 1:FILE`, or `raylog.start(broker_config={{1: {{"broker.rack": "b"}}}})`. This
  overrides what is set for all brokers, which controllers and brokers that are added later use. It is refused for
  `node.id`, and for keys marked *cluster-wide*, because controllers use them.

The limits of values are those of Apache Kafka 4.1, or stricter where Kafka accepts values with which a broker cannot
work. A value outside is rejected, at the start and at run time. If an earlier version of raylog has stored one in the
metadata of the cluster, the nearest permitted value is used instead, and a warning is logged. Besides:

{rules}

This page is generated from the declarations in `config/` by `script/generate_docs.py`.

## Brokers

{brokers}
## Topics

A topic's key overrides the broker's key in parentheses. All of them can be changed while brokers run:
`raylog configs alter --topic orders --add retention.ms=3600000`.

{topics}
## Groups

A group's key overrides the broker's key in parentheses, from the next heartbeat of each member on. The group need not
exist. `raylog configs alter --group billing --add consumer.session.timeout.ms=50000`.

{groups}
## Client metrics

Which metrics clients push, see [monitoring.md](monitoring.md). A resource exists while it has a key.
`raylog configs alter --client-metrics billing --add metrics=* --add interval.ms=10000`.

{client_metrics}
## Clients

raylog's own commands take these properties in a file, in the format of Kafka's Java client: `--command-config FILE`.
`raylog.connect`, `raylog.PartitionReader`, `raylog.read_table`, `raylog.read_dataset` and `read_topic` take them as a
dictionary, `client_config`. Other properties than those below are ignored, so that one file can serve Kafka's tools
and raylog's; unknown ones that begin with `security.`, `ssl.` or `sasl.` are rejected.

{clients}
### `raylog.Producer` and `raylog.AsyncProducer`

Their settings are the keys above and these, in a dictionary, or as keyword arguments with underscores in place of dots.
Any other key is an error.

{producers}
### `raylog.Consumer` and `raylog.AsyncConsumer`

Their settings are the client's keys, `isolation.level` among them, those that begin with `client.id` above, and these.

{consumers}
### `raylog.ShareConsumer` and `raylog.AsyncShareConsumer`

Their settings are the client's keys without `isolation.level`, those that begin with `client.id` above, and these. What
else concerns a share group is a configuration of the group.

{share_consumers}
### `raylog.AdminClient` and `raylog.AsyncAdminClient`

Their settings are the client's keys without `isolation.level`, those that begin with `client.id` above, and these.

{admins}
## Keys of Kafka's that files may contain

`raylog start --config-file` and `raylog brokers restart --config-file` read the server.properties of an Apache Kafka.
The listeners of its controllers are left out. If there is no `--data-dir`, the directories in log.dirs are used as data
directories; they must not be log directories of Kafka, whose topics `raylog import-dir` copies. The keys below steer
parts of Kafka that raylog does not have: they are ignored, and reported in one line each. Any other key that is not in
the tables above is an error.

| key | why it is ignored |
| --- | --- |
{ignored}
"""


def documents() -> dict[Path, str]:
    """Each generated document and its up-to-date text."""
    compatibility = ROOT / "docs" / "compatibility.md"
    before, _, rest = compatibility.read_text().partition(BEGIN)
    _, _, after = rest.partition(END)
    return {
        compatibility: f"{before}{BEGIN}\n{_requests()}\n{END}{after}",
        ROOT / "docs" / "configuration.md": _configuration(),
        ROOT / "docs" / "limits.md": limits_page(),
        ROOT / "docs" / "metrics.md": metrics_page(),
        ROOT / "docs" / "commands.md": commands_page(),
    }


def _requests() -> str:
    rows = ["| request | key | versions |", "| --- | --- | --- |"]
    for spec in sorted(APIS, key=lambda spec: spec.key):
        advertised = "" if spec.advertised_from == spec.lowest else f" (advertised from {spec.advertised_from})"
        rows.append(f"| {spec.name} | {spec.key} | {spec.lowest}-{spec.highest}{advertised} |")
    served = {spec.key for spec in APIS}
    missing = [name for key, name in KAFKA_APIS.items() if key not in served | AMONG_BROKERS]
    left = f"Not served yet, and not advertised: {', '.join(missing)}."
    return "\n".join(rows) + "\n\n" + (left if missing else "Every request that Kafka's clients send is served.")


def _configuration() -> str:
    """docs/configuration.md: the broker's keys by subject, then a topic's and a client's."""
    brokers = "\n".join(f"### {subject}\n\n{_table(keys)}" for subject, keys in BROKER_KEYS.items())
    rules = "\n".join(f"- `{rule.lower.name}` must be {rule.relation}`{rule.upper.name}`." for rule in RULES)
    return CONFIGURATION.format(
        rules=rules,
        brokers=brokers,
        topics=_table(TOPIC_KEYS),
        groups=_table(GROUP_KEYS),
        client_metrics=_table(CLIENT_METRICS_CONFIG.keys.values()),
        clients=_table(CLIENT_KEYS, marked=False),
        ignored="\n".join(f"| `{name}` | {reason} |" for name, reason in IGNORED.items()),
        producers=_table((*NETWORK_KEYS, *PRODUCER_KEYS), marked=False),
        consumers=_table([key for key in CONSUMER_KEYS if key not in CLIENT_KEYS], marked=False),
        share_consumers=_table(SHARE_CONSUMER_KEYS, marked=False),
        admins=_table(ADMIN_KEYS, marked=False),
    )


def _table(keys: Iterable[ConfigKey[Any]], *, marked: bool = True) -> str:
    rows = ["| key | type | default | limits | meaning |", "| --- | --- | --- | --- | --- |"]
    for key in sorted(keys, key=lambda key: key.name):
        default = key.format(key.default)
        shown = f"`{default}`" if default else "none"
        of_listener = "dynamic per listener" if key.dynamic_per_listener else "per listener"
        kinds = (("dynamic", key.dynamic), ("cluster-wide", key.cluster_wide), (of_listener, key.per_listener))
        marks = [mark for mark, holds in kinds if holds]
        kind = ", ".join([key.type.name.lower(), *(marks if marked else ())])
        meaning = key.doc if key.broker_key is None else f"{key.doc} (`{key.broker_key.name}`)"
        limits = str(key.check) if isinstance(key.check, Bounds) else ""
        rows.append(f"| `{key.name}` | {kind} | {shown} | {limits} | {meaning} |")
    return "\n".join(rows) + "\n"


def main() -> int:
    stale = [path for path, text in documents().items() if not path.exists() or path.read_text() != text]
    if "--check" in sys.argv[1:]:
        for path in stale:
            print(f"{path.relative_to(ROOT)} is out of date: run python script/generate_docs.py", file=sys.stderr)
        return 1 if stale else 0
    for path in stale:
        path.write_text(documents()[path])
        print(f"written: {path.relative_to(ROOT)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
