"""The `raylog` command: picks the subcommand, and turns what goes wrong into one line and an exit code.

0 done; 1 refused or failed, with one line on stderr; 2 wrong usage; 130 interrupted; 141 nobody reads the output.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from importlib.metadata import version

from raylog.cli import (
    acls,
    brokers,
    configs,
    consume,
    dump_log,
    elect,
    events,
    groups,
    log_dirs,
    produce,
    quorum,
    reassign,
    start,
    status,
    topics,
    transfer_dirs,
)
from raylog.core.errors import KafkaError

COMMANDS = (
    start,
    status,
    topics,
    groups,
    configs,
    acls,
    produce,
    consume,
    brokers,
    reassign,
    elect,
    quorum,
    log_dirs,
    events,
    dump_log,
    transfer_dirs,
)
"""In the order of `raylog --help`. Each has `add_to(subparsers)`, which sets `run`."""

FAILED = 1
INTERRUPTED = 130
OUTPUT_CLOSED = 141


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command line; the exit code. argparse leaves with SystemExit(2) on wrong usage."""
    options = _parser().parse_args(arguments)
    try:
        options.run(options)
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
    return 0


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
    """What is still buffered goes nowhere, so that Python's own flush at exit does not complain a second time."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)


if __name__ == "__main__":
    sys.exit(main())
