"""The two forms of what a command prints: text for people and, with --json, one JSON value for programs."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from functools import partial


def add_json(*parsers: argparse.ArgumentParser) -> None:
    for parser in parsers:
        parser.add_argument("--json", action="store_true", help="print JSON")


def progress(options: argparse.Namespace) -> Callable[[str], None]:
    """Prints a line about work that takes long; to stderr with --json, so that stdout has the JSON alone."""
    return partial(print, file=sys.stderr if options.json else sys.stdout, flush=True)


def show(options: argparse.Namespace, value: object, text: str) -> None:
    """Print `value` with --json, else `text`, if there is any."""
    if options.json:
        print(json.dumps(value))
    elif text:
        print(text)
