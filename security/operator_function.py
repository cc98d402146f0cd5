"""(shell) Python functions that an operator names in the configuration. To import or to call one may raise anything."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

from raylog.core.errors import ConfigError


class FunctionFailed(Exception):
    """Caused by what the function has raised."""


def find_function(key: str, path: str) -> Any:
    """The function `module:name`, the value of a key. Raises ConfigError."""
    module, _, name = path.partition(":")
    try:
        found = getattr(import_module(module), name)
    except BaseException as error:
        raise ConfigError(f"{key}={path!r}: cannot be imported: {error!r}") from None
    if not callable(found):
        raise ConfigError(f"{key}={path!r}: is not a function")
    return found


def call(function: Callable[..., Any], *arguments: object) -> Any:
    """What the function returns. Raises FunctionFailed for whatever it raises: SystemExit must not end the broker."""
    try:
        return function(*arguments)
    except BaseException as error:
        raise FunctionFailed(repr(error)) from error
