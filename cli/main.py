"""The `raylog` command: runs a subcommand, and reports an error as one line on stderr and an exit code.

Exit codes: 0 success; 1 error; 2 wrong usage; 130 interrupted; 141 the reader of the output has closed it.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from importlib.metadata import version

from raylog.cli import (
    acls,
    api_versions,
    audit,
    brokers,
    cluster_id,
    configs,
    consume,
    delete_records,
    dump_log,
    elect,
    events,
    features,
    get_offsets,
    groups,
    log_dirs,
    mirror,
    produce,
    quorum,
    quotas,
    reassign,
    start,
    status,
    sweep_values,
    tokens,
    topics,
    transactions,
    transfer_dirs,
    users,
)
from raylog.core.errors import KafkaError

COMMANDS = (
    start,
    status,
    topics,
    groups,
    configs,
    acls,
    users,
    quotas,
    tokens,
    produce,
    consume,
    get_offsets,
    delete_records,
    transactions,
    brokers,
    reassign,
    elect,
    quorum,
    log_dirs,
    audit,
    mirror,
    events,
    features,
    cluster_id,
    api_versions,
    sweep_values,
    dump_log,
    transfer_dirs,
)
"""In the order of `raylog --help`. Each has `add_to(subparsers)`, which sets `run`; it may return an exit code."""

FAILED = 1
INTERRUPTED = 130
OUTPUT_CLOSED = 141


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command line and return its exit code. argparse raises SystemExit(2) on wrong usage."""
    options = _parser().parse_args(arguments)
    try:
        code: int | None = options.run(options)
        sys.stdout.flush()
    except KafkaError as error:
        return _fail(str(error))
    except BrokenPipeError:
        _discard_output()
        return OUTPUT_CLOSED
    except OSError as error:
        return _fail(f"{error.filename}: {error.strerror}" if error.filename else str(error))
    except KeyboardInterrupt:
        return INTERRUPTED
    return code or 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="raylog", description="A Kafka-compatible commit log inside a Ray cluster.")
    parser.add_argument("--version", action="version", version=f"raylog {version('raylog')}")
    subparsers = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for command in COMMANDS:
        command.add_to(subparsers)
    return parser


def _fail(message: str) -> int:
    print("raylog:", " ".join(message.split()), file=sys.stderr)
    return FAILED


def _discard_output() -> None:
    """Redirect stdout to /dev/null, so that Python's flush at exit does not report the closed pipe again."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)


if __name__ == "__main__":
    sys.exit(main())
