"""`raylog completion`: print a script by which a shell completes commands, options and their values."""

from __future__ import annotations

import argparse
from collections.abc import Callable

import shtab

from raylog.cli.arguments import Subparsers

SHELLS = ("bash", "zsh", "fish")


def add_to(subparsers: Subparsers) -> None:
    parser = subparsers.add_parser(
        "completion",
        help="print a script that completes commands in a shell",
        description="Print a script that completes commands, options and their values. bash reads it from"
        " ~/.local/share/bash-completion/completions/raylog, zsh from a file _raylog in a directory of fpath, fish from"
        " ~/.config/fish/completions/raylog.fish.",
    )
    parser.add_argument("shell", choices=SHELLS)
    parser.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> None:
    make_parser: Callable[[], argparse.ArgumentParser] = options.make_parser
    print(shtab.complete(make_parser(), options.shell))
