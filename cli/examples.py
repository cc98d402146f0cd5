"""An example of each command, which its help shows and a test runs, and the walk over all commands that adds them."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping
from typing import Final

EXAMPLES: Final[Mapping[str, str]] = {
    "start": "raylog start --name shop --brokers 3 --data-dir /data/shop",
    "doctor": "raylog doctor --data-dir /data/shop --port 9092 --brokers 3",
    "status": "raylog status --name shop",
    "console": "raylog console --bootstrap-server 127.0.0.1:9092",
    "topics create": "raylog topics create orders --partitions 3 --config retention.ms=86400000",
    "topics list": "raylog topics list --exclude-internal",
    "topics describe": "raylog topics describe orders",
    "topics alter": "raylog topics alter orders --partitions 6 --config retention.ms=3600000",
    "topics delete": "raylog topics delete orders",
    "groups list": "raylog groups list --state",
    "groups reset-offsets": "raylog groups reset-offsets billing --topic orders --to-earliest --execute",
    "groups describe": "raylog groups describe billing",
    "groups delete": "raylog groups delete billing",
    "groups delete-offsets": "raylog groups delete-offsets billing --topic orders:0,1",
    "configs describe": "raylog configs describe --topic orders --all",
    "configs alter": "raylog configs alter --broker-defaults --add log.retention.ms=86400000",
    "acls list": "raylog acls list --topic orders",
    "acls add": "raylog acls add --consumer --topic orders --group billing --allow-principal User:alice",
    "acls remove": "raylog acls remove --topic orders",
    "users list": "raylog users list",
    "users set": "raylog users set alice --password-file alice.txt",
    "users remove": "raylog users remove alice",
    "quotas list": "raylog quotas list --user alice",
    "quotas set": "raylog quotas set producer_byte_rate=1048576 --user alice",
    "quotas remove": "raylog quotas remove --user alice",
    "tokens create": "raylog tokens create --renewer-principal User:bob --command-config alice.properties",
    "tokens describe": "raylog tokens describe --command-config alice.properties",
    "tokens renew": "raylog tokens renew V6iT1TqlQSG5g7lRqhRBbg --command-config alice.properties",
    "tokens expire": "raylog tokens expire V6iT1TqlQSG5g7lRqhRBbg --command-config alice.properties",
    "produce": "raylog produce orders --key-separator : < orders.txt",
    "consume": "raylog consume orders --offset -10 --exit-at-end --print-key",
    "share-consume": "raylog share-consume orders --group packers --max-messages 10 --timeout-ms 1000",
    "get-offsets": "raylog get-offsets orders:0,1 --time earliest",
    "delete-records": "raylog delete-records --offset-json-file offsets.json",
    "transactions list": "raylog transactions list --duration-filter 60000",
    "transactions describe": "raylog transactions describe billing-0",
    "transactions describe-producers": "raylog transactions describe-producers orders:0",
    "transactions find-hanging": "raylog transactions find-hanging",
    "transactions abort": "raylog transactions abort orders:0 --start-offset 120",
    "producer-perf": "raylog producer-perf orders --num-records 1000 --record-size 100 --property acks=1",
    "consumer-perf": "raylog consumer-perf orders --num-records 1000",
    "e2e-latency": "raylog e2e-latency orders --num-records 100",
    "verifiable-producer": "raylog verifiable-producer orders --max-messages 100 --throughput 1000",
    "verifiable-consumer": "raylog verifiable-consumer orders --group-id billing --max-messages 100",
    "brokers list": "raylog brokers list",
    "brokers add": "raylog brokers add --name shop --count 2",
    "brokers restart": "raylog brokers restart --name shop --all",
    "brokers remove": "raylog brokers remove 3 --name shop",
    "brokers decommission": "raylog brokers decommission 3 --name shop",
    "brokers unregister": "raylog brokers unregister 3",
    "reassign generate": "raylog reassign generate --topics orders --broker-list 0,1 --json",
    "reassign execute": "raylog reassign execute --reassignment-json-file plan.json --throttle 50000000",
    "reassign verify": "raylog reassign verify --reassignment-json-file plan.json",
    "reassign cancel": "raylog reassign cancel --reassignment-json-file plan.json",
    "reassign list": "raylog reassign list",
    "elect": "raylog elect --topic orders:0 --election-type preferred",
    "quorum describe": "raylog quorum describe --replication",
    "quorum add": "raylog quorum add 1001 --endpoint CONTROLLER://host1:9093",
    "quorum remove": "raylog quorum remove 1001",
    "log-dirs describe": "raylog log-dirs describe --broker-list 0 --topic-list orders",
    "log-dirs move": "raylog log-dirs move --broker 0 --to /disk2/shop/broker-0 orders:0",
    "verify-replicas": "raylog verify-replicas orders",
    "audit check": "raylog audit check --topic orders",
    "audit log": "raylog audit log orders",
    "mirror start": "raylog mirror start --config mm2.properties",
    "mirror status": "raylog mirror status",
    "mirror failover": "raylog mirror failover --config mm2.properties --dry-run",
    "mirror failback": "raylog mirror failback --config mm2.properties --dry-run",
    "events": "raylog events --node broker-0",
    "logs": "raylog logs --node broker-0 --lines 200",
    "metrics": "raylog metrics --name shop --json",
    "features describe": "raylog features describe",
    "features upgrade": "raylog features upgrade --dry-run",
    "features downgrade": "raylog features downgrade --feature transaction.version=1",
    "features disable": "raylog features disable --feature transaction.version",
    "cluster-id": "raylog cluster-id",
    "api-versions": "raylog api-versions",
    "sweep-values": "raylog sweep-values models --store file:///data/values --dry-run",
    "dump-log": "raylog dump-log /data/shop/broker-0/orders-0/00000000000000000000.log --records",
    "import-dir": "raylog import-dir --data-dir /data/shop /var/lib/kafka/data --topic orders",
    "export-dir": "raylog export-dir --data-dir /data/shop /var/lib/kafka/data --topic orders",
    "completion": "raylog completion bash > ~/.local/share/bash-completion/completions/raylog",
}
"""By command, as it is written: that which comes with the example is no part of it, such as a redirection."""

TITLE: Final = "example:\n  "


class HelpFormatter(argparse.HelpFormatter):
    """Keeps the line of an example as it is."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        return text if text.startswith(TITLE) else super()._fill_text(text, width, indent)


def add_examples(parser: argparse.ArgumentParser) -> None:
    for name, command in commands(parser):
        if name in EXAMPLES:
            command.epilog = TITLE + EXAMPLES[name]
            command.formatter_class = HelpFormatter


def commands(
    parser: argparse.ArgumentParser, words: tuple[str, ...] = ()
) -> Iterator[tuple[str, argparse.ArgumentParser]]:
    """Each command that can be run, by its words: `topics create`."""
    subparsers = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
    if not subparsers:
        yield " ".join(words), parser
    for action in subparsers:
        for word, below in action.choices.items():
            yield from commands(below, (*words, word))
