"""The `raylog` command: runs a subcommand, and reports an error as one line on stderr and an exit code.

Exit codes: 0 success; 1 error; 2 wrong usage; 130 interrupted; 141 the reader of the output has closed it.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.metadata import version
from typing import Any, Final, NoReturn

from raylog.cli.examples import add_examples
from raylog.cli.usage import UsageError
from raylog.core.errors import KafkaError

MODULES: Final = (
    "start",
    "doctor",
    "status",
    "console",
    "topics",
    "groups",
    "configs",
    "acls",
    "users",
    "quotas",
    "tokens",
    "produce",
    "consume",
    "share_consume",
    "get_offsets",
    "delete_records",
    "transactions",
    "producer_perf",
    "consumer_perf",
    "e2e_latency",
    "verifiable",
    "brokers",
    "reassign",
    "elect",
    "quorum",
    "log_dirs",
    "verify_replicas",
    "audit",
    "mirror",
    "events",
    "logs",
    "metrics",
    "features",
    "cluster_id",
    "api_versions",
    "sweep_values",
    "dump_log",
    "transfer_dirs",
    "completion",
)
"""In the order of `raylog --help`. Each has `add_to(subparsers)`, which sets `run`; it may return an exit code."""
_OF_SEVERAL: Final = {
    "export-dir": "transfer_dirs",
    "import-dir": "transfer_dirs",
    "verifiable-consumer": "verifiable",
    "verifiable-producer": "verifiable",
}
MODULE_OF: Final = _OF_SEVERAL | {each.replace("_", "-"): each for each in MODULES if each not in _OF_SEVERAL.values()}
"""By command. Only the module of the command that is given is imported."""

FAILED = 1
WRONG_USAGE = 2
INTERRUPTED = 130
OUTPUT_CLOSED = 141


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command line and return its exit code. Raises SystemExit(2) on wrong usage."""
    _open_missing_streams()
    given = sys.argv[1:] if arguments is None else arguments
    module = MODULE_OF.get(given[0]) if given else None
    parser = make_parser() if module is None else make_parser([module])
    options = parser.parse_args(given, argparse.Namespace(make_parser=make_parser))
    try:
        code: int | None = options.run(options)
        sys.stdout.flush()
    except UsageError as error:
        of_command: argparse.ArgumentParser = options.parser
        of_command.error(str(error))
    except KafkaError as error:
        return _fail(str(error))
    except BrokenPipeError:
        _discard_output()
        return OUTPUT_CLOSED
    except OSError as error:
        return _fail(f"{error.filename}: {error.strerror}" if error.filename else str(error))
    except EOFError:
        return _fail("the input has ended")
    except (UnicodeError, OverflowError) as error:  # a name, or a number, that is not possible
        return _fail(str(error))
    except KeyboardInterrupt:
        return INTERRUPTED
    return code or 0


class _Parser(argparse.ArgumentParser):
    """Reports wrong usage as one line, like every other error. argparse uses it for each command, too."""

    def parse_known_args(self, *given: Any, **options: Any) -> Any:
        """Whatever a command does not know is its error, not that of `raylog`. `parser` is then that of the command."""
        parsed, unknown = super().parse_known_args(*given, **options)
        parsed.parser = getattr(parsed, "parser", self)
        if unknown:
            self.error(f"unrecognized arguments: {' '.join(unknown)}")
        return parsed, unknown

    def _get_values(self, action: Any, arg_strings: Any) -> Any:
        """`--key-separator=--` has the value `--`, which argparse of Python 3.11 takes for the end of the options."""
        if action.option_strings and action.nargs is None and arg_strings == ["--"]:
            value = self._get_value(action, "--")
            self._check_value(action, value)
            return value
        return super()._get_values(action, arg_strings)

    def error(self, message: str) -> NoReturn:
        self.exit(WRONG_USAGE, f"{self.prog}: {' '.join(message.split())} (see {self.prog} --help)\n")


def make_parser(modules: Sequence[str] = MODULES) -> argparse.ArgumentParser:
    """That of the whole command line, or of the commands of some modules."""
    parser = _Parser(
        prog="raylog",
        description="A Kafka-compatible commit log inside a Ray cluster.",
        epilog="Exit codes: 0 success; 1 error, which is one line on stderr; 2 wrong usage; 130 interrupted.",
    )
    parser.add_argument("--version", action="version", version=f"raylog {version('raylog')}")
    subparsers = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for module in modules:
        import_module(f"raylog.cli.{module}").add_to(subparsers)
    add_examples(parser)
    return parser


def _fail(message: str) -> int:
    print("raylog:", " ".join(message.split()), file=sys.stderr)
    return FAILED


def _open_missing_streams() -> None:
    """Standard streams that were closed before the start are /dev/null, and not the first file or socket opened."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115  # until the process ends


def _discard_output() -> None:
    """Redirect stdout to /dev/null, so that Python's flush at exit does not report the closed pipe again."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)


if __name__ == "__main__":
    sys.exit(main())
