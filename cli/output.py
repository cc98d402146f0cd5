"""The two forms of what a command prints: text for people and, with --json, one JSON value for programs."""

from __future__ import annotations

import argparse
import json


def add_json(*parsers: argparse.ArgumentParser) -> None:
    for parser in parsers:
        parser.add_argument("--json", action="store_true", help="print JSON")


def show(options: argparse.Namespace, value: object, text: str) -> None:
    """Print `value` with --json, else `text`, if there is any."""
    if options.json:
        print(json.dumps(value))
    elif text:
        print(text)
