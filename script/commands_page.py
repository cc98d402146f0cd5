"""docs/commands.md: every command of `raylog`, with the tool of Kafka's that does the same, and an example."""

from __future__ import annotations

import argparse
from collections.abc import Iterator

from raylog.cli.examples import EXAMPLES
from raylog.cli.main import make_parser

KAFKA_TOOLS = {
    "topics": "kafka-topics",
    "groups": "kafka-consumer-groups",
    "configs": "kafka-configs",
    "acls": "kafka-acls",
    "users": "kafka-configs",
    "quotas": "kafka-configs",
    "tokens": "kafka-delegation-tokens",
    "produce": "kafka-console-producer",
    "consume": "kafka-console-consumer",
    "share-consume": "kafka-console-share-consumer",
    "get-offsets": "kafka-get-offsets",
    "delete-records": "kafka-delete-records",
    "transactions": "kafka-transactions",
    "producer-perf": "kafka-producer-perf-test",
    "consumer-perf": "kafka-consumer-perf-test",
    "e2e-latency": "kafka-e2e-latency",
    "verifiable-producer": "kafka-verifiable-producer",
    "verifiable-consumer": "kafka-verifiable-consumer",
    "replica-verification": "kafka-replica-verification",
    "reassign": "kafka-reassign-partitions",
    "elect": "kafka-leader-election",
    "quorum": "kafka-metadata-quorum",
    "log-dirs": "kafka-log-dirs",
    "verify-replicas": "kafka-replica-verification",
    "mirror": "connect-mirror-maker",
    "features": "kafka-features",
    "cluster-id": "kafka-cluster",
    "api-versions": "kafka-broker-api-versions",
    "dump-log": "kafka-dump-log",
}

PAGE = """# The command line

`raylog COMMAND --help` explains each command. All of them have one style:

- `-b HOST:PORT`, or `--bootstrap-server`, names brokers, of raylog or of Apache Kafka; the default is 127.0.0.1:9092.
  `--command-config FILE` has the properties of Kafka's clients for TLS and logins.
- `--json` prints JSON in place of text. Progress and errors go to stderr.
- The exit code is 0 for success, 1 for an error, 2 for wrong usage, 130 after Ctrl-C. An error is one line on stderr.
- `raylog completion bash` (or zsh, fish) prints a script that completes commands, options and their values:

```
raylog completion bash > ~/.local/share/bash-completion/completions/raylog
raylog completion zsh > "${{fpath[1]}}/_raylog"
raylog completion fish > ~/.config/fish/completions/raylog.fish
```

A command in the table has the options of Kafka's tool under the same names where both have them. Commands without a
tool are raylog's own.

{table}

This page is generated from the commands by `script/generate_docs.py`.
"""


def commands_page() -> str:
    rows = ["| command | what it does | tool of Kafka's | example |", "| --- | --- | --- | --- |"]
    for name, text in _helps(make_parser()):
        tool = KAFKA_TOOLS.get(name.split()[0], "")
        rows.append(f"| {name} | {text} | {tool} | `{EXAMPLES[name]}` |")
    return PAGE.format(table="\n".join(rows))


def _helps(parser: argparse.ArgumentParser, words: tuple[str, ...] = ()) -> Iterator[tuple[str, str]]:
    """The words of each command, and its line in the list of commands."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for listed in action._choices_actions:
                below = action.choices[listed.dest]
                deeper = list(_helps(below, (*words, listed.dest)))
                yield from deeper or [(" ".join((*words, listed.dest)), listed.help or "")]
